"""Small reads and flags."""

import os
from pathlib import Path

import pytest

from ganeti.base.errors import GenericError
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.machine import node
from ganeti.system import clock


@pytest.mark.shows("backend/ssconf/no-master", "2.0/candidate/ssconf-others")
def test_the_master_is_who_ssconf_says(context: NodeContext) -> None:
    with pytest.raises(GenericError, match="does not know a master"):
        node.Node(context).master_node_name()
    Path(context.paths.ssconf_file("master_node")).write_text("node2.example.com\n")
    assert node.Node(context).master_node_name() == "node2.example.com"


def test_the_watcher_pauses_until_a_time_that_has_not_come(context: NodeContext) -> None:
    assert node.Node(context).get_watcher_pause() is None
    until = float(int(clock.now()) + 100)
    node.Node(context).set_watcher_pause(until)
    assert node.Node(context).get_watcher_pause() == until
    node.Node(context).set_watcher_pause(None)
    assert node.Node(context).get_watcher_pause() is None
    for text in ("1\n", "soon"):
        Path(context.paths.watcher_pause).write_text(text)
        assert node.Node(context).get_watcher_pause() is None
        assert not os.path.exists(context.paths.watcher_pause)


def test_file_info(context: NodeContext) -> None:
    Path(context.paths.localize("/etc/ganeti/x")).write_text("12345")
    assert node.Node(context).get_file_info("/etc/ganeti/x") == (True, {"size": 5})
    assert node.Node(context).get_file_info("/etc/ganeti/y") == (False, {})
    with pytest.raises(GenericError):
        node.Node(context).get_file_info("x")


def test_own_addresses(context: NodeContext) -> None:
    assert node.Node(context).node_has_ip_address("127.0.0.1")
    assert not node.Node(context).node_has_ip_address("192.0.2.1")
    assert not node.Node(context).node_has_ip_address("x")
