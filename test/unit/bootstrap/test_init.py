"""Making a cluster: the allocator that a new cluster asks by default."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.shell_scripts import write_script

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.bootstrap.init import find_allocator


def test_our_own_allocator_is_the_default_where_it_is(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    assert find_allocator(paths, None) == ""
    directory = Path(paths.iallocator_search_path[-1])
    write_script(directory / "hail", "exit 0", 0o644)
    assert find_allocator(paths, None) == ""
    write_script(directory / "hail", "exit 0")
    assert find_allocator(paths, None) == "hail"
    assert find_allocator(paths, "") == ""


def test_another_one_must_be_there(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    with pytest.raises(GenericError, match="allocator 'mine' is not in"):
        find_allocator(paths, "mine")
    write_script(Path(paths.iallocator_search_path[0]) / "mine", "exit 0")
    assert find_allocator(paths, "mine") == "mine"
    with pytest.raises(GenericError, match="not a valid name"):
        find_allocator(paths, "../mine")
