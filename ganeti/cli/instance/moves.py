"""``gnt-instance`` change-group, failover, migrate and move."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ganeti.base.errors import OpPrereqError
from ganeti.cli.command import Options, job, opt
from ganeti.cli.run.jobs import follow_moves
from ganeti.opcodes import instance


def migration_mode(options: Options) -> Mapping[str, object]:
    """Return the mode, of ``--migration-mode`` or its older form ``--non-live``."""
    return {"mode": options.migration_mode if options.live else "non-live", "live": None}


def migration_question(options: Options) -> str:
    """Return the question before a migration."""
    if options.cleanup:
        return "This finds out where instance {instance_name} runs and records that.  Go on?"
    return "This moves the running instance {instance_name} to another node.  Go on?"


def failover_question(options: Options) -> str:
    """Return the question before a failover; mending an earlier one needs no question."""
    question = "This stops instance {instance_name} and starts it on another node.  Go on?"
    return "" if options.cleanup else question


def check_target(options: Options) -> Mapping[str, object]:
    """Ask for the node to move to."""
    if options.target_node is None:
        raise OpPrereqError("give the node to move to with -n NODE")
    return {}


_ONE_CHOICE = (("--iallocator", "--target-node"),)
COMMANDS: Final = (
    job(
        "failover: stop an instance and start it on another node",
        instance.OpInstanceFailover,
        "<instance> --force --iallocator --ignore-consistency --ignore-ipolicy",
        "--shutdown-timeout --target-node CHANGE",
        opt.flag("--cleanup", "put right the state that a failed failover left"),
        examples="gnt-instance failover -n node2 web1  # start web1 on node2",
        confirm=failover_question,
        exclusive=_ONE_CHOICE,
    ),
    job(
        "migrate: move a running instance to another node",
        instance.OpInstanceMigrate,
        "<instance> --force --iallocator --ignore-ipolicy --migration-mode --no-runtime-changes",
        "--non-live --target-node CHANGE",
        opt.flag("--allow-failover", "fail over instead where migration is not possible"),
        opt.flag("--cleanup", "put right the state that a failed migration left"),
        opt.flag("--ignore-hvversions", "go on between different hypervisor versions"),
        examples="""
gnt-instance migrate -f -n node2 web1  # move web1 to node2 while it runs
gnt-instance migrate --cleanup web1  # find out where web1 runs and record that""",
        confirm=migration_question,
        makes=migration_mode,
        exclusive=(*_ONE_CHOICE, ("--non-live", "--migration-mode")),
    ),
    job(
        "move: copy an instance to another node and run it there",
        instance.OpInstanceMove,
        "<instance> --compress --force --ignore-consistency --ignore-ipolicy --shutdown-timeout",
        "CHANGE",
        opt.with_help(opt.NODE, "the node to move to", "target_node"),
        makes=check_target,
        confirm="This stops instance {instance_name} and copies its disks.  Go on?",
        examples="""
gnt-instance move -n node2 web1  # copy its files to node2; it is stopped meanwhile""",
    ),
    job(
        "change-group: move an instance to another node group",
        instance.OpInstanceChangeGroup,
        "<instance> --early-release --iallocator SUBMISSION --to",
        result=follow_moves,
    ),
)
