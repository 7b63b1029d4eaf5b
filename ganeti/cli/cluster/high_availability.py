"""``gnt-cluster`` ha-enable and ha-disable."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from ganeti.base.errors import OpPrereqError
from ganeti.cli.command import ArgKind, Context, Options, command, confirm, opt
from ganeti.cli.declaration.values import PlainValues
from ganeti.cli.run.jobs import execute, make_opcode
from ganeti.opcodes.cluster import OpClusterSetAvailability
from ganeti.store import lease
from ganeti.system import certificates, files

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
    opcode = make_opcode(
        OpClusterSetAvailability,
        enabled=True,
        members=options.members or [],
        endpoints=options.endpoints or [],
        watchdog=_path(options.watchdog),
        lease_disk=_path(options.lease_disk),
        timing=_seconds(options.timing or {}),
        limits=_counts(options.limits or {}),
    )
    execute(context, options, opcode)


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
    if not options.force:
        confirm(
            context,
            "Nobody acts on the loss of a node any more, and everything of high availability is"
            " taken off the nodes.  Go on?",
        )
    execute(context, options, make_opcode(OpClusterSetAvailability, enabled=False))


COMMANDS: Final = (
    command(
        enable,
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
run an etcd, and others take over when they cease to be candidates.  Run again, it changes what is
given, and brings all nodes up to date.  See doc/high-availability.md.""",
        examples="""
gnt-cluster ha-enable  # with the watchdog /dev/watchdog on each node
gnt-cluster ha-enable --watchdog=none  # nodes are switched off by their out-of-band helpers
gnt-cluster ha-enable --timing=lease=8,watchdog=10  # for a slow network
gnt-cluster ha-enable --lease-disk=/dev/disk/by-id/wwn-0x5000  # a small LUN that all nodes reach
gnt-cluster ha-enable --limits=starts=20,per-node=4  # for fast storage""",
    ),
    command(
        disable,
        "--force",
        title="ha-disable: let nobody act on the loss of a node",
        description="""Ends the agents and etcd, and takes all of their files away.  Instances are
not touched.""",
        examples="gnt-cluster ha-disable  # as before 'ha-enable'",
    ),
)
