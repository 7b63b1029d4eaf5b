"""The command line of QEMU: a machine, put on a node.

Source: manual page qemu-system-x86_64(1); constants.json, "hvparams".
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from ganeti.base.json import dumps
from ganeti.hypervisor import pci
from ganeti.hypervisor.interface import AssembledDisk
from ganeti.hypervisor.kvm import devices
from ganeti.hypervisor.kvm.hardware.disks import KEPT, PFLASH
from ganeti.hypervisor.kvm.machine import MEMORY_SLOTS, Machine, cd_drives, port_name
from ganeti.hypervisor.kvm.params import (
    BRAILLE,
    SCSI_CONTROLLERS,
    SCSI_DISK_TYPES,
    SOUND_CARDS,
    SPICE_TEXTS,
    VNC_BASE_PORT,
    KvmParams,
    usb_device_option,
)
from ganeti.netdev.backends import NicBackend

_PCI_FUNCTIONS: Final = 8  # of one place on a bus
_FLASH_CODE: Final = "firmware-code"
_FLASH_VARS: Final = "firmware-vars"
_FIRST_PORT_SLOT: Final = 0x10  # QEMU puts its own devices from the first place on


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a machine is put: everything that belongs to one node or one start.

    ``files`` says where a file named in a parameter is on this node, if not at that very path.

    ``sockets`` are the descriptors of listening sockets that QEMU inherits: control and info, two
    monitors; serial, the console; agent, that of the guest; tpm is the connection to the machine's
    TPM, share0 and so on those to its shared directories.  ``console_address`` is where VNC or
    SPICE listens: an address, or for VNC the path of a socket.  ``spice_files`` are certificate
    authority, certificate and key.  ``run_as`` is the user, by name or "uid:gid", that QEMU becomes
    once it has opened all files.  ``monitor_for_3_0`` is the path of the monitor by which 3.0 stops
    an instance, should it take over the node.
    """

    binary: str
    pid_file: str
    serial_log: str
    sockets: Mapping[str, int] = field(default_factory=dict)
    disks: Mapping[str, AssembledDisk] = field(default_factory=dict)  # by UUID
    nics: Mapping[str, NicBackend] = field(default_factory=dict)  # by UUID
    console_address: str = ""
    console_password: bool = False
    spice_files: tuple[str, str, str] = ("", "", "")
    incoming: bool = False
    run_as: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    monitor_for_3_0: str = ""

    def local(self, path: str) -> str:
        """Return where a file named in a parameter is on this node."""
        return self.files.get(path, path)


def screen_options(machine: Machine, place: Placement, params: KvmParams) -> Iterator[str]:
    """Yield the options for the screen and for access to it."""
    yield from ("-display", "none")
    yield from ("-vga", params.text("vga") or ("qxl" if params.has_spice else "std"))
    if params.text("keymap"):
        yield from ("-k", params.text("keymap"))
    if params.has_vnc:
        yield from _vnc(machine, place, params)
    if params.has_spice:
        yield from _spice(machine, place, params)


def _vnc(machine: Machine, place: Placement, params: KvmParams) -> Iterator[str]:
    if place.console_address.startswith("/"):
        options = [f"unix:{devices.option_value(place.console_address)}"]
    else:
        assert machine.network_port is not None  # checked before the machine is placed
        address = place.console_address
        host = f"[{address}]" if ":" in address else address
        options = [f"{host}:{machine.network_port - VNC_BASE_PORT}"]
    if params.flag("vnc_tls"):
        path = place.local(params.text("vnc_x509_path"))
        verify = devices.on_off(params.flag("vnc_x509_verify"))
        kind = f"tls-creds-x509,dir={devices.option_value(path)}" if path else "tls-creds-anon"
        yield from ("-object", f"{kind},id=vnctls,endpoint=server,verify-peer={verify}")
        options.append("tls-creds=vnctls")
    if place.console_password:
        options.append("password=on")
    yield from ("-vnc", ",".join(options))


