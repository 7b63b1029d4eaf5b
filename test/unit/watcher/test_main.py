"""The start of the watcher: options that make no sense are told to everybody who gives them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ganeti.base.paths import Paths
from ganeti.store import ssconf
from ganeti.store.notes import watcher_pause
from ganeti.watcher import main as watcher
from ganeti.watcher.main import main


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--job-age", "nix"], "--job-age: 'nix' is not a time such as 90, 30m, 4h, 2d or 1w"),
        (["--wait-children", "--no-wait-children"], "exclude each other"),
    ],
)
def test_wrong_options_are_told_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], text: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["ganeti-watcher", *words])
    assert main() == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("ganeti-watcher: ")
    assert text in err


def test_a_cluster_that_was_destroyed_as_the_watcher_began_gets_no_daemons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path))
    monkeypatch.setenv("GANETI_HOSTNAME", tmp_path.name)
    monkeypatch.setattr(sys, "argv", ["ganeti-watcher"])
    paths = Paths(str(tmp_path))
    for directory in (paths.data_dir, paths.lock_dir):
        os.makedirs(directory)
    ssconf.write_values(paths, {"master_node": tmp_path.name})
    Path(paths.server_pem).touch()
    looked_after: list[Paths] = []

    def look_after(found: Paths) -> bool:
        looked_after.append(found)
        return True

    monkeypatch.setattr(watcher, "look_after_node", look_after)
    monkeypatch.setattr(watcher_pause, "read", lambda _paths: os.unlink(paths.server_pem))
    assert main() == 0
    assert not looked_after
