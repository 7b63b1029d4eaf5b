"""The schedule of backups, as the remote API answers it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

from msgspec import Raw

from ganeti.rapid.backup_schedule import backup_schedule
from ganeti.system import clock

OLD = int(clock.now()) - 3 * 86_400
ANSWERS: Mapping[str, list[list[object]]] = {
    "job": [],
    "lock": [],
    "export": [["n2", "web", [OLD, 0], [0]], ["n1", None, None, None]],
    "group": [["lab", []]],
    "instance": [
        ["db", "n1", [], 1.0, ["ganeti:backup:none"], "lab"],
        ["web", "n1", [], 1.0, [], "lab"],
    ],
    "node": [["n1", False, False, True, "boot"], ["n2", False, False, True, "boot"]],
}


async def ask(method: str, args: list[object]) -> Raw:
    if method == "QueryTags":
        return Raw(b'["ganeti:backup:every:1d"]')
    assert method == "Query"
    resource, fields, _ = args
    assert isinstance(fields, list)
    data = [
        [[0, value] if value is not None else [2, None] for value in row]
        for row in ANSWERS[str(resource)]
    ]
    named = [{"name": each, "title": each, "kind": "other", "doc": each} for each in fields]
    return Raw(json.dumps({"fields": named, "data": data}).encode())


def test_how_each_instance_stands() -> None:
    none, web = json.loads(asyncio.run(backup_schedule(ask)))
    assert (none["instance"], none["policy"], none["of"]) == ("db", None, "instance")
    assert none["due"] is None
    assert web == {
        "instance": "web",
        "policy": "every 1d",
        "of": "cluster",
        "node": "n2",
        "newest": OLD,
        "due": OLD + 86_400,
        "wait": None,
        "begins_on": "n2",
        "is_late": True,
    }
