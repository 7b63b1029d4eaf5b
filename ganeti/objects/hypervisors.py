"""Hypervisors: one row each, with all that the cluster must know of one, and their words.

A row names the driver, which only nodes load, and the table of parameters, from which checks, help,
manual pages and query fields are made.  The driver checks the needs of a parameter (another
parameter, a file of the node).

Source: constants.json, "hypervisors" and "hvparams"; manual page gnt-instance(8).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from typing import Final

from msgspec import Struct

from ganeti.objects.disk_templates import Row
from ganeti.objects.parameters import (
    PORT_MAX,
    Form,
    ParamTable,
    choice,
    defaults_of,
    flag,
    integer,
    maybe_text,
    path,
    size,
    text,
)


class MigrationMode(StrEnum):
    """Whether the instance runs on while it is moved."""

    LIVE = "live"
    NONLIVE = "non-live"


class RebootType(StrEnum):
    """How much of an instance is started anew."""

    SOFT = "soft"
    HARD = "hard"
    FULL = "full"


class ConsoleKind(StrEnum):
    """How a console is reached."""

    MESSAGE = "msg"
    SPICE = "spice"
    SSH = "ssh"
    VNC = "vnc"


DEFAULT_SHUTDOWN_TIMEOUT_S: Final = 120
PCI_SLOTS: Final = 32
PCIE_PORTS_MAX: Final = 64
_cpus: Final = partial(integer, 0, least=0, most=1024)

_PATH_OR_URL: Final = Form("an absolute path or a URL", r"(/.*|(https?|ftps?)://.*)?")
_FILE_IN_TREE: Final = Form(
    "an absolute path inside the instance's tree, such as /ganeti-chroot",
    r"(?!.*/\.\.?(/|$))(/[^/]+)+",
)


def _migration_mode(default: MigrationMode) -> ParamTable:
    summary = "Whether instances run on while they are migrated, unless a command says otherwise."
    choices = tuple(map(str, MigrationMode))
    return {"migration_mode": text(str(default), summary, choices=choices, cluster_wide=True)}


def _migration_port(default: int) -> ParamTable:
    summary = "The first TCP port that nodes receive migrated instances at."
    return {"migration_port": integer(default, summary, least=1, most=PORT_MAX, cluster_wide=True)}


_CHROOT: Final[ParamTable] = {
    "init_script": text(
        "/ganeti-chroot",
        "The script inside the instance's tree that is called with start and stop.",
        form=_FILE_IN_TREE,
    )
}
_KVM: Final[ParamTable] = {
    "acpi": flag(True, "Whether the guest has ACPI, which its power button needs."),
    "boot_order": choice(
        "disk", "The device that the guest starts from.", "cdrom disk floppy network"
    ),
    "cdrom2_image_path": text(
        "", "The image in a second CD drive: a path or a URL.", form=_PATH_OR_URL
    ),
    "cdrom_disk_type": choice(
        "",
        "The kind of CD drives; empty for ide.  Only ide and scsi-cd are supported.",
        "ide mtd paravirtual pflash scsi scsi-block scsi-cd scsi-generic scsi-hd sd",
    ),
    "cdrom_image_path": text("", "The image in the CD drive: a path or a URL.", form=_PATH_OR_URL),
    "cpu_cores": _cpus("Cores of each processor of the guest; 0 leaves it to QEMU."),
    "cpu_mask": text(
        "all",
        "The node's processors that the guest's may run on: all, one list such as 0-3,6 for all"
        " of them, or one list for each, separated by colons.",
    ),
    "cpu_sockets": _cpus("Processor sockets of the guest; 0 leaves it to QEMU."),
    "cpu_threads": _cpus("Threads of each core of the guest; 0 leaves it to QEMU."),
    "cpu_type": text("", "The processor that the guest sees, as of qemu's -cpu."),
    "disk_aio": choice("threads", "How the node's disks are read and written.", "native threads"),
    "disk_cache": choice(
        "default", "How the node caches disks.", "default none writeback writethrough"
    ),
    "disk_discard": choice(
        "default",
        "Whether disks pass on that the guest needs a block no more.",
        "default ignore unmap",
    ),
    "disk_type": choice(
        "paravirtual",
        "The kind of disks that the guest sees.",
        "ide mtd paravirtual pflash scsi scsi-block scsi-cd scsi-generic scsi-hd sd",
    ),
    "firmware": choice(
        "",
        "The firmware that starts the guest: empty for a BIOS, uefi, or uefi-secure, which starts"
        " only what Microsoft's keys have signed.  UEFI needs a disk named uefi-vars, of 4 MiB, for"
        " its variables.",
        "uefi uefi-secure",
        is_ours=True,
    ),
    "floppy_image_path": path("", "The image in the floppy drive."),
    "initrd_path": path("", "The initial RAM disk of the kernel in kernel_path."),
    "kernel_args": text("ro", "The command line of the kernel in kernel_path."),
    "kernel_path": path(
        "/boot/vmlinuz-3-kvmU",
        "The node's kernel that the guest starts; empty to start from a device.",
    ),
    "keymap": text("", "The keyboard of the VNC console, such as de."),
    "kvm_extra": text("", "More options for QEMU."),
    "kvm_flag": choice(
        "",
        "Whether the processor's virtualization is used; empty where it works.",
        "disabled enabled",
    ),
    "kvm_path": path("/usr/bin/kvm", "The program QEMU."),
    "kvm_pci_reservations": integer(
        12,
        "Places on the PCI bus that are left to other devices than disks and network interfaces.",
        least=4,
        most=PCI_SLOTS,
    ),
    "machine_version": text("", "The machine that the guest sees, as of qemu's -machine."),
    "max_memory": size(
        0,
        "The memory that the running guest can be given with gnt-instance modify --hotplug,"
        " decided at its start; 0 for no more than it starts with.",
        least=0,
        is_ours=True,
    ),
    "max_vcpus": _cpus(
        "The processors that the running guest can be given with gnt-instance modify --hotplug,"
        " decided at its start; 0 for no more than it starts with.",
        is_ours=True,
    ),
    "mem_path": path("", "The directory of huge pages that the guest's memory is taken from."),
    "migration_bandwidth": integer(
        32,
        "The rate at which memory is migrated.",
        least=1,
        most=1 << 30,
        unit="MiB/s",
        cluster_wide=True,
    ),
    "migration_caps": text("", "QEMU's migration capabilities to switch on, separated by colons."),
    "migration_downtime": integer(
        30,
        "The time that the guest may stand still at the end of a live migration.",
        least=1,
        most=2_000_000,  # QEMU's own limit
        unit="ms",
    ),
    **_migration_mode(MigrationMode.LIVE),
    **_migration_port(8102),
    "nic_type": choice(
        "paravirtual",
        "The kind of network interfaces that the guest sees.",
        "e1000 i82551 i82557b i82559er ne2k_isa ne2k_pci paravirtual pcnet rtl8139",
    ),
    "pci_pass": text(
        "",
        "PCI devices of the node that the guest gets, such as 0000:01:00.0, separated by commas."
        "  The node needs an IOMMU, and they have to be bound to vfio-pci; the instance can be"
        " failed over, but not migrated.",
        is_ours=True,
    ),
    "pcie_ports": integer(
        0,
        "Ports of a machine of type q35, one for each disk and network interface, which can come"
        " and go while it runs; 0 puts them on its first bus, where they stay.",
        least=0,
        most=PCIE_PORTS_MAX,
        is_ours=True,
    ),
    "reboot_behavior": choice(
        "reboot", "Whether a reboot by the guest restarts or stops the instance.", "reboot exit"
    ),
    "root_path": maybe_text(
        "/dev/vda1", "The device of the root file system, for the kernel in kernel_path."
    ),
    "scsi_controller_type": choice(
        "lsi", "The controller of SCSI disks that the guest sees.", "lsi megasas virtio-scsi-pci"
    ),
    "security_domain": text("", "The user that QEMU runs as, with security_model user."),
    "security_model": choice(
        "none",
        "The user that QEMU runs as: none stays root, user is the one in security_domain, pool is"
        " one of the cluster's pool of user ids.",
        "none pool user",
    ),
    "serial_console": flag(True, "Whether the guest has a serial console."),
    "serial_speed": integer(
        38400,
        "The speed of the serial console that the guest's kernel is told.",
        choices=(
            *(75, 110, 300, 600, 1200, 1800, 2400, 4800, 9600, 14400, 19200, 28800, 38400, 57600),
            *(115200, 230400, 345600, 460800),
        ),
        unit="bit/s",
    ),
    "shared_dirs": text(
        "",
        "Directories of the node that the guest can mount by virtio-fs, such as"
        " data=/srv/data;logs=/srv/logs:ro, with a tag for each.  The node allows them in"
        " /etc/ganeti/shared-dir-paths, and needs virtiofsd.",
        is_ours=True,
    ),
    "soundhw": choice("", "The sound card that the guest sees.", "ac97 es1370 hda sb16"),
    "spice_bind": text("", "The address or interface that SPICE listens at; empty for none."),
    "spice_image_compression": choice(
        "", "How SPICE compresses images without loss.", "auto_glz auto_lz glz lz off quic"
    ),
    "spice_ip_version": integer(
        0, "The IP version that SPICE uses; 0 for that of the cluster.", choices=(0, 4, 6)
    ),
    "spice_jpeg_wan_compression": choice(
        "", "Whether SPICE compresses images with loss on slow networks.", "always auto never"
    ),
    "spice_password_file": path("", "The node's file with the password of SPICE."),
    "spice_playback_compression": flag(True, "Whether SPICE compresses sound."),
    "spice_streaming_video": choice("", "Areas that SPICE treats as video.", "all filter off"),
    "spice_tls_ciphers": text("HIGH:-DES:-3DES:-EXPORT:-DH", "The ciphers that SPICE may use."),
    "spice_use_tls": flag(False, "Whether SPICE is encrypted."),
    "spice_use_vdagent": flag(True, "Whether SPICE may talk to an agent in the guest."),
    "spice_zlib_glz_wan_compression": choice(
        "", "Whether SPICE compresses images without loss on slow networks.", "always auto never"
    ),
    "tpm": flag(
        False,
        "Whether the guest has a TPM 2, which needs swtpm on the node and a disk named tpm-state,"
        " of 4 MiB, for its state.",
        is_ours=True,
    ),
    "usb_devices": text(
        "", "USB devices of the guest, separated by commas, such as tablet or host:1234:abcd."
    ),
    "usb_mouse": choice("", "The USB pointer of the guest.", "mouse tablet"),
    "use_chroot": flag(False, "Whether QEMU runs in an empty directory; not supported."),
    "use_guest_agent": flag(False, "Whether the guest has a channel for the QEMU guest agent."),
    "use_localtime": flag(False, "Whether the guest's clock shows local time instead of UTC."),
    "user_shutdown": flag(
        False, "Whether an instance that its guest shut down is left so by the watcher."
    ),
    "vga": choice(
        "", "The graphics card that the guest sees.", "cirrus none qxl std virtio vmware"
    ),
    "vhost_net": flag(False, "Whether the node's kernel moves the packets of virtio interfaces."),
    "virtio_net_queues": integer(
        1, "The queues of each virtio network interface.", least=1, most=8
    ),
    "vnc_bind_address": text(
        "",
        "The address or interface that VNC listens at, or a directory for its socket; empty for"
        " none.",
    ),
    "vnc_password_file": path("", "The node's file with the password of VNC."),
    "vnc_tls": flag(False, "Whether VNC is encrypted."),
    "vnc_x509_path": path("", "The node's directory with the certificates of VNC."),
    "vnc_x509_verify": flag(False, "Whether clients of VNC must have a certificate."),
    "vnet_hdr": flag(True, "Whether taps of virtio interfaces pass on checksums that are due."),
}
_LXC: Final[ParamTable] = {
    "cpu_mask": text("", "The node's processors that the container may run on, such as 0-3,6."),
    "devices": text(
        "c 1:3 rw,c 1:5 rw,c 1:7 rw,c 1:8 rw,c 1:9 rw,c 1:10 rw,"
        "c 5:0 rw,c 5:1 rw,c 5:2 rw,c 136:* rw",
        "The devices that the container may use, as rules of the device cgroup.",
    ),
    "drop_capabilities": text(
        "mac_override,sys_boot,sys_module,sys_time,sys_admin",
        "The capabilities that the container does not have, separated by commas.",
    ),
    "extra_cgroups": text("", "More cgroups that the container is put in, separated by commas."),
    "extra_config": text("", "More lines of the container's configuration, separated by commas."),
    "num_ttys": integer(6, "The terminals of the container.", least=0),
    "startup_timeout": integer(30, "How long a start may take.", least=1, unit="s"),
}
_XEN: Final[ParamTable] = {
    "cpu_cap": integer(
        0,
        "The most processor time that the instance gets; 100 is one processor, 0 no limit.",
        least=0,
        unit="%",
    ),
    "cpu_mask": _KVM["cpu_mask"],
    "cpu_weight": integer(
        256, "The instance's share of processor time, against others'.", least=1, most=65535
    ),
    "cpuid": text("", "The guest's view of its processor, as of the option cpuid of xl."),
    **_migration_port(8002),
    "reboot_behavior": _KVM["reboot_behavior"],
    "soundhw": text("", "The sound card that the guest sees."),
    "vif_script": path("", "The script that connects network interfaces."),
    "xen_cmd": text(
        "xm",
        "The command that drives Xen; xm stands for xl, which has taken its place.",
        choices=("xl", "xm"),
        cluster_wide=True,
    ),
}
_XEN_HVM: Final[ParamTable] = {
    **_XEN,
    **_migration_mode(MigrationMode.NONLIVE),
    "acpi": _KVM["acpi"],
    "blockdev_prefix": text("hd", "The beginning of the names of disks in the guest."),
    "boot_order": text(
        "cd",
        "The devices that the guest starts from, in order: a floppy, c disk, d CD, n network.",
        form=Form("one or more of the letters acdn", r"[acdn]+"),
    ),
    "cdrom_image_path": _KVM["cdrom_image_path"],
    "device_model": path("/usr/lib/xen/bin/qemu-dm", "The program that emulates devices."),
    "disk_type": choice(
        "paravirtual", "The kind of disks that the guest sees.", "ioemu paravirtual"
    ),
    "kernel_path": path("/usr/lib/xen/boot/hvmloader", "The program that starts guests."),
    "nic_type": choice(
        "rtl8139",
        "The kind of network interfaces that the guest sees.",
        "e1000 ne2k_isa ne2k_pci paravirtual rtl8139",
    ),
    "pae": flag(True, "Whether the guest's processor can address more than 4 GiB."),
    "pci_pass": text("", "PCI devices of the node that the guest gets, separated by commas."),
    "use_localtime": _KVM["use_localtime"],
    "vif_type": choice(
        "ioemu",
        "Whether network interfaces are emulated too, for guests without Xen's drivers.",
        "ioemu vif",
    ),
    "viridian": flag(False, "Whether the guest sees Microsoft's hypervisor interface."),
    "vnc_bind_address": text(
        "0.0.0.0",  # noqa: S104 - a console address, as specified
        "The address that VNC listens at.",
    ),
    "vnc_password_file": path(
        "/etc/ganeti/vnc-cluster-password", "The node's file with the password of VNC."
    ),
}
_XEN_PVM: Final[ParamTable] = {
    **_XEN,
    **_migration_mode(MigrationMode.LIVE),
    "blockdev_prefix": text("sd", "The beginning of the names of disks in the guest."),
    "bootloader_args": text("", "Arguments of the boot loader."),
    "bootloader_path": path("", "The node's boot loader, which finds the kernel on the disk."),
    "initrd_path": path("", "The initial RAM disk of the kernel."),
    "kernel_args": text("ro", "The command line of the kernel."),
    "kernel_path": path("/boot/vmlinuz-3-xenU", "The node's kernel that the guest starts."),
    "root_path": maybe_text("/dev/xvda1", "The device of the root file system."),
    "use_bootloader": flag(False, "Whether a boot loader finds the kernel on the disk."),
}

_VNC_PASSWORD: Final = "/etc/ganeti/vnc-cluster-password"  # noqa: S105 - a path
CONSOLE_PASSWORD_FILES: Final = re.compile(r"/etc/ganeti/(vnc|spice)-[\w.-]+", re.ASCII)
"""Files that nodes take from the master, as one of them may be what an instance's console asks."""
_XEN_FILES: Final = tuple(
    f"/etc/xen/{name}" for name in ("scripts/vif-bridge", "xen/xl.conf", "xend-config.sxp")
)


