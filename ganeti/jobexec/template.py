"""The template: the process that job processes are forked from, so that none pays for its imports.

LuxiD execs one; it loads all that jobs need, never runs a job itself, and holds neither lock files
nor connections.  Every job has a process of its own, forked for it alone: invariants 1 and 2 of
ARCHITECTURE.md know no difference between a fork and an exec.

Source: ARCHITECTURE, "The life of a job"; doc/design.md for the departure from one exec per job.
"""

from __future__ import annotations

import gc
import itertools
import os
import socket
from collections.abc import Iterator
from typing import NoReturn

from ganeti.base.paths import Paths
from ganeti.daemon import log
from ganeti.jobexec import main as job_process
from ganeti.jobexec.rehearsal import rehearse
from ganeti.logical_units.registry import LOGICAL_UNITS, logical_unit_class
from ganeti.opcodes.registry import opcode_class
from ganeti.system import environment, nursery, title


def main() -> NoReturn:
    """Be the template until LuxiD closes its end of the control socket, our standard input."""
    status = 1
    try:
        title.show_name("gnt-job-nursery")
        nursery.ignore_signals()
        paths = environment.current_paths()
        log.set_up("ganeti-job", f"{paths.log_dir}/jobs.log", debug=False, console=False)
        with _take_control() as control:
            _nursery(control, paths).run(itertools.chain(load_all(), rehearse(paths), _tidy_up()))
        status = 0
    finally:
        os._exit(status)  # taking the interpreter apart is of no use to anybody


def load_all() -> Iterator[str]:
    """Import what the opcodes need, one after the other; yields each that is done."""
    for op_id in LOGICAL_UNITS:
        opcode_class(op_id)
        logical_unit_class(op_id)
        yield op_id


def _tidy_up() -> Iterator[str]:
    """Free what getting ready left behind, before it is shared with all that come."""
    gc.collect()
    yield "tidy"


def _nursery(control: socket.socket, paths: Paths) -> nursery.Nursery:
    def live(channel: socket.socket) -> NoReturn:
        os._exit(job_process.run(paths, channel))

    def refuse(_channel: socket.socket, _err: OSError) -> None:
        """LuxiD sees the channel close, and the log says why."""

    return nursery.Nursery(control, live, refuse)


def _take_control() -> socket.socket:
    """Return the control socket; standard input and output are nothing from here on."""
    control = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    return control
