"""Changes in a directory arrive as events, in order."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pyinotify
import pytest

from ganeti.base.errors import InotifyError
from ganeti.system.files import write_atomic
from ganeti.system.inotify import Watcher


@pytest.mark.shows("backend/life/wait")
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
        await asyncio.wait_for(done.wait(), 60)
        watcher.close()
        return seen

    assert asyncio.run(scenario()) == [
        ("a", "moved_to"),
        ("b", "moved_to"),
        ("a", "delete"),
        ("last", "moved_to"),
    ]


def test_an_error_in_a_callback_is_reported_and_keeps_no_event_back(tmp_path: Path) -> None:
    async def scenario() -> tuple[list[str], list[str]]:
        seen: list[str] = []
        errors: list[str] = []
        done = asyncio.Event()

        def on_change(name: str, _kind: str) -> None:
            seen.append(name)
            if name == "last":
                done.set()
            else:
                raise ValueError(name)

        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, details: errors.append(details["message"]))
        watcher = Watcher()
        watcher.watch(str(tmp_path), ("moved_to",), on_change)
        write_atomic(str(tmp_path / "a"), b"1")
        write_atomic(str(tmp_path / "last"), b"2")
        await asyncio.wait_for(done.wait(), 60)
        watcher.close()
        return seen, errors

    seen, errors = asyncio.run(scenario())
    assert seen == ["a", "last"]
    assert errors == ["error in the callback for event moved_to of 'a'"]


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    async def scenario() -> None:
        watcher = Watcher()
        try:
            watcher.watch(str(tmp_path / "none"), ("create",), lambda _name, _kind: None)
        finally:
            watcher.close()

    with pytest.raises(InotifyError, match="none"):
        asyncio.run(scenario())


def test_too_many_watchers_name_the_limit_that_is_to_be_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Refused(pyinotify.INotifyWrapper):
        """A kernel that gives no more of them."""

        def _inotify_init(self) -> int:
            return -1

        def _get_errno(self) -> int:
            return errno.EMFILE

    async def scenario() -> None:
        Watcher()

    monkeypatch.setattr(pyinotify.INotifyWrapper, "create", Refused)
    with pytest.raises(InotifyError, match=r"'sysctl -w fs\.inotify\.max_user_instances=.*EMFILE"):
        asyncio.run(scenario())
