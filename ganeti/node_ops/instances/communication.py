"""What guests are told about themselves: brought to the metadata daemon, and taken away.

The daemon runs from the first instance on that communicates with its node; a file says that it is
wanted, so that it comes again with the others.
"""

from __future__ import annotations

import logging
import os
from typing import Final

from ganeti.base.daemons import METAD
from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.node_ops.context import NodeHandler
from ganeti.protocol.node_rpc_values import GuestMetadata
from ganeti.system import daemon_control, files
from ganeti.transport.unix_client import UnixClient

logger = logging.getLogger(__name__)

_TIMEOUT_S: Final = 10.0  # it answers in milliseconds
_FLAG_MODE: Final = 0o644


class Communication(NodeHandler):
    """Metadata of instances."""

    def instance_metadata_modify(self, instance: GuestMetadata) -> None:
        allow(self.paths, run=True)
        daemon_control.start_daemon(self.paths, METAD, hostname=self.hostname)
        _ask(self.paths, "updateConfig", instance.to_wire())


def allow(paths: Paths, *, run: bool) -> None:
    """Note that the metadata daemon is wanted on this node, or that it is not."""
    flag = paths.instance_communication
    if not run:
        files.remove_if_exists(flag)
    elif not os.path.exists(flag):
        files.write_atomic(flag, b"wanted\n", _FLAG_MODE)


def forget(paths: Paths, name: str) -> None:
    """Have the metadata daemon forget an instance that does not run here any more."""
    if not os.path.exists(paths.instance_communication):
        return
    try:
        _ask(paths, "forgetInstance", name)
    except GenericError as err:
        logger.warning("cannot take away the metadata of %s: %s; ignoring", name, err)


def _ask(paths: Paths, method: str, argument: object) -> None:
    with UnixClient(
        paths.metad_socket, connect_timeout_s=_TIMEOUT_S, timeout_s=_TIMEOUT_S
    ) as client:
        client.call(method, [argument])
