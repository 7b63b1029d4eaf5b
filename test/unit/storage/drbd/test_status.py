"""The look at all devices, on recorded output; more of /proc/drbd is in the test of the collector."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ganeti.base.errors import BlockDeviceError, GenericError
from ganeti.storage.drbd import status
from ganeti.storage.drbd.status import Device, parse_json, parse_proc

DATA = Path(__file__).parents[3] / "data" / "drbd"


def recorded(name: str) -> Device:
    return parse_proc((DATA / f"proc-8.4-{name}.txt").read_text()).devices[0]


def test_a_synchronization_is_told_with_its_end() -> None:
    found = parse_proc((DATA / "proc-8.4-syncing.txt").read_text())
    assert (found.version, found.release, found.used_minors()) == ("8.4.11", (8, 4), [0])
    device = found.devices[0]
    assert device.is_syncing
    assert device.is_connected
    assert device.is_degraded
    assert device.sync == status.Sync(4.7, "257568/262144", "K", 107, 2288, None, "K")
    assert str(device) == "SyncSource, roles Primary/Secondary, disks UpToDate/Inconsistent"


def test_a_synchronization_that_is_held_back_tells_only_what_differs() -> None:
    device = recorded("paused")
    assert device.is_syncing
    assert device.is_paused_here
    assert device.sync is None
    assert device.counters["oos"] == 256528


def test_a_synchronization_counts_before_it_begins() -> None:
    known = {"local_role": "Primary", "remote_role": "Secondary", "local_disk": "UpToDate"}
    about_to = Device(0, "Connected", **known, remote_disk="Inconsistent")
    assert about_to.is_syncing
    assert not Device(0, "Connected", **known, remote_disk="UpToDate").is_syncing
    assert not Device(0, "WFConnection", **known, remote_disk="Inconsistent").is_syncing
    new = Device(0, "Connected", local_disk="Inconsistent", remote_disk="Inconsistent")
    assert not new.is_syncing


def test_a_device_without_its_disk_is_degraded() -> None:
    device = recorded("diskless")
    assert device.is_diskless
    assert device.is_connected
    assert device.is_primary
    assert device.is_degraded


def test_drbd_9_speaks_in_the_words_of_8() -> None:
    devices = parse_json((DATA / "drbd9-status.json").read_bytes())
    whole, target, waiting = devices.values()
    assert str(whole) == "Connected, roles Primary/Secondary, disks UpToDate/UpToDate"
    assert not whole.is_degraded
    assert whole.counters["ns"] == 263168
    assert target.is_syncing
    assert target.sync == status.Sync(45.78, left_s=12, speed=11950, speed_unit="K")
    assert waiting.connection == "WFConnection"
    assert (waiting.remote_role, waiting.remote_disk) == ("Unknown", "DUnknown")


@pytest.mark.parametrize("text", [b"", b"{}", b"[{}]", b'[{"name": "r", "role": 5}]'])
def test_other_output_of_drbd_9_is_refused(text: bytes) -> None:
    with pytest.raises(GenericError, match="cannot understand the output of drbdsetup status"):
        parse_json(text)


def test_one_look_asks_the_program_only_for_drbd_9(tmp_path: Path) -> None:
    asked: list[Sequence[str]] = []

    def ask(argv: Sequence[str]) -> bytes:
        asked.append(argv)
        return (DATA / "drbd9-status.json").read_bytes()

    source = tmp_path / "drbd"
    assert status.look(ask, str(source)) is None
    source.write_text((DATA / "proc-8.4-paused.txt").read_text())
    assert len(status.look(ask, str(source)).devices) == 1  # type: ignore[union-attr]
    assert asked == []
    source.write_text("version: 9.1.7 (api:2/proto:110-121)\nTransports (api:17): tcp (9.1.7)\n")
    found = status.look(ask, str(source))
    assert found is not None
    assert (found.release, found.used_minors()) == ((9, 1), [0, 1, 2])
    assert asked == [status.STATUS_COMMAND]


def test_the_helper_of_a_node_without_drbd(tmp_path: Path) -> None:
    path = tmp_path / "helper"
    with pytest.raises(BlockDeviceError, match="type modprobe drbd"):
        status.usermode_helper(str(path))
    path.write_text("/bin/true\n")
    assert status.usermode_helper(str(path)) == "/bin/true"
