"""Which snapshots there are, which are whole, and which instances can have any."""

from __future__ import annotations

import types
from typing import Any, cast

import pytest

from ganeti.base.errors import OpPrereqError
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.storage.snapshots import (
    NAME,
    Snapshot,
    check_can_keep,
    check_without_snapshots,
    read_snapshots,
    require_snapshot,
    require_whole,
)
from ganeti.logical_units.instance.view import InstanceView
from ganeti.objects.model import Disk

KEPT = [[["b", 2.0], ["c", 3.0]], [["a", 1.5], ["b", 2.5]]]  # of two disks


def disk(index: int, template: str = "file", **params: object) -> Disk:
    wire: dict[str, Any] = {
        "uuid": f"d{index}",
        "logical_id": ["loop", f"/srv/{index}"],
        "dev_type": template,
        "size": 8,
        "serial_no": 1,
        "params": params,
    }
    return Disk.from_wire(wire)


class View(types.SimpleNamespace):
    """As much of an instance as is looked at."""

    name, primary = "web1", "node1"

    def wire(self, node: str) -> str:
        return f"web1 for {node}"


def view_of(*disks: Disk) -> InstanceView:
    return cast("InstanceView", View(disks=list(disks)))


class Nodes:
    """A node that tells of snapshots; it counts how often it is asked."""

    asked = 0

    def check(self, node: str, _doing: str) -> Nodes:
        assert node == "node1"
        return self

    def kept_snapshots(self, wire: str) -> object:
        assert wire == "web1 for node1"
        self.asked += 1
        return KEPT


def context_of(nodes: Nodes) -> JobContext:
    return cast("JobContext", types.SimpleNamespace(nodes=nodes))


IMAGES = view_of(disk(0, format="qcow2"), disk(1, format="qcow2"))


def test_snapshots_of_all_disks_are_put_together_in_the_order_of_time() -> None:
    found = read_snapshots(context_of(Nodes()), IMAGES)
    assert found == [Snapshot("a", 1.5, [1]), Snapshot("b", 2.0, [0, 1]), Snapshot("c", 3.0, [0])]
    assert require_whole(IMAGES, found, "b").name == "b"
    with pytest.raises(OpPrereqError, match=r"disk 0 has no snapshot 'a', as it came later"):
        require_whole(IMAGES, found, "a")
    with pytest.raises(OpPrereqError, match="has no snapshot 'x'; it has: a, b, c"):
        require_snapshot(IMAGES, found, "x")


def test_who_cannot_have_any_is_not_asked() -> None:
    nodes = Nodes()
    raw = view_of(disk(0), disk(1, format="raw"))
    check_without_snapshots(context_of(nodes), raw, "move it")
    assert nodes.asked == 0
    with pytest.raises(OpPrereqError, match=r"cannot move it: its snapshots \(a, b, c\) would be"):
        check_without_snapshots(context_of(nodes), IMAGES, "move it")


@pytest.mark.parametrize(
    ("disks", "text"),
    [
        ((), "has no disks"),
        ((disk(0, format="qcow2"), disk(1)), "disk 1 of .* a file of format 'raw' of template"),
        ((disk(0, "sharedfile"),), "modify -t sharedfile -e format=qcow2 web1'"),
        ((disk(0, "drbd"),), "is a disk of template 'drbd'.*modify -t file -e format=qcow2 web1"),
    ],
)
def test_whoever_cannot_keep_snapshots_is_told_how(disks: tuple[Disk, ...], text: str) -> None:
    check_can_keep(IMAGES)
    with pytest.raises(OpPrereqError, match=text):
        check_can_keep(view_of(*disks))


@pytest.mark.parametrize("name", ["a", "before-2.0", "A" + "x" * 62])
def test_good_names(name: str) -> None:
    assert NAME.fullmatch(name)


@pytest.mark.parametrize("name", ["", "1", "-a", "a b", "ü", "a/b", "a,b", "A" + "x" * 63])
def test_bad_names(name: str) -> None:
    assert not NAME.fullmatch(name)
