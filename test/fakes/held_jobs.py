"""Jobs that run until a test lets them go on, however fast or slow the machine is."""

from __future__ import annotations

import time

from ganeti.base.ids import JobId
from ganeti.clients.luxi import LuxiClient
from ganeti.logical_units.testing import LOG_DELAY
from ganeti.transport.rendezvous import visit

DEADLINE_S = 60.0
HELD_S = 3600.0  # no test takes so long

HELD: dict[str, object] = {
    "OP_ID": "OP_TEST_DELAY",
    "duration": HELD_S,
    "interruptible": True,
    "on_master": True,
    "reason": [],
}


def wait_held(client: LuxiClient, job_id: int) -> str:
    """Wait until a job of `HELD` runs and is held; returns what to give to `let_go`."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        [[logs]] = client.query_jobs([JobId(job_id)], ["oplog"])
        assert isinstance(logs, list)
        for _serial, _stamp, kind, payload in (entry for log in logs for entry in log):
            if kind == LOG_DELAY:
                return str(payload[0])
        assert time.monotonic() < deadline, f"job {job_id} does not run: {logs}"
        time.sleep(0.01)


def let_go(place: str) -> None:
    """Let a job go on that is held."""
    with visit(place, DEADLINE_S):
        pass
