"""Virtual clusters: names, addresses and the limit on paths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import OpPrereqError
from ganeti.base.paths import UNIX_SOCKET_PATH_BYTES_MAX, Paths
from ganeti.bootstrap.virtual import layout
from ganeti.system.environment import parse_hosts

CLUSTER = layout.VirtualCluster(
    base="/tmp/vc", network="127.8.9", node_names=layout.node_names(3), hypervisor="fake"
)


def test_every_name_resolves_to_its_own_address() -> None:
    table = parse_hosts(CLUSTER.hosts_text())
    assert table["node1.example.com"] == table["node1"] == "127.8.9.1"
    assert table["node3.example.com"] == "127.8.9.3"
    assert table["cluster.example.com"] == "127.8.9.254"
    assert len(set(CLUSTER.hosts().values())) == 4


def test_only_faces_can_be_left_out() -> None:
    layout.check_without(["ganeti-confd", "ganeti-rapi"])
    with pytest.raises(OpPrereqError, match="cannot go without 'ganeti-noded', only without gan"):
        layout.check_without(["ganeti-confd", "ganeti-noded"])


def test_root_of_a_node_ends_in_its_name() -> None:
    assert CLUSTER.paths_of("node2.example.com").root == "/tmp/vc/node2.example.com"


def test_record_comes_back_even_from_another_place() -> None:
    again = layout.decode_record(CLUSTER.encode(), "/elsewhere")
    assert again.base == "/elsewhere"
    assert again.node_names == CLUSTER.node_names
    with pytest.raises(OpPrereqError, match=r"vcluster\.json"):
        layout.decode_record(b"{", "/tmp/vc")


def test_nodes_are_found_by_short_name() -> None:
    assert CLUSTER.find_node("node2") == "node2.example.com"
    with pytest.raises(OpPrereqError, match=r"node1\.example\.com, node2"):
        CLUSTER.find_node("node9")


@pytest.mark.parametrize("count", [0, -1, 201])
def test_numbers_of_nodes_have_limits(count: int) -> None:
    with pytest.raises(OpPrereqError):
        layout.node_names(count)


def test_base_that_is_too_long_is_refused_with_its_length() -> None:
    names = layout.node_names(3)
    room = UNIX_SOCKET_PATH_BYTES_MAX - len(Paths("/node1.example.com").wconfd_socket)
    fits = "/" + "b" * (room - 1)
    layout.check_base(fits, names)
    with pytest.raises(OpPrereqError, match=rf"\({room + 1} bytes\) is 1 too many"):
        layout.check_base(fits + "b", names)


def test_longest_socket_of_the_layout_is_that_of_the_paths() -> None:
    paths = Paths("/x")
    sockets = [paths.wconfd_socket, paths.query_socket]
    assert max(sockets, key=len) == "/x" + layout.LONGEST_SOCKET


@given(st.text(min_size=1))
def test_candidate_networks_are_usable_and_repeatable(base: str) -> None:
    found = list(layout.candidate_networks(base, 5))
    assert found == list(layout.candidate_networks(base, 5))
    for network in found:
        first, second, third = (int(part) for part in network.split("."))
        assert (first, 1 <= second <= 254, 1 <= third <= 254) == (127, True, True)