def _spice(machine: Machine, place: Placement, params: KvmParams) -> Iterator[str]:
    options = [f"addr={place.console_address}"]
    if params.flag("spice_use_tls"):
        authority, certificate, key = map(devices.option_value, place.spice_files)
        options += [
            f"tls-port={machine.network_port}",
            f"x509-cacert-file={authority}",
            f"x509-cert-file={certificate}",
            f"x509-key-file={key}",
            f"tls-ciphers={devices.option_value(params.text('spice_tls_ciphers'))}",
        ]
    else:
        options.append(f"port={machine.network_port}")
    version = params.number("spice_ip_version")
    if version:
        options.append(f"ipv{version}=on")
    if not place.console_password:
        options.append("disable-ticketing=on")
    for parameter, option in SPICE_TEXTS.items():
        if params.text(parameter):
            options.append(f"{option}={params.text(parameter)}")
    packs_sound = params.flag("spice_playback_compression")
    options.append(f"playback-compression={devices.on_off(packs_sound)}")
    options.append(f"agent-mouse={devices.on_off(params.flag('spice_use_vdagent'))}")
    yield from ("-spice", ",".join(options))


def usb_and_sound_options(params: KvmParams) -> Iterator[str]:
    """Yield the options for USB devices and sound."""
    wanted = params.usb_devices()
    if params.text("usb_mouse"):
        wanted.insert(0, params.text("usb_mouse"))
    if wanted:
        yield "-usb"
    for device in wanted:
        if device == BRAILLE:  # what it shows goes to the node's BrlAPI
            yield from ("-chardev", "braille,id=braille")
        option = usb_device_option(device)
        assert option is not None  # refused by check_params
        yield from ("-device", option)
    if params.text("soundhw"):
        yield from ("-audiodev", "none,id=audio")
        for option in SOUND_CARDS[params.text("soundhw")]:
            yield from ("-device", option)


def command_line(machine: Machine, place: Placement) -> list[str]:
    """Return the whole command line of a machine on a node."""
    params = machine.params
    return [
        place.binary,
        *_base(machine, place, params),
        *_grown(machine, place, params),
        *_ports(machine),
        *_kernel(place, params),
        *screen_options(machine, place, params),
        *_monitors(place),
        *_serial(place, params),
        "-device",
        "virtio-balloon-pci,id=balloon",
        *usb_and_sound_options(params),
        *_passed_on(params),
        *_disks(machine, place, params),
        *_firmware(machine),
        *_tpm(place),
        *_cdroms(place, params),
        *_floppy(machine, place, params),
        *_nics(machine, place, params),
        *_shares(place, params),
        *shlex.split(params.text("kvm_extra")),
    ]


def _base(machine: Machine, place: Placement, params: KvmParams) -> Iterator[str]:
    yield from ("-name", machine.name)  # alone: by it 3.0 knows an instance of its own
    yield from ("-uuid", machine.uuid)
    yield from ("-nodefaults", "-no-user-config", "-S")
    yield from ("-pidfile", place.pid_file)
    acpi = "" if params.flag("acpi") else ",acpi=off"
    shared = f",memory-backend={devices.MAIN_MEMORY}" if params.shares() else ""
    yield from ("-machine", machine.machine_type + acpi + _flash(machine) + shared)
    yield from ("-accel", machine.accelerator)
    if machine.cpu_type:
        yield from ("-cpu", machine.cpu_type)
    yield from ("-m", _memory(machine, params))
    mem_path = place.local(params.text("mem_path"))
    if shared:
        yield from _json("-object", devices.main_memory(machine, mem_path))
    elif mem_path:
        yield from ("-mem-path", mem_path, "-mem-prealloc")
    topology = [str(machine.vcpus)]
    topology += [f"{name}={count}" for name, count in params.topology().items()]
    if (most := params.processors_max(machine.vcpus)) > machine.vcpus:
        topology.append(f"maxcpus={most}")
    yield from ("-smp", ",".join(topology))
    yield from ("-rtc", f"base={'localtime' if params.flag('use_localtime') else 'utc'}")
    if params.text("reboot_behavior") == "exit":
        yield "-no-reboot"
    if params.flag("user_shutdown"):
        yield "-no-shutdown"
    if place.run_as:
        yield from ("-runas", place.run_as)
    if place.incoming:
        yield from ("-incoming", "defer")


