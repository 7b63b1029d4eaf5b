"""The daemons of a cluster: a table of their names and the nodes that run them.

Programs that start, stop or list daemons read this table; a new daemon is one row more.

Source: constants.json, "daemons_and_ports"; ARCHITECTURE, "Who does what".
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

ROOT: Final = "root"
MASTERD: Final = "gnt-masterd"
CONFD: Final = "gnt-confd"
RAPI: Final = "gnt-rapi"
METAD_USER: Final = "gnt-metad"
ALL_DAEMONS: Final = "gnt-daemons"


class Place(StrEnum):
    """Which nodes run a daemon."""

    NODE = "every node"
    MASTER = "the master node"


class Daemon(NamedTuple):
    """One daemon.

    Attributes:
        name: of the program, the pid file and the unit.
        package: of the daemon below ``ganeti``; its module ``main`` holds the `DaemonSpec`.
        log_name: of the log file, as operators know it, without its ending.
        is_essential: a node or a master without it is none; the others are faces to the outside,
            which must not keep a cluster from working, and which may be left out.
        only_with: the well-known path of its settings, without which it is not wanted; "" for none.
        user: the user it runs as where the installation has users for the daemons; so has Debian's.
        group: its group there.
    """

    name: str
    package: str
    place: Place
    log_name: str
    is_essential: bool = False
    user: str = ROOT
    group: str = ROOT
    only_with: str = ""


NODED: Final = "ganeti-noded"
AGENT: Final = "ganeti-ha"
MEMBER: Final = "ganeti-etcd"
METAD: Final = "ganeti-metad"
METAD_FLAG: Final = "instance_communication"

# In the order in which they start; they are stopped the other way round.
DAEMONS: Final = (
    Daemon(NODED, "noded", Place.NODE, "node-daemon", is_essential=True),
    Daemon("ganeti-wconfd", "wconfd", Place.MASTER, "wconf-daemon", True, MASTERD, MASTERD),
    Daemon("ganeti-luxid", "luxid", Place.MASTER, "luxi-daemon", True, MASTERD, "gnt-luxid"),
    # Silent unless the node is a master candidate.
    Daemon("ganeti-confd", "rconfd", Place.NODE, "conf-daemon", False, CONFD, CONFD),
    Daemon("ganeti-mond", "mond", Place.NODE, "monitoring-daemon"),
    Daemon("ganeti-rapi", "rapid", Place.MASTER, "rapi-daemon", False, RAPI, RAPI),
    # Started by the node daemon with the first instance that communicates with its node.
    Daemon(METAD, "metad", Place.NODE, "meta-daemon", False, METAD_USER, METAD_USER, METAD_FLAG),
    Daemon(MEMBER, "etcd", Place.NODE, "etcd", user=MASTERD, group=MASTERD, only_with="ha_member"),
    Daemon(AGENT, "ha", Place.NODE, "ha-agent", only_with="high_availability"),
    # Idle until maintenance is switched on.
    Daemon("ganeti-maintd", "maintd", Place.MASTER, "maintenance-daemon", False, MASTERD, MASTERD),
)
# The users of daemons that ask LuxiD.  The others share a group with them, but speak with anybody:
# whoever takes one of them over must not be an administrator by that.
ASKING_LUXID: Final = frozenset({ROOT, MASTERD, RAPI})
# Programs that begin a run again and again, by a timer of systemd or cron, and the module below
# ``ganeti`` with the function ``main`` of each.
PERIODIC: Final = {"ganeti-watcher": "watcher.main", "ganeti-cleaner": "watcher.cleaner"}
MOND_PORT: Final = 1815  # constants.json, DEFAULT_MOND_PORT
FACES: Final = tuple(daemon.name for daemon in DAEMONS if not daemon.is_essential)
# The daemons that make a node the master, in the order in which they start.
MASTER_DAEMONS: Final = tuple(
    daemon.name for daemon in DAEMONS if daemon.is_essential and daemon.place is Place.MASTER
)


def daemon_of(name: str) -> Daemon:
    """Return the daemon of a name."""
    return next(daemon for daemon in DAEMONS if daemon.name == name)
