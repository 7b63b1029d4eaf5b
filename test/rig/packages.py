"""Debian packages: ours, built in a container, and those of others that containers install.

The containers have no network: each gets a directory with the packages and an index for apt.
"""

from __future__ import annotations

import base64
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from . import installed, store
from .containers import Machine, containers
from .installed import SOURCES, copy_sources
from .store import run

BUILDERS: Final = ("debhelper", "dpkg-dev", "build-essential")
NEEDED: Final = ("logrotate",)
GANETI_3_0: Final = ("ganeti", *NEEDED)
REPOSITORY: Final = "/srv/packages"
_PIP: Final = "[global]\nno-index = true\nfind-links = /srv/wheels\n"
_SOURCE: Final = f"deb [trusted=yes] file:{REPOSITORY} ./\n"
OURS: Final = "ganeti-python"


def repository(*names: str) -> Path:
    """Return a layer over Debian with packages and what they need, where apt finds them."""
    kind = "packages-" + "-".join(names)
    return store.cached(
        kind, (store.SUITE, store.PACKAGES, names, 2), lambda path: _fill(path, names)
    )


def _fill(target: Path, names: Sequence[str]) -> None:
    """Ask apt which packages the plain Debian lacks, and keep them with their entries."""
    place = target / REPOSITORY.lstrip("/")
    (place / "partial").mkdir(parents=True)
    status = store.root() / "var/lib/dpkg/status"
    options = (
        f"Dir::State::status={status}",
        f"Dir::Cache::archives={place}",
        "Debug::NoLocking=1",
    )
    words = [word for option in options for word in ("-o", option)]
    # As the user of the directory: apt's own user may not look into it.
    words += [
        "-o",
        "APT::Sandbox::User=root",
        "--yes",
        "--no-install-recommends",
        "--download-only",
    ]
    run("apt-get", *words, "install", *names)
    shutil.rmtree(place / "partial")
    for leftover in ("lock",):
        (place / leftover).unlink(missing_ok=True)
    entries = [_entry(path) for path in sorted(place.glob("*.deb"))]
    (place / "Packages").write_text("\n".join(entries))
    sources = target / "etc/apt/sources.list.d/packages.list"
    sources.parent.mkdir(parents=True)
    sources.write_text(_SOURCE)
    (target / "etc/apt/sources.list").write_text("")


def _entry(path: Path) -> str:
    """Return the entry of a package in Debian's index, for the file beside it."""
    name, version = path.name.split("_")[:2]
    entry = run("apt-cache", "show", f"{name}={version.replace('%3a', ':')}").partition("\n\n")[0]
    return re.sub(r"(?m)^Filename: .*$", f"Filename: ./{path.name}", entry) + "\n"


def build(machine: Machine) -> bytes:
    """Build the package of this checkout on a machine; returns it."""
    machine.run("cat > /etc/pip.conf", _PIP)
    copy_sources(machine)
    machine.run(
        "apt-get update && apt-get install --yes --no-install-recommends " + " ".join(BUILDERS)
    )
    machine.run(f"cd {SOURCES} && make deb")
    machine.run(f"cp {SOURCES}/dist/{OURS}_*.deb /tmp/package.deb")
    return base64.b64decode(machine.run("base64 /tmp/package.deb"))


def package() -> Path:
    """Return the package of this checkout, built where it is missing."""
    return store.version("deb", installed.fingerprint(), _build_into) / f"{OURS}.deb"


def _build_into(directory: Path) -> None:
    with containers(1, repository(*BUILDERS)) as running:
        (directory / f"{OURS}.deb").write_bytes(build(running.machines[0]))
