"""Links by which disks have stable names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.node_ops.context import NodeContext


def test_links_are_replaced_in_one_step(tmp_path: Path) -> None:
    context = NodeContext(Paths(str(tmp_path)), "node1")
    first = context.link_disk("inst1", 0, "/dev/a")
    assert context.link_disk("inst1", 0, "/dev/b") == first
    assert context.link_disk("inst1", 0, "/dev/b") == first
    assert os.readlink(first) == "/dev/b"
    context.link_disk("inst10", 0, "/dev/c")
    context.unlink_disks("inst1")
    context.unlink_disks("inst1")
    assert os.listdir(context.paths.disk_links_dir) == ["inst10:0"]
    with pytest.raises(GenericError):
        context.link_disk("../inst1", 0, "/dev/a")
