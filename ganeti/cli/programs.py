"""All programs: those on the PATH with the modules of their commands, and the tools.

Each is started under its own name by the same launcher, which calls `main`.
"""

from __future__ import annotations

import sys

try:
    import gc
    import os
    from collections.abc import Mapping
    from importlib import import_module
    from typing import Final

    # Where it is installed, msgspec loads this library (8 ms) for what `typing` has by now.
    _is_hidden: Final = sys.modules.setdefault("typing_extensions", None) is None  # type: ignore[arg-type]
    import msgspec as _first  # noqa: F401

    if _is_hidden:
        del sys.modules["typing_extensions"]

    from ganeti.cli.declaration.program import Program
    from ganeti.cli.run.failures import EXIT_INTERRUPTED
    from ganeti.cli.run.main import run
except KeyboardInterrupt:  # for the start of a program, which imports `main` with nothing around it
    sys.exit(130)


def _program(name: str, summary: str, description: str, *modules: str) -> Program:
    """Return a program that works on the master node; each module stands before its commands."""
    environment = {"list": f"{name.upper().replace('-', '_')}_LIST"}
    return Program(
        name,
        summary,
        f"{description}  Runs on the master node.",
        modules=dict(each.split(": ") for each in modules),
        environment_defaults=environment if name in _WITH_DEFAULTS else {},
    )