def _flash(machine: Machine) -> str:
    """Return which images are the machine's flash memory, as options of -machine."""
    if machine.firmware is None:
        return ""
    smm = ",smm=on" if machine.firmware.secure else ""
    return f",pflash0={_FLASH_CODE},pflash1={_FLASH_VARS}{smm}"


def _firmware(machine: Machine) -> Iterator[str]:
    """Yield the flash memory with UEFI's code and that with its variables."""
    firmware = machine.firmware
    if firmware is None:
        return
    code = {"driver": "file", "filename": firmware.code}
    flash = {"driver": "raw", "node-name": _FLASH_CODE, "read-only": True, "file": code}
    yield from _json("-blockdev", flash)
    store = next(disk for disk in machine.disks if disk.driver == PFLASH)
    size = {"size": firmware.vars_bytes, "file": store.node_name}
    yield from _json("-blockdev", {"driver": "raw", "node-name": _FLASH_VARS, **size})
    if firmware.secure:
        # Only the firmware itself, in a mode that systems cannot enter, may write variables.
        yield from ("-global", "driver=cfi.pflash01,property=secure,value=on")
        yield from ("-global", "ICH9-LPC.disable_s3=1")


def _tpm(place: Placement) -> Iterator[str]:
    """Yield the TPM, which is another process."""
    if "tpm" in place.sockets:
        yield from ("-chardev", f"socket,id=tpm,fd={place.sockets['tpm']}")
        yield from ("-tpmdev", "emulator,id=tpm0,chardev=tpm")
        yield from ("-device", "tpm-crb,tpmdev=tpm0")


def _shares(place: Placement, params: KvmParams) -> Iterator[str]:
    """Yield the shared directories, each of them another process."""
    for number, share in enumerate(params.shares()):
        name = devices.share_name(number)
        yield from ("-chardev", f"socket,id={name},fd={place.sockets[name]}")
        yield from _device(devices.share_options(number, share))


def _passed_on(params: KvmParams) -> Iterator[str]:
    """Yield the PCI devices of the node."""
    for number, address in enumerate(params.pci_devices()):
        host = pci.full_address(address)
        yield from _device({"driver": pci.DRIVER, "id": f"hostpci{number}", "host": host})


def _memory(machine: Machine, params: KvmParams) -> str:
    """Return the memory that the machine starts with, and room for more."""
    most_mib = params.number("max_memory")
    if most_mib <= machine.memory_mib:
        return str(machine.memory_mib)
    return f"{machine.memory_mib},slots={MEMORY_SLOTS},maxmem={most_mib}M"


def _grown(machine: Machine, place: Placement, params: KvmParams) -> Iterator[str]:
    """Yield memory and processors that came while the machine ran where it is moved from."""
    path = place.local(params.text("mem_path"))
    for dimm in machine.dimms:
        yield from _json("-object", devices.memory_options(dimm, params, path))
        yield from _device(devices.dimm_options(dimm))
    for processor in machine.processors:
        yield from _device(processor)


def _ports(machine: Machine) -> Iterator[str]:
    for number in range(machine.ports):
        slot, function = divmod(number, _PCI_FUNCTIONS)
        yield from _device(
            {
                "driver": "pcie-root-port",
                "id": port_name(number),
                "bus": machine.pci_bus,
                "addr": f"{_FIRST_PORT_SLOT + slot:#x}.{function}",
                "multifunction": devices.on_off(function == 0),
                "chassis": number + 1,
            }
        )


def _kernel(place: Placement, params: KvmParams) -> Iterator[str]:
    if not params.text("kernel_path"):
        return
    yield from ("-kernel", place.local(params.text("kernel_path")))
    if params.text("initrd_path"):
        yield from ("-initrd", place.local(params.text("initrd_path")))
    words = [f"root={params.text('root_path')}"] if params.text("root_path") else []
    words.append(params.text("kernel_args"))
    if params.flag("serial_console"):
        words.append(f"console=ttyS0,{params.number('serial_speed')}")
    yield from ("-append", " ".join(word for word in words if word))


