"""The package by which an operating system is installed elsewhere than on the node: a tar archive.

    run             runs the create script in the environment that goes with it
    environment     lines for a shell, as scripts on a node have them
    os/             the files of the operating system definition

A machine that has no way to ask its node gets the package on a disk:

    byte 0          one line: "package OFFSET SIZE"; the machine writes "progress TEXT" there, and
                    at last "exit STATUS"
    byte 512        the output of the script, as far as the machine writes it there
    byte 1048576    the package

Source: hooks_os_ext.json, "os_api" (create_untrusted) and "metadata_daemon" (os-install-package).
"""

from __future__ import annotations

import io
import os
import re
import shlex
import tarfile
from collections.abc import Iterator, Mapping
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.node_ops.instances.os_definitions import CREATE, CREATE_UNTRUSTED, OsDefinition
from ganeti.system import files

BYTES_MAX: Final = 14 << 20  # definitions are scripts; what is larger belongs into an image
OUTPUT_OFFSET: Final = 512
_PACKAGE_OFFSET: Final = 1 << 20
_LINE_FIRST: Final = "package"
_FILES_MAX: Final = 1000
_TAIL_BYTES: Final = 16 << 10
_TAIL_LINES: Final = 20
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PROGRAM_MODE: Final = 0o755
_TEXT_MODE: Final = 0o644
_RUN: Final = """#!/bin/sh
cd "$(dirname "$0")/os" && . ../environment && exec ./{script} "$@"
"""


def install_script(definition: OsDefinition) -> str:
    """Return the kind of the create script that a definition has, the untrusted one first."""
    return CREATE_UNTRUSTED if CREATE_UNTRUSTED in definition.scripts else CREATE


def build(definition: OsDefinition, environment: Mapping[str, str]) -> bytes:
    """Return the package; variables whose names no shell takes are left out.

    Raises:
        GenericError: the files of the definition are too many or too large, or a name too long.
        OSError: one cannot be read.
    """
    target = io.BytesIO()
    lines = [
        f"export {name}={shlex.quote(value)}\n"
        for name, value in environment.items()
        if _VARIABLE.fullmatch(name)
    ]
    with tarfile.open(fileobj=target, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        run = _RUN.format(script=install_script(definition))
        _add(archive, "run", run.encode(), _PROGRAM_MODE)
        _add(archive, "environment", "".join(lines).encode(), _TEXT_MODE)
        for name, data, mode in _read_all(definition):
            _add(archive, f"os/{name}", data, mode)
    return target.getvalue()


def write_to_disk(path: str, package: bytes, disk_bytes: int) -> None:
    """Write a package to a disk, with nothing in the place of the answer.

    Raises:
        GenericError: it does not fit.
        OSError: the disk cannot be written.
    """
    if _PACKAGE_OFFSET + len(package) > disk_bytes:
        raise GenericError(f"the package has {len(package)} bytes, which is too much for its disk")
    line = f"{_LINE_FIRST} {_PACKAGE_OFFSET} {len(package)}\n".encode()
    with open(path, "r+b") as disk:
        disk.write(line.ljust(_PACKAGE_OFFSET, b"\0"))
        disk.write(package)
        disk.flush()
        os.fsync(disk.fileno())


def read_answer(path: str) -> str:
    """Return the line that a machine has written to the disk last; "" if it has not yet.

    Raises:
        OSError: the disk cannot be read.
    """
    with open(path, "rb") as disk:
        line = _printable(disk.read(OUTPUT_OFFSET)).partition("\n")[0].strip()
    return "" if line.startswith(_LINE_FIRST) else line


def read_output(path: str) -> bytes:
    """Return the output that a machine has written to the disk.

    Raises:
        OSError: the disk cannot be read.
    """
    with open(path, "rb") as disk:
        disk.seek(OUTPUT_OFFSET)
        return disk.read(_PACKAGE_OFFSET - OUTPUT_OFFSET).partition(b"\0")[0]


def _printable(data: bytes) -> str:
    """Return the text that a guest wrote, without anything that a terminal would obey."""
    text = data.partition(b"\0")[0].decode("utf-8", "replace")
    return "".join(each if each.isprintable() or each == "\n" else "?" for each in text)


def tail(output: bytes) -> str:
    """Return the last lines of an output, for people."""
    return "\n".join(_printable(output[-_TAIL_BYTES:]).strip().splitlines()[-_TAIL_LINES:])


def _read_all(definition: OsDefinition) -> Iterator[tuple[str, bytes, int]]:
    """Yield name, content and mode of each file."""
    left_bytes, left_files = BYTES_MAX, _FILES_MAX
    for name in _names_below(definition.path):
        path = os.path.join(definition.path, name)
        if not os.path.isfile(path):  # neither sockets nor links to nowhere
            continue
        data = files.read_bytes(path, BYTES_MAX)
        left_bytes, left_files = left_bytes - len(data), left_files - 1
        if left_bytes < 0 or left_files < 0:
            raise GenericError(
                f"OS {definition.name!r}: {definition.path} has more than {_FILES_MAX} files or"
                f" {BYTES_MAX >> 20} MiB, which is too much for an installation package"
            )
        yield name, data, _PROGRAM_MODE if os.access(path, os.X_OK) else _TEXT_MODE


def _names_below(directory: str) -> Iterator[str]:
    for place, directories, names in os.walk(directory):
        directories.sort()
        yield from (os.path.relpath(os.path.join(place, name), directory) for name in sorted(names))


def _add(archive: tarfile.TarFile, name: str, data: bytes, mode: int) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), mode
    try:
        archive.addfile(member, io.BytesIO(data))
    except ValueError as err:
        raise GenericError(f"{name} cannot be in an installation package: {err}") from err
