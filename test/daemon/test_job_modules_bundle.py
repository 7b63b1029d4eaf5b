"""The bundle that job processes load their modules from."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from ganeti.luxid.bundle import Bundle
from ganeti.luxid.pool import launch_argv, pack_argv
from ganeti.system import clock
from ganeti.system.exits import ExitWatcher

DEADLINE_S = 60.0

# Loads all that a job imports from the bundle; prints which modules came from the disk instead.
LOAD = """
import sys
from marshal import loads
from posix import pread
sys.path[:0] = sys.argv[1].split(":")
descriptor, offset, size = map(int, sys.argv[2].split(":"))
importer, index = loads(pread(descriptor, size, offset))
bundle = type(sys)("ganeti.jobexec.bundle")
exec(importer, vars(bundle))
before = set(sys.modules)
bundle.install(descriptor, offset + size, index)
from ganeti.jobexec.lean import leave_out_unused
leave_out_unused()
from ganeti.jobexec import main
main._load_the_rest()
from ganeti.jobs import record
assert main.__file__.endswith("jobexec/main.py"), main.__file__
assert main.main.__code__.co_filename == main.__file__
loaders = {name: type(getattr(module, "__loader__", None)).__name__
           for name, module in sys.modules.items() if name not in before}
print(sorted(name for name in loaders if loaders[name] == "SourceFileLoader"))
try:
    record.decode_job(b"{}")
except Exception:
    import logging
    logging.basicConfig()
    logging.exception("wrong")
import ganeti.opcodes.test
"""


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - nobody but a test waits for a bundle
            await asyncio.sleep(0.01)


class Made:
    """A bundle in a running loop; `argv` makes it."""

    def __init__(self, argv: list[str]) -> None:
        self.exits = ExitWatcher()
        self.bundle = Bundle(argv, 2, self.exits)
        self.bundle.make()

    async def until_there(self) -> tuple[list[str], list[int]]:
        await until(lambda: bool(self.bundle.for_process()[0]))
        return self.bundle.for_process()

    def close(self) -> None:
        self.bundle.close()
        self.exits.close()


def test_a_job_process_loads_everything_from_the_bundle() -> None:
    async def load() -> subprocess.CompletedProcess[str]:
        made = Made(pack_argv())
        arguments, descriptors = await made.until_there()
        argv = [sys.executable, "-I", "-S", "-c", LOAD, launch_argv()[-1], *arguments]
        shown = await asyncio.to_thread(
            subprocess.run,
            argv,
            check=True,
            capture_output=True,
            text=True,
            pass_fds=descriptors,
        )
        made.close()
        return shown

    shown = asyncio.run(load())
    assert shown.stdout.strip() == "[]"
    assert "ganeti/jobs/record.py" in shown.stderr  # tracebacks show files and lines
    assert "raise JobFileCorrupted" in shown.stderr


def packer(directory: Path) -> tuple[list[str], Path]:
    """Return a command that makes a bundle of nothing, and the one file it is said to be of."""
    source, script = directory / "source", directory / "pack.py"
    source.write_text("1")
    script.write_text(
        "import json, os, sys\n"
        f"path = {str(source)!r}\n"
        "state = os.stat(path)\n"
        "sources = {path: (state.st_mtime_ns, state.st_size)}\n"
        "print(json.dumps({'head_bytes': 7, 'sources': sources}))\n"
        "print(open(path).read())\n"
    )
    return [sys.executable, str(script)], source


def test_a_changed_module_makes_it_anew(tmp_path: Path) -> None:
    argv, source = packer(tmp_path)
    now = [0.0]

    async def change() -> None:
        made = Made(argv)
        arguments, (descriptor,) = await made.until_there()
        assert arguments[0].endswith(":7")
        now[0] += 2
        assert made.bundle.for_process() == (arguments, [descriptor])  # nothing changed
        source.write_text("22")
        now[0] += 2
        assert made.bundle.for_process() == ([], [])
        _arguments, (descriptor,) = await made.until_there()
        assert os.pread(descriptor, 4096, 0).endswith(b"22\n")
        source.unlink()
        now[0] += 2
        assert made.bundle.for_process() == ([], [])
        made.close()

    real, clock.monotonic = clock.monotonic, lambda: now[0]
    try:
        asyncio.run(change())
    finally:
        clock.monotonic = real


def test_without_a_bundle_processes_start_as_well(tmp_path: Path) -> None:
    async def fail(argv: list[str]) -> None:
        made = Made(argv)
        await until(lambda: not made.bundle.is_being_made)
        assert made.bundle.for_process() == ([], [])
        made.close()

    asyncio.run(fail([sys.executable, "-c", "raise SystemExit(3)"]))
    asyncio.run(fail([sys.executable, "-c", "print('no JSON')"]))
    asyncio.run(fail([str(tmp_path / "missing")]))
