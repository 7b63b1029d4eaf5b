"""A node below a temporary directory, for handlers called directly."""

import os
from pathlib import Path

import pytest

from ganeti.base.paths import Paths
from ganeti.node_ops.context import NodeContext


@pytest.fixture
def context(tmp_path: Path) -> NodeContext:
    paths = Paths(str(tmp_path))
    for directory in (paths.data_dir, paths.lock_dir, paths.conf_dir, paths.run_dir):
        os.makedirs(directory)
    return NodeContext(paths, "node1.example.com", "test")
