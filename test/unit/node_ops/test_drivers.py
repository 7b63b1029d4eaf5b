"""Links by which disks have stable names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.drivers import link_disk, unlink_disks


def test_links_are_replaced_in_one_step(tmp_path: Path) -> None:
    context = NodeContext(Paths(str(tmp_path)), "node1")
    first = link_disk(context, "inst1", 0, "/dev/a")
    assert link_disk(context, "inst1", 0, "/dev/b") == first
    assert link_disk(context, "inst1", 0, "/dev/b") == first
    assert os.readlink(first) == "/dev/b"
    link_disk(context, "inst10", 0, "/dev/c")
    unlink_disks(context.paths, "inst1")
    unlink_disks(context.paths, "inst1")
    assert os.listdir(context.paths.disk_links_dir) == ["inst10:0"]
    with pytest.raises(GenericError):
        link_disk(context, "../inst1", 0, "/dev/a")
