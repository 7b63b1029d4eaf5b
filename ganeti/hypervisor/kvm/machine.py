"""The virtual machine of an instance: all that its guest can see, and nothing of the node.

A `Machine` is decided once, when the instance starts.  It is kept beside the running process and
travels with a migration, so that the target builds the very same machine: same type, same devices
at the same places on the bus.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import count, repeat
from typing import Final

import msgspec

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.hypervisor.interface import AssembledDisk, Disks
from ganeti.hypervisor.kvm.hardware.disks import PFLASH, TPM
from ganeti.hypervisor.kvm.hardware.firmware import Firmware
from ganeti.hypervisor.kvm.params import DISK_DRIVERS, NIC_DRIVERS, SCSI_DISK_TYPES, KvmParams
from ganeti.objects.disk_templates import TPM_STATE, UEFI_VARS, DiskMode
from ganeti.objects.hypervisors import PCI_SLOTS
from ganeti.objects.rpc_instance import RpcInstance, RpcNIC

DEFAULT_MACHINE_TYPE: Final = "pc"
_NOT_ON_PCI: Final = frozenset({"ide-hd", "ne2k_isa"})
_SCSI_UNITS_MAX: Final[Mapping[str, int]] = {"lsi": 7, "megasas": 16, "virtio-scsi-pci": 16}
_IDE_UNITS_MAX: Final = 4
MEMORY_SLOTS: Final = 32
_ALWAYS_THERE: Final = 3  # on the PCI bus: both bridges, and the balloon


class DiskDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A disk as the guest sees it; ``slot`` on the PCI bus or ``unit`` on the SCSI bus."""

    uuid: str
    driver: str
    read_only: bool = False
    slot: int | None = None
    unit: int | None = None

    @property
    def device_id(self) -> str:
        """Name of the device in QEMU."""
        return f"disk-{_short(self.uuid)}"

    @property
    def node_name(self) -> str:
        """Name of the image behind the device; QEMU takes 31 characters."""
        return f"image-{_short(self.uuid)}"


class NicDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A network interface as the guest sees it; ``slot`` on the PCI bus."""

    uuid: str
    driver: str
    mac: str
    slot: int | None = None

    @property
    def device_id(self) -> str:
        """Name of the device in QEMU."""
        return f"nic-{_short(self.uuid)}"

    @property
    def netdev_id(self) -> str:
        """The name of the device's backend on the node."""
        return f"net-{_short(self.uuid)}"


