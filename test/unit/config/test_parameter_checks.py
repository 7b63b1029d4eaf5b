"""Parameters and policies that cannot be are found, each by one sentence."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from fakes.sample_config import CONFIG

from ganeti.config.parameter_checks import cluster_params, ipolicy
from ganeti.objects.cluster import Cluster

Wire = dict[str, Any]


def minmax(wire: Wire, which: str) -> Wire:
    found: Wire = wire["ipolicy"]["minmax"][0][which]
    return found


CASES: list[tuple[Callable[[Wire], object], str]] = [
    (lambda c: c.update(candidate_pool_size=0), "candidate_pool_size is 0"),
    (lambda c: c.update(max_running_jobs=0), "max_running_jobs is 0"),
    (lambda c: c.update(max_tracked_jobs=-1), "max_tracked_jobs is -1"),
    (lambda c: c.update(master_netmask=33), "master_netmask is 33"),
    (lambda c: c.update(master_ip="x"), "master_ip 'x' is not an IP address"),
    (lambda c: c.update(uid_pool=[[5, 3]]), "5-3 is upside down"),
    (lambda c: c.update(uid_pool=[[5, 4294967296]]), "does not lie between"),
    (lambda c: c.update(data_collectors={"lv": {"active": True, "interval": 0}}), "interval 0"),
    (lambda c: c.update(os_hvp={"d": {"kvm": {"acpi": 7.5}}}), "OS 'd': kvm parameter 'acpi'"),
    (lambda c: c.update(os_hvp={"d": {"x": {}}}), "OS 'd': unknown hypervisor 'x'"),
    (lambda c: c["nicparams"]["default"].update(mode="pool"), "unknown NIC mode 'pool'"),
    (lambda c: c["beparams"]["default"].update(minmem=999999), "minmem, 999999, is greater"),
    (lambda c: c["ndparams"].update(x=1), "unknown node parameter 'x'"),
    (lambda c: c["diskparams"]["rbd"].update(pool=1), "rbd parameter 'pool'"),
    (lambda c: c["ipolicy"].update(x=1), "instance policy: unknown key 'x'"),
    (lambda c: c["ipolicy"].update({"vcpu-ratio": 0}), "vcpu-ratio is 0"),
    (lambda c: c["ipolicy"].update({"vcpu-ratio": True}), "vcpu-ratio is True"),
    (lambda c: c["ipolicy"].update({"disk-templates": ["x"]}), "unknown disk template(s) x"),
    (lambda c: c["ipolicy"].update({"disk-templates": []}), "disk-templates is missing"),
    (lambda c: c["ipolicy"].update(minmax={}), "minmax is missing or no list"),
    (lambda c: c["ipolicy"].update(minmax=[3]), "minmax 0 must have min and max"),
    (lambda c: c["ipolicy"].update(std=[]), "std is missing or no object"),
    (lambda c: c["ipolicy"]["std"].pop("cpu-count"), "cpu-count is missing or no number in std"),
    (lambda c: c["ipolicy"]["std"].update({"nic-count": 99}), "nic-count=99"),
    (lambda c: minmax(c, "max").pop("cpu-count"), "cpu-count is missing or no number in minmax"),
    (lambda c: minmax(c, "max").update({"cpu-count": 0}), "minimum 1, maximum 0"),
    (lambda c: minmax(c, "min").update({"disk-count": -1}), "disk-count has the minimum -1"),
]


@pytest.mark.parametrize(("change", "text"), CASES, ids=[text for _, text in CASES])
def test_a_wrong_value_is_found(change: Callable[[Wire], object], text: str) -> None:
    wire = json.loads(json.dumps(CONFIG["cluster"]))
    assert list(cluster_params(Cluster.from_wire(wire))) == []
    change(wire)
    found = list(cluster_params(Cluster.from_wire(wire)))
    assert any(text in problem for problem in found), found


def test_std_must_lie_within_one_pair_as_a_whole() -> None:
    policy = copy.deepcopy(CONFIG["cluster"]["ipolicy"])
    small, large = copy.deepcopy(policy["minmax"][0]), copy.deepcopy(policy["minmax"][0])
    small["max"].update({"memory-size": 100})
    large["min"].update({"cpu-count": 4})
    policy["minmax"] = [small, large]
    policy["std"].update({"memory-size": 1000, "cpu-count": 1})
    assert ["does not lie between" in text for text in ipolicy(policy, complete=True)] == [True]
    policy["std"]["cpu-count"] = 4
    assert list(ipolicy(policy, complete=True)) == []


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ({}, None),
        ({"vcpu-ratio": 3}, None),
        ({"std": {}}, "std can only be set for the cluster"),
        ({"minmax": "x"}, "minmax is missing or no list"),
        ({"disk-templates": []}, "empty"),
    ],
)
def test_a_group_may_leave_out_what_it_likes(policy: Wire, text: str | None) -> None:
    found = list(ipolicy(policy, complete=False))
    assert (text is None) == (found == [])
    assert text is None or text in found[0]
