from __future__ import annotations

import os
import subprocess
import sys

import pytest

import ganeti
from ganeti.protocol.wconfd import OWN, WCONFD_METHODS, Effect, Need
from ganeti.protocol.wconfd_stub import python_name, render_stub

V3_METHODS = 54  # wconfd.json, "counts"


def test_the_stub_is_what_the_table_says() -> None:
    path = os.path.join(os.path.dirname(str(ganeti.__file__)), "clients", "wconfd_stub.py")
    with open(path, encoding="utf-8") as file:
        assert file.read() == render_stub(), "run python -m ganeti.protocol.wconfd_stub"


def test_the_generator_prints_it() -> None:
    argv = [sys.executable, "-m", "ganeti.protocol.wconfd_stub"]
    assert subprocess.run(argv, check=True, capture_output=True, text=True).stdout == render_stub()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("computeDRBDMap", "compute_drbd_map"),
        ("reserveMAC", "reserve_mac"),
        ("reserveLV", "reserve_lv"),
        ("addTcpUdpPort", "add_tcp_udp_port"),
        ("downGradeLocksLevel", "down_grade_locks_level"),
        ("getNodeGroups", "get_node_groups"),
    ],
)
def test_python_names(name: str, expected: str) -> None:
    assert python_name(name) == expected


def test_all_methods_of_3_0_are_there_and_ours_name_their_client_first() -> None:
    old = [row for row in WCONFD_METHODS.values() if row.since != OWN]
    assert len(old) == V3_METHODS
    for row in WCONFD_METHODS.values():
        if row.since == OWN and row.effect is not Effect.READ:
            assert row.client_index == 0, row.name
        if row.since != OWN:
            assert row.needs is Need.NONE


def test_eighteen_old_changes_name_no_client() -> None:
    nameless = [
        row.name
        for row in WCONFD_METHODS.values()
        if row.effect in (Effect.CONFIG, Effect.RESERVE) and row.client_index is None
    ]
    assert len(nameless) == 18
