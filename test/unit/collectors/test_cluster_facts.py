"""Tests of ganeti/collectors/cluster_facts.py."""

from __future__ import annotations

from typing import Any

import pytest

from ganeti.base.errors import ProtocolError
from ganeti.collectors import cluster_facts
from ganeti.collectors.cluster_facts import InstanceFacts, Switch
from ganeti.objects.model import AdminState

INSTANCE = {"name": "i1", "uuid": "u1", "admin_state": "up", "hypervisor": "kvm", "disks": ["d"]}


def test_switches_and_intervals() -> None:
    answer = {"lv": {"active": False, "interval": 7_500_000}, "drbd": {"active": True}}
    assert cluster_facts.decode_switches(answer) == {
        "lv": Switch(False, 7.5),
        "drbd": Switch(True, 5.0),
    }
    assert cluster_facts.decode_switches({"x": {"interval": -1}})["x"].interval_s > 0


def test_instances_of_a_node() -> None:
    found = cluster_facts.decode_instances([[INSTANCE], [{**INSTANCE, "name": "i2", "new": 1}]])
    assert found.primary == (InstanceFacts("i1", "u1", AdminState.UP, "kvm", disks=("d",)),)
    assert [one.name for one in found.secondary] == ["i2"]


def test_a_forthcoming_instance_may_lack_what_is_not_decided() -> None:
    planned = {"uuid": "u3", "primary_node": "n1", "forthcoming": True, "disks": []}
    found = cluster_facts.decode_instances([[INSTANCE, planned], []])
    assert [(one.uuid, one.admin_state) for one in found.primary] == [
        ("u1", AdminState.UP),
        ("u3", AdminState.DOWN),
    ]


def test_minors_of_a_node() -> None:
    answer = [["n1", 0, "i1", "disk/0", "primary", "n2"], ["n1", 3, "i2", "disk/1", "x", "n3"]]
    assert cluster_facts.decode_drbd_owners(answer) == {0: "i1", 3: "i2"}


def test_volumes_belong_to_instances_also_below_drbd() -> None:
    plain = {"dev_type": "plain", "logical_id": ["xenvg", "a.disk0"]}
    drbd = {
        "dev_type": "drbd",
        "logical_id": ["n1", "n2", 11000, 0, 0, "secret"],
        "children": [
            {"dev_type": "plain", "logical_id": ["xenvg", "b.disk0_data"]},
            {"dev_type": "plain", "logical_id": ["metavg", "b.disk0_meta"]},
        ],
    }
    file = {"dev_type": "file", "logical_id": ["loop", "/srv/x"]}
    disks = cluster_facts.decode_disks([plain, drbd, file, {"dev_type": "plain"}])
    one = InstanceFacts("i1", "u1", AdminState.UP, disks=disks)
    two = InstanceFacts("i2", "u2", AdminState.UP, disks=("uuid-only",))
    assert cluster_facts.owners_of_volumes([one, two]) == {
        ("xenvg", "a.disk0"): "i1",
        ("xenvg", "b.disk0_data"): "i1",
        ("metavg", "b.disk0_meta"): "i1",
    }


@pytest.mark.parametrize("answer", [None, 1, "x", [1], {"a": 1}, [[INSTANCE]], [[], [], []]])
def test_answers_of_another_form_are_refused(answer: Any) -> None:
    decoders = [cluster_facts.decode_instances, cluster_facts.decode_drbd_owners]
    if answer != {"a": 1}:
        decoders.append(cluster_facts.decode_disks)
    for decode in decoders:
        if decode is cluster_facts.decode_drbd_owners and answer == [[], [], []]:
            continue
        with pytest.raises(ProtocolError, match="the answer on"):
            decode(answer)
    with pytest.raises(ProtocolError, match="the answer on"):
        cluster_facts.decode_switches(answer)
