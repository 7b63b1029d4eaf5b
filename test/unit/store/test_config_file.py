"""Tests of ganeti/store/config_file.py."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ganeti.base.errors import ConfigurationError
from ganeti.base.paths import Paths
from ganeti.store import config_file


def test_what_is_written_is_read(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    os.makedirs(paths.data_dir)
    assert not config_file.has_config(paths)
    with pytest.raises(ConfigurationError, match=r"config\.data does not exist"):
        config_file.read_config(paths)
    config_file.write_config(paths, b"{}")
    assert config_file.has_config(paths)
    assert config_file.read_config(paths) == b"{}"
    assert stat.S_IMODE(os.stat(paths.config_data).st_mode) == 0o640


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    os.makedirs(paths.config_data)
    with pytest.raises(ConfigurationError, match=r"cannot read .*config\.data: Is a directory"):
        config_file.read_config(paths)
