"""Directories with secrets and disks: nobody leaves one behind, and nobody's own is taken away."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from ganeti.store.working_directory import is_used, remove_unused, working_directory


def test_it_is_private_and_in_use_until_its_end(tmp_path: Path) -> None:
    with working_directory(".ovf-", str(tmp_path)) as path:
        assert os.path.basename(path).startswith(".ovf-")
        assert os.listdir(tmp_path) == [os.path.basename(path)]
        assert os.stat(path).st_mode & 0o777 == 0o700
        (Path(path) / "export").mkdir()
        (Path(path) / "export" / "disk").write_bytes(b"secret")
        assert is_used(path)
        assert remove_unused(".ovf-", str(tmp_path)) == []
        assert os.path.exists(path)
    assert os.listdir(tmp_path) == []


def test_it_goes_after_an_error(tmp_path: Path) -> None:
    def fail() -> None:
        with working_directory(".ovf-", str(tmp_path)):
            raise ValueError("no luck")

    with pytest.raises(ValueError, match="no luck"):
        fail()
    assert os.listdir(tmp_path) == []


def test_an_interruption_does_not_cut_its_removal_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = shutil.rmtree

    def remove_disturbed(path: str) -> None:
        signal.raise_signal(signal.SIGINT)
        remove(path)

    monkeypatch.setattr(shutil, "rmtree", remove_disturbed)

    def work() -> None:
        with working_directory(".ovf-", str(tmp_path)):
            pass

    with pytest.raises(KeyboardInterrupt):
        work()
    assert os.listdir(tmp_path) == []


def test_those_of_killed_processes_go_and_nothing_else(tmp_path: Path) -> None:
    for name in (".restore-a", ".restore-b", "other", ".ovf-a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "key").write_text("secret")
    (tmp_path / ".restore-file").write_text("x")
    (tmp_path / ".restore-link").symlink_to("other")
    removed = remove_unused(".restore-", str(tmp_path))
    assert removed == [str(tmp_path / name) for name in (".restore-a", ".restore-b")]
    left = sorted(os.listdir(tmp_path))
    assert left == [".ovf-a", ".restore-file", ".restore-link", "other"]
    assert remove_unused(".restore-", str(tmp_path / "missing")) == []
