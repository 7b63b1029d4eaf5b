"""Disks and interfaces of instances: from options to what opcodes take."""

from __future__ import annotations

import tracemalloc

import pytest

from ganeti.base.errors import OpPrereqError
from ganeti.cli.instance import devices
from ganeti.cli.instance.modify import waits_for_start


@pytest.mark.shows(
    "2.0/background/disks",
    "2.0/restrictions/anywhere",
    "2.0/disks/variable",
    "2.0/variable-disks/at-creation",
    "2.0/commands/disks",
    "2.0/disk/form",
    "2.0/disk/size-auto",
    "2.0/disk/access",
)
@pytest.mark.parametrize(
    ("given", "template", "os_size", "expected"),
    [
        ([], "diskless", None, []),
        ([], "file", 1024, [{"size": 1024}]),
        (
            [("1", {"size": "512"}), ("0", {"size": "1g", "mode": "ro"})],
            "file",
            None,
            [{"size": 1024, "mode": "ro"}, {"size": 512}],
        ),
        ([("0", {"adopt": "disk/x"})], "blockdev", None, [{"adopt": "disk/x"}]),
        ([("0", {}), ("1", {"size": "auto"})], "file", None, [{}, {"size": "auto"}]),
    ],
)
def test_disks(
    given: list[tuple[str, object]],
    template: str,
    os_size: int | None,
    expected: list[dict[str, object]],
) -> None:
    assert devices.disks_for_create(given, template, os_size) == expected


@pytest.mark.shows("2.0/disk/form")
@pytest.mark.parametrize(
    ("given", "template", "os_size", "text"),
    [
        ([], "file", None, "no disks given"),
        ([("0", {"size": "1"})], "diskless", None, "diskless"),
        ([("0", {"size": "1"})], "file", 5, "not both"),
        ([("0", {"size": "x"})], "file", None, "disk 0"),
        ([("1", {"size": "1"})], "file", None, "disk 0 is missing"),
        ([("0", {"size": "1"}), ("0", {"size": "2"})], "file", None, "twice"),
        ([("zero", {"size": "1"})], "file", None, "'zero'"),
        ([("²", {"size": "1"})], "file", None, "'²': give its number"),
        ([("1" * 5000, {"size": "1"})], "file", None, "give its number"),
        ([("0", {"size": True})], "file", None, "size needs a value"),
        ([("0", False)], "file", None, "cannot be removed"),
    ],
)
def test_wrong_disks(
    given: list[tuple[str, object]], template: str, os_size: int | None, text: str
) -> None:
    with pytest.raises(OpPrereqError, match=text):
        devices.disks_for_create(given, template, os_size)


def test_a_high_number_takes_no_memory() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(OpPrereqError, match="disk 0 is missing"):
            devices.in_order("disk", [("1000000", {})])
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.shows(
    "2.0/background/nics", "2.0/variable-nics/any-number", "2.0/commands/nics", "2.0/net/form"
)
def test_interfaces() -> None:
    assert devices.nics_for_create([], no_nics=False) == [{}]
    assert devices.nics_for_create([], no_nics=True) == []
    given: list[tuple[str, object]] = [("0", {"mac": "auto", "ip": None})]
    assert devices.nics_for_create(given, no_nics=False) == [{"mac": "auto", "ip": None}]
    with pytest.raises(OpPrereqError):
        devices.nics_for_create(given, no_nics=True)
    with pytest.raises(OpPrereqError, match="interface 0: unknown setting 'nix'; known are: bri"):
        devices.nics_for_create([("0", {"nix": "1"})], no_nics=False)


@pytest.mark.shows("2.0/add-devices/add", "2.0/remove-devices/remove", "2.0/modify-devices/number")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("add", {"size": "1g"}), ["add", -1, {"size": 1024}]),
        (("-1", {"add": True, "size": "4"}), ["add", -1, {"size": 4}]),
        (("2", {"remove": True}), ["remove", 2, {}]),
        (("swap", {"mode": "ro"}), ["modify", "swap", {"mode": "ro"}]),
        (("0", {"modify": True, "name": "root"}), ["modify", 0, {"name": "root"}]),
        (("--1", {"mode": "ro"}), ["modify", "--1", {"mode": "ro"}]),
        (("²", {"spindles": "²"}), ["modify", "²", {"spindles": "²"}]),
    ],
)
def test_changes(given: tuple[str, object], expected: list[object]) -> None:
    assert devices.changes([given], devices.disk_settings) == [expected]


def test_contradicting_changes_are_refused() -> None:
    with pytest.raises(OpPrereqError, match="one of"):
        devices.changes([("0", {"add": True, "remove": True})], devices.disk_settings)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [(None, (None, None)), ("a", ("a", None)), ("a:b", ("a", "b")), (":b", (None, "b"))],
)
def test_pairs_of_nodes(text: str | None, nodes: tuple[str | None, str | None]) -> None:
    assert devices.split_nodes(text) == nodes


@pytest.mark.parametrize(
    ("name", "has_hotplug", "waits"),
    [
        ("be/vcpus", False, True),
        ("be/vcpus", True, False),
        ("be/maxmem", True, False),
        ("be/auto_balance", False, False),
        ("be/minmem", False, False),
        ("hv/migration_caps", False, False),
        ("hv/migration_downtime", False, False),
        ("hv/acpi", True, True),
        ("nic/1", False, True),
        ("nic/1", True, False),
        ("disk.mode/0", False, True),
        ("disk.name/0", False, False),
        ("nic.name/0", False, False),
        ("runtime_memory", False, False),
        ("admin_state", False, False),
    ],
)
def test_what_a_running_guest_does_not_notice(name: str, has_hotplug: bool, waits: bool) -> None:
    assert waits_for_start(name, has_hotplug=has_hotplug) == waits
