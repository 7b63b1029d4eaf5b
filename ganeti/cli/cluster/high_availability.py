"""``gnt-cluster`` ha-enable and ha-disable."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.bootstrap import node_setup
from ganeti.cli.command import ArgKind, Context, Options, command, confirm, opt
from ganeti.cli.declaration.values import PlainValues
from ganeti.cli.node.add import choose_transport, port_of, set_up
from ganeti.cli.run.jobs import execute, make_opcode
from ganeti.opcodes.cluster import OpClusterSetAvailability
from ganeti.opcodes.node import OpNodeAdd, OpNodeRemove
from ganeti.store import availability, lease
from ganeti.store.availability import Settings
from ganeti.system import certificates, environment, files

_PEM_BYTES_MAX: Final = 1 << 20
_NONE: Final = "none"


def enable(context: Context, options: Options, _args: list[str]) -> None:
    """Switch it on, or change its settings."""
    if not options.endpoints:
        for name in ("certificate", "authority"):
            if getattr(options, name):
                raise OpPrereqError(f"--{name} is for an etcd of your own, named by --endpoints")
    elif any(url.startswith("https:") for url in options.endpoints):
        _take_certificates(context, options)
    before = availability.read(context.paths)
    witness = _witness(context, options)
    opcode = make_opcode(
        OpClusterSetAvailability,
        enabled=True,
        **witness,
        members=options.members or [],
        endpoints=options.endpoints or [],
        watchdog=_path(options.watchdog),
        lease_disk=_path(options.lease_disk),
        timing=_seconds(options.timing or {}),
        limits=_counts(options.limits or {}),
    )
    try:
        execute(context, options, opcode)
    except GenericError:
        if witness.get("adopted"):
            _let_go(context, options, str(witness["witness"]))
        raise
    if before is not None and witness["witness"] not in (None, before.witness):
        _release(context, options, before)


def _witness(context: Context, options: Options) -> dict[str, object]:
    """Return what is to be said of the witness; a machine that is no node yet becomes one.

    Raises:
        GenericError: it cannot be set up.
    """
    given = _path(options.witness)
    if not given:
        return {"witness": given}
    name, address = environment.resolve(given, context.paths)
    if any(row[0] == name for row in context.client.query_nodes([], ["name"])):
        return {"witness": name}
    [manages_ssh] = context.client.query_config_values(["modify_ssh_setup"])
    context.write(f"Setting up {name} ({address}) as the witness")
    port = port_of(context, name)
    transport = choose_transport(
        context, name, port=port, readd=False, check_host_key=options.ssh_key_check
    )
    opcode = make_opcode(
        OpNodeAdd, node_name=name, primary_ip=address, vm_capable=False, master_capable=True
    )
    setup = node_setup.compose_setup(context.paths, name, with_ssh=bool(manages_ssh))
    set_up(context, transport, setup, lambda: execute(context, options, opcode))
    return {"witness": name, "adopted": True}


def _release(context: Context, options: Options, before: Settings) -> None:
    """Take a witness out of the cluster that became a node for that only."""
    if before.adopted:
        _let_go(context, options, before.witness)


def _let_go(context: Context, options: Options, name: str) -> None:
    context.write(f"Taking {name} out of the cluster, where it was the witness")
    execute(context, options, make_opcode(OpNodeRemove, node_name=name))


def _path(given: str | None) -> str | None:
    """Return a path, "" for 'none', and None for what was not said."""
    return "" if given == _NONE else given


def _seconds(given: Mapping[str, object]) -> dict[str, float]:
    """Return times as numbers.

    Raises:
        OpPrereqError: one is none.
    """
    found = {}
    for name, text in given.items():
        try:
            found[name] = float(str(text))
        except ValueError:
            found[name] = math.nan
        if not 0 <= found[name] < math.inf:
            raise OpPrereqError(f"--timing: {name}={text} is no number of seconds")
    return found


def _counts(given: Mapping[str, object]) -> dict[str, int]:
    """Return limits as numbers.

    Raises:
        OpPrereqError: one is none.
    """
    found = {}
    for name, text in given.items():
        if not str(text).isdecimal() or int(str(text)) < 1:
            raise OpPrereqError(f"--limits: {name}={text} is no number of instances")
        found[name] = int(str(text))
    return found


def _take_certificates(context: Context, options: Options) -> None:
    """Put the certificates for an etcd of the site where nodes get them from.

    Raises:
        OpPrereqError: one is missing.
        X509CertError: one cannot be read, or the key does not fit.
    """
    contents = {}
    for name in ("certificate", "authority"):
        path = getattr(options, name)
        if not path and not lease.is_on(context.paths):
            raise OpPrereqError(
                f"etcd at {options.endpoints[0]} wants certificates: --{name} is missing"
            )
        if path:
            contents[name] = files.read_bytes(path, _PEM_BYTES_MAX)
    if "certificate" in contents:
        certificates.check_key_fits(contents["certificate"], options.certificate)
        files.write_durable(context.paths.ha_certificate, contents["certificate"], 0o600)
    if "authority" in contents:
        text = certificates.certificate_only(contents["authority"], options.authority)
        files.write_durable(context.paths.ha_authority, text, 0o600)


def disable(context: Context, options: Options, _args: list[str]) -> None:
    """Switch it off."""
    before = availability.read(context.paths)
    if not options.force:
        confirm(
            context,
            "Nobody acts on the loss of a node any more, and everything of high availability is"
            " taken off the nodes.  Go on?",
        )
    execute(context, options, make_opcode(OpClusterSetAvailability, enabled=False))
    if before is not None:
        _release(context, options, before)


COMMANDS: Final = (
    command(
        enable,
        "--no-ssh-key-check",
        opt.names("--members=NODES", "the three master candidates that run etcd"),
        opt.names("--endpoints=URLS", "URLs of an etcd of your own, separated by commas"),
        opt.option(
            "--certificate=FILE",
            "key and certificate for that etcd, as PEM",
            completes=ArgKind.FILE,
        ),
        opt.option("--authority=FILE", "its authority, as PEM", completes=ArgKind.FILE),
        opt.option(
            "--watchdog=DEVICE", "watchdog of each node (/dev/watchdog), or 'none' for none", str
        ),
        opt.option(
            "--lease-disk=DEVICE",
            "disk that all nodes reach, on which they hold leases, too; or 'none' for none",
            str,
        ),
        opt.option(
            "--witness=HOST",
            "third machine beside two nodes, which only votes; or 'none' for none",
            str,
        ),
        opt.option("--timing=TIMES", "times in seconds, such as lease=4,beat=1", PlainValues),
        opt.option(
            "--limits=LIMITS",
            "how many instances start at a time: starts=8,per-node=2",
            PlainValues,
        ),
        title="ha-enable: let instances of a dead node start elsewhere, or change how",
        description="""From then on an agent on each node shows that the node lives, and feeds its
