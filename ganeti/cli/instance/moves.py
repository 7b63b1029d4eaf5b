"""``gnt-instance`` change-group, failover, migrate and move."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import OpPrereqError
from ganeti.cli.command import ArgKind, Command, Options, opt
from ganeti.cli.run.jobs import follow_moves
from ganeti.opcodes.instance import (
    OpInstanceChangeGroup,
    OpInstanceFailover,
    OpInstanceMigrate,
    OpInstanceMove,
)


def migration_mode(options: Options) -> Mapping[str, object]:
    """Return the mode, of ``--migration-mode`` or its older form ``--non-live``."""
    return {"mode": options.migration_mode if options.live else "non-live", "live": None}


def migration_question(options: Options) -> str:
    """Return what is asked before a migration."""
    if options.cleanup:
        return "This finds out where instance {instance_name} runs and records that.  Go on?"
    return "This moves the running instance {instance_name} to another node.  Go on?"


def failover_question(options: Options) -> str:
    """Return what is asked before a failover; putting right an old one needs no question."""
    question = "This stops instance {instance_name} and starts it on another node.  Go on?"
    return "" if options.cleanup else question


def check_target(options: Options) -> Mapping[str, object]:
    """Ask for the node to move to."""
    if options.target_node is None:
        raise OpPrereqError("give the node to move to with -n NODE")
    return {}


_ONE_CHOICE = (("--iallocator", "--target-node"),)
_TO_GROUP = opt.several(
    "--to", "group to move to", metavar="<group>", dest="target_groups", completes=ArgKind.GROUP
)
COMMANDS: Final = (
    Command(
        "failover",
        "stop an instance and start it on another node",
        OpInstanceFailover,
        opt.ONE_INSTANCE,
        (
            opt.flag("--cleanup", "put right what a failed failover left"),
            opt.FORCE,
            opt.IALLOCATOR,
            opt.IGNORE_CONSISTENCY,
            opt.IGNORE_IPOLICY,
            opt.SHUTDOWN_TIMEOUT,
            opt.TARGET_NODE,
            *opt.CHANGE,
        ),
        examples=(("gnt-instance failover -n node2 web1", "start web1 on node2"),),
        confirm=failover_question,
        exclusive=_ONE_CHOICE,
    ),
    Command(
        "migrate",
        "move a running instance to another node",
        OpInstanceMigrate,
        opt.ONE_INSTANCE,
        (
            opt.flag("--allow-failover", "fail over instead where migration is not possible"),
            opt.flag("--cleanup", "put right what a failed migration left"),
            opt.FORCE,
            opt.IALLOCATOR,
            opt.flag("--ignore-hvversions", "go on between different hypervisor versions"),
            opt.IGNORE_IPOLICY,
            opt.MIGRATION_MODE,
            opt.NO_RUNTIME_CHANGES,
            opt.NON_LIVE,
            opt.TARGET_NODE,
            *opt.CHANGE,
        ),
        examples=(
            ("gnt-instance migrate -f -n node2 web1", "move web1 to node2 while it runs"),
            ("gnt-instance migrate --cleanup web1", "find out where web1 runs and record that"),
        ),
        confirm=migration_question,
        makes=migration_mode,
        exclusive=(*_ONE_CHOICE, ("--non-live", "--migration-mode")),
    ),
    Command(
        "move",
        "copy an instance to another node and run it there",
        OpInstanceMove,
        opt.ONE_INSTANCE,
        (
            opt.COMPRESS,
            opt.FORCE,
            opt.IGNORE_CONSISTENCY,
            opt.IGNORE_IPOLICY,
            replace(opt.NODE, help="the node to move to", dest="target_node"),
            opt.SHUTDOWN_TIMEOUT,
            *opt.CHANGE,
        ),
        makes=check_target,
        confirm="This stops instance {instance_name} and copies its disks.  Go on?",
    ),
    Command(
        "change-group",
        "move an instance to another node group",
        OpInstanceChangeGroup,
        opt.ONE_INSTANCE,
        (opt.EARLY_RELEASE, opt.IALLOCATOR, *opt.SUBMISSION, _TO_GROUP),
        result=follow_moves,
    ),
)
