"""WConfD is killed again and again while eight clients are busy; nothing acknowledged is lost.

``GANETI_TEST_ROUNDS=200 pytest test/fault/test_wconfd_kill.py`` plays longer;
``GANETI_TEST_SEED`` makes the same calls again, though not at the same moments.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import subprocess
import sys
import time
from typing import Any

import pytest
from fakes import wconfd_traffic
from fakes.chance import seed
from fakes.waiting import wait_until
from fakes.wconfd_node import ALONE, WconfdNode

from ganeti.clients.wconfd import WConfClient
from ganeti.protocol.wconfd import ClientId, ObjectKind
from ganeti.system import files

ROUNDS = int(os.environ.get("GANETI_TEST_ROUNDS", "12"))
SEED = seed()
ROUND_SECONDS_MAX = 30
CLIENTS = 8


class Worker:
    """One client process."""

    def __init__(self, node: WconfdNode, number: int) -> None:
        self.number = number
        self.process = subprocess.Popen(
            [sys.executable, wconfd_traffic.__file__, node.paths.root, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=node.environment(),
        )

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def state(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"client {self.number} ended with status {self.process.wait()}"
        found: dict[str, Any] = json.loads(line)
        return found

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


def check(node: WconfdNode, states: list[dict[str, Any]], reader: WConfClient) -> None:
    """Compare what the clients were told with what WConfD has, in memory and in its files."""
    snapshot = reader.snapshot()
    assert snapshot["config"] == node.config()
    held = {json.dumps(client): sorted(locks) for client, locks in snapshot["locks"][0]}
    tags = set(snapshot["config"]["cluster"]["tags"])
    macs = {
        json.dumps(client): found for client, found in snapshot["reservations"]["tempres"]["mACs"]
    }
    for state in states:
        key = json.dumps(state["client"])
        assert held.pop(key, []) == state["locks"]
        own = f"w{state['client'][0]}-"
        assert {tag for tag in tags if tag.startswith(own)} == set(state["tags"])
        assert set(state["macs"]) <= set(macs.get(key, []))
        if not state["macs"]:
            assert key not in macs or state["calls"]
        for uuid, admin_state in state["instances"].items():
            assert snapshot["config"]["instances"][uuid]["admin_state"] == admin_state
    assert held == {}, "locks of nobody"
    assert snapshot["locks"][1] == [], "requests of nobody"
    wanted = {uuid for state in states for uuid in state["instances"]}
    extra = set(snapshot["config"]["instances"]) - wanted
    assert len(extra) == 2, "the instances that were there from the beginning"
    reader.verify_config()


def replace_worker(node: WconfdNode, workers: list[Worker], index: int, state: Any) -> None:
    """Kill a client, see its locks and reservations freed, and start another one."""
    reader = WConfClient(node.paths, ClientId("reader", "", os.getpid()))
    workers[index].kill()
    text = json.dumps(state["client"])

    def is_free() -> bool:
        snapshot = reader.snapshot()
        return text not in json.dumps([snapshot["locks"], snapshot["reservations"]])

    wait_until(is_free, "the dead client's locks to be freed")
    wait_until(lambda: not os.path.exists(state["client"][1]), "its lock file to go")
    others = [worker for worker in workers if worker is not workers[index]]
    for worker in others:
        worker.send("free")
    assert [worker.state()["locks"] for worker in others] == [[]] * len(others)
    heir = node.owner(f"heir-{workers[index].number}").hold_everything()
    for uuid in state["instances"]:
        heir.client.delete(ObjectKind.INSTANCE, uuid)
    if state["tags"]:
        heir.client.remove_tags("cluster", "", state["tags"])
    heir.client.free_locks()
    workers[index] = Worker(node, workers[index].number + CLIENTS)
    reader.close()


@pytest.mark.shows("2.12/wconfd-details/any-point")
@pytest.mark.parametrize("options", [(), ("--config-journal",)], ids=["file", "journal"])
def test_nothing_acknowledged_is_lost_when_wconfd_is_killed(options: tuple[str, ...]) -> None:
    faulthandler.cancel_dump_traceback_later()
    faulthandler.dump_traceback_later(
        120 + ROUNDS * ROUND_SECONDS_MAX, exit=True, file=sys.__stderr__
    )
    print(f"GANETI_TEST_SEED={SEED}")  # shown when the test fails
    chance = random.Random(SEED)
    with WconfdNode() as node:
        node.start(*ALONE, *options)
        reader = WConfClient(node.paths, ClientId("reader", "", os.getpid()))
        workers = [Worker(node, number) for number in range(1, CLIENTS + 1)]
        calls, serial_no = 0, 0
        try:
            for turn in range(ROUNDS):
                for worker in workers:
                    worker.send(f"go {chance.randrange(1 << 30)}")
                for _ in range(chance.randint(1, 2)):
                    time.sleep(chance.uniform(0.0, 0.4))  # a random moment is the point here
                    node.kill()
                    node.start(*ALONE, *options)
                for worker in workers:
                    worker.send("stop")
                states = [worker.state() for worker in workers]
                check(node, states, reader)
                calls = sum(state["calls"] for state in states)
                assert reader.get_serial()[0] >= serial_no
                serial_no = reader.get_serial()[0]
                if turn % 5 == 4:
                    index = chance.randrange(CLIENTS)
                    replace_worker(node, workers, index, states[index])
        finally:
            for worker in workers:
                worker.kill()
        assert calls > ROUNDS * CLIENTS
        wanted = node.config()
        assert node.stop() == 0
        assert not os.path.exists(node.paths.config_journal)
        assert json.loads(files.read_bytes(node.paths.config_data)) == wanted