watchdog only while it does.  A node that is missed is proved dead by its watchdog or by its
out-of-band helper (the node parameter oob_program), or by you ('gnt-cluster ha-confirm-dead'), and
only then its instances start elsewhere.  With --lease-disk, a block device of a few MiB that is
empty and that all nodes reach, a node that loses only its network lives on until it is condemned on
that disk, and is proved dead by what it says there.  Without --endpoints three master candidates
run an etcd, and others take over when they cease to be candidates.  Two nodes need a --witness: a
small machine with this software and etcd, reached by SSH as root, which becomes a node that runs no
instances and is never the master.  Run again, it changes what is
given, and brings all nodes up to date.  See doc/high-availability.md.""",
        examples="""
gnt-cluster ha-enable  # with the watchdog /dev/watchdog on each node
gnt-cluster ha-enable --watchdog=none  # nodes are switched off by their out-of-band helpers
gnt-cluster ha-enable --witness=vote.example.com  # two nodes, and a small machine elsewhere
gnt-cluster ha-enable --timing=lease=8,watchdog=10  # for a slow network
gnt-cluster ha-enable --lease-disk=/dev/disk/by-id/wwn-0x5000  # a small LUN that all nodes reach
gnt-cluster ha-enable --limits=starts=20,per-node=4  # for fast storage""",
    ),
    command(
        disable,
        "--force",
        title="ha-disable: let nobody act on the loss of a node",
        description="""Ends the agents and etcd, and takes all of their files away.  Instances are
not touched.  A witness that became a node by 'ha-enable --witness' is none any more.""",
        examples="gnt-cluster ha-disable  # as before 'ha-enable'",
    ),
)
