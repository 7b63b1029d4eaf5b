"""The commands of ``gnt-cluster`` that look whether all is well."""

from __future__ import annotations

from ganeti.cli.declaration import common as opt
from ganeti.cli.declaration.program import (
    Action,
    ArgKind,
    Argument,
    Command,
    Option,
    flag,
)
from ganeti.cli.declaration.values import ValueType
from ganeti.objects.verify_errors import VerifyErrorCode

_IGNORE_ERRORS = Option(
    ("-I", "--ignore-errors"),
    "count this error as a warning",
    type=ValueType.CHOICE,
    action=Action.APPEND,
    metavar="IGNORE_ERRORS",
    choices=tuple(code.value for code in VerifyErrorCode),
)
VERIFY = (
    Command(
        "verify",
        "check the whole cluster",
        "cluster.verify:verify",
        (),
        (
            flag("--debug-simulate-errors", help="end as if an error had been found"),
            opt.DRY_RUN,
            flag("--error-codes", help="report in a form for programs"),
            _IGNORE_ERRORS,
            flag("--no-nplus1-mem", help="do not check that any one node may fail"),
            opt.NODE_GROUP,
            opt.PRIORITY,
            opt.VERBOSE,
            flag("--verify-ssh-clutter", help="look for old SSH keys that still let somebody in"),
        ),
    ),
    Command(
        "verify-config",
        "check the configuration and the certificates, asking no node",
        "cluster.verify:verify_config",
        (),
        (
            flag("--debug-simulate-errors", help="end as if an error had been found"),
            flag("--error-codes", help="report in a form for programs"),
            _IGNORE_ERRORS,
            opt.PRIORITY,
            opt.VERBOSE,
        ),
        description="""Reports names, UUIDs, addresses, ports and DRBD minors that are used
twice, references to what is not there, values of a wrong type or out of range, policies that
contradict themselves, too few master candidates, and address maps of networks that do not fit
what instances use.  The exit status is 1 when there is an error.  The configuration daemon
refuses changes that would introduce such an error, so what is found has been there before, or
came in by editing the file.""",
        examples=(("gnt-cluster verify-config", "see that the configuration is sound"),),
    ),
    Command(
        "verify-disks",
        "check the disks of all instances and activate those that are not",
        "cluster.disks:verify_disks",
        (),
        (opt.NODE_GROUP, opt.PRIORITY),
    ),
    Command(
        "repair-disk-sizes",
        "record the real sizes of disks",
        "cluster.disks:repair_disk_sizes",
        (Argument(ArgKind.INSTANCE, 0, None),),
        (opt.DRY_RUN, opt.PRIORITY),
    ),
)
