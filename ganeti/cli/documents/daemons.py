"""What the manual pages of the daemons say besides their options: a table.

Source: config.json, "paths_ensured_by_installation"; wconfd.json.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ganeti.protocol.wconfd import KINDS, OWN, WCONFD_METHODS, Effect, Method

Entry = tuple[str, str]  # a term, what it is


@dataclass(frozen=True, slots=True)
class Section:
    """One section of a page: paragraphs of text, then terms with explanations."""

    title: str
    paragraphs: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class DaemonText:
    """What is said of one daemon; ``module`` holds its DaemonSpec."""

    name: str
    module: str
    prose: str
    sections: Sequence[Section] = ()


EXIT_STATUS: Final = Section(
    "EXIT STATUS",
    (),
    (
        ("0", "The daemon runs in the background now, or was told to stop."),
        ("1", "It cannot run; the reason is on standard error and in the log."),
        ("2", "The configuration cannot be used."),
        ("11", "This node is not the master."),
    ),
)
SIGNALS: Final = Section(
    "SIGNALS",
    (),
    (
        ("SIGTERM, SIGINT", "Finish what was begun and stop."),
        ("SIGHUP", "Open the log file again, after it was rotated."),
    ),
)

_WCONFD_FILES: Final = Section(
    "FILES",
    (),
    (
        (
            "/var/lib/ganeti/config.data",
            """the configuration; one JSON object.  Do not edit it while the daemon runs, and check
            it with gnt-cluster verify-config afterwards""",
        ),
        ("/var/lib/ganeti/locks.data", "who holds which lock, and who waits"),
        ("/var/lib/ganeti/tempres.data", "what jobs have reserved: addresses, names, secrets"),
        ("/var/lib/ganeti/locks-own.data", "who waits for locks by the old, signalled call"),
        ("/var/lib/ganeti/tempres-own.data", "reservations of kinds that Ganeti 3.0 does not know"),
        ("/var/lib/ganeti/ssconf_*", "the simple configuration, one value in each file"),
        ("/var/run/ganeti/livelocks/", "one locked file for each job process: its sign of life"),
        ("/var/run/ganeti/socket/ganeti-wconfd", "the socket on which the daemon is asked"),
        ("/var/run/ganeti/ganeti-wconfd.pid", "its process id"),
        ("/var/log/ganeti/wconf-daemon.log", "its log"),
    ),
)
_WCONFD_LOCKS: Final = Section(
    "LOCKS",
    (
        """Locks are taken in the order of their levels: cluster, instance, nodegroup, node,
        node-res, network, config.  The lock set of a level, written instance/[lockset], stands for
        all its locks at once.  A request gets all its locks or none; those who wait are served by
        priority, then by age, and become more urgent while they wait.  gnt-debug locks shows who
        holds and who waits.""",
        """Whoever holds a lock or a reservation keeps a file locked.  When that lock is free, its
        owner is dead: the daemon frees everything of its within two seconds.""",
    ),
)
_WCONFD_CONSISTENCY: Final = Section(
    "CONSISTENCY",
    (
        """A change is answered once it is on the disk; nobody sees it before.  A change that would
        introduce an error is refused: a name, UUID, address, port or DRBD minor that is in use, a
        reference to what does not exist, a value of a wrong type, a policy that contradicts itself.
        Errors that are there already do not keep anybody from changing something else;
        gnt-cluster verify-config reports them.""",
        """After a change, the configuration goes to all master candidates and the simple
        configuration to all nodes.  A node that cannot be reached is tried again and again; the log
        says once that it is gone and once that it is back.  gnt-cluster redist-conf sends
        everything again.""",
        """A configuration that cannot be read is refused at start, with the place of the mistake
        and with the copies that could take its place.  One of version 2.7 to 2.16 is kept as a
        backup and upgraded; one from the future is refused.""",
    ),
)


def _effect(method: Method) -> str:
    return {
        Effect.READ: "Reads.",
        Effect.LOCKS: "Changes locks.",
        Effect.RESERVE: "Changes reservations.",
        Effect.CONFIG: "Changes the configuration.",
    }[method.effect]


def _method(method: Method) -> Entry:
    words = [f"{argument.name}: {KINDS[argument.kind].text}" for argument in method.args]
    result = KINDS[method.result].text
    arguments = f"Arguments: {'; '.join(words)}." if words else "No arguments."
    origin = "" if method.since == OWN else "  As in Ganeti 3.0."
    return method.name, f"{_effect(method)}  {arguments}  Answers {result}.{origin}"


_WCONFD_METHODS: Final = Section(
    "METHODS",
    (
        """A request is a JSON object {"method": NAME, "args": [...]}, ended by one byte of value 3;
        the answer is {"success": true or false, "result": ...}.  Objects have the fields that they
        have in config.data.  gnt-debug wconfd calls a method by hand.""",
    ),
    tuple(_method(method) for method in WCONFD_METHODS.values()),
)

DAEMONS: Final = (
    DaemonText(
        "ganeti-noded",
        "ganeti.noded.main",
        """Runs on every node and does there what the master asks for: disks, instances, files.
        Listens on port 1811 (HTTPS); every request must come with the certificate of a master
        candidate.""",
        (SIGNALS,),
    ),
    DaemonText(
        "ganeti-wconfd",
        "ganeti.wconfd.main",
        """Runs on the master node.  It is the only writer of config.data, copies it to the other
        master candidates, and owns all locks.  Jobs ask it for locks, for names and addresses that
        nobody else has, and for every change of the configuration.""",
        (
            _WCONFD_LOCKS,
            _WCONFD_CONSISTENCY,
            _WCONFD_FILES,
            SIGNALS,
            EXIT_STATUS,
            _WCONFD_METHODS,
        ),
    ),
    DaemonText(
        "ganeti-luxid",
        "ganeti.luxid.main",
        """Runs on the master node.  It keeps the job queue, starts one process for each job, and
        answers queries.""",
        (SIGNALS, EXIT_STATUS),
    ),
)

SEE_ALSO: Final[Mapping[str, tuple[str, ...]]] = {
    "ganeti-noded": ("ganeti-luxid", "ganeti-wconfd", "gnt-node"),
    "ganeti-wconfd": ("ganeti-luxid", "gnt-cluster", "gnt-debug", "cfgupgrade", "query-config"),
    "ganeti-luxid": ("ganeti-wconfd", "gnt-job", "gnt-debug"),
    "cfgupgrade": ("ganeti-wconfd", "query-config"),
}
