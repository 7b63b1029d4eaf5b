"""Parameters and policies that cannot be are found, each by one sentence."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from fakes.sample_config import CONFIG

from ganeti.config.checks import cluster_params
from ganeti.objects.instance_policy import policy_problems
from ganeti.objects.model import Cluster

Wire = dict[str, Any]


def minmax(wire: Wire, which: str) -> Wire:
    found: Wire = wire["ipolicy"]["minmax"][0][which]
    return found


CASES: list[tuple[Callable[[Wire], object], str]] = [
    (lambda c: c.update(candidate_pool_size=0), "candidate_pool_size is 0"),
    (lambda c: c.update(max_running_jobs=0), "max_running_jobs is 0"),
    (lambda c: c.update(max_tracked_jobs=-1), "max_tracked_jobs is -1"),
    (lambda c: c.update(master_netmask=33), "master_netmask: 33 is not"),
    (lambda c: c.update(master_netmask=0), "master_netmask: 0 is not"),
    (lambda c: c["beparams"]["default"].update(vcpus=0), "'vcpus': 0 is less than 1"),
    (lambda c: c["beparams"]["default"].update(minmem=0), "'minmem': 0 is less than 1"),
    (lambda c: c["ndparams"].update(ssh_port=0), "'ssh_port': 0 is not between 1 and 65535"),
    (lambda c: c["ndparams"].update(oob_program="x"), "'x' is not an absolute path"),
    (lambda c: c["diskparams"]["rbd"].update(access="x"), "'x' is not one of"),
    (lambda c: c.update(master_ip="x"), "master_ip 'x' is not an IP address"),
    (lambda c: c.update(uid_pool=[[5, 3]]), "5-3 is upside down"),
    (lambda c: c.update(uid_pool=[[5, 4294967296]]), "does not lie between"),
    (lambda c: c.update(data_collectors={"lv": {"active": True, "interval": 0}}), "interval 0"),
    (lambda c: c.update(os_hvp={"d": {"kvm": {"acpi": 7.5}}}), "OS 'd': kvm parameter 'acpi'"),
    (lambda c: c.update(os_hvp={"d": {"x": {}}}), "OS 'd': unknown hypervisor 'x'"),
    (lambda c: c["nicparams"]["default"].update(mode="pool"), "'pool' is not one of bridged"),
    (
        lambda c: c["beparams"]["default"].update(minmem=999999),
        "minmem (999999 MiB) must not be larger",
    ),
    (lambda c: c["ndparams"].update(x=1), "unknown node parameter 'x'"),
    (lambda c: c["diskparams"]["rbd"].update(pool=1), "rbd parameter 'pool'"),
    (lambda c: c["ipolicy"].update(x=1), "instance policy: unknown key 'x'"),
    (lambda c: c["ipolicy"].update({"vcpu-ratio": 0}), "vcpu-ratio is 0"),
    (lambda c: c["ipolicy"].update({"vcpu-ratio": True}), "vcpu-ratio is True"),
    (lambda c: c["ipolicy"].update({"disk-templates": ["x"]}), "unknown disk template(s) x"),
    (lambda c: c["ipolicy"].update({"disk-templates": []}), "a list of disk templates, not empty"),
    (lambda c: c["ipolicy"].update(minmax={}), "minmax must be a list"),
    (lambda c: c["ipolicy"].update(minmax=[3]), "minmax 0 must have exactly 'min' and 'max'"),
    (lambda c: c["ipolicy"].update(std=[]), "std must be an object"),
    (lambda c: c["ipolicy"]["std"].pop("cpu-count"), "std: cpu-count is missing"),
    (lambda c: c["ipolicy"]["std"].update({"nic-count": 99}), "nic-count=99"),
    (lambda c: minmax(c, "max").pop("cpu-count"), "minmax 0: max: cpu-count is missing"),
    (lambda c: minmax(c, "max").update({"cpu-count": 0}), "min 1 is greater than max 0"),
    (
        lambda c: minmax(c, "min").update({"disk-count": -1}),
        "disk-count must be an integer from 0, got -1",
    ),
]


@pytest.mark.shows("2.1/diskparams/validated")
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
    assert [
        "lies outside all limits" in text
        for text in policy_problems(policy, of_cluster=True, partial=False)
    ] == [True]
    policy["std"]["cpu-count"] = 4
    assert list(policy_problems(policy, of_cluster=True, partial=False)) == []


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ({}, None),
        ({"vcpu-ratio": 3}, None),
        ({"std": {}}, "std can only be set for the whole cluster"),
        ({"minmax": "x"}, "minmax must be a list"),
        ({"disk-templates": []}, "empty"),
    ],
)
def test_a_group_may_leave_out_what_it_likes(policy: Wire, text: str | None) -> None:
    found = list(policy_problems(policy, of_cluster=False, partial=True))
    assert (text is None) == (found == [])
    assert text is None or text in found[0]