class Dimm(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that came to the running machine; ``address`` is where the guest sees it."""

    slot: int
    size_mib: int
    address: int

    @property
    def device_id(self) -> str:
        """Name of the device in QEMU."""
        return f"dimm-{self.slot}"

    @property
    def memory_id(self) -> str:
        """Name of the memory behind it."""
        return f"memory-{self.slot}"


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A virtual machine; ``accelerator`` is kvm or tcg.

    ``memory_mib`` and ``vcpus`` are those of its start; ``dimms`` and ``processors`` came later,
    these as QEMU describes them.
    """

    name: str
    uuid: str
    memory_mib: int
    vcpus: int
    machine_type: str
    accelerator: str
    cpu_type: str
    network_port: int | None
    disks: tuple[DiskDevice, ...]
    nics: tuple[NicDevice, ...]
    hvparams: dict[str, object]
    dimms: tuple[Dimm, ...] = ()
    processors: tuple[dict[str, str | int], ...] = ()
    firmware: Firmware | None = None

    @property
    def vcpus_now(self) -> int:
        """Number of processors that it has."""
        return self.vcpus + len(self.processors)

    @property
    def memory_now_mib(self) -> int:
        """The memory that it has."""
        return self.memory_mib + sum(dimm.size_mib for dimm in self.dimms)

    @property
    def is_q35(self) -> bool:
        """Whether it is of the newer kind, with PCI Express and without a floppy drive."""
        return _is_q35(self.machine_type)

    @property
    def pci_bus(self) -> str:
        """Name of the first bus, that devices are on unless there are ports for them."""
        return "pcie.0" if self.is_q35 else "pci.0"

    @property
    def ports(self) -> int:
        """Number of ports for devices; 0 where these are on the first bus."""
        return _ports(self.machine_type, self.params)

    @property
    def params(self) -> KvmParams:
        """The hypervisor parameters, filled."""
        return KvmParams(self.hvparams)


def _is_q35(machine_type: str) -> bool:
    return "q35" in machine_type


def _ports(machine_type: str, params: KvmParams) -> int:
    return params.number("pcie_ports") if _is_q35(machine_type) else 0


def port_name(number: int) -> str:
    """Return the name of a port in QEMU."""
    return f"port{number}"


def _short(uuid: str) -> str:
    return uuid.replace("-", "")[-24:]


def build_machine(
    instance: RpcInstance, disks: Disks, *, accelerator: str, firmware: Firmware | None = None
) -> Machine:
    """Decide the machine of an instance that is to be started.

    Raises:
        OpPrereqError: the devices do not fit.
    """
    params = KvmParams(instance.hvparams)
    machine_type = params.text("machine_version") or DEFAULT_MACHINE_TYPE
    slots = _free_slots(instance.name, params, _ports(machine_type, params))
    cpu_type = params.text("cpu_type") or ("max" if accelerator == "tcg" else "")
    return Machine(
        name=instance.name,
        uuid=instance.uuid,
        memory_mib=instance.beparams["maxmem"],
        vcpus=instance.beparams["vcpus"],
        machine_type=machine_type,
        accelerator=accelerator,
        cpu_type=cpu_type,
        network_port=instance.network_port,
        disks=tuple(_disk_devices(instance.name, disks, params, slots)),
        nics=tuple(_nic_devices(instance, params, slots)),
        hvparams=dict(instance.hvparams),
        firmware=firmware,
    )


def _free_slots(name: str, params: KvmParams, ports: int) -> Iterator[int]:
    """Yield the ports, or places on the PCI bus but for those left to QEMU's own devices."""
    if ports:
        yield from range(ports)
        raise OpPrereqError(
            f"instance {name}: more than {ports} disks and network interfaces; raise hypervisor"
            " parameter pcie_ports, which takes effect when the instance is restarted",
            ErrorCode.NORES,
        )
    reserved = max(params.number("kvm_pci_reservations"), _own_places(params))
    yield from range(reserved, PCI_SLOTS)
    raise OpPrereqError(
        f"instance {name}: more than {PCI_SLOTS - reserved} disks and network interfaces;"
        " lower hypervisor parameter kvm_pci_reservations",
        ErrorCode.NORES,
    )


def _own_places(params: KvmParams) -> int:
    """Return how many places on the PCI bus QEMU gives to other devices, from the first one on."""
    there = (
        params.text("vga") != "none",
        params.flag("use_guest_agent") or (params.has_spice and params.flag("spice_use_vdagent")),
        params.text("soundhw") not in ("", "sb16"),
        params.text("disk_type") in SCSI_DISK_TYPES
        or any(drive.unit is not None for drive in cd_drives(params)),
    )
    return _ALWAYS_THERE + sum(there) + len(params.pci_devices())


def _disk_devices(
    name: str, disks: Sequence[AssembledDisk], params: KvmParams, slots: Iterator[int]
) -> Iterator[DiskDevice]:
    kind = params.text("disk_type")
    units_max = _units_max(params)
    own = _kept_by_machine(params)
    seen = [disk for disk in disks if disk.name not in own]
    if units_max is not None and len(seen) > units_max:
        raise OpPrereqError(
            f"instance {name}: {len(seen)} disks of type {kind}, at most {units_max} are possible",
            ErrorCode.NORES,
        )
    units = _scsi_units(seen, units_max or 0)
    for disk in disks:
        if disk.name in own:
            driver = own[disk.name]
            yield DiskDevice(uuid=disk.uuid, driver=driver, read_only=driver == TPM)
            continue
        slot = next(slots) if _is_on_pci(kind) else None
        unit = units.get(disk.uuid) if kind in SCSI_DISK_TYPES else None
        yield _disk_device(disk, kind, slot=slot, unit=unit)


def _scsi_units(disks: Sequence[AssembledDisk], units_max: int) -> dict[str, int]:
    """Return the places of disks on the SCSI bus, by UUID: their numbers, as far as it has them.

    Disks that the guest does not see have numbers as well, so there may be larger ones.
    """
    fitting = {disk.uuid: disk.index for disk in disks if disk.index < units_max}
    free = (unit for unit in range(units_max) if unit not in fitting.values())
    others = (disk.uuid for disk in disks if disk.uuid not in fitting)
    return fitting | dict(zip(others, free, strict=False))


def _kept_by_machine(params: KvmParams) -> Mapping[str, str]:
    """Return the names and drivers of disks that the machine uses and its guest does not see."""
    flash = {UEFI_VARS: PFLASH} if params.text("firmware") else {}
    return flash | ({TPM_STATE: TPM} if params.flag("tpm") else {})


def _disk_device(
    disk: AssembledDisk, kind: str, *, slot: int | None, unit: int | None
) -> DiskDevice:
    driver, read_only = DISK_DRIVERS.get(kind, kind), disk.mode is DiskMode.RO
    return DiskDevice(uuid=disk.uuid, driver=driver, read_only=read_only, slot=slot, unit=unit)


def _is_on_pci(disk_type: str) -> bool:
    return disk_type != "ide" and disk_type not in SCSI_DISK_TYPES


def new_disk_device(machine: Machine, disk: AssembledDisk, slots_taken: Set[int]) -> DiskDevice:
    """Decide where a disk goes that is added to a machine that runs.

    Args:
        slots_taken: the ports, or places on the PCI bus, that have a device.

    Raises:
        OpPrereqError: this kind of disk cannot be added, or there is no room for it.
    """
    params = machine.params
    kind = params.text("disk_type")
    if disk.name in _kept_by_machine(params):
        raise _fixed(machine, f"disk {disk.name} cannot be changed")
    if kind == "ide":
        raise _fixed(machine, f"disks of type {kind} cannot be changed")
    slot = unit = None
    if _is_on_pci(kind):
        slot = free_slot(machine, slots_taken)
    else:
        units_max = _units_max(params) or 0
        taken = {other.unit for other in machine.disks}
        unit = next((number for number in range(units_max) if number not in taken), None)
        if unit is None:
            text = f"all {units_max} places for disks of type {kind} are taken"
            raise OpPrereqError(f"instance {machine.name}: {text}", ErrorCode.NORES)
    return _disk_device(disk, kind, slot=slot, unit=unit)


def free_slot(machine: Machine, slots_taken: Set[int]) -> int:
    """Return a port, or a place on the PCI bus, for a device added to a machine that runs.

    Raises:
        OpPrereqError: the bus is full, or takes no devices while the machine runs.
    """
    if machine.is_q35 and not machine.ports:
        text = f"the bus of machine {machine.machine_type} takes no devices"
        raise _fixed(machine, f"started without ports (hypervisor parameter pcie_ports), {text}")
    own = {disk.slot for disk in machine.disks} | {nic.slot for nic in machine.nics}
    free = _free_slots(machine.name, machine.params, machine.ports)
    return next(slot for slot in free if slot not in own and slot not in slots_taken)


def _units_max(params: KvmParams) -> int | None:
    kind, drives = params.text("disk_type"), cd_drives(params)
    on_scsi = sum(drive.unit is not None for drive in drives)
    if kind in SCSI_DISK_TYPES:
        return _SCSI_UNITS_MAX[params.text("scsi_controller_type")] - on_scsi
    return _IDE_UNITS_MAX - (len(drives) - on_scsi) if kind == "ide" else None


@dataclass(frozen=True, slots=True)
class CdDrive:
    """A CD drive with its image; ``unit`` on the SCSI bus, None where it is an IDE one."""

    name: str
    image: str
    unit: int | None


def cd_drives(params: KvmParams) -> list[CdDrive]:
    """Return the CD drives; those on the SCSI bus are at its end, where no disk comes to be."""
    images = {"cdrom": "cdrom_image_path", "cdrom2": "cdrom2_image_path"}
    found = [(name, params.text(path)) for name, path in images.items() if params.text(path)]
    units: Iterator[int | None] = repeat(None)
    if params.text("cdrom_disk_type").startswith("scsi"):
        units = count(_SCSI_UNITS_MAX[params.text("scsi_controller_type")] - 1, -1)
    return [CdDrive(name, image, unit) for (name, image), unit in zip(found, units, strict=False)]


def _nic_devices(
    instance: RpcInstance, params: KvmParams, slots: Iterator[int]
) -> Iterator[NicDevice]:
    driver = NIC_DRIVERS.get(params.text("nic_type"), params.text("nic_type"))
    for nic in instance.nics:
        slot = None if driver in _NOT_ON_PCI else next(slots)
        yield NicDevice(uuid=nic.uuid, driver=driver, mac=nic.mac, slot=slot)


def new_nic_device(machine: Machine, nic: RpcNIC, slots_taken: Set[int]) -> NicDevice:
    """Decide where a network interface goes that is added to a machine that runs.

    Args:
        slots_taken: the ports, or places on the PCI bus, that have a device.

    Raises:
        OpPrereqError: this kind of interface cannot be added, or there is no room for it.
    """
    kind = machine.params.text("nic_type")
    driver = NIC_DRIVERS.get(kind, kind)
    if driver in _NOT_ON_PCI:
        raise _fixed(machine, f"network interfaces of type {kind} cannot be changed")
    slot = free_slot(machine, slots_taken)
    return NicDevice(uuid=nic.uuid, driver=driver, mac=nic.mac, slot=slot)


def _fixed(machine: Machine, what: str) -> OpPrereqError:
    return OpPrereqError(f"instance {machine.name}: {what} while it runs", ErrorCode.STATE)


def with_machine_type(machine: Machine, known: Sequence[Mapping[str, object]]) -> Machine:
    """Return the machine with an exact type in place of an alias such as "pc".

    Args:
        known: QEMU's answer to query-machines.
    """
    kind, separator, options = machine.machine_type.partition(",")
    exact = next((str(item["name"]) for item in known if item.get("alias") == kind), kind)
    return msgspec.structs.replace(machine, machine_type=exact + separator + options)