class HypervisorTraits(Struct, frozen=True):
    """One hypervisor, for everybody but its driver.

    Attributes:
        driver: ``module:class``.
        needs_network_port: instances get a TCP port for their graphical console.
        reads_images: it opens files of QEMU's formats as disks, not only raw ones.
        boots_disks: an instance starts from the system on its first disk.
        files: of its own, the same on all nodes with instances, where there are any.
    """

    parameters: ParamTable
    driver: str
    needs_network_port: bool = False
    reads_images: bool = False
    boots_disks: bool = False
    files: tuple[str, ...] = ()


class Hypervisor(Row):
    """The hypervisors.

    Source: constants.json, "hypervisors"; node_rpc.json, "upload_file_allowed_paths".
    """

    traits: HypervisorTraits

    CHROOT = "chroot", HypervisorTraits(_CHROOT, "ganeti.hypervisor.chroot:ChrootHypervisor")
    FAKE = (
        "fake",
        HypervisorTraits(
            _migration_mode(MigrationMode.LIVE), "ganeti.hypervisor.fake:FakeHypervisor"
        ),
    )
    KVM = (
        "kvm",
        HypervisorTraits(
            _KVM,
            "ganeti.hypervisor.kvm.driver:KvmHypervisor",
            needs_network_port=True,
            reads_images=True,
            boots_disks=True,
            files=("/etc/ganeti/kvm-vif-bridge", _VNC_PASSWORD),
        ),
    )
    LXC = (
        "lxc",
        HypervisorTraits(
            _LXC,
            "ganeti.hypervisor.lxc.driver:LxcHypervisor",
            files=("/etc/ganeti/lxc-vif-bridge",),
        ),
    )
    XEN_HVM = (
        "xen-hvm",
        HypervisorTraits(
            _XEN_HVM,
            "ganeti.hypervisor.xen.driver:XenHypervisor",
            needs_network_port=True,
            files=(*_XEN_FILES, _VNC_PASSWORD),
        ),
    )
    XEN_PVM = (
        "xen-pvm",
        HypervisorTraits(_XEN_PVM, "ganeti.hypervisor.xen.driver:XenHypervisor", files=_XEN_FILES),
    )


HVPARAMS: Final[Mapping[str, ParamTable]] = {
    str(hypervisor): hypervisor.traits.parameters for hypervisor in Hypervisor
}
LENT: Final = ("floppy_image_path", "pci_pass", "shared_dirs", "usb_devices")
"""Parameters that lend a guest what the node has, and other guests may use at the same time."""
_BY_HAND: Final = ("devices", "extra_config", "kvm_extra")  # they may lend it anything


def lending_nothing(hypervisor: Hypervisor) -> dict[str, object]:
    """Return parameters for a guest that runs beside another one of the same settings."""
    defaults = defaults_of(HVPARAMS[hypervisor])
    return {name: defaults[name] for name in (*LENT, *_BY_HAND) if name in defaults}


USUAL_HYPERVISOR: Final = Hypervisor.KVM
