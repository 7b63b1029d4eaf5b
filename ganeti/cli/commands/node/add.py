"""``gnt-node add``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ganeti.base.errors import ErrorCode, GenericError, OpPrereqError
from ganeti.bootstrap import node_setup
from ganeti.bootstrap.node_transport import (
    NodeTransport,
    SshTransport,
    VirtualTransport,
    virtual_sibling,
)
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_SUCCESS, NodeSetupError
from ganeti.cli.run.jobs import execute, make_opcode
from ganeti.store import ssconf
from ganeti.system import environment
from ganeti.system.ssh import SSH_PORT

_SSH_HINT: Final = (
    "Root of this node must be able to log in there by its key ('ssh-copy-id') and know its host"
    " key ('ssh-keyscan', or give --no-ssh-key-check)"
)


def add(context: Context, options: Options, args: list[str]) -> int:
    """Take a node into the cluster.

    When the job that adds it fails, the node is cleaned up again.
    """
    name, address = environment.resolve(args[0], context.paths)
    _check_membership(context, name, readd=options.readd)
    # The first question also makes sure that this is the master, before the node is touched.
    [cluster_name, manages_ssh] = context.client.query_config_values(
        ["cluster_name", "modify_ssh_setup"]
    )
    context.write(f"Setting up node {name} ({address}) for cluster {cluster_name}")
    transport = choose_transport(context, options, name)
    if options.verbose:
        context.write(f"Reaching it by {transport.describe()}")
    with_ssh = bool(manages_ssh) and bool(options.node_setup)
    setup = node_setup.compose_setup(
        context.paths, name, force_join=options.force_join, with_ssh=with_ssh
    )
    try:
        said = node_setup.set_up_remotely(transport, setup)
    except GenericError as err:
        hint = "" if context.paths.root else f"\n{_SSH_HINT}."
        raise NodeSetupError(err.message + hint) from err
    if said.strip():
        context.terminal.error(f"Node {name} says: {said.strip()}")
    opcode = make_opcode(
        "OP_NODE_ADD",
        node_name=name,
        primary_ip=address,
        secondary_ip=options.secondary_ip,
        readd=options.readd,
        group=options.node_group,
        master_capable=options.master_capable,
        vm_capable=options.vm_capable,
        ndparams=options.ndparams,
        hv_state=dict(options.hv_state) or None,
        disk_state=disk_state(options.disk_state) or None,
        node_setup=False,
    )
    try:
        execute(context, options, opcode)
    except GenericError:
        _clean_up(context, transport, name, readd=options.readd)
        raise
    return EXIT_SUCCESS


def _check_membership(context: Context, name: str, *, readd: bool) -> None:
    is_member = any(row[0] == name for row in context.client.query_nodes([], ["name"]))
    if is_member and not readd:
        raise OpPrereqError(
            f"node {name} is in the cluster already; --readd sets it up again", ErrorCode.EXISTS
        )
    if readd and not is_member:
        raise OpPrereqError(
            f"node {name} is not in the cluster; leave --readd out", ErrorCode.NOENT
        )


def choose_transport(context: Context, options: Options, name: str) -> NodeTransport:
    """Return the way to reach a machine that is not a node yet."""
    if context.paths.root:
        return VirtualTransport(name, virtual_sibling(context.paths, name))
    is_known = options.readd  # by the host key that all nodes share
    return SshTransport(
        name,
        context.paths.known_hosts if is_known else "",
        ssconf.cluster_name(context.paths) if is_known else "",
        port=ssh_port(options.ndparams),
        check_host_key=options.ssh_key_check,
    )


def ssh_port(ndparams: Mapping[str, object] | None) -> int:
    """Return the SSH port among node parameters.

    Raises:
        OpPrereqError: it is not a number.
    """
    text = str((ndparams or {}).get("ssh_port", SSH_PORT))
    if not text.isdigit():
        raise OpPrereqError(f"ssh_port {text!r} is not a number")
    return int(text)


def disk_state(given: list[tuple[str, object]]) -> dict[str, dict[str, object]]:
    """Return ``TYPE/NAME:...`` options as {type: {name: values}}.

    Raises:
        OpPrereqError: a name is missing.
    """
    found: dict[str, dict[str, object]] = {}
    for ident, values in given:
        kind, _, name = ident.partition("/")
        if not name:
            raise OpPrereqError(f"disk state {ident!r} is written TYPE/NAME:key=value,...")
        found.setdefault(kind, {})[name] = values
    return found


def _clean_up(context: Context, transport: NodeTransport, name: str, *, readd: bool) -> None:
    """Leave nothing on a machine that did not become a node."""
    if readd:
        return  # it still is one
    try:
        node_setup.clean_up_remotely(transport, name)
        context.terminal.error(f"Node {name} was not added; what was set up on it is removed again")
    except GenericError as err:
        context.terminal.error(
            f"Node {name} was not added, and cleaning it up failed too: {err.message}\n"
            f"Run 'node-cleanup --yes-do-it' there."
        )
