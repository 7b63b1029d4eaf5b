"""Tests of users, roles and tokens that users change: ganeti/rapid/access_changes.py."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.protocol.rapi.jobs import Inputs
from ganeti.protocol.rapi.questions import RoleBody, TokenBody, UserBody
from ganeti.protocol.rapi.routes import (
    AccessChange,
    NewToken,
    RoleRemoval,
    RoleSetting,
    TokenRemoval,
    UserRemoval,
    UserSetting,
)
from ganeti.protocol.rapi.users import Grant
from ganeti.protocol.rapi.values import HttpProblem, as_problem
from ganeti.rapid.access import Access
from ganeti.rapid.access_changes import AccessChanges
from ganeti.store import rapi_access


class Luxi:
    """Takes jobs, whose status is what is set here."""

    def __init__(self) -> None:
        self.jobs: list[Any] = []
        self.status = "queued"
        self.is_dead = False

    async def ask(self, method: str, args: list[object]) -> Raw:
        if self.is_dead:
            raise GenericError("nobody answers")
        if method == "QueryJobs":
            return Raw(json.dumps([[self.status]]).encode())
        self.jobs.append(args)
        return Raw(str(len(self.jobs)).encode())


@pytest.fixture
def luxi() -> Luxi:
    return Luxi()


@pytest.fixture
def access(tmp_path: Path) -> Access:
    found = Access(Paths(str(tmp_path)), always=False)
    found.reload()
    return found


@pytest.fixture
def changes(access: Access, luxi: Luxi) -> AccessChanges:
    return AccessChanges(access, luxi.ask)


def carry_out(
    changes: AccessChanges, action: AccessChange, body: Any = None, by: str = "joe", **path: str
) -> Any:
    done = changes.carry_out(action, Inputs(path, {}, body), by, "Basic x")
    return json.loads(asyncio.run(done))


def make(changes: AccessChanges, user: str = "joe") -> Any:
    changes._files.set_user(user)  # only users have tokens
    return carry_out(changes, NewToken(), TokenBody(1), user)


def test_a_job_that_has_not_begun_tells_of_the_next_token_too(
    changes: AccessChanges, luxi: Luxi
) -> None:
    assert [make(changes)["job"] for _ in range(3)] == [1, 1, 1]
    luxi.status = "running"
    assert make(changes)["job"] == 2
    assert [[op["OP_ID"] for op in ops] for [ops] in luxi.jobs] == [["OP_CLUSTER_REDIST_CONF"]] * 2
    assert luxi.jobs[0][0][0]["reason"][0][1] == "user joe"


def test_without_luxid_the_token_is_made_and_no_job(
    changes: AccessChanges, luxi: Luxi, access: Access
) -> None:
    luxi.is_dead = True
    token = make(changes)
    assert token["job"] is None
    [found] = access.tokens_of("joe")
    assert found["id"] == token["token"].partition(".")[0]
    assert carry_out(changes, TokenRemoval(), token=found["id"]) is None
    assert access.tokens_of("joe") == []


def test_the_tokens_of_one_user_have_a_limit(
    changes: AccessChanges, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rapi_access, "TOKENS_MAX", 3)
    for _ in range(3):
        make(changes)
    with pytest.raises(OpPrereqError, match="3 tokens of 'joe'") as found:
        make(changes)
    assert as_problem(found.value).status == 400
    make(changes, "ann")
    assert len(access.tokens_of("joe")) == 3


def test_users_and_roles_are_made_changed_and_removed(
    changes: AccessChanges, access: Access
) -> None:
    webs = Grant(rights=("read", "write"), names=("web*",))
    assert carry_out(changes, RoleSetting(), RoleBody([webs]), role="webs") == 1
    carry_out(changes, UserSetting(), UserBody("secret", ["read"], ["webs"]), user="ann")
    [ann] = access.everybody()["users"]
    assert (ann["name"], ann["password"], ann["rights"]) == ("ann", "scrypt", ["read"])
    carry_out(changes, UserSetting(), UserBody(rights=["write"]), user="ann")
    [ann] = access.everybody()["users"]
    assert (ann["password"], ann["rights"], ann["roles"]) == ("scrypt", ["write"], ("webs",))
    with pytest.raises(OpPrereqError, match="role 'webs' is that of ann"):
        carry_out(changes, RoleRemoval(), role="webs")
    make(changes, "ann")
    carry_out(changes, UserRemoval(), user="ann")
    assert access.tokens_of("ann") == []
    carry_out(changes, RoleRemoval(), role="webs")
    assert access.everybody() == {"users": [], "roles": []}


def test_nobody_changes_a_role_of_oneself(changes: AccessChanges, access: Access) -> None:
    few, all_ = (RoleBody([Grant(("write",), (path,))]) for path in ("/2/roles/*", "/2/*"))
    for role in ("keepers", "webs"):
        carry_out(changes, RoleSetting(), few, role=role)
    carry_out(changes, UserSetting(), UserBody("secret", [], ["keepers"]), user="ann")
    with pytest.raises(HttpProblem, match="has the role 'keepers', and cannot") as found:
        carry_out(changes, RoleSetting(), all_, "ann", role="keepers")
    assert found.value.status == 403
    carry_out(changes, RoleSetting(), all_, "ann", role="webs")
    carry_out(changes, RoleSetting(), all_, "joe", role="keepers")
    grants = {role["name"]: role["grants"] for role in access.everybody()["roles"]}
    assert grants == {"keepers": all_.grants, "webs": all_.grants}


@pytest.mark.parametrize(
    ("action", "body", "path", "told"),
    [
        (
            UserSetting(),
            UserBody(rights=["write"]),
            {"user": "joe"},
            "cannot change what 'joe' may",
        ),
        (UserSetting(), UserBody(roles=[]), {"user": "joe"}, "cannot change what 'joe' may"),
        (UserRemoval(), None, {"user": "joe"}, "cannot remove 'joe'"),
        (UserRemoval(), None, {"user": "ann"}, "no user 'ann'"),
        (UserSetting(), UserBody(rights=["all"]), {"user": "ann"}, "neither a right"),
        (UserSetting(), UserBody(roles=["x"]), {"user": "ann"}, "no role 'x'"),
        (UserSetting(), UserBody(), {"user": "a b"}, "no name for a user"),
        (RoleSetting(), RoleBody([Grant(rights=("all",))]), {"role": "r"}, "'all' is not a right"),
        (RoleSetting(), RoleBody([]), {"role": "a:b"}, "no name for a role"),
        (RoleRemoval(), None, {"role": "r"}, "no role 'r'"),
    ],
)
def test_what_cannot_be_is_refused(
    changes: AccessChanges,
    luxi: Luxi,
    action: AccessChange,
    body: Any,
    path: dict[str, str],
    told: str,
) -> None:
    with pytest.raises(GenericError, match=told):
        carry_out(changes, action, body, **path)
    assert luxi.jobs == []


def test_everybody_changes_the_password_and_a_token_changes_nothing(
    changes: AccessChanges, access: Access
) -> None:
    inputs = Inputs({"user": "joe"}, {}, UserBody("new"))
    asyncio.run(changes.carry_out(UserSetting(), inputs, "joe", "Basic x"))
    assert [user["name"] for user in access.everybody()["users"]] == ["joe"]
    with pytest.raises(HttpProblem, match="changes no users and roles: this needs the password"):
        asyncio.run(changes.carry_out(UserSetting(), inputs, "joe", "Bearer t"))
