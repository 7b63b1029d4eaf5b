"""Tests of ganeti/store/ssconf.py."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import ConfigurationError, LockError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.store import ssconf
from ganeti.system.filelock import FileLock


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    found = Paths(str(tmp_path))
    os.makedirs(found.data_dir)
    os.makedirs(found.lock_dir)
    return found


def content(paths: Paths, key: str) -> bytes:
    return Path(paths.ssconf_file(key)).read_bytes()


def test_a_newline_is_added_unless_the_value_is_empty(paths: Paths) -> None:
    ssconf.write_values(paths, {"cluster_name": "c1", "cluster_tags": "", "node_list": "n1\nn2\n"})
    assert content(paths, "cluster_name") == b"c1\n"
    assert content(paths, "cluster_tags") == b""
    assert content(paths, "node_list") == b"n1\nn2\n"
    assert ssconf.read_key(paths, "cluster_name") == "c1"
    assert ssconf.read_key(paths, "cluster_tags") == ""
    assert ssconf.node_list(paths) == ["n1", "n2"]


@pytest.mark.shows("backend/ssconf/names")
@given(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=50))
def test_a_line_comes_back_as_it_was(value: str) -> None:
    data = ssconf.encode_values({"cluster_tags": value})["cluster_tags"]
    assert data.decode().removesuffix("\n") == value


def test_files_are_read_only_and_replaced_whole(paths: Paths) -> None:
    ssconf.write_values(paths, {"master_node": "n1"})
    path = Path(paths.ssconf_file("master_node"))
    before = path.stat().st_ino
    assert stat.S_IMODE(path.stat().st_mode) == 0o444
    assert ssconf.write_values(paths, {"master_node": "n1", "master_ip": "192.0.2.1"}) == [
        "master_ip"
    ]
    assert path.stat().st_ino == before
    assert ssconf.write_values(paths, {"master_node": "n2"}) == ["master_node"]
    assert path.stat().st_ino != before
    assert sorted(os.listdir(paths.data_dir)) == ["ssconf_master_ip", "ssconf_master_node"]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"master_node": "n1", "nonsense": "x"}, "unknown ssconf key 'nonsense'"),
        ({"master_node": "n1", "../passwd": "x"}, "unknown ssconf key"),
        ({"master_node": "n1", "node_list": "x" * 131072}, "has 131073 bytes, 131072 are allowed"),
    ],
)
def test_a_wrong_value_writes_nothing(paths: Paths, values: dict[str, str], text: str) -> None:
    with pytest.raises(OpPrereqError, match=text):
        ssconf.write_values(paths, values)
    assert os.listdir(paths.data_dir) == []


def test_the_largest_value_fits(paths: Paths) -> None:
    value = "x" * 131071
    ssconf.write_values(paths, {"node_list": value})
    assert ssconf.read_key(paths, "node_list") == value


def test_a_value_that_is_no_text_is_refused(paths: Paths) -> None:
    with pytest.raises(OpPrereqError, match="master_node is not a text"):
        ssconf.write_values(paths, {"master_node": 5})  # type: ignore[dict-item] # from the wire


def test_a_held_lock_is_respected(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssconf, "LOCK_TIMEOUT_S", 0.0)
    with FileLock(paths.ssconf_lock), pytest.raises(LockError):
        ssconf.write_values(paths, {"master_node": "n1"})
    ssconf.write_values(paths, {"master_node": "n1"})


def test_a_missing_file_is_named(paths: Paths) -> None:
    with pytest.raises(ConfigurationError, match="ssconf_master_node does not exist"):
        ssconf.master_node(paths)
    assert ssconf.read_key_or_none(paths, "master_node") is None
    assert ssconf.candidate_certs(paths) == {}
    assert ssconf.read_all(paths) == {}


def test_unreadable_content_is_named(paths: Paths) -> None:
    path = Path(paths.ssconf_file("master_node"))
    path.write_bytes(b"n\xff\n")
    with pytest.raises(ConfigurationError, match=r"ssconf_master_node is not UTF-8 \(byte 1\)"):
        ssconf.master_node(paths)
    path.write_bytes(b"x" * 200_000)
    with pytest.raises(ConfigurationError, match="larger than 131072 bytes"):
        ssconf.master_node(paths)
    path.unlink()
    path.mkdir()
    with pytest.raises(ConfigurationError, match="Is a directory"):
        ssconf.master_node(paths)


def test_lists_and_maps_are_parsed(paths: Paths) -> None:
    values = {
        "cluster_name": "c1",
        "master_node": "n1",
        "master_candidates": "n1\nn2",
        "master_candidates_ips": "192.0.2.1\n192.0.2.2",
        "offline_nodes": "n3",
        "node_primary_ips": "n1 192.0.2.1\nn2 192.0.2.2\nn3 192.0.2.3",
        "master_candidates_certs": "uuid-1=AA:BB\nuuid-2=CC:DD",
    }
    ssconf.write_values(paths, values)
    assert ssconf.cluster_name(paths) == "c1"
    assert ssconf.master_node(paths) == "n1"
    assert ssconf.master_candidates(paths) == [("n1", "192.0.2.1"), ("n2", "192.0.2.2")]
    assert ssconf.offline_nodes(paths) == {"n3"}
    assert ssconf.node_primary_ips(paths)["n2"] == "192.0.2.2"
    assert ssconf.candidate_certs(paths) == {"uuid-1": "AA:BB", "uuid-2": "CC:DD"}
    assert ssconf.read_all(paths) == values


def test_lists_that_do_not_fit_together_are_refused(paths: Paths) -> None:
    ssconf.write_values(
        paths, {"master_candidates": "n1\nn2", "master_candidates_ips": "192.0.2.1"}
    )
    with pytest.raises(ConfigurationError, match="2 names, ssconf_master_candidates_ips 1"):
        ssconf.master_candidates(paths)


def test_a_damaged_line_is_named() -> None:
    with pytest.raises(ConfigurationError, match="ssconf_networks: no ' ' in line 'x'"):
        ssconf.parse_map("networks", "a b\nx\n", " ")


@pytest.mark.shows("backend/ssconf/names")
def test_the_keys_are_those_of_the_specification() -> None:
    assert len(ssconf.KEYS) == 34
