"""The five lines of README.md, as they stand there: from a checkout to a command in a Debian guest."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
SECTION = "## From nothing to a Debian guest\n"
PROGRAMS = ("mmdebstrap", "mcopy", "mkfs.vfat", "sfdisk", "qemu-img", "qemu-system-x86_64")
TIMEOUT_S = 1500.0  # the guest's processor is emulated

pytestmark = pytest.mark.skipif(
    not all(shutil.which(program) for program in PROGRAMS), reason=f"needs {', '.join(PROGRAMS)}"
)


def lines() -> list[str]:
    _, _, after = (CHECKOUT / "README.md").read_text().partition(SECTION)
    section = after.partition("\n## ")[0]
    return [line.strip() for line in section.splitlines() if line.startswith("    ")]


def run(line: str, where: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    done = subprocess.run(
        ["sh", "-c", line],
        cwd=where,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    print(f"$ {line}\n{done.stdout}{done.stderr}")
    assert done.returncode == 0, line
    return done.stdout


@pytest.fixture
def checkout(root: None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gnt-") as directory:
        place = Path(directory) / "ganeti"
        run(f"git clone -q {CHECKOUT} {place}", Path(directory))
        yield place
        if (place / ".demo").exists():
            run("tools/vcluster destroy .demo", place)


def test_five_lines_lead_into_a_debian_guest(checkout: Path) -> None:
    *before, last = lines()
    assert len(before) == 4
    for line in before:
        run(line, checkout)
    said = run(f"{last} -- 'hostname; cat /etc/os-release'", checkout)
    assert said.startswith("web1")
    assert "VERSION_CODENAME=bookworm" in said
