"""What gnt-cluster says of missing disks, and of disks of another size."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ganeti.cli.cluster.verify import _tell, show_sizes
from ganeti.opcodes.cluster import OpClusterRepairDiskSizes


def told(seconds: list[str]) -> list[str]:
    lines: list[str] = []
    client = SimpleNamespace(query_instances=lambda names, _fields: [[n, seconds] for n in names])
    context: Any = SimpleNamespace(client=client, write=lines.append)
    assert not _tell(context, {}, {"web1": [["node1", "xenvg/u.disk0_data"]]})
    return lines


def test_only_disks_with_copies_can_be_replaced_from_them() -> None:
    alone = [
        "Instance web1 has missing disks:",
        "  node1 xenvg/u.disk0_data",
        "  To make them anew, empty: gnt-instance recreate-disks web1",
    ]
    assert told([]) == alone
    [last] = told(["node2"])[3:]
    assert last == "  From the copy on its other node: gnt-instance replace-disks -a web1"


def test_files_are_named_by_their_indexes() -> None:
    lines: list[str] = []
    client = SimpleNamespace(query_instances=lambda names, _fields: [[n, []] for n in names])
    context: Any = SimpleNamespace(client=client, write=lines.append)
    missing = {"web1": [["node1", "disk/1 (u1)"], ["node1", "disk/10 (u2)"]]}
    assert not _tell(context, {}, missing)
    assert lines[-1].endswith("gnt-instance recreate-disks --disk 1 --disk 10 web1")


def test_a_dry_run_has_not_looked_at_sizes() -> None:
    lines: list[str] = []
    context: Any = SimpleNamespace(write=lines.append)
    for result in (None, [], [["web1", 0, "size", 512]]):
        show_sizes(context, OpClusterRepairDiskSizes(), result)
    right = "The recorded sizes of all disks that could be looked at are right."
    assert lines == [right, "Disk 0 of instance web1: size is 512 MiB"]
