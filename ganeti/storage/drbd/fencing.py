"""What DRBD does under high availability when a primary node loses the other copy.

A copy that was left behind must not be started from: its writes since then would be lost.  So with
``fencing=resource-and-stonith`` the driver acknowledges no write after it has lost the copy until
its helper has ended, which says so in etcd (`ganeti.cli.tools.drbd_fence_peer`).

Source: drbd.conf(5) of DRBD 8.4, "fencing", "fence-peer"; drbdsetup(8), "disk-options".
"""

from __future__ import annotations

from typing import Final

from ganeti.base.errors import BlockDeviceError, failing_as
from ganeti.base.paths import Paths
from ganeti.storage.drbd import drbdsetup
from ganeti.storage.drbd.status import HELPER_FILE, of_this_node
from ganeti.store.lease import DRBD_HELPER, is_on
from ganeti.system import daemon_control

OPTION: Final = "fencing"
REFUSAL: Final = "peer is not outdated"  # in the driver's words
HINT: Final = (
    "the other node may have written alone since they lost each other, and high availability"
    " lets nobody start from this copy; bring that node back, or type 'gnt-cluster ha-accept-copy"
    " INSTANCE' to give its later writes up"
)
_ON: Final = "resource-and-stonith"
_OFF: Final = "dont-care"


def options(paths: Paths) -> dict[str, str]:
    """Return the option of the local half that says what to do, where the driver's own is wrong."""
    return {OPTION: _ON} if is_on(paths) else {}


def prepare(paths: Paths) -> None:
    """Let the driver run our helper, where it is to.

    Raises:
        GenericError: it is not installed, or the driver does not take it.
    """
    if is_on(paths):
        set_helper(daemon_control.executable(DRBD_HELPER))


def set_helper(path: str, target: str = "") -> None:
    """Let the driver run a program at events.

    Raises:
        BlockDeviceError: it does not take it; the path may be too long.
    """
    target = target or of_this_node(HELPER_FILE)
    trouble = f"DRBD cannot be told to run {path} at events"
    with failing_as(BlockDeviceError, trouble), open(target, "r+", encoding="utf-8") as file:
        if file.read().strip() != path:
            file.write(path)


def apply(paths: Paths, usual: str) -> None:
    """Let all devices of this node do as they now should.

    Args:
        usual: the helper of the cluster's configuration, for when ours is not to be called.

    Raises:
        GenericError: the driver refuses.
    """
    if not drbdsetup.is_loaded():
        return
    seen = drbdsetup.view()
    if not seen.can_change:
        return
    wanted = _ON if is_on(paths) else _OFF
    prepare(paths)  # a device must never call a program that does not know its question
    for resource in seen.resources:
        for device in resource.volumes.values():
            is_ours = resource.name == f"resource{device.minor}" and device.data
            if is_ours and device.options.get(OPTION, _OFF) != wanted:
                argv = ("drbdsetup", "disk-options", str(device.minor))
                drbdsetup.run((*argv, f"--{OPTION}={wanted}"))
    if usual and not is_on(paths):
        set_helper(usual)
