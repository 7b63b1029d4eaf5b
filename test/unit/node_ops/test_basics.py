"""Small reads and flags."""

import contextlib
import os
from pathlib import Path

import pytest

from ganeti.base.errors import GenericError, LockError
from ganeti.base.paths import Paths
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.machine import node
from ganeti.system import clock
from ganeti.system.filelock import FileLock


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


def test_a_node_that_leaves_takes_no_keys_and_no_users_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next cluster would let the users of the remote API in."""
    paths = Paths(str(tmp_path))
    names = ("rapi_users", "rapi_roles", "rapi_tokens", "server_pem", "client_pem", "config_data")
    found = [Path(getattr(paths, name)) for name in names]
    found.append(Path(paths.data_dir) / ".restore-left" / "key")
    found.append(Path(f"{paths.queue_dir}.aside-7-20260101T000000Z") / "job-1")
    for path in found:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    monkeypatch.setattr(node.daemon_control, "stop_all", lambda *_args, **_named: None)
    node.Node(NodeContext(paths, "node1")).node_leave_cluster(modify_ssh_setup=False)
    assert [path for path in found if path.exists()] == []
    assert os.listdir(paths.data_dir) == ["rapi"]


@pytest.mark.parametrize("is_at_work", [True, False])
def test_no_watcher_starts_daemons_on_a_node_that_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_at_work: bool
) -> None:
    """One that does not end its run keeps no node that the others have forgotten."""
    paths = Paths(str(tmp_path))
    os.makedirs(paths.data_dir)
    os.makedirs(paths.lock_dir)
    Path(paths.server_pem).touch()
    stopped: list[bool] = []

    def stop(*_args: object, **_named: object) -> None:
        with pytest.raises(LockError):
            FileLock(paths.watcher_lock).acquire()
        stopped.append(True)

    monkeypatch.setattr(node.daemon_control, "stop_all", stop)
    monkeypatch.setattr(node, "_WATCHER_S_MAX", 0.0)
    with FileLock(paths.watcher_lock) if is_at_work else contextlib.nullcontext():
        node.Node(NodeContext(paths, "node1")).node_leave_cluster(modify_ssh_setup=False)
    assert stopped
    assert not os.path.exists(paths.server_pem)
    with FileLock(paths.watcher_lock):
        """It may run again."""
