"""A virtual node is an environment."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ganeti.base.errors import OpPrereqError, ResolverError
from ganeti.base.paths import Paths
from ganeti.logical_units import lookup
from ganeti.system import environment


def test_names_come_from_the_hosts_file_of_the_root(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "hosts").write_text("# ours\n127.5.6.1 node1.example.com node1 # first\n\n")
    paths = Paths(str(tmp_path))
    assert environment.resolve("node1", paths) == ("node1.example.com", "127.5.6.1")
    assert environment.resolve("NODE1.example.com", paths) == ("node1.example.com", "127.5.6.1")
    with pytest.raises(ResolverError, match=r"'node9'.*etc/hosts"):
        environment.resolve("node9", paths)


def test_an_alias_is_told_by_the_name_it_stands_for(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "hosts").write_text("127.0.0.1 other inst3\n127.0.0.2 inst4\n")
    paths = Paths(str(tmp_path))
    assert environment.resolve("inst3", paths) == ("other", "127.0.0.1")
    assert environment.resolve("inst4", paths) == ("inst4", "127.0.0.2")
    with pytest.raises(OpPrereqError, match="'inst3' is an alias of 'other'"):
        lookup.resolve("instance", "inst3", paths)
    assert lookup.resolve("instance", "other", paths) == ("other", "127.0.0.1")


def test_the_short_name_may_stand_before_the_full_one(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "hosts").write_text("127.0.0.1 web1 web1.example.com web11.example.com\n")
    paths = Paths(str(tmp_path))
    full = ("web1.example.com", "127.0.0.1")
    assert lookup.resolve("instance", "web1.example.com", paths) == full
    assert lookup.resolve("instance", "web1", paths) == full
    with pytest.raises(OpPrereqError, match="is an alias of 'web1'"):
        lookup.resolve("instance", "web11.example.com", paths)


def test_a_root_too_deep_for_sockets_is_refused_with_the_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GANETI_ROOTDIR", "/" + "x" * 100)
    with pytest.raises(OpPrereqError, match=r"has 1\d\d bytes, 107 are possible"):
        environment.current_paths()


def test_own_addresses() -> None:
    assert environment.is_own_address("127.9.8.7")
    assert not environment.is_own_address("192.0.2.1")
    assert not environment.is_own_address("not an address")


@pytest.mark.parametrize(("ip_version", "address"), [(4, "192.0.2.1"), (6, "2001:db8::1")])
def test_a_name_with_both_addresses_stands_for_the_one_that_is_wanted(
    ip_version: int, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "node1", ("2001:db8::1", 0, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args: found)
    assert environment.resolve("node1", Paths(""), ip_version=ip_version) == ("node1", address)
