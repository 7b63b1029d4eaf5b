"""Rules about the sources that no tool checks for us."""

from __future__ import annotations

import ast
import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAM_FOLDERS = ("ganeti", "daemons", "tools", "bench")

# Gone in Python 3.12, 3.13 or 3.14; the program is written for 3.11 and everything newer.
REMOVED_MODULES = frozenset(
    [
        "aifc",
        "asynchat",
        "asyncore",
        "audioop",
        "cgi",
        "cgitb",
        "chunk",
        "crypt",
        "distutils",
        "imghdr",
        "imp",
        "lib2to3",
        "mailcap",
        "msilib",
        "nis",
        "nntplib",
        "ossaudiodev",
        "pipes",
        "smtpd",
        "sndhdr",
        "spwd",
        "sunau",
        "telnetlib",
        "uu",
        "xdrlib",
    ]
)

# A library other than msgspec is imported in one room or two, which speaks our words to the rest.
HOMES = {
    "pyinotify": "ganeti/system",
    "pycurl": "ganeti/transport",
    "httptools": "ganeti/transport",
    "prometheus_client": "ganeti/mond",
    "pyparsing": ("ganeti/query", "ganeti/storage/drbd"),
    "bitarray": "ganeti/config",
    "highspy": "ganeti/allocation/planning",
}


def sources() -> Iterator[Path]:
    for folder in PROGRAM_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and (path.suffix == ".py" or is_python_script(path)):
                yield path


def is_python_script(path: Path) -> bool:
    if path.suffix or "__pycache__" in path.parts:
        return False
    with path.open("rb") as file:
        return file.readline().startswith(b"#!") and b"python" in path.read_bytes()[:64]


@functools.cache
def imported_modules(path: Path) -> tuple[str, ...]:
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.append(node.module)
    return tuple(found)


def test_there_are_sources() -> None:
    assert len(list(sources())) > 50


def test_nothing_is_used_that_a_newer_python_removed() -> None:
    found = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources()
        for name in imported_modules(path)
        if name.partition(".")[0] in REMOVED_MODULES
    ]
    assert not found


@pytest.mark.parametrize(("library", "home"), sorted(HOMES.items()))
def test_a_library_has_one_home(library: str, home: str | tuple[str, ...]) -> None:
    found = [
        str(path.relative_to(ROOT))
        for path in sources()
        for name in imported_modules(path)
        if name.partition(".")[0] == library and not str(path.relative_to(ROOT)).startswith(home)
    ]
    assert not found


@pytest.mark.shows("2.1/condition/no-polling")
def test_nothing_sleeps_in_the_event_loop_or_polls_with_naps() -> None:
    allowed = {  # the door to the system
        f"ganeti/system/{name}.py" for name in ("filelock", "clock", "failpoints")
    }
    found = []
    for path in sources():
        name = str(path.relative_to(ROOT))
        if name in allowed or name.startswith("bench/"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "time.sleep":
                found.append(f"{name}:{node.lineno}")
    assert not found


def test_every_package_file_is_empty() -> None:
    assert not [path for path in (ROOT / "ganeti").rglob("__init__.py") if path.stat().st_size]


def test_the_checkout_holds_no_generated_files() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert not [
        name for name in listed.splitlines() if name.endswith((".pyc", ".img", ".log", ".pem"))
    ]


def test_every_program_can_be_run() -> None:
    scripts = [
        path
        for folder in ("daemons", "tools", "tools/iallocators")
        for path in (ROOT / folder).iterdir()
        if path.is_file()
    ]
    assert scripts
    not_executable = [
        path.name for path in scripts if not os.access(path, os.X_OK) and path.suffix != ".py"
    ]
    assert not not_executable


def test_importing_the_base_is_cheap_in_modules() -> None:
    """Every process imports these; asyncio, ssl and the like must not come with them."""
    code = (
        "import sys\n"
        "import ganeti.base.errors, ganeti.base.paths, ganeti.base.json\n"
        "import ganeti.system.files, ganeti.system.filelock, ganeti.system.environment\n"
        "print(' '.join(sorted(sys.modules)))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"asyncio", "ssl", "subprocess", "dataclasses", "logging"} & set(loaded)