def _monitors(place: Placement) -> Iterator[str]:
    for name in ("control", "info"):
        yield from ("-chardev", f"socket,id={name},fd={place.sockets[name]},server=on,wait=off")
        yield from ("-mon", f"chardev={name},mode=control")
    if place.monitor_for_3_0:
        path = devices.option_value(place.monitor_for_3_0)
        yield from ("-monitor", f"unix:{path},server=on,wait=off")


def _serial(place: Placement, params: KvmParams) -> Iterator[str]:
    if params.flag("serial_console"):
        yield "-chardev"
        yield (
            f"socket,id=serial,fd={place.sockets['serial']},server=on,wait=off"
            f",logfile={devices.option_value(place.serial_log)},logappend=on"
        )
        yield from ("-device", "isa-serial,chardev=serial,id=serial0")
    uses_agent = params.flag("use_guest_agent")
    uses_vdagent = params.has_spice and params.flag("spice_use_vdagent")
    if uses_agent or uses_vdagent:
        yield from ("-device", "virtio-serial-pci,id=channels")
    if uses_agent:
        yield from ("-chardev", f"socket,id=agent,fd={place.sockets['agent']},server=on,wait=off")
        yield from ("-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0")
    if uses_vdagent:
        yield from ("-chardev", "spicevmc,id=vdagent,name=vdagent")
        yield from ("-device", "virtserialport,chardev=vdagent,name=com.redhat.spice.0")


def _json(option: str, description: Mapping[str, object]) -> tuple[str, str]:
    return option, dumps(description).decode()


def _device(description: Mapping[str, object]) -> tuple[str, str]:
    """Return the option for a device: its driver, then name=value."""
    values = {name: devices.option_value(str(value)) for name, value in description.items()}
    driver = values.pop("driver")
    return "-device", ",".join((driver, *(f"{name}={text}" for name, text in values.items())))


def _disks(machine: Machine, place: Placement, params: KvmParams) -> Iterator[str]:
    uses_scsi = params.text("disk_type") in SCSI_DISK_TYPES
    has_scsi_cd = any(drive.unit is not None for drive in cd_drives(params))
    if (machine.disks and uses_scsi) or has_scsi_cd:
        kind = params.text("scsi_controller_type")
        controller = SCSI_CONTROLLERS.get(kind, kind)
        yield from ("-device", f"{controller},id=scsi")
    boots = params.text("boot_order") == "disk" and not params.text("kernel_path")
    for index, disk in enumerate(machine.disks):
        yield from _json("-blockdev", devices.image_options(disk, place.disks[disk.uuid], params))
        if disk.driver in KEPT:
            continue
        boot_index = index + 1 if boots else None
        yield from _device(devices.disk_options(disk, machine, boot_index=boot_index))


def _cdroms(place: Placement, params: KvmParams) -> Iterator[str]:
    for drive in cd_drives(params):
        boots = params.text("boot_order") == "cdrom" and drive.name == "cdrom"
        yield from _json("-blockdev", devices.cdrom_image(drive.name, place.local(drive.image)))
        yield from _device(devices.cd_options(drive, params, boots=boots))


def _floppy(machine: Machine, place: Placement, params: KvmParams) -> Iterator[str]:
    path = params.text("floppy_image_path")
    if not path:
        return
    image = {"driver": "file", "filename": place.local(path)}
    yield from _json("-blockdev", {"driver": "raw", "node-name": "image-floppy", "file": image})
    if machine.is_q35:  # others have a controller of their own
        yield from ("-device", "isa-fdc")
    boot = ",bootindex=1" if params.text("boot_order") == "floppy" else ""
    yield from ("-device", f"floppy,drive=image-floppy{boot}")


def _nics(machine: Machine, place: Placement, params: KvmParams) -> Iterator[str]:
    for index, nic in enumerate(machine.nics):
        boots = index == 0 and params.text("boot_order") == "network"
        yield from _json("-netdev", devices.netdev_options(nic, place.nics[nic.uuid], params))
        yield from _device(devices.nic_options(nic, machine, boots=boots))
