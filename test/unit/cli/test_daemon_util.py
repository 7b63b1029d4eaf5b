"""``daemon-util``: which daemons are started, and in which order."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from ganeti.base.daemons import Place
from ganeti.base.errors import CommandError
from ganeti.base.paths import Paths
from ganeti.cli.declaration.parser import parse
from ganeti.cli.run.context import Context, Terminal
from ganeti.cli.tools import daemon_util
from ganeti.store import ssconf
from ganeti.system import daemon_control


@pytest.mark.parametrize("master", ["node1", "node2"])
def test_a_former_master_starts_the_daemons_of_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: str
) -> None:
    paths, started = Paths(str(tmp_path)), []

    def start_wanted(
        _paths: Paths, places: frozenset[Place], _report: Callable[[str], None]
    ) -> None:
        started.append(places)
        if Place.MASTER in places:
            raise CommandError("this node is not the master", ["ganeti-wconfd"])

    for directory in (paths.data_dir, paths.lock_dir):
        Path(directory).mkdir(parents=True)
    ssconf.write_values(paths, {"master_node": master, "cluster_name": "c"})
    monkeypatch.setattr(Context, "paths", paths)
    monkeypatch.setattr(daemon_util, "own_hostname", lambda: "node1")
    monkeypatch.setattr(daemon_util, "_refuse_without_cluster", lambda _context: None)
    monkeypatch.setattr(daemon_control, "start_wanted", start_wanted)
    line = parse(daemon_util.PROGRAM, ["start-all"], {})
    terminal = Terminal(io.StringIO(), io.StringIO(), io.StringIO())
    context = Context("daemon-util", line.command, line.options, terminal)
    if master == "node1":
        with pytest.raises(CommandError, match="not the master"):
            daemon_util.start_all(context, line.options, [])
        assert started == [{Place.NODE}, {Place.MASTER}]
    else:
        daemon_util.start_all(context, line.options, [])
        assert started == [{Place.NODE}]
