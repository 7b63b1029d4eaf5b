"""Where a daemon listens: what its options say, or every address of its node.

Source: cli.json, "daemons": ``--bind``, ``--interface``.
"""

from __future__ import annotations

from typing import Final

from ganeti.base.errors import OpPrereqError
from ganeti.daemon.context import DaemonContext
from ganeti.system import environment

ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - who may ask is decided for each request


def listen_address(context: DaemonContext) -> str:
    """Return where to listen; a virtual node shares its machine with others.

    Raises:
        OpPrereqError: the interface does not exist, or has no address.
        ResolverError: a virtual node's name is not known.
    """
    options = context.options
    if options.bind:
        return str(options.bind)
    if getattr(options, "interface", None):
        from ganeti.system.interfaces import addresses_of  # rarely needed

        found = addresses_of(options.interface)
        if not found:
            raise OpPrereqError(f"network interface {options.interface!r} has no address here")
        return found[0]
    if context.paths.root:
        return environment.resolve(context.hostname, context.paths)[1]
    return ANY_ADDRESS
