"""The schedule of backups, as the remote API answers it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

from msgspec import Raw

from ganeti.rapid.backup_schedule import backup_schedule
from ganeti.system import clock

OLD = int(clock.now()) - 3 * 86_400
RESULT = {"ended": 5.0, "job": 3, "node": "n2", "exported": 4.0, "failure": "no memory"}
ANSWERS: Mapping[str, list[list[object]]] = {
    "job": [],
    "lock": [],
    "export": [["n2", "web", [OLD, 0], [0]], ["n1", None, None, None]],
    "group": [["lab", []]],
    "instance": [
        ["db", "n1", [], 1.0, ["ganeti:backup:none"], "lab", None, 128, "plain"],
        ["web", "n1", [], 1.0, [], "lab", RESULT, 128, "plain"],
    ],
    "node": [
        ["n1", False, False, True, "boot", "lab", 4096],
        ["n2", False, False, True, "boot", "lab", 4096],
    ],
}


async def ask(method: str, args: list[object]) -> Raw:
    if method == "QueryTags":
        return Raw(b'["ganeti:backup:every:1d:rehearse:1w"]')
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
        "policy": "every 1d rehearse 1w",
        "of": "cluster",
        "node": "n2",
        "newest": OLD,
        "due": OLD + 86_400,
        "wait": None,
        "begins_on": "n2",
        "is_late": True,
        "rehearsed": RESULT,
        "rehearsal_due": 5.0 + 86_400,
        "rehearsal_wait": "a backup of it begins",
        "rehearsal_begins_on": None,
        "rehearsal_problem": "the rehearsal of its export of 1970-01-01 00:00:04 UTC on n2 failed"
        " (job 3): no memory",
    }
