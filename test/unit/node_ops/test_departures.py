"""A migration whose job dies after the guest has arrived: the node that it left does not start it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from guests.instances import make_instance

from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.instances.life import Instances
from ganeti.node_ops.instances.os_scripts import InstanceOs
from ganeti.node_ops.instances.running import RunningInstances
from ganeti.objects.hypervisors import RebootType
from ganeti.objects.rpc_instance import RpcDisk

INSTANCE = make_instance(hypervisor="fake", network_port=None)
ADDRESS = "192.0.2.2"
_DISK = RpcDisk.from_wire(
    {
        "dev_type": "file",
        "logical_id": ["loop", "/none/disk0"],
        "size": 1,
        "uuid": "d",
        "iv_name": "",
    }
)


class Node:
    """One node, by the calls that the master makes."""

    def __init__(self, root: Path) -> None:
        paths = Paths(str(root))
        for directory in (paths.data_dir, paths.lock_dir, paths.conf_dir, paths.run_dir):
            os.makedirs(directory)
        context = NodeContext(paths, f"{root.name}.example.com", "test")
        self.notes = Path(paths.departures_dir)
        self._life, self._moves = Instances(context), RunningInstances(context)
        self._os = InstanceOs(context)

    def start(self) -> None:
        self._life.instance_start(INSTANCE, startup_paused=False, reason=[])

    def stop(self) -> None:
        self._life.instance_shutdown(INSTANCE, 1.0, [])

    def reboot(self) -> None:
        self._life.instance_reboot(INSTANCE, RebootType.HARD, 1.0, [])

    def runs(self) -> bool:
        return bool(self._life.instance_info(INSTANCE.name, "fake", {}))

    def reinstall(self) -> None:
        self._os.instance_os_add(INSTANCE, reinstall=True, debug=0)

    def rename(self) -> None:
        self._os.instance_run_rename(INSTANCE, "old.example.com", 0)

    def write_package(self) -> None:
        self._os.os_package_write(INSTANCE, _DISK, reinstall=True, debug=0)

    def restore(self) -> None:
        self._moves.kept_snapshot_restore(INSTANCE, "before")

    def left_for(self) -> str:
        return self._moves.instance_departed(INSTANCE)

    def describe(self) -> str:
        return self._moves.migration_info(INSTANCE)

    def accept(self, info: str) -> None:
        self._moves.accept_instance(INSTANCE, info, ADDRESS)

    def send(self) -> None:
        self._moves.instance_migrate("cluster", INSTANCE, ADDRESS, live=True)

    def leave(self, *, success: bool) -> None:
        self._moves.instance_finalize_migration_src(INSTANCE, success=success, live=True)

    def arrive(self, *, success: bool) -> None:
        self._moves.instance_finalize_migration_dst(INSTANCE, "", success=success)


@pytest.fixture
def source(tmp_path: Path) -> Node:
    node = Node(tmp_path / "source")
    node.start()
    return node


@pytest.fixture
def target(tmp_path: Path) -> Node:
    return Node(tmp_path / "target")


def move(source: Node, target: Node) -> None:
    """Migrate as far as the guest runs on the target; the job dies then."""
    target.accept(source.describe())
    source.send()
    target.arrive(success=True)


def remains(source: Node) -> None:
    """Let the process stay whose memory has left."""


def restarts(source: Node) -> None:
    """Let the node start anew: nothing runs there any more."""
    for path in Path(source._life.paths.run_dir).rglob("*"):
        if path.is_file():
            path.unlink()


@pytest.mark.parametrize("happen", [remains, restarts])
def test_the_source_neither_starts_nor_stops_what_may_run_elsewhere(
    source: Node, target: Node, happen: Callable[[Node], None]
) -> None:
    move(source, target)
    happen(source)
    for work in (source.start, source.stop):
        with pytest.raises(HypervisorError, match=f"{ADDRESS}.*gnt-instance migrate --cleanup"):
            work()


def test_the_source_does_not_reboot_what_has_left(source: Node, target: Node) -> None:
    move(source, target)
    with pytest.raises(HypervisorError, match="migrate --cleanup"):
        source.reboot()


@pytest.mark.parametrize("happen", [remains, restarts])
def test_the_source_changes_no_disks_of_what_may_run_elsewhere(
    source: Node, target: Node, happen: Callable[[Node], None]
) -> None:
    move(source, target)
    happen(source)
    for work in (source.reinstall, source.rename, source.write_package):
        with pytest.raises(HypervisorError, match=f"{ADDRESS}.*gnt-instance migrate --cleanup"):
            work()
    restarts(source)
    with pytest.raises(HypervisorError, match="gnt-instance migrate --cleanup"):
        source.restore()


def test_where_it_has_left_for_is_told_unless_it_is_seen_to_run(source: Node, target: Node) -> None:
    assert source.left_for() == ""
    source.notes.mkdir()
    (source.notes / INSTANCE.uuid).write_text(ADDRESS)
    assert source.left_for() == ""
    move(source, target)
    assert (source.left_for(), target.left_for()) == (ADDRESS, "")


def test_a_migration_that_ends_leaves_no_note(source: Node, target: Node) -> None:
    move(source, target)
    source.leave(success=True)
    assert not list(source.notes.iterdir())
    source.start()


def test_one_that_is_undone_leaves_no_note(source: Node, target: Node) -> None:
    target.accept(source.describe())
    source.send()
    target.arrive(success=False)
    source.leave(success=False)
    source.stop()
    source.start()


def test_cleaning_up_lets_it_start_where_it_runs_nowhere(source: Node, target: Node) -> None:
    move(source, target)
    restarts(source)
    source.arrive(success=False)
    source.start()


def test_cleaning_up_lets_it_start_though_nothing_here_can_go_on(
    source: Node, target: Node
) -> None:
    move(source, target)
    restarts(source)
    with pytest.raises(HypervisorError):
        source.leave(success=False)
    source.start()


def test_what_comes_back_may_be_stopped_and_started(source: Node, target: Node) -> None:
    move(source, target)
    restarts(source)
    source.accept(target.describe())
    target.send()
    source.arrive(success=True)
    source.stop()
    source.start()


def test_what_is_seen_to_run_has_not_left(source: Node) -> None:
    source.notes.mkdir()
    (source.notes / INSTANCE.uuid).write_text(ADDRESS)
    source.stop()
    source.start()
    assert source.runs()
