"""What the helper of NodeD does before there are calls."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import os, signal, sys
from ganeti.base.paths import Paths
from ganeti.noded import child, helper
from ganeti.system import process_facts

served = []
one = child.serve_one
child.serve_one = lambda *args: served.append(one(*args))
before = os.listdir("/proc/self/fd")
helper._rehearse(Paths(sys.argv[1]), "node1.example.com")
assert served == [True] * helper._CALLS_REHEARSED, served
assert os.listdir("/proc/self/fd") == before
assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
assert process_facts.name_of(os.getpid()) == "noded-helper"
"""


def test_a_rehearsal_leaves_nothing(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], check=False, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []
