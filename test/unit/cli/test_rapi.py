"""``gnt-rapi``: what is given to it, before any file is changed."""

from __future__ import annotations

from typing import Any

import pytest

from ganeti.base.errors import OpPrereqError
from ganeti.cli import rapi
from ganeti.cli.declaration.parser import Options
from ganeti.protocol.rapi.users import Grant


class Access:
    """Takes roles in the place of the files."""

    def __init__(self) -> None:
        self.grants: list[Grant] = []

    def set_role(self, _name: str, grants: list[Grant], *, keeps: bool) -> None:
        assert not keeps
        self.grants = grants


def role_with(monkeypatch: pytest.MonkeyPatch, **given: list[str] | None) -> list[Grant]:
    """Return the grants that a command makes with these options."""
    access = Access()
    monkeypatch.setattr(rapi, "_access", lambda _context: access)
    parts = dict.fromkeys(("rights", "resources", "names", "tags"))
    context: Any = None
    rapi.set_role(context, Options({**parts, **given, "add": False, "local": True}), ["webs"])
    return access.grants


def test_a_part_of_a_grant_that_is_left_out_limits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert role_with(monkeypatch, names=["web*"]) == [Grant(names=("web*",))]


@pytest.mark.parametrize("part", ["rights", "resources", "names", "tags"])
@pytest.mark.parametrize("words", [[], [""], ["a", " "]])
def test_a_limit_of_no_words_is_not_taken_for_none(
    monkeypatch: pytest.MonkeyPatch, part: str, words: list[str]
) -> None:
    """A script with --names="$NAMES", which is empty, gave the right on everything."""
    with pytest.raises(OpPrereqError, match=f"--{part} needs words"):
        role_with(monkeypatch, **{part: words})


@pytest.mark.parametrize(
    ("typed", "sent"), [("abc", "abc"), ("pä", "pä"), ("p\udce4", "pä"), ("p\udcc3\udca4", "pä")]
)
def test_a_password_is_taken_as_the_server_reads_it(typed: str, sent: str) -> None:
    assert rapi.as_sent(typed) == sent
