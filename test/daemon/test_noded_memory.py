"""The node daemon and memory: locking it, also as a user without privileges; running out of it."""

import subprocess
import sys
from pathlib import Path

import pytest

from ganeti.daemon import memory

# Imports come first: whoever is nobody may not be able to read where they are.
UNPRIVILEGED = """
import mmap, os, resource
from ganeti.daemon import memory
limit = 8 << 20  # what systemd gives by default
resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, limit))
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
memory.enable()
print(memory.lock_everything(), memory.lock_on_fault())
mmap.mmap(-1, 4 * limit).close()
print("mapped")
"""


def test_without_privileges_everything_can_still_be_mapped_afterwards() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", UNPRIVILEGED],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.stdout.split() == ["False", "False", "mapped"], ran.stderr


@pytest.mark.parametrize(
    ("before", "after"), [("-900\n", "0\n"), ("0\n", "0\n"), ("300\n", "300\n")]
)
def test_guests_are_not_spared_when_memory_runs_out(
    tmp_path: Path, before: str, after: str
) -> None:
    path = tmp_path / "oom_score_adj"
    path.write_text(before)
    memory.be_an_ordinary_victim(str(path))
    assert path.read_text() == after


def test_a_system_without_such_a_score_is_no_trouble(tmp_path: Path) -> None:
    memory.be_an_ordinary_victim(f"{tmp_path}/missing")
