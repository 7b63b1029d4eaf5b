"""Programs that administrators put up: which names may be theirs, and which of them to trust."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.base.text import is_plugin_name

CHECKOUT: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_PACKAGES: Final = ("site-packages", "dist-packages")  # below PREFIX/lib/python3.N
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


def check_plugin_name(name: str, what: str) -> None:
    """Refuse a name that could lead out of the directory it is looked for in.

    Raises:
        GenericError: characters other than letters, digits, ``_`` and ``-``.
    """
    if not is_plugin_name(name):
        raise GenericError(f"{what} {name!r} is not a valid name")


def is_runnable(path: str) -> bool:
    """Tell whether a path is a file that may be executed."""
    return os.path.isfile(path) and os.access(path, os.X_OK)


def find_plugin(name: str, directories: Iterable[str], what: str) -> str | None:
    """Return the path of the first executable file of that name, None if there is none.

    Raises:
        GenericError: no valid name.
    """
    check_plugin_name(name, what)
    paths = (os.path.join(directory, name) for directory in directories)
    return next(filter(is_runnable, paths), None)


def find_allowed(directory: str, name: str, what: str) -> str:
    """Return the path of a program that this node's administrator allows to be run by its name.

    Source: hooks_os_ext.json, "restricted_commands".

    Raises:
        GenericError: no such program, or it could have been put there by somebody else.
    """
    check_plugin_name(name, what)
    path = os.path.join(directory, name)
    for checked in (directory, path):
        _check_trustworthy(checked)
    if not is_runnable(path):
        raise GenericError(f"{what} {name!r} is not an executable file")
    return path


def _check_trustworthy(path: str) -> None:
    """Refuse a file that others than this process's user or root may have written.

    Raises:
        GenericError: it is missing, or owned or writable by somebody else.
    """
    try:
        status = os.lstat(path)
    except OSError as err:
        raise GenericError(f"{path}: {err.strerror}") from err
    if stat.S_ISLNK(status.st_mode):
        raise GenericError(f"{path} is a symbolic link, so it is not run")
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & _WRITABLE_BY_OTHERS:
        raise GenericError(f"{path} can be changed by others than root, so it is not run")


def installation_prefix(above_package: str = CHECKOUT) -> str | None:
    """Return the directory that we are installed below; None in a checkout."""
    directory, name = os.path.split(above_package)
    return os.path.dirname(os.path.dirname(directory)) if name in _PACKAGES else None


def allocator_directories(paths: Paths) -> list[str]:
    """Return where allocators are looked for, first match wins: ours come last."""
    prefix = installation_prefix()
    ours = [] if prefix is None else [f"{prefix}/lib/ganeti/iallocators"]
    return list(dict.fromkeys([*paths.iallocator_search_path, *ours]))
