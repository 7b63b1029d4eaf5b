"""Every method with random arguments: always an answer, never an internal error."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fakes.large_config import disk, instance, mac_of, node, uuid_of
from fakes.wconfd_node import WconfdNode

from ganeti.base.errors import GenericError
from ganeti.protocol.envelope import decode_response_as, encode_request
from ganeti.protocol.service import Call
from ganeti.protocol.wconfd import Effect, ObjectKind, Rules, WConfCalls, wire_names
from ganeti.transport.unix_client import UnixClient

CALLS_PER_METHOD = 25
SKIPPED = {"prepareClusterDestruction"}  # ends the cluster, and so the test

WORDS = [
    "", "x", "inst0", "inst1.example.com", "node1", "node9", "default", "net", "cluster", "instance",
    "node", "up", "down", "10.0.0.2", "10.0.0.1", "11.1.1.1", mac_of(0), mac_of(77), "xenvg/lv",
    uuid_of("instance", 0), uuid_of("instance", 1), uuid_of("node", 1), uuid_of("node", 2),
    uuid_of("disk", 0), uuid_of("disk", 1), uuid_of("group", 0), "\x00", "\ud7ff", "a" * 300,
]  # fmt: skip
FIELDS = [
    "name", "tags", "nics", "disks", "primary_node", "hvparams", "beparams", "network_port", "group",
    "offline", "logical_id", "children", "nodes", "candidate_pool_size", "tcpudp_port_pool", "size",
    "highest_used_port", "ipolicy", "reservations", "network", "networks", "uid_pool", "mac_prefix",
    "new_field", "uuid", "serial_no", "predicates", "forthcoming", "dev_type", "master_node",
]  # fmt: skip
LOCKS = [
    "cluster/BGL",
    "node/[lockset]",
    "node/a",
    "instance/inst0.example.com",
    "cluster/config",
    "?",
]


class Fuzz:
    def __init__(self, seed: int, owner: list[object]) -> None:
        self.chance = random.Random(seed)
        self.owner = owner

    def json(self, depth: int = 0) -> Any:
        chance = self.chance
        match chance.randint(0, 9 if depth < 3 else 6):
            case 0:
                return None
            case 1:
                return chance.random() < 0.5
            case 2:
                return chance.choice([0, 1, -1, 11000, 15000, 1 << 40, -(1 << 63)])
            case 3:
                return chance.choice([0.5, -1.0, 1e300])
            case 4 | 5 | 6:
                return chance.choice(WORDS)
            case 7:
                return [self.json(depth + 1) for _ in range(chance.randint(0, 3))]
            case _:
                return {
                    chance.choice([*FIELDS, *WORDS]): self.json(depth + 1)
                    for _ in range(chance.randint(0, 3))
                }

    def object(self) -> Any:
        where = uuid_of("node", self.chance.randint(1, 4))
        number = self.chance.randint(0, 5)
        made: dict[str, Any] = self.chance.choice(
            [
                {},
                node(number, uuid_of("group", 0)),
                disk(number, where),
                instance(number, where, [uuid_of("disk", number)]),
                {"uuid": "g", "name": "g", "alloc_policy": "preferred"},
                {"uuid": "n", "name": "net", "network": "10.0.0.0/29"},
            ]
        )
        for _ in range(self.chance.randint(0, 2)):
            made[self.chance.choice(FIELDS)] = self.json()
        return made

    def request(self) -> Any:
        modes = ["shared", "exclusive", "release", "?"]
        return [
            [self.chance.choice(LOCKS), self.chance.choice(modes)]
            for _ in range(self.chance.randint(0, 3))
        ]

    def value(self, name: str, shown: str) -> Any:
        """Make up an argument of the name and type in words."""
        chance = self.chance
        if chance.random() < 0.1:
            return self.json()
        makers: dict[str, Callable[[], Any]] = {
            "client": lambda: self.owner,
            "kind": lambda: chance.choice([*ObjectKind, "thing"]),
            "new": self.object,
            "disks": lambda: [self.object() for _ in range(chance.randint(0, 2))],
            "changes": lambda: [
                [chance.choice([*ObjectKind]), chance.choice(WORDS), self.changes()]
            ],
            "request": self.request,
            "text": lambda: chance.choice(WORDS),
            "[text]": lambda: [chance.choice(WORDS) for _ in range(chance.randint(0, 3))],
            "integer": lambda: chance.choice([0, 1, 2, -1, 11000, 1 << 40]),
            "seconds": lambda: chance.choice([0.0, 0.01, -1.0]),
            "bool": lambda: chance.random() < 0.5,
            "object": self.object,
        }
        shown = shown.removeprefix("null or ")
        shown = "[text]" if shown == "[name or UUID]" else shown
        return makers.get(name, makers.get(shown, self.json))()

    def changes(self) -> dict[str, Any]:
        return {self.chance.choice(FIELDS): self.json() for _ in range(self.chance.randint(0, 2))}

    def args(self, call: Call[Rules]) -> list[Any]:
        shown = {each.name: each.describe() for each in call.arguments}
        found = [self.value(name, shown.get(name, "")) for name in wire_names(call)]
        if call.rules.waits:
            found[-1] = self.chance.choice([0.0, 0.01, -1.0, None, "x"])
        return found


@pytest.fixture
def node_() -> Iterator[WconfdNode]:
    with WconfdNode() as found:
        yield found.start()


def answer(client: UnixClient, method: str, args: list[Any]) -> tuple[Any, str]:
    data = client.exchange(encode_request(method, args), timeout_s=60.0)
    try:
        return decode_response_as(object, data), ""
    except GenericError as err:
        return None, f"{type(err).__name__}: {err}"


@pytest.mark.parametrize("seed", range(4))
def test_random_arguments_are_answered(node_: WconfdNode, seed: int) -> None:
    owner = node_.owner(1)
    fuzz = Fuzz(seed, owner.id.to_wire())
    client = UnixClient(node_.paths.wconfd_socket)
    calls = [call for name, call in WConfCalls.calls.items() if name not in SKIPPED]
    for _ in range(CALLS_PER_METHOD):
        fuzz.chance.shuffle(calls)
        for call in calls:
            if call.rules.effect is Effect.CONFIG:
                owner.client.free_locks()  # changes wait while the configuration is locked
                owner.hold_everything()
            args = fuzz.args(call)
            _, error = answer(client, call.name, args)
            assert "internal error" not in error, (call.name, args, error)
            if fuzz.chance.random() < 0.1:
                owner.client.free_locks()
    owner.client.free_locks()
    assert owner.client.snapshot()["config"] == node_.config()
    before = json.dumps(node_.config(), sort_keys=True)
    node_.kill()
    node_.start()
    assert json.dumps(node_.config(), sort_keys=True) == before
    assert "Internal error" not in node_.log()
