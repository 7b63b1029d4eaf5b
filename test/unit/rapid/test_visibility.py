"""Tests of ganeti/rapid/visibility.py: what rights on some instances let somebody see."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.base.text import name_matches
from ganeti.protocol.rapi.jobs import Inputs
from ganeti.protocol.rapi.routes import Question
from ganeti.protocol.rapi.table import TABLE
from ganeti.protocol.rapi.users import Grant
from ganeti.protocol.rapi.values import HttpProblem
from ganeti.rapid import visibility as module
from ganeti.rapid.luxi_pool import LuxiPool
from ganeti.rapid.planning import Target, luxi_request
from ganeti.rapid.visibility import Visibility

INSTANCES: dict[str, list[str]] = {
    "web1.example.com": [],
    "web2.example.com": [],
    "db1.example.com": ["theirs"],
    "cache1.example.com": [],
}
UUIDS = {
    "web1.example.com": "0web",
    "web2.example.com": "1web",
    "db1.example.com": "0db",
    "cache1.example.com": "web-as-it-happens",
}
GRANTS = (Grant(("read",), names=("web*",), tags=("theirs",)),)
LIST = TABLE.resources["/2/jobs"].routes["GET"]
ONE = TABLE.resources["/2/jobs/{job_id}"].routes["GET"]


def start(name: str) -> dict[str, object]:
    return {"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": name, "instance_uuid": None}


JOBS: dict[int, list[dict[str, object]]] = {
    1: [start("web1.example.com")],
    2: [start("web1")],  # as it was typed
    3: [{"OP_ID": "OP_CLUSTER_VERIFY"}],
    4: [start("web2"), start("other.example.com")],
    5: [start("db1.example.com")],
    6: [start("web1"), {"OP_ID": "OP_NODE_REMOVE", "node_name": "web1"}],
    7: [{"OP_ID": "OP_TAGS_SET", "kind": "instance", "name": "web2", "tags": ["a"]}],
    8: [{"OP_ID": "OP_TAGS_SET", "kind": "node", "name": "web2", "tags": ["a"]}],
    9: [start("web9.example.com")],  # gone, but of that name
    10: [start("db9.example.com")],
    11: [{**start("web1"), "instance_uuid": "of another"}],
    12: [start("web")],  # of several
    13: [start("0web")],
    14: [start("web-as-it-happens")],
    15: [start("WEB1")],
    16: [start("0db")],
}
VISIBLE = [1, 2, 5, 7, 9, 12, 13, 15, 16]


class Luxi:
    """Answers as LuxiD does."""

    def __init__(self) -> None:
        self.asked: list[list[Any]] = []

    async def ask(self, method: str, args: list[Any]) -> Raw:
        args = json.loads(luxi_request(method, args))["args"]
        self.asked.append([method, *args])
        return Raw(json.dumps(getattr(self, method)(*args)).encode())

    def QueryInstances(self, names: list[str], fields: list[str], _lock: bool) -> object:
        assert fields == ["name", "uuid", "tags"]
        if names == ["gone.example.com"]:
            raise OpPrereqError("no such instance", ErrorCode.NOENT)
        return [
            [name, UUIDS[name], tags]
            for name, tags in INSTANCES.items()
            if not names or any(each == UUIDS[name] or name_matches(each, name) for each in names)
        ]

    def QueryGroups(self, names: list[str], fields: list[str], _lock: bool) -> object:
        assert fields == ["name", "uuid", "tags"]
        rows = [["default", "0group", []], ["lab.example.com", "1group", []]]
        found = [row for row in rows if not {*names}.isdisjoint(row[:2])]
        if not found:
            raise OpPrereqError("no such group", ErrorCode.NOENT)
        return found

    def QueryJobs(
        self, ids: list[str] | None, fields: list[str], limit: int = 99, before: int | None = None
    ) -> object:
        wanted = [int(each) for each in ids or JOBS if before is None or int(each) < before]
        return [
            [{"id": each, "ops": JOBS.get(each)}[field] for field in fields]
            for each in wanted[max(0, len(wanted) - limit) :]
        ]


def seen(**query: int) -> list[int]:
    luxi = Luxi()
    action = LIST.action
    assert isinstance(action, Question)
    answer = asyncio.run(Visibility(cast("LuxiPool", luxi)).jobs(GRANTS, action, Inputs({}, query)))
    return [each["id"] for each in json.loads(answer)]


def test_jobs_about_his_instances_are_seen_and_no_others() -> None:
    assert seen() == VISIBLE


@given(
    page=st.integers(1, 14),
    limit=st.none() | st.integers(0, 14),
    before=st.none() | st.integers(0, 14),
)
def test_the_newest_are_found_however_they_are_asked_for(
    page: int, limit: int | None, before: int | None
) -> None:
    given_ = {"limit": limit, "before": before}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PAGE", page)
        found = seen(**{name: value for name, value in given_.items() if value is not None})
    wanted = [each for each in VISIBLE if before is None or each < before]
    assert found == (wanted if limit is None else wanted[max(0, len(wanted) - limit) :])


def may_see(job_id: int) -> bool:
    target = Target(ONE, f"/2/jobs/{job_id}", {"job_id": str(job_id)})
    try:
        asyncio.run(Visibility(cast("LuxiPool", Luxi())).check(GRANTS, target))
    except HttpProblem as problem:
        return problem.status != 403
    return True


@pytest.mark.parametrize(
    ("opcode", "is_allowed"),
    [
        (start("web1"), True),
        (start("db9.example.com"), False),
        (start("gone.example.com"), False),
        (start("0db"), True),
        (start("web-as-it-happens"), False),
        ({**start("web1"), "depends": [[1, []], [-1, []], [99, []]]}, True),
        ({**start("web1"), "depends": [[1, []], [3, ["success"]]]}, False),
    ],
)
def test_who_submits_a_job_sees_all_that_it_is_about(
    opcode: dict[str, object], is_allowed: bool
) -> None:
    checking = Visibility(cast("LuxiPool", Luxi())).check_submission(GRANTS, [opcode])
    if is_allowed:
        asyncio.run(checking)
        return
    with pytest.raises(HttpProblem) as caught:
        asyncio.run(checking)
    assert caught.value.status == 403


def test_one_job_is_seen_if_the_list_has_it() -> None:
    assert [job_id for job_id in JOBS if may_see(job_id)] == VISIBLE
    assert may_see(99), "he is told that there is no such job"


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("/2/instances/web1.example.com/migrate", "/2/instances/web1.example.com/migrate"),
        ("/2/instances/web1/migrate", "/2/instances/web1.example.com/migrate"),
        ("/2/instances/WEB1/migrate", "/2/instances/web1.example.com/migrate"),
        ("/2/instances/web-as-it-happens/migrate", "/2/instances/cache1.example.com/migrate"),
        ("/2/instances/web/migrate", "/2/instances/web/migrate"),  # of several
        ("/2/instances/gone.example.com/migrate", "/2/instances/gone.example.com/migrate"),
        ("/2/instances/0db/disk/1/grow", "/2/instances/db1.example.com/disk/1/grow"),
        ("/2/groups/lab/modify", "/2/groups/lab/modify"),
        ("/2/groups/lab.example.com/modify", "/2/groups/lab.example.com/modify"),
        ("/2/groups/0group/modify", "/2/groups/default/modify"),
        ("/2/modify", "/2/modify"),
    ],
)
def test_patterns_are_compared_with_full_names(asked: str, meant: str) -> None:
    found = TABLE.find(asked)
    assert found is not None
    resource, values = found
    target = Target(next(iter(resource.routes.values())), asked, values)
    named = asyncio.run(Visibility(cast("LuxiPool", Luxi())).named_in_full(target))
    assert named.path == meant
    assert TABLE.find(meant) == (resource, named.values), "the job gets the full name too"
