"""Notes of guests that have left for another node, or may have.

When the job of a migration dies after the guest has arrived, and before the configuration says so,
the master takes this node for the one that it runs on.  Here nothing runs, so the instance would be
started, or its disks given to a third node, while it runs elsewhere.  So the note is durable before
the memory is on its way, and goes once it is known where the guest runs: when the migration is
finished or undone, or cleaned up, or when it is seen to run here.
"""

import os
from urllib.parse import quote

from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.objects.rpc_instance import RpcInstance
from ganeti.system import files

_ADDRESS_BYTES_MAX = 4096


def note(paths: Paths, instance: RpcInstance, leaves_for: str) -> None:
    """Write down that a guest leaves for the node with that address."""
    files.ensure_directory(paths.departures_dir, syncs_parent=True)
    files.write_durable(_path(paths, instance), leaves_for.encode())


def forget(paths: Paths, instance: RpcInstance) -> None:
    """Take note that it is known where the guest runs."""
    if files.remove_if_exists(_path(paths, instance)):
        files.fsync_directory(paths.departures_dir)


def address(paths: Paths, instance: RpcInstance) -> str:
    """Return the address of the node that a guest left for, or ""."""
    found = files.read_bytes_or_none(_path(paths, instance), _ADDRESS_BYTES_MAX)
    return "" if found is None else found.decode("utf-8", "replace")


def check(paths: Paths, instance: RpcInstance) -> None:
    """Refuse an instance that does not run here, if it may run where it went to.

    Raises:
        HypervisorError: names that node and the next command.
    """
    left_for = address(paths, instance)
    if left_for:
        name = instance.name
        raise HypervisorError(
            f"instance {name!r} may run on the node with the address {left_for}: its migration"
            f" there was broken off; 'gnt-instance migrate --cleanup {name}' finds out where it"
            " belongs"
        )


def _path(paths: Paths, instance: RpcInstance) -> str:
    return os.path.join(paths.departures_dir, quote(instance.uuid, safe=""))
