"""Tests of ganeti/daemon/follow.py with files and the kernel's events."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.loop import run
from fakes.waiting import until

from ganeti.daemon.follow import follow_files


def write(path: Path) -> None:
    path.write_text("changed\n")


def replace(path: Path) -> None:
    new = path.with_name("new")
    write(new)
    new.replace(path)


def follow(path: Path, *changes: Callable[[], object]) -> None:
    """Follow a file, and see that each change is told."""

    async def test() -> None:
        count = 0

        def on_changed() -> None:
            nonlocal count
            count += 1

        with follow_files([str(path)], on_changed):
            for change in changes:
                before = count
                change()
                await until(lambda before=before: count > before)  # type: ignore[misc]

    run(test())


@pytest.fixture
def users(tmp_path: Path) -> Path:
    (tmp_path / "rapi").mkdir()
    return tmp_path / "rapi" / "users"


def test_a_file_is_followed_from_before_it_is_there(users: Path) -> None:
    follow(users, lambda: write(users), lambda: replace(users), users.unlink)


def test_what_a_link_leads_to_is_followed(users: Path, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    target = tmp_path / "etc" / "rapi_users"
    users.symlink_to("../etc/link")
    (tmp_path / "etc" / "link").symlink_to("rapi_users")
    follow(users, lambda: write(target), lambda: replace(target), target.unlink)


def test_a_link_that_leads_elsewhere_now_is_followed(users: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    later = tmp_path / "other" / "later"
    users.symlink_to(tmp_path / "missing" / "users")
    follow(
        users,
        users.unlink,
        lambda: users.symlink_to(later),
        lambda: write(later),
        lambda: replace(later),
    )
