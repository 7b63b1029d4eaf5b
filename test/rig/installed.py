"""Ganeti installed the way that doc/installation.md tells, by its very commands."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from . import image, store
from .containers import TIMEOUT_S, Machine, containers, hosts, let_in
from .store import CHECKOUT, run

PAGE: Final = CHECKOUT / "doc/installation.md"
SOURCES: Final = "/usr/src/ganeti"
_HOME: Final = "/opt/ganeti"  # as the page has it
_NOT_INSTALLED: Final = re.compile(
    r"test/|bench/|\.ci/|doc/(?!installation)[^/]*\.md$|[A-Z].*\.md$"
)
_PIP: Final = "[global]\nno-index = true\nfind-links = /srv/wheels\n"


def commands(section: str) -> list[str]:
    """Return the commands of the page that follow the mark ``<!-- test: SECTION -->``."""
    _, _, after = PAGE.read_text().partition(f"<!-- test: {section} -->\n")
    block = re.match(r"\n((?:    .*\n)+)", after)
    assert block, f"{PAGE} has no commands marked {section!r}"
    return [line.strip() for line in block[1].splitlines()]


def _sources() -> list[str]:
    """Return the names of the files of this checkout."""
    names = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=CHECKOUT)
    return [name for name in names.split("\0") if name and (CHECKOUT / name).exists()]


def copy_sources(machine: Machine) -> None:
    """Put the files of this checkout on a machine."""
    archive = subprocess.run(
        ["tar", "--create", "--null", "--files-from=-"],
        input="\0".join(_sources()).encode(),
        capture_output=True,
        cwd=CHECKOUT,
        check=True,
        timeout=TIMEOUT_S,
    )
    machine.run(f"mkdir -p {SOURCES}; tar -x -C {SOURCES}", archive.stdout)


def install(machine: Machine, *, quick: bool = False) -> None:
    """Follow the page on a machine.

    Args:
        quick: build with the environment that it is installed into, instead of one more; half the time.
    """
    machine.run("cat > /etc/pip.conf", _PIP)
    copy_sources(machine)
    for command in commands("install"):
        if quick and command.startswith("make install "):
            machine.run(f"ln -s {_HOME} {SOURCES}/.venv; touch {_HOME}/.installed")
        machine.run(f"cd {SOURCES} && {command}")
    # Tests stop things and look at them: those of the watcher run it themselves.
    machine.run("systemctl disable --now ganeti-watcher.timer")
    machine.run(f"rm -rf {SOURCES}/.venv {_HOME}/.installed")


@contextlib.contextmanager
def layer(*, quick: bool = False) -> Iterator[Path]:
    """Yield what the installation adds to Debian, to be laid over it for many machines."""
    with containers(1) as running:
        machine = running.machines[0]
        install(machine, quick=quick)
        running.switch_off(machine)
        upper = machine.directory / "upper"
        for name in ("etc/machine-id", "etc/hostname", "etc/hosts", "root/.ssh"):
            path = upper / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        yield upper


def fingerprint(*more: str) -> str:
    """Return what changes when an image with Ganeti has to be made anew, or one with more in it."""
    parts = [repr(store.PACKAGES), store.kernel_name(), *more]
    names = [name for name in _sources() if not _NOT_INSTALLED.match(name)]
    digest = hashlib.sha256(repr(parts).encode())
    for name in sorted({*names, "test/rig/image.py", "test/rig/installed.py"}):
        path = CHECKOUT / name
        digest.update(name.encode())
        digest.update(os.readlink(path).encode() if path.is_symlink() else path.read_bytes())
    return digest.hexdigest()[:16]


@cache  # sources that change meanwhile are another version
def machine_files() -> Path:
    """Return a directory with what virtual machines with Ganeti boot: vmlinuz, initrd and image."""
    return store.version("virtual-machines", fingerprint(), _make_machine_files)


def _make_machine_files(directory: Path) -> None:
    make_machine_files(directory, store.kernel(), store.root(), {})


def make_machine_files(
    directory: Path, kernel: Path, root: Path, files: Mapping[str, str | bytes]
) -> None:
    """Fill a directory with what virtual machines with Ganeti boot.

    Args:
        root: the system, with all that Ganeti needs.
        files: what their systems have beside it, by path.
    """
    extra = directory / "extra"
    (extra / "etc/ssh").mkdir(parents=True)
    (extra / "etc/hosts").write_text(hosts())
    for name, content in files.items():
        (extra / name).parent.mkdir(parents=True, exist_ok=True)
        (extra / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    let_in(extra, store.key())
    with layer(quick=True) as program:
        image.make_image(directory, kernel, (program, root), extra)
    image.make_initrd(directory, kernel)
    shutil.copy(image.vmlinuz(kernel), directory / "vmlinuz")
