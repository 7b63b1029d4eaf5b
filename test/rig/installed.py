"""Ganeti installed the way that doc/installation.md tells, by its very commands."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .containers import TIMEOUT_S, Machine, containers
from .store import CHECKOUT, run

PAGE: Final = CHECKOUT / "doc/installation.md"
SOURCES: Final = "/usr/src/ganeti"
_PIP: Final = "[global]\nno-index = true\nfind-links = /srv/wheels\n"


def commands(section: str) -> list[str]:
    """Return the commands of the page that follow the mark ``<!-- test: SECTION -->``."""
    _, _, after = PAGE.read_text().partition(f"<!-- test: {section} -->\n")
    block = re.match(r"\n((?:    .*\n)+)", after)
    assert block, f"{PAGE} has no commands marked {section!r}"
    return [line.strip() for line in block[1].splitlines()]


def copy_sources(machine: Machine) -> None:
    """Put the files of this checkout on a machine."""
    names = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=CHECKOUT)
    there = "\0".join(name for name in names.split("\0") if name and (CHECKOUT / name).exists())
    archive = subprocess.run(
        ["tar", "--create", "--null", "--files-from=-"],
        input=there.encode(),
        capture_output=True,
        cwd=CHECKOUT,
        check=True,
        timeout=TIMEOUT_S,
    )
    machine.run(f"mkdir -p {SOURCES}; tar -x -C {SOURCES}", archive.stdout)


def install(machine: Machine) -> None:
    """Follow the page on a machine."""
    machine.run("cat > /etc/pip.conf", _PIP)
    copy_sources(machine)
    for command in commands("install"):
        machine.run(f"cd {SOURCES} && {command}")
    machine.run(f"rm -rf {SOURCES}/.venv")


@contextlib.contextmanager
def layer() -> Iterator[Path]:
    """Yield what the installation adds to Debian, to be laid over it for many machines."""
    with containers(1) as running:
        machine = running.machines[0]
        install(machine)
        running.switch_off(machine)
        upper = machine.directory / "upper"
        for name in ("etc/machine-id", "etc/hostname", "etc/hosts", "root/.ssh"):
            path = upper / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        yield upper
