"""Parameters of clusters, groups and definitions: from options to opcodes, and back to options."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from ganeti.base.errors import GenericError
from ganeti.bootstrap.cluster_config import check_request
from ganeti.cli.cluster.init import make_request
from ganeti.cli.declaration.parser import parse
from ganeti.cli.os import os_changes
from ganeti.cli.policy import policy_options
from ganeti.cli.programs import named
from ganeti.cli.run.binding import bound
from ganeti.cli.run.jobs import make_opcode
from ganeti.cli.run.report import Facts, roman, with_roman_numbers
from ganeti.opcodes.cluster import OpClusterSetParams
from ganeti.opcodes.registry import encode_opcode


def changes_of(text: str) -> dict[str, object]:
    """Return the fields of the opcode that the options of ``modify`` set."""
    line = parse(named("gnt-cluster"), ["modify", *shlex.split(text)], {})
    wire = encode_opcode(bound(line.command, line.options, []))
    common = {"OP_ID", "reason", "priority", "comment", "depends", "force"}
    return {name: value for name, value in wire.items() if name not in common}


MIN = {"memory-size": 64, "disk-size": 0, "disk-count": 0, "cpu-count": 1} | {
    "nic-count": 0,
    "spindle-use": 0,
}
MAX = {"memory-size": 32768, "disk-size": 1048576, "disk-count": 16, "cpu-count": 8} | {
    "nic-count": 8,
    "spindle-use": 12,
}
BOUNDS = (
    "min:memory-size=64,disk-size=0,disk-count=0,cpu-count=1,nic-count=0,spindle-use=0"
    "/max:memory-size=32g,disk-size=1t,disk-count=16,cpu-count=8,nic-count=8,spindle-use=12"
)


@pytest.mark.shows("2.0/commands/cluster")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("-B memory=1g,-vcpus", {"beparams": {"minmem": "1g", "maxmem": "1g", "vcpus": "default"}}),
        ("-H kvm:vga=std,no_acpi", {"hvparams": {"kvm": {"vga": "std", "acpi": False}}}),
        ("--uid-pool=", {"uid_pool": []}),
        ("--uid-pool=5-9,7", {"uid_pool": [[5, 9]]}),
        ("--add-uids=1 --remove-uids=2-3", {"add_uids": [[1, 1]], "remove_uids": [[2, 3]]}),
        ("--reserved-lvs=", {"reserved_lvs": []}),
        ("--reserved-lvs=a,b", {"reserved_lvs": ["a", "b"]}),
        ("--vg-name=", {"vg_name": ""}),
        ("--master-netmask=24", {"master_netmask": 24}),
        ("--user-shutdown=yes", {"enabled_user_shutdown": True}),
        ("--modify-etc-hosts=no", {"modify_etc_hosts": False}),
        (
            "--enabled-data-collectors=lv=no,drbd,no_diskstats",
            {"enabled_data_collectors": {"lv": False, "drbd": True, "diskstats": False}},
        ),
        ("--data-collector-interval=lv=0.5", {"data_collector_interval": {"lv": 500000}}),
        ("--ipolicy-std-specs=memory-size=1g", {"ipolicy": {"std": {"memory-size": 1024}}}),
        ("--ipolicy-vcpu-ratio=none", {"ipolicy": {"vcpu-ratio": "default"}}),
        ("--ipolicy-bounds-specs=default", {"ipolicy": {"minmax": "default"}}),
        ("--ipolicy-disk-templates=default", {"ipolicy": {"disk-templates": "default"}}),
        (f"--ipolicy-bounds-specs={BOUNDS}", {"ipolicy": {"minmax": [{"min": MIN, "max": MAX}]}}),
        ("--hypervisor-state=kvm:cpu_total=4", {"hv_state": {"kvm": {"cpu_total": "4"}}}),
        ("--disk-state=plain/vg:a=4", {"disk_state": {"plain": {"vg": {"a": "4"}}}}),
        ("-I a,b", {"default_iallocator": "a,b"}),
        (
            "--iallocators-for=allocate=a:b,relocate=",
            {"default_iallocators": {"allocate": ["a", "b"], "relocate": []}},
        ),
        ("--default-iallocator-params=a=1", {"default_iallocator_params": {"a": "1"}}),
    ],
)
def test_options_become_parameters_of_the_opcode(text: str, expected: dict[str, Any]) -> None:
    assert changes_of(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("--master-netmask=x", "not the length of a prefix"),
        ("--master-netmask=0", "not the length of a prefix"),
        (f"--master-netmask={'1' * 5000}", "not the length of a prefix"),
        ("--uid-pool=9-1", "upside down"),
        ("--enabled-data-collectors=lv=perhaps", "lv: 'perhaps' is neither yes nor no"),
        ("--data-collector-interval=lv=x", "interval 'x' of lv is not a number"),
        ("--data-collector-interval=lv=0", "above zero"),
        ("--data-collector-interval=lv=nan", "is not a number"),
        ("--ipolicy-std-specs=wheels=4", "unknown specification of std 'wheels'"),
        ("--ipolicy-std-specs=cpu-count=x", "expected an integer"),
        ("--hypervisor-state=kvm", "{}"),
        ("-H kvm:a=1 -H kvm:b=2", "given twice"),
    ],
)
def test_options_that_make_no_sense(text: str, problem: str) -> None:
    if problem == "{}":
        assert changes_of(text) == {"hv_state": {"kvm": {}}}
        return
    with pytest.raises(GenericError, match=problem):
        changes_of(text)


def test_policies_become_the_options_that_they_came_from() -> None:
    policy = {"minmax": [{"min": MIN, "max": MAX}, {"min": MIN, "max": MIN}], "std": MIN}
    words = policy_options(policy)
    assert words[::2] == ["--ipolicy-std-specs", "--ipolicy-bounds-specs"]
    assert changes_of(shlex.join(words))["ipolicy"] == policy
    assert policy_options(policy, with_std=False) == words[2:]
    assert policy_options({}) == policy_options(None) == []


def test_definitions_are_settings_of_the_cluster() -> None:
    def changes(*words: str) -> dict[str, object]:
        return os_changes("d", parse(named("gnt-os"), ["modify", *words, "d"], {}).options)

    assert changes() == {}
    assert changes("--hidden=yes", "--blacklisted=no") == {
        "hidden_os": [["add", "d"]],
        "blacklisted_os": [["remove", "d"]],
    }
    found = changes("-H", "kvm:acpi=no", "-O", "size=1,-old", "--os-parameters-private=key=x")
    assert found == {
        "os_hvp": {"d": {"kvm": {"acpi": "no"}}},
        "osparams": {"d": {"size": "1", "old": "default"}},
        "osparams_private_cluster": {"d": {"key": "x"}},
    }
    make_opcode(OpClusterSetParams, **found)


@pytest.mark.parametrize(
    ("number", "text"),
    [(1, "I"), (4, "IV"), (1994, "MCMXCIV"), (0, "0"), (-3, "-3"), (4000, "4000")],
)
def test_roman_numbers(number: int, text: str) -> None:
    assert roman(number) == text


def test_only_whole_numbers_are_roman() -> None:
    facts = Facts([("a", 5), ("b", True), ("c", {"d": [6, 1.5, "7"]})])
    assert with_roman_numbers(facts) == [("a", "V"), ("b", True), ("c", {"d": ["VI", 1.5, "7"]})]


@pytest.mark.parametrize("option", ["--enabled-hypervisors=", "--enabled-disk-templates="])
def test_an_empty_list_is_not_the_usual_one(option: str) -> None:
    line = parse(named("gnt-cluster"), ["init", option, "cluster"], {})
    with pytest.raises(GenericError, match="must be enabled"):
        check_request(make_request("cluster", line.options))


def test_static_figures_of_a_new_cluster() -> None:
    words = ["--hypervisor-state=kvm:cpu_total=4", "--disk-state=plain/vg:disk_total=9"]
    line = parse(named("gnt-cluster"), ["init", *words, "cluster"], {})
    found = make_request("cluster", line.options)
    assert found.hv_state == {"kvm": {"cpu_total": "4"}}
    assert found.disk_state == {"plain": {"vg": {"disk_total": "9"}}}
    check_request(found)
