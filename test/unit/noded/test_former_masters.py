"""Tests of ganeti/noded/former_masters.py: whose jobs are refused."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.paths import Paths
from ganeti.noded.former_masters import FormerMasters
from ganeti.system import files

NAMES = ("n1", "n2", "n3")


def follow(paths: Paths, master: str) -> None:
    os.makedirs(paths.data_dir, exist_ok=True)
    files.write_atomic(paths.ssconf_file("master_node"), f"{master}\n".encode())


def test_a_node_of_no_cluster_refuses_nobody(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    masters = FormerMasters(paths)
    assert masters.refusal("") is None
    follow(paths, "n1")
    masters.look()
    assert masters.refusal("") is None
    os.unlink(paths.ssconf_file("master_node"))  # it leaves the cluster
    masters.look()
    assert masters.refusal("n1") is None


@given(order=st.lists(st.sampled_from(NAMES), min_size=1, max_size=8))
def test_those_that_were_master_and_are_not_are_refused(
    tmp_path_factory: object, order: list[str]
) -> None:
    paths = Paths(str(tmp_path_factory.mktemp("node")))  # type: ignore[attr-defined]
    follow(paths, order[0])
    masters = FormerMasters(paths)
    for master in order[1:]:
        follow(paths, master)
        masters.look()
    for name in NAMES:
        assert (masters.refusal(name) is not None) == (name in order and name != order[-1])


def test_a_name_that_no_certificate_has_room_for_is_known_by_its_beginning(tmp_path: Path) -> None:
    long = f"n1.{'rack.' * 15}example.com"
    paths = Paths(str(tmp_path))
    follow(paths, long)
    masters = FormerMasters(paths)
    assert masters.refusal(long[:64]) is None
    follow(paths, "n2")
    masters.look()
    assert masters.refusal(long[:64]) is not None
    follow(paths, f"{long}.org")  # its certificate has the same name
    masters.look()
    assert masters.refusal(long[:64]) is None
