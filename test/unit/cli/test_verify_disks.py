"""What gnt-cluster verify-disks says of missing disks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ganeti.cli.cluster.verify import _tell


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
