"""Runs LuxiD with another template of job processes: the arguments are that program's."""

from __future__ import annotations

import sys

from ganeti.daemon.main import run_daemon
from ganeti.luxid.main import SPEC
from ganeti.luxid.queue import processes

if __name__ == "__main__":
    separator = sys.argv.index("--")
    command = [sys.executable, *sys.argv[separator + 1 :]]
    processes.launch_argv = lambda *words: [*command, *words]
    sys.exit(run_daemon(SPEC, sys.argv[1:separator]))
