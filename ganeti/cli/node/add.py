"""``gnt-node add``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ganeti.base.errors import (
    ErrorCode,
    GenericError,
    OpPrereqError,
    ProtocolError,
    TransportError,
    wrong_state,
)
from ganeti.base.paths import Paths
from ganeti.bootstrap import node_setup
from ganeti.bootstrap.node_transport import (
    NodeTransport,
    SshTransport,
    VirtualTransport,
    virtual_sibling,
)
from ganeti.cli.command import Context, Options, command, opt
from ganeti.cli.declaration.values import DEFAULT_VALUE
from ganeti.cli.run.binding import submit
from ganeti.cli.run.failures import NodeSetupError
from ganeti.cli.run.jobs import FINAL_STATUSES
from ganeti.objects.model import IpFamily
from ganeti.opcodes.node import OpNodeAdd
from ganeti.store import ssconf
from ganeti.system import environment
from ganeti.system.ssh import SSH_PORT

_SSH_PORT: Final = "ssh_port"
_PORT_DIGITS_MAX: Final = 5
_SSH_HINT: Final = (
    "Root of this node must be able to log in there by its key ('ssh-copy-id') and know its host"
    " key ('ssh-keyscan', or give --no-ssh-key-check)"
)

_READD_HINT: Final = (
    ".  If it was offline when SSH keys were replaced, 'gnt-node modify --offline=no {}' tells it"
    " the new ones, without logging in"
)


def add(context: Context, options: Options, args: list[str]) -> None:
    """Take a node into the cluster.

    When the job that adds it fails, the node is cleaned up again, unless it may have become one.
    """
    family = ssconf.read_key_or_none(context.paths, "primary_ip_family")
    version = IpFamily(int(family)).version if family else IpFamily.IPV4.version
    name, address = environment.resolve(args[0], context.paths, ip_version=version)
    _check_membership(context, name, readd=options.readd)
    if options.readd and options.group is not None:
        raise OpPrereqError(
            "a group cannot be given when a node is re-added; use 'gnt-group assign-nodes'"
        )
    port = port_of(context, name, options.ndparams, options.group, readd=options.readd)
    # The first question also makes sure that this is the master, before the node is touched.
    [cluster_name, manages_ssh] = context.client.query_config_values(
        ["cluster_name", "modify_ssh_setup"]
    )
    context.write(f"Setting up node {name} ({address}) for cluster {cluster_name}")
    transport = choose_transport(
        context, name, port=port, readd=options.readd, check_host_key=options.ssh_key_check
    )
    if options.verbose:
        context.write(f"Reaching it by {transport.describe()}")
    with_ssh = bool(manages_ssh) and bool(options.node_setup)
    setup = node_setup.compose_setup(
        context.paths, name, force_join=options.force_join, with_ssh=with_ssh
    )
    set_up(
        context,
        transport,
        setup,
        lambda: submit(context, options, [name], **shown_in_the_job(options, address)),
        readd=options.readd,
    )


def set_up(
    context: Context,
    transport: NodeTransport,
    setup: node_setup.NodeSetup,
    enter: Callable[[], object],
    *,
    readd: bool = False,
) -> None:
    """Set a machine up, and enter it into the configuration; else clean it up again.

    It is left as it is where it may be a node all the same, or become one.

    Raises:
        NodeSetupError: it cannot be set up.
        GenericError: it cannot be entered.
    """
    name = setup.node_name
    try:
        said = node_setup.set_up_remotely(transport, setup)
    except GenericError as err:
        more = _READD_HINT.format(name) if readd else ""
        hint = "" if context.paths.root else f"\n{_SSH_HINT}{more}."
        raise NodeSetupError(err.message + hint) from err
    if said.strip():
        context.terminal.error(f"Node {name} says: {said.strip()}")
    try:
        enter()
    except GenericError as err:
        if not readd:  # one that was taken in again still is a node
            _clean_up(context, transport, setup, _may_be_node(context, name, err))
        raise


def shown_in_the_job(options: Options, address: str) -> dict[str, object]:
    """Return the opcode's parameters with the defaults that 3.0 has in a job that adds a node."""
    found: dict[str, object] = {"primary_ip": address, "node_setup": False}
    if options.readd:  # what is not given stays as it is
        return found
    defaults = {
        "secondary_ip": address,
        "hv_state": {},
        "disk_state": {},
        "master_capable": True,
        "vm_capable": True,
    }
    missing = {
        name: value for name, value in defaults.items() if options.get(name) in (None, {}, ())
    }
    return {**found, **missing}


def _is_member(context: Context, name: str) -> bool:
    return any(row[0] == name for row in context.client.query_nodes([], ["name"]))


def _check_membership(context: Context, name: str, *, readd: bool) -> None:
    """Refuse before the machine is touched, whose daemons start anew."""
    masters = {row[0]: row[1] for row in context.client.query_nodes([], ["name", "master"])}
    is_member = name in masters
    if is_member and readd and masters[name]:
        raise wrong_state(f"node {name} is the master; it cannot be re-added")
    if is_member and not readd:
        raise OpPrereqError(
            f"node {name} is in the cluster already; --readd sets it up again", ErrorCode.EXISTS
        )
    if readd and not is_member:
        raise OpPrereqError(
            f"node {name} is not in the cluster; leave --readd out", ErrorCode.NOENT
        )


