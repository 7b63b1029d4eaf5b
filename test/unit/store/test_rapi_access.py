"""Users of the remote API and their tokens, changed by several at once."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from ganeti.base.errors import OpPrereqError
from ganeti.base.paths import Paths
from ganeti.store.rapi_access import TOKENS_MAX, RapiAccess
from ganeti.system import clock, files


@pytest.fixture
def access(tmp_path: Path) -> RapiAccess:
    made = RapiAccess(Paths(str(tmp_path)))
    for name in ("ann", "joe"):
        made.set_user(name, rights=["read"])
        made.add_token(name, 0)
    return made


def test_a_user_goes_with_all_tokens_and_nobody_elses(access: RapiAccess) -> None:
    access.add_token("ann", 0)
    access.remove_user("ann")
    assert set(access.users()) == {"joe"}
    assert [token.user for token in access.tokens().values()] == ["joe"]


def test_a_new_password_leaves_options_that_nobody_knows(
    access: RapiAccess, tmp_path: Path
) -> None:
    files.write_atomic(Paths(str(tmp_path)).rapi_users, b"ann {HA1}00 write,billing # of 2019\n")
    access.set_user("ann", "new")
    access.set_user("ann", roles=[])
    assert access.users()["ann"].rights == {"write", "billing # of 2019"}
    with pytest.raises(OpPrereqError, match="'paying' is neither a right"):
        access.set_user("ann", rights=["paying"])


def test_there_are_no_tokens_without_a_user(access: RapiAccess) -> None:
    for act in (lambda: access.add_token("eve", 0), lambda: access.remove_user("eve")):
        with pytest.raises(OpPrereqError, match="there is no user 'eve'"):
            act()


def test_a_user_has_so_many_tokens_and_those_that_expired_are_no_more(
    access: RapiAccess, tmp_path: Path
) -> None:
    path = Paths(str(tmp_path)).rapi_tokens
    over = int(clock.now()) - 1
    lines = [f"old{number} ann digest {over}" for number in range(TOKENS_MAX)]
    kept = "# tokens\nunreadable\n"
    files.write_atomic(path, (kept + "\n".join(lines)).encode())
    for expires in [0, over + 1000] * (TOKENS_MAX // 2):
        access.add_token("ann", expires)
    assert files.read_bytes(path).decode().startswith(kept)
    assert len(access.tokens()) == TOKENS_MAX
    with pytest.raises(OpPrereqError, match=f"there are {TOKENS_MAX} tokens of 'ann'"):
        access.add_token("ann", 0)
    access.add_token("joe", 0)


@pytest.mark.parametrize("name", ["users", "tokens"])
def test_a_token_that_is_made_while_its_user_goes_is_not_left(
    access: RapiAccess, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A later user of the same name would have given the rights to whoever has it."""
    refused: list[str] = []
    others = list[Thread]()
    write = files.write_durable

    def add() -> None:
        try:
            access.add_token("ann", 0)
        except OpPrereqError as err:
            refused.append(err.message)

    def write_while_somebody_adds(path: str, *args: Any, **named: Any) -> None:
        if path.endswith(f"rapi/{name}") and not others:
            others.append(Thread(target=add))
            others[0].start()
        write(path, *args, **named)

    monkeypatch.setattr(files, "write_durable", write_while_somebody_adds)
    access.remove_user("ann")
    others[0].join()
    assert refused == ["there is no user 'ann'"]
    assert [token.user for token in access.tokens().values()] == ["joe"]
