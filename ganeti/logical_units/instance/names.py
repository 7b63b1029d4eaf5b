"""The name of an instance that is made or renamed: resolved, free, and its address free too."""

from __future__ import annotations

import ipaddress
from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.logical_units import lookup
from ganeti.logical_units.context import JobContext
from ganeti.opcodes.instance import OpInstanceCreate, OpInstanceRename
from ganeti.protocol.node_rpc import DEFAULT_PORT
from ganeti.transport.addresses import answers

PING_TIMEOUT_S: Final = 10.0  # TCP_PING_TIMEOUT


def new_name(
    context: JobContext, op: OpInstanceCreate | OpInstanceRename, name: str
) -> tuple[str, str | None]:
    """Return the full name and the address where it was resolved, if names are checked.

    Raises:
        OpPrereqError: it does not resolve, or is no name; or the options contradict each other.
    """
    if op.name_check:
        hint = "; use --no-name-check if the name need not resolve"
        return lookup.resolve("instance", name, context.paths, hint)
    if op.ip_check:
        raise OpPrereqError(
            "the IP address cannot be checked without the name; use --no-ip-check together"
            " with --no-name-check"
        )
    return lookup.normal_name("instance", name), None


def check_name_free(context: JobContext, name: str) -> None:
    """Refuse a name that another instance has.

    Raises:
        OpPrereqError: it is taken (already_exists).
    """
    if lookup.present(context.config.get_instances([name])):
        raise OpPrereqError(f"instance {name!r} is already in the cluster", ErrorCode.EXISTS)


def check_ip_free(name: str, address: str | None) -> None:
    """Refuse the address of a new name if somebody answers there.

    Raises:
        OpPrereqError: somebody does (resource_not_unique).
    """
    if address is None or ipaddress.ip_address(address).is_loopback:
        return
    if answers(address, DEFAULT_PORT, PING_TIMEOUT_S):
        raise OpPrereqError(
            f"the IP address {address} of instance {name!r} is already in use; use --no-ip-check"
            " if that is known",
            ErrorCode.NOTUNIQUE,
        )
