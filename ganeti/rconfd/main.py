"""RConfD: answers questions about the configuration, on every master candidate.

Reads the node's own copy of the configuration and nothing else, so it answers as long as its node
runs, whatever became of the master.  Questions are signed, answers as well; what is not is dropped.

Source: design 2.1, "Ganeti Confd"; daemons-2.12, "Configuration query daemon"; confd.json.
"""

from __future__ import annotations

import logging
from typing import Final

from ganeti.daemon.context import DaemonContext
from ganeti.daemon.main import DaemonSpec
from ganeti.daemon.options import NetworkOptions, Port
from ganeti.protocol.confd import DATAGRAM_BYTES_MAX, DEFAULT_PORT
from ganeti.rconfd.following import Desk, Follower
from ganeti.system import environment
from ganeti.transport.udp_server import serve_udp

logger = logging.getLogger(__name__)


class Options(NetworkOptions, frozen=True, kw_only=True):
    """The options of RConfD."""

    port: Port = DEFAULT_PORT


async def serve(context: DaemonContext) -> None:
    """Answer until told to stop."""
    desk = Desk()
    address = context.options_as(Options).bind or _default_address(context)
    with serve_udp(
        address, context.options_as(Options).port, desk.handle, size_bytes_max=DATAGRAM_BYTES_MAX
    ) as server:
        logger.info("Listening on %s port %d", address or "all addresses", server.port)
        follower = Follower(context.paths, context.hostname, desk)
        try:
            follower.start()
            context.spawn(follower.run(), "following the configuration")
            context.ready()
            await context.stopping.wait()
        finally:
            follower.close()


def _default_address(context: DaemonContext) -> str | None:
    """Return where to listen: a virtual node shares its machine with others."""
    if context.paths.root:
        return environment.resolve(context.hostname, context.paths)[1]
    return None


SPEC: Final = DaemonSpec(
    name="ganeti-confd",
    description="Answers questions about the configuration, on every master candidate.",
    serve=serve,
    options=Options,
)
