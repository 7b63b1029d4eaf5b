"""Hypervisors by name, and the words of their interfaces.

Source: constants.json, "hypervisors".
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Hypervisor(StrEnum):
    """What runs an instance."""

    CHROOT = "chroot"
    FAKE = "fake"
    KVM = "kvm"
    LXC = "lxc"
    XEN_HVM = "xen-hvm"
    XEN_PVM = "xen-pvm"


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


SUPPORTED_HYPERVISORS: Final = (Hypervisor.KVM, Hypervisor.FAKE, Hypervisor.CHROOT)
"""Hypervisors that have a driver; the first is the usual one."""

NEED_NETWORK_PORT: Final = frozenset({Hypervisor.KVM, Hypervisor.XEN_HVM})
"""Hypervisors whose instances get a TCP port for their graphical console."""

_VNC_PASSWORD: Final = "/etc/ganeti/vnc-cluster-password"  # noqa: S105 - a path
_XEN: Final = (
    "/etc/xen/scripts/vif-bridge",
    "/etc/xen/xen/xl.conf",
    "/etc/xen/xend-config.sxp",
)
ANCILLARY_FILES: Final[Mapping[Hypervisor, tuple[str, ...]]] = {
    Hypervisor.KVM: ("/etc/ganeti/kvm-vif-bridge", _VNC_PASSWORD),
    Hypervisor.XEN_HVM: (*_XEN, _VNC_PASSWORD),
    Hypervisor.XEN_PVM: _XEN,
}
"""Files of hypervisors that must be the same on all nodes with instances, where there are any.

Source: node_rpc.json, "upload_file_allowed_paths".
"""

DEFAULT_SHUTDOWN_TIMEOUT_S: Final = 120
