"""Backups by schedule: time that passes, and the watcher's runs."""

from __future__ import annotations

import re
from pathlib import Path

from fakes.virtual_cluster import TestCluster


def watch(cluster: TestCluster) -> str:
    """Run the watcher, and wait for its jobs; returns what it did about backups."""
    path = Path(cluster.paths.log_watcher)
    before = len(path.read_text()) if path.exists() else 0
    outcome = cluster.run("ganeti-watcher --no-verify-disks")
    assert outcome.status == 0, outcome
    said = path.read_text()[before:]
    for number in re.findall(r"Submitted job (\d+) for", said):
        cluster.run(["gnt-job", "wait", number])
    return said


def age(cluster: TestCluster, node: str, name: str, seconds: int) -> None:
    """Make all points of an export older."""
    for path in Path(cluster.paths_of(node).export_dir, name).rglob("config.ini"):
        text = path.read_text()
        found = re.search(r"^timestamp = (\d+)", text, re.MULTILINE)
        assert found is not None
        path.write_text(text.replace(found[0], f"timestamp = {int(found[1]) - seconds}"))
