"""``gnt-backup``: exports of instances."""

from __future__ import annotations

from ganeti.cli.declaration import common as opt
from ganeti.cli.declaration.program import (
    ArgKind,
    Argument,
    Command,
    Option,
    Program,
    flag,
    unflag,
    with_help,
)
from ganeti.cli.declaration.values import ValueType

_EXPORT = Command(
    "export",
    "export an instance to a node",
    "backup:export",
    opt.ONE_INSTANCE,
    (
        opt.FORCE,
        flag("--ignore-remove-failures", help="count it as done although removal failed"),
        flag("--long-sleep", help="keep the guest stopped during the whole export"),
        with_help(opt.NODE, "node to export to"),
        unflag(
            "--noshutdown",
            help="do not stop the guest; KVM keeps what its disks hold at one instant",
            dest="shutdown",
        ),
        flag("--remove-instance", help="remove the instance afterwards"),
        opt.SHUTDOWN_TIMEOUT,
        Option(
            ("--transport-compression",),
            "compression of what is sent",
            metavar="TRANSPORT_COMPRESSION",
            default="none",
        ),
        flag("--zero-free-space", help="fill free space with zeroes first"),
        Option(
            ("--zeroing-timeout-fixed",),
            "seconds that zeroing gets at least",
            type=ValueType.INT,
            metavar="ZEROING_TIMEOUT_FIXED",
        ),
        Option(
            ("--zeroing-timeout-per-mib",),
            "seconds that zeroing gets for each MiB",
            type=ValueType.FLOAT,
            metavar="ZEROING_TIMEOUT_PER_MIB",
        ),
        *opt.CHANGE,
    ),
    description="""The instance is stopped while its disks are read, and started again after that.
With --noshutdown a running guest of KVM goes on: what all its disks hold at one instant is
exported, as if the power had failed then.  Until the export ends that needs as much free room in
the export directory of its primary node as the disks are large.
An earlier export of it is replaced once the new one is complete.""",
    examples=(
        ("gnt-backup export -n node3 web1", "to node3, below /var/lib/ganeti/export"),
        ("gnt-backup export --noshutdown -n node3 web1", "while it runs"),
    ),
)

_IMPORT = Command(
    "import",
    "create an instance from an export",
    "backup:import_",
    (Argument(ArgKind.INSTANCE),),
    (
        opt.BACKEND_PARAMETERS,
        opt.COMPRESS,
        opt.DISK,
        opt.DISK_TEMPLATE,
        opt.FILE_DRIVER,
        opt.FILE_STORAGE_DIR,
        opt.HELPER_SHUTDOWN_TIMEOUT,
        opt.HELPER_STARTUP_TIMEOUT,
        opt.HYPERVISOR_AND_PARAMETERS,
        opt.IALLOCATOR,
        flag("--identify-defaults", help="leave parameters unset that equal the defaults"),
        opt.IGNORE_IPOLICY,
        opt.NET,
        opt.NO_CONFLICTS_CHECK,
        opt.NO_IP_CHECK,
        opt.NO_NAME_CHECK,
        opt.NO_NICS,
        opt.NO_WAIT_FOR_SYNC,
        opt.NODE_PAIR,
        with_help(opt.NODE_GROUP, "node group to put it in"),
        opt.OPPORTUNISTIC_LOCKING,
        opt.OS_PARAMETERS,
        opt.OS_PARAMETERS_PRIVATE,
        opt.OS_PARAMETERS_SECRET,
        opt.OS_SIZE,
        Option(("--src-dir",), "directory of the export", metavar="<dir>"),
        Option(
            ("--src-node",),
            "node that has the export",
            metavar="<node>",
            completes=ArgKind.NODE,
        ),
        opt.TAGS,
        *opt.CHANGE,
    ),
    description="""Whatever no option says is as it was when the instance was exported.  Without
--src-node, the export is looked for on all nodes.  The instance is not started.""",
    examples=(
        ("gnt-backup import -n node1 web1", "bring web1 back"),
        (
            "gnt-backup import --src-node node3 --src-dir web1 -n node2 web2",
            "a copy of web1 under another name, with new MAC addresses",
        ),
    ),
)

PROGRAM = Program(
    "gnt-backup",
    "export and import instances",
    "Makes copies of instances on nodes, and instances from such copies.  Runs on the master node.",
    (
        _EXPORT,
        _IMPORT,
        Command(
            "list",
            "list exports",
            "lists:exports",
            (),
            (opt.NODES, opt.UNITS, *opt.LISTING),
        ),
        Command(
            "list-fields",
            "list the fields of exports",
            "lists:export_fields",
            opt.ANY_FIELDS,
            opt.FIELD_LISTING,
        ),
        Command(
            "remove",
            "remove an export",
            "backup:remove",
            (Argument(ArgKind.TEXT, metavar="<export>"),),
            opt.CHANGE,
        ),
    ),
)


def main() -> int:
    """Run ``gnt-backup`` with the words of the command line."""
    from ganeti.cli.run.main import run

    return run(PROGRAM)
