"""The tables of doc/security.md say what the program does."""

from __future__ import annotations

import fnmatch

from fakes import pages

from ganeti.base.daemons import DAEMONS, MOND_PORT
from ganeti.base.owned_files import OWNED
from ganeti.base.paths import Paths
from ganeti.clients import maintd
from ganeti.config.checks import FIRST_DRBD_PORT, LAST_DRBD_PORT
from ganeti.ha import friends
from ganeti.logical_units.cluster.availability import CLIENT_PORT, PEER_PORT
from ganeti.metad.main import PORT as METAD_PORT
from ganeti.objects.hypervisors import HVPARAMS
from ganeti.objects.nic import NODE_ADDRESS
from ganeti.protocol import confd, luxi, node_rpc, wconfd
from ganeti.protocol.rapi import values
from ganeti.protocol.rapi.table import ROUTES

PAGE = (pages.CHECKOUT / "doc/security.md").read_text("utf-8")
ROWS = [
    [cell.strip().strip("`") for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("|")
]


def rows_of(title: str) -> list[list[str]]:
    """Return the rows of the table whose first cell of the head begins with a title."""
    start = next(number for number, row in enumerate(ROWS) if row[0].startswith(title)) + 2
    rest = ROWS[start:]
    end = next((i for i, row in enumerate(rest) if set(row[0]) == {"-"}), len(rest) + 1)
    return rest[: end - 1]


def test_every_file_of_the_page_has_the_mode_and_owner_of_the_table() -> None:
    paths = Paths("")
    for name, mode, owner, _why in rows_of("file below"):
        places = {f"{paths.data_dir}/{name}", f"{paths.log_dir}/{name}"}
        found = [
            row
            for row in OWNED
            if (getattr(paths, row.place) + (f"/{row.pattern}" if row.pattern else "")) in places
        ]
        assert len(found) == 1, name
        assert (f"{found[0].mode:04o}", f"{found[0].user}:{found[0].group}") == (mode, owner), name


def test_every_port_of_the_program_is_on_the_page() -> None:
    shown = {row[0] for row in rows_of("port")}
    expected = {
        f"{node_rpc.DEFAULT_PORT}/tcp",
        f"{confd.DEFAULT_PORT}/udp",
        f"{MOND_PORT}/tcp",
        f"{maintd.PORT}/tcp",
        f"{friends.PORT}/udp",
        f"{CLIENT_PORT}/tcp",
        f"{PEER_PORT}/tcp",
        f"{values.DEFAULT_PORT}/tcp",
        f"{METAD_PORT}/tcp on {NODE_ADDRESS}",
        f"{FIRST_DRBD_PORT}-{LAST_DRBD_PORT}/tcp",
        "22/tcp",
        "any other above 32767/tcp",
        *(
            f"{table['migration_port'].default}/tcp"
            for table in HVPARAMS.values()
            if "migration_port" in table
        ),
    }
    assert shown == expected


def test_sockets_have_the_modes_of_the_page() -> None:
    modes = {row[0]: row[1] for row in rows_of("socket")}
    assert modes["ganeti-query"] == f"{luxi.SOCKET_MODE:04o}"
    assert modes["ganeti-wconfd"] == f"{wconfd.SOCKET_MODE:04o}"


def test_every_user_of_a_daemon_is_on_the_page() -> None:
    shown = {row[0]: row[1] for row in rows_of("name")}
    assert {daemon.user for daemon in DAEMONS} <= shown.keys()


def test_without_a_user_nothing_can_be_changed_and_no_console_be_seen() -> None:
    open_ones = [route for route in ROUTES if not route.access]
    assert {route.method for route in open_ones} == {"GET"}
    paths = [route.path for route in open_ones]
    assert not fnmatch.filter(paths, "*console")
    assert "/2/query/{resource}" not in paths
    assert not [route.path for route in ROUTES if route.method != "GET" and not route.access]
