"""Changes in a directory arrive as events, in order."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ganeti.base.errors import InotifyError
from ganeti.system.files import write_atomic
from ganeti.system.inotify import Watcher


def test_a_renamed_file_is_seen_once_and_in_order(tmp_path: Path) -> None:
    async def scenario() -> list[tuple[str, str]]:
        seen: list[tuple[str, str]] = []
        done = asyncio.Event()

        def on_change(name: str, kind: str) -> None:
            seen.append((name, kind))
            if name == "last":
                done.set()

        watcher = Watcher()
        watcher.watch(str(tmp_path), ("moved_to", "delete"), on_change)
        write_atomic(str(tmp_path / "a"), b"1")
        write_atomic(str(tmp_path / "b"), b"2")
        (tmp_path / "a").unlink()
        write_atomic(str(tmp_path / "last"), b"3")
        await asyncio.wait_for(done.wait(), 10)
        watcher.close()
        return seen

    assert asyncio.run(scenario()) == [
        ("a", "moved_to"),
        ("b", "moved_to"),
        ("a", "delete"),
        ("last", "moved_to"),
    ]


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    async def scenario() -> None:
        watcher = Watcher()
        try:
            watcher.watch(str(tmp_path / "none"), ("create",), lambda _name, _kind: None)
        finally:
            watcher.close()

    with pytest.raises(InotifyError, match="none"):
        asyncio.run(scenario())
