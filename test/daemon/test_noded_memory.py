"""Locking the memory of a node daemon where nobody permits it: a user without privileges."""

import subprocess
import sys

# Imports come first: whoever is nobody may not be able to read where they are.
UNPRIVILEGED = """
import mmap, os, resource
from ganeti.noded import memory
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
