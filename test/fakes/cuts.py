"""Jobs of a cluster in memory that are broken off: killed or canceled, at every place where they can be.

A killed job makes no further call and undoes nothing.  It is cut before each of its calls to a node
or to the configuration (nobody got it) and after each (it was carried out, nobody saw the answer).
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

from fakes.fake_cluster import FakeCluster

from ganeti.base.errors import JobCanceled

CUTS_MAX = 400
# What differs between two looks at one and the same state.
_PASSING = ("serial_no", "mtime", "ctime", "forthcoming")


class Killed(BaseException):
    """The job process is gone."""


@contextlib.contextmanager
def killed_at(cluster: FakeCluster, cut: int) -> Iterator[None]:
    """Let the job that runs inside die at that place; afterwards the cluster knows it is dead."""
    place = -1

    def step(*_args: Any) -> None:
        nonlocal place
        place += 1
        if place >= cut:  # nor does it undo anything
            raise Killed

    invoke = type(cluster.config).invoke

    def invoke_or_die(call: Any, args: Any) -> Any:
        step()
        answer = invoke(cluster.config, call, args)
        step()
        return answer

    cluster.rpc.failure = cluster.rpc.lost_answer = step  # type: ignore[assignment]  # both None
    cluster.config.invoke = invoke_or_die  # type: ignore[method-assign]
    try:
        yield
    finally:
        del cluster.config.invoke
        cluster.rpc.failure = cluster.rpc.lost_answer = lambda *_args: None
        bury(cluster)


@contextlib.contextmanager
def cut_off(cluster: FakeCluster, node_name: str, cut: int, *, dies: bool) -> Iterator[None]:
    """Let a node not be reached from that place of a job on; ``dies``: its guests are gone.

    At the end it is back, without its guests if it died.
    """
    node, place = cluster.rpc.node(node_name), -1

    def step(called: str, _call: str, _args: Any) -> str | None:
        nonlocal place
        place += 1
        if place == cut and dies:
            node.crash()
        return "no route to host" if place >= cut and called == node.name else None

    cluster.rpc.failure = cluster.rpc.lost_answer = step
    try:
        yield
    finally:
        cluster.rpc.failure = cluster.rpc.lost_answer = lambda *_args: None
    if place < cut:
        raise NotCut


class NotCut(Exception):
    """The job was through before that place."""


def bury(cluster: FakeCluster) -> None:
    """Do what WConfD does for a job that died: give back its locks and reservations."""
    cluster.config.free_everything()


def every_kill(
    make: Callable[[], FakeCluster], job: Callable[[FakeCluster], object]
) -> Iterator[FakeCluster]:
    """Yield a cluster for each place at which the job can die, after it has died there."""
    for cut in range(CUTS_MAX):
        cluster = make()
        try:
            with killed_at(cluster, cut):
                job(cluster)
        except Killed:
            yield cluster
        else:
            assert cut > 2, "it had no calls to be cut at"
            return
    raise AssertionError(f"it makes more than {CUTS_MAX} steps")


def every_cancel(
    make: Callable[[], FakeCluster], job: Callable[[FakeCluster], object]
) -> Iterator[FakeCluster]:
    """Yield a cluster for each place at which the job can be canceled, after it was canceled."""
    for cut in range(CUTS_MAX):
        cluster = make()
        cluster.cancel_after = cut
        try:
            job(cluster)
        except JobCanceled:
            cluster.cancel_after = None
            yield cluster
        else:
            assert cut > 2, "it had no waits to be canceled at"
            return
    raise AssertionError(f"it waits more than {CUTS_MAX} times")


def state_of(cluster: FakeCluster) -> dict[str, Any]:
    """Return what there is: everything but counters and times."""
    config = cluster.config
    tables = {"instances": config.instances, "disks": config.disks}
    state: dict[str, Any] = {
        kind: {
            uuid: {name: value for name, value in thing.items() if name not in _PASSING}
            for uuid, thing in table.items()
        }
        for kind, table in tables.items()
    }
    state["shared"] = set(cluster.rpc.shared)
    state["transfers"] = set(cluster.rpc.transfers)
    state["locks"] = dict(config.held)
    for name, node in cluster.rpc.nodes.items():
        state[name] = {
            "running": dict(node.running),
            "receiving": set(node.receiving),
            "disks": set(node.disks),
            "directories": set(node.directories),
            "snapshots": dict(node.snapshots),
        }
    return copy.deepcopy(state)
