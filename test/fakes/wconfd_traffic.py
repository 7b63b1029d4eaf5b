"""A client process that keeps WConfD busy and remembers what it was told.

Reads commands from standard input, one per line: ``go SEED`` begins random calls, ``stop`` ends
them and has the process print, as one line of JSON, what it believes to own, ``free`` does the same
after it gave all locks back.  Run as a script with
the root of the node and an identifier.
"""

from __future__ import annotations

import json
import os
import random
import select
import sys
import time
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from fakes.large_config import disk, instance, uuid_of

from ganeti.base.errors import LockError
from ganeti.base.paths import Paths
from ganeti.clients.wconfd import WConfClient
from ganeti.protocol.wconfd import ClientId, ObjectKind
from ganeti.system.filelock import LiveLock

BGL = "cluster/BGL"
LOCKS = [
    BGL,
    "instance/inst0.example.com",
    "instance/inst1.example.com",
    "instance/[lockset]",
    f"node/{uuid_of('node', 1)}",
    f"node/{uuid_of('node', 2)}",
    f"node/{uuid_of('node', 3)}",
    "node/[lockset]",
]
NODE = uuid_of("node", 1)


class Traffic:
    """Random calls, and what their answers promised."""

    def __init__(self, root: str, number: int) -> None:
        self.number = number
        path = f"{root}/var/run/ganeti/livelocks/job_{number}_{os.getpid()}"
        self.livelock = LiveLock.create(path)
        self.client = WConfClient(Paths(root), ClientId(number, path, os.getpid()))
        self.locks: dict[str, str] = {}
        self.tags: set[str] = set()
        self.instances: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.macs: set[str] = set()
        self.calls = 0

    def state(self) -> dict[str, Any]:
        return {
            "client": self.client.owner.to_wire(),
            "locks": sorted(self.locks.items()),
            "tags": sorted(self.tags),
            "instances": self.instances,
            "macs": sorted(self.macs),
            "calls": self.calls,
        }

    def step(self, chance: random.Random) -> None:
        """Make one random call."""
        self.calls += 1
        chance.choice(
            [
                self.try_locks,
                self.wait_for_locks,
                self.release_locks,
                self.add_tag,
                self.remove_tag,
                self.create_instance,
                self.modify_instance,
                self.delete_instance,
                self.reserve,
            ]
        )(chance)

    def _request(self, chance: random.Random) -> list[tuple[str, str]]:
        names = chance.sample(LOCKS, chance.randint(1, 3))
        return [(name, chance.choice(["shared", "exclusive", "release"])) for name in names]

    def _note(self, request: list[tuple[str, str]]) -> None:
        for name, mode in request:
            if mode == "release":
                self.locks.pop(name, None)
            else:
                self.locks[name] = mode

    def try_locks(self, chance: random.Random) -> None:
        request = self._request(chance)
        try:
            if not self.client.try_update_locks(request):
                self._note(request)
        except LockError:
            return

    def wait_for_locks(self, chance: random.Random) -> None:
        request = self._request(chance)
        try:
            outcome, _ = self.client.wait_locks(chance.randint(-5, 5), request, 0.05)
        except LockError:
            return
        if outcome == "granted":
            self._note(request)

    def release_locks(self, chance: random.Random) -> None:
        if chance.random() < 0.3:
            self.free_locks()
        else:
            keep = [name for name in self.locks if chance.random() < 0.5]
            self.client.intersect_locks(keep)
            self.locks = {name: self.locks[name] for name in keep}

    def free_locks(self) -> None:
        self.client.free_locks()
        self.locks.clear()

    def _hold(self, lock: str, mode: str) -> bool:
        """Take the lock that a change needs; False when others keep it too long."""
        if self.locks.get(lock) == mode:
            return True
        self.free_locks()
        request = [(lock, mode)]
        outcome, _ = self.client.wait_locks(0, request, 0.05)
        if outcome == "granted":
            self._note(request)
        return outcome == "granted"

    def _hold_instance(self, uuid: str) -> bool:
        return self._hold(f"instance/{self.names[uuid]}", "exclusive")

    def add_tag(self, chance: random.Random) -> None:
        if not self._hold(BGL, "shared"):
            return
        tag = f"w{self.number}-{chance.randint(0, 20)}"
        self.client.add_tags("cluster", "", [tag])
        self.tags.add(tag)

    def remove_tag(self, chance: random.Random) -> None:
        if self.tags and self._hold(BGL, "shared"):
            tag = chance.choice(sorted(self.tags))
            self.client.remove_tags("cluster", "", [tag])
            self.tags.discard(tag)

    def create_instance(self, chance: random.Random) -> None:
        number = 1000 * self.number + chance.randint(0, 20)
        one = disk(number, NODE)
        wire = instance(number, NODE, [one["uuid"]])
        uuid = wire["uuid"]
        self.names[uuid] = wire["name"]
        if uuid not in self.instances and self._hold_instance(uuid):
            self.client.create_instance(wire, [one])
            self.instances[uuid] = "up"

    def modify_instance(self, chance: random.Random) -> None:
        if self.instances:
            uuid = chance.choice(sorted(self.instances))
            state = chance.choice(["up", "down", "offline"])
            if not self._hold_instance(uuid):
                return
            self.client.modify(ObjectKind.INSTANCE, uuid, {"admin_state": state})
            self.instances[uuid] = state

    def delete_instance(self, chance: random.Random) -> None:
        if self.instances and chance.random() < 0.5:
            uuid = chance.choice(sorted(self.instances))
            if not self._hold_instance(uuid):
                return
            self.client.delete(ObjectKind.INSTANCE, uuid)
            del self.instances[uuid]

    def reserve(self, chance: random.Random) -> None:
        if chance.random() < 0.2:
            self.client.drop_all_reservations()
            self.macs.clear()
        else:
            self.macs.add(self.client.generate_mac(None))


def main() -> None:
    traffic = Traffic(sys.argv[1], int(sys.argv[2]))
    chance = random.Random(0)
    running = False
    end = time.monotonic() + 3600
    waiting: list[bytes] = []  # commands that came; several may come at once
    rest = b""
    while time.monotonic() < end:
        readable, _, _ = select.select([sys.stdin], [], [], 0 if running or waiting else 1)
        if readable:
            data = os.read(sys.stdin.fileno(), 4096)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            waiting += lines
        if waiting:
            words = waiting.pop(0).decode().split()
            if words[0] == "go":
                chance = random.Random(int(words[1]))
                running = True
            else:
                running = False
                if words[0] == "free":
                    traffic.free_locks()
                sys.stdout.write(json.dumps(traffic.state()) + "\n")
                sys.stdout.flush()
        if running:
            traffic.step(chance)


if __name__ == "__main__":
    main()