_WITH_DEFAULTS: Final = ("gnt-group", "gnt-instance", "gnt-node")  # of list, in a variable
_LISTS: Final = "lists: list list-fields"
_TAGS: Final = "tags: list-tags add-tags remove-tags"
PROGRAMS: Final = (
    _program(
        "gnt-backup",
        "export and import instances",
        "Makes copies of instances on nodes, and instances from such copies.",
        _LISTS,
        "backup.exports: export import remove",
        "backup.schedule: schedule set-policy remove-policy",
        "backup.rehearsal: rehearse",
    ),
    _program(
        "gnt-cluster",
        "manage the cluster as a whole",
        "Makes a cluster, changes its parameters, checks it and destroys it.",
        "cluster.init: init destroy",
        "cluster.modify: modify redist-conf rename remove-repair",
        "cluster.verify: verify verify-config verify-disks repair-disk-sizes repair-volume-groups",
        "cluster.master: master-failover masterfailover activate-master-ip deactivate-master-ip"
        " queue watcher",
        "cluster.upgrade: upgrade",
        "cluster.info: getmaster master-ping info show version",
        "cluster.remote: command copyfile",
        "cluster.epo: epo",
        "cluster.ha_status: ha-status ha-pause ha-confirm-dead ha-accept-copy",
        "cluster.crypto: renew-crypto",
        "cluster.backup: backup",
        "cluster.restore: restore",
        "cluster.apply: apply export-spec",
        "cluster.high_availability: ha-enable ha-disable",
        "policy: show-ispecs-cmd",
        f"{_TAGS} search-tags",
    ),
    _program(
        "gnt-debug",
        "tools for developers and testers",
        "Runs single opcodes, and looks at locks.",
        "debug.opcodes: delay locks submit-job",
        "debug.allocator: iallocator allocator",
        "debug.job_trial: test-jobqueue test-osparams",
        "debug.wconfd: metad wconfd",
        "debug.simulate_ha: simulate-ha",
    ),
    _program(
        "gnt-filter",
        "manage job filters",
        "A job filter accepts, pauses, rejects or limits jobs before they start.",
        _LISTS,
        "info: info",
        "filter: add delete replace",
    ),
    _program(
        "gnt-group",
        "manage node groups",
        "Every node belongs to one group; groups have policies and parameters of their own.",
        _LISTS,
        "info: info",
        "group: add assign-nodes evacuate modify remove rename",
        "policy: show-ispecs-cmd",
        _TAGS,
    ),
    _program(
        "gnt-instance",
        "manage virtual machines",
        "Creates, starts, stops, moves, shows and removes the virtual machines of the cluster.",
        _LISTS,
        "instance.creation: add batch-create",
        "instance.adopt: adopt",
        "instance.modify: modify rename",
        "instance.life: startup start shutdown stop reboot remove reinstall",
        "instance.moves: failover migrate move change-group",
        "instance.disks: activate-disks deactivate-disks grow-disk recreate-disks repair"
        " replace-disks",
        "instance.snapshots: snapshot",
        "instance.info: info show",
        "instance.console: console ssh",
        _TAGS,
    ),
    _program(
        "gnt-job",
        "look at and act on the job queue",
        """Every change of the cluster is a job.  Jobs wait in a queue, run in their own process,
and keep their log and result.""",
        _LISTS,
        "job: archive autoarchive cancel change-priority info show wait watch",
    ),
    _program(
        "gnt-maint",
        "look at what maintenance does",
        """Maintenance acts on nodes whose diagnose command asks for it; see ganeti-maintd.""",
        "maint: cancel list show watch",
    ),
    _program(
        "gnt-network",
        "manage networks",
        "A network hands out addresses to the interfaces of instances.",
        _LISTS,
        "info: info",
        "network: add connect disconnect modify remove",
        _TAGS,
    ),
    _program(
        "gnt-node",
        "manage nodes",
        "Adds machines to the cluster, changes, shows and removes them.",
        _LISTS,
        "info: info show",
        "node.add: add",
        "node.modify: modify remove",
        "node.leaving: evacuate failover migrate",
        "node.storage: volumes list-storage modify-storage repair-storage",
        "node.power: health power powercycle restricted-command repair-command",
        "node.drbd: list-drbd",
        _TAGS,
    ),
    _program(
        "gnt-os",
        "look at operating system definitions",
        """An operating system definition is a directory with scripts that install, export and
rename an instance's system.  It must be the same on all nodes.""",
        "os: diagnose info show list modify",
    ),
    Program(
        "gnt-rapi",
        "manage users of the remote API",
        """The remote API knows its users by passwords or tokens.  A user has rights on
everything, or roles, whose rights may be for some resources and some instances only.  Runs on the
master node; changes go to the other master candidates, and count at once.""",
        modules={
            "rapi": "list-users set-user remove-user list-roles set-role remove-role list-tokens"
            " add-token remove-token"
        },
    ),
    _program(
        "gnt-storage",
        "look at external storage providers",
        "Shows the external storage providers of the nodes.",
        "os: diagnose info",
    ),
)
TOOLS: Final[Mapping[str, str]] = {
    "burnin": "burnin.command",
    "cfgupgrade": "tools.cfgupgrade",
    "cluster-merge": "merging.command",
    "cluster-merge-peer": "merging.peer",
    "confd-client": "tools.confd_client",
    "daemon-util": "tools.daemon_util",
    "demo": "tools.demo",
    "drbd-fence-peer": "tools.drbd_fence_peer",
    "ensure-dirs": "tools.ensure_dirs",
    "hail": "htools.hail",
    "harep": "htools.harep",
    "hbal": "htools.hbal",
    "hcheck": "htools.hcheck",
    "hinfo": "htools.hinfo",
    "hroller": "htools.hroller",
    "hscan": "htools.hscan",
    "hspace": "htools.hspace",
    "hsqueeze": "htools.hsqueeze",
    "make-docs": "documents.write",
    "mon-collector": "tools.mon_collector",
    "move-instance": "moving.command",
    "node-cleanup": "tools.node_cleanup",
    "node-daemon-setup": "tools.node_daemon_setup",
    "ovfconverter": "ovf.command",
    "query-config": "tools.query_config",
    "vcluster": "tools.vcluster",
}
"""The module of each tool below ``ganeti.cli``, with its ``PROGRAM`` or a ``main`` of its own."""


def named(name: str) -> Program:
    """Return the table of a program that has one."""
    program = next((each for each in PROGRAMS if each.name == name), None)
    if program is None:
        program = import_module(f"ganeti.cli.{TOOLS[name]}").PROGRAM
    return program


# Most are over before there is garbage that matters, and all that they load stays.
_OBJECTS_BETWEEN_LOOKS: Final = 100_000


def main() -> int:
    """Run the program by whose name this process was started."""
    gc.set_threshold(_OBJECTS_BETWEEN_LOOKS)
    try:
        return _run_by_name()
    except KeyboardInterrupt:  # before there was anything to say about it, as its modules load
        sys.stderr.write("Interrupted.\n")
        return EXIT_INTERRUPTED
    finally:
        gc.freeze()  # nor does the end of the process look for any


def _run_by_name() -> int:
    name = os.path.basename(sys.argv[0])
    if name in TOOLS:
        module = import_module(f"ganeti.cli.{TOOLS[name]}")
        if hasattr(module, "main"):  # no table, or more to do with the words first
            status: int = module.main()
            return status
    return run(named(name), sys.argv[1:])
