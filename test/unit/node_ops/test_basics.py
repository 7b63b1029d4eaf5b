"""Small reads and flags."""

import os
from pathlib import Path

import pytest

from ganeti.base.errors import GenericError
from ganeti.node_ops import basics
from ganeti.node_ops.context import NodeContext
from ganeti.system import clock


def test_the_master_is_who_ssconf_says(context: NodeContext) -> None:
    with pytest.raises(GenericError, match="does not know a master"):
        basics.master_node_name(context)
    Path(context.paths.ssconf_file("master_node")).write_text("node2.example.com\n")
    assert basics.master_node_name(context) == "node2.example.com"


def test_the_watcher_pauses_until_a_time_that_has_not_come(context: NodeContext) -> None:
    assert basics.get_watcher_pause(context) is None
    until = float(int(clock.now()) + 100)
    basics.set_watcher_pause(context, until)
    assert basics.get_watcher_pause(context) == until
    basics.set_watcher_pause(context, None)
    assert basics.get_watcher_pause(context) is None
    for text in ("1\n", "soon"):
        Path(context.paths.watcher_pause).write_text(text)
        assert basics.get_watcher_pause(context) is None
        assert not os.path.exists(context.paths.watcher_pause)


def test_file_info(context: NodeContext) -> None:
    Path(context.paths.localize("/etc/ganeti/x")).write_text("12345")
    assert basics.get_file_info(context, "/etc/ganeti/x") == [True, {"size": 5}]
    assert basics.get_file_info(context, "/etc/ganeti/y") == [False, {}]
    with pytest.raises(GenericError):
        basics.get_file_info(context, "x")


def test_own_addresses(context: NodeContext) -> None:
    assert basics.node_has_ip_address(context, "127.0.0.1")
    assert not basics.node_has_ip_address(context, "192.0.2.1")
    assert not basics.node_has_ip_address(context, "x")
