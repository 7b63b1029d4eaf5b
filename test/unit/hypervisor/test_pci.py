"""Tests of ganeti/hypervisor/pci.py, on directories as the kernel has them below /sys."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.hypervisor import pci

CARD, SOUND, BRIDGE = "0000:01:00.0", "0000:01:00.1", "0000:00:01.0"
CLASSES = {CARD: "0x030000", SOUND: "0x040300", BRIDGE: "0x060400"}


class Bus:
    """The devices of a node."""

    def __init__(self, top: Path) -> None:
        self.top = top
        for name, number in CLASSES.items():
            (top / name).mkdir(parents=True)
            (top / name / "class").write_text(f"{number}\n")

    def group(self, *names: str) -> None:
        for name in names:
            group = self.top / name / "iommu_group" / "devices"
            group.mkdir(parents=True)
            for other in names:
                (group / other).symlink_to(self.top / other)

    def bind(self, name: str, driver: str) -> None:
        (self.top / name / "driver").symlink_to(f"/sys/bus/pci/drivers/{driver}")

    def problem(self, *names: str) -> str:
        with pytest.raises(OpPrereqError) as caught:
            pci.check_here(names, "node1.example.com", str(self.top))
        assert caught.value.ecode == ErrorCode.ENVIRON
        assert "hypervisor parameter pci_pass: node node1.example.com" in caught.value.message
        return caught.value.message


@pytest.fixture
def bus(tmp_path: Path) -> Bus:
    return Bus(tmp_path / "devices")


def test_a_node_without_iommu_says_so(bus: Bus) -> None:
    bus.bind(CARD, pci.DRIVER)
    assert "no IOMMU" in bus.problem(CARD)


def test_a_device_that_is_not_there(bus: Bus) -> None:
    assert "PCI device 0000:09:00.0 to a guest: it does not exist" in bus.problem("09:00.0")


@pytest.mark.parametrize(
    ("driver", "text"), [("nvidia", "driver nvidia has it"), ("", "no driver has it")]
)
def test_a_device_that_the_node_uses(bus: Bus, driver: str, text: str) -> None:
    bus.group(CARD)
    if driver:
        bus.bind(CARD, driver)
    problem = bus.problem(CARD)
    assert text in problem
    assert f"driverctl set-override {CARD} vfio-pci" in problem


def test_all_of_a_group_are_taken_from_the_node(bus: Bus) -> None:
    bus.group(CARD, SOUND, BRIDGE)
    bus.bind(CARD, pci.DRIVER)
    bus.bind(BRIDGE, "pcieport")  # stays, as it is one
    bus.bind(SOUND, "snd_hda_intel")
    assert f"driver snd_hda_intel has {SOUND}, which is in the same group" in bus.problem(CARD)
    (bus.top / SOUND / "driver").unlink()
    pci.check_here([CARD, "01:00.0"], "node1.example.com", str(bus.top))


def test_addresses_have_a_domain() -> None:
    assert pci.full_address("0A:1f.7") == "0000:0a:1f.7"
    assert pci.full_address("0001:0a:1f.7") == "0001:0a:1f.7"
    for wrong in ("0a:2f.7", "0a:1f.8", "1f.7", "0a:1f", "0000:0a:1f.7,x"):
        assert pci.ADDRESS.fullmatch(wrong) is None