def choose_transport(
    context: Context, name: str, *, port: int, readd: bool, check_host_key: bool
) -> NodeTransport:
    """Return the way to reach a machine that is not a node yet."""
    if context.paths.root:
        return VirtualTransport(name, virtual_sibling(context.paths, name))
    is_known = readd  # by the host key that all nodes share
    return SshTransport(
        name,
        context.paths.known_hosts if is_known else "",
        ssconf.cluster_name(context.paths) if is_known else "",
        port=port,
        check_host_key=check_host_key,
    )


def port_of(
    context: Context,
    name: str,
    ndparams: Mapping[str, object] | None = None,
    group: str | None = None,
    *,
    readd: bool = False,
) -> int:
    """Return the SSH port of a machine: its own, else that of the group that it belongs to.

    Raises:
        OpPrereqError: the one that is given is not a number, or the group is not known.
    """
    given = (ndparams or {}).get(_SSH_PORT)
    if given not in (None, DEFAULT_VALUE):
        return _as_port(given)
    if readd:
        [[own, of_node]] = context.client.query_nodes([name], [f"ndp/{_SSH_PORT}", "group"])
        if given is None:
            return _as_port(own)
        group = str(of_node)
    rows = context.client.query_groups([group] if group else [], ["name", f"ndp/{_SSH_PORT}"])
    if group and not rows:
        raise OpPrereqError(
            f"node group {group!r} is not known; see 'gnt-group list'", ErrorCode.NOENT
        )
    return _as_port(rows[0][1]) if len(rows) == 1 else SSH_PORT


def _as_port(given: object) -> int:
    text = str(given)
    if not (text.isascii() and text.isdigit() and len(text) <= _PORT_DIGITS_MAX):
        raise OpPrereqError(f"{_SSH_PORT} {text!r} is not a number")
    return int(text)


def _may_be_node(context: Context, name: str, error: GenericError) -> str:
    """Say why a machine that could not be entered may be a node, or become one; "" if it cannot."""
    if context.waiting_for:
        job_id = context.waiting_for[-1]
        return f"job {job_id} is not known to have ended; 'gnt-job watch {job_id}' follows it"
    if isinstance(error, TransportError | ProtocolError):
        return "a job may have been submitted; 'gnt-job list' shows it"
    try:
        rows = context.client.query_jobs(None, ["id", "status", "summary"])
        is_member = _is_member(context, name)
    except GenericError as err:
        return f"the cluster cannot be asked about it: {err.message}; see 'gnt-node list'"
    if is_member:
        return (
            "it is in the cluster; 'gnt-cluster verify' tells if it lacks anything, which 'gnt-node"
            f" add --readd {name}' brings"
        )
    for job_id, status, summary in rows:
        is_adding = isinstance(summary, list) and f"NODE_ADD({name})" in summary
        if is_adding and status not in FINAL_STATUSES:
            return f"job {job_id} is to add it; 'gnt-job watch {job_id}' follows it"
    return ""


def _clean_up(
    context: Context, transport: NodeTransport, setup: node_setup.NodeSetup, why_not: str
) -> None:
    """Leave nothing on a machine that did not become a node.

    One that was taken by force may have had the configuration of another cluster, which is kept.
    """
    name = setup.node_name
    if why_not:
        context.terminal.error(
            f"Node {name} is left as it is: {why_not}.\n"
            f"If it is not to be a node, run 'node-cleanup --yes-do-it' there once it is not in"
            f" 'gnt-node list'."
        )
        return
    try:
        node_setup.clean_up_remotely(transport, name, backup=setup.force_join)
        kept = f", those of before are in {Paths().backup_dir} there" if setup.force_join else ""
        context.terminal.error(f"Node {name} was not added; its new files are removed again{kept}")
    except GenericError as err:
        context.terminal.error(
            f"Node {name} was not added, and cleaning it up failed too: {err.message}\n"
            f"Run 'node-cleanup --yes-do-it' there."
        )


COMMANDS: Final = (
    command(
        add,
        "<node>:host=node_name --disk-state --hypervisor-state --master-capable",
        "--no-ssh-key-check --node-parameters --priority --secondary-ip --verbose --vm-capable",
        opt.flag("--force-join", "take it even if it belongs to another cluster"),
        opt.unflag("--no-node-setup", "do not set up SSH keys on the node"),
        opt.with_help(opt.NODE_GROUP, "group to put it in", "group"),
        opt.flag("--readd", "set a known node up again, after repair or reinstallation"),
        description="""The node is reached by SSH as root (nodes of a virtual cluster directly),
gets the cluster's certificate and starts its node daemon; then it is added to the
configuration.""",
        examples="gnt-node add node2.example.com  # add node2",
        opcode=OpNodeAdd,
    ),
)
