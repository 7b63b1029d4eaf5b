"""What ``gnt-backup set-policy`` makes of its options."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ganeti.backups.policy import WORDS
from ganeti.base.errors import OpPrereqError
from ganeti.cli.backup import schedule
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.context import Context

CONTEXT = cast(Context, SimpleNamespace())


def options(**given: Any) -> Options:
    unset = {word.name: [] if word.name == "to" else None for word in WORDS}
    return Options({**unset, "stop": False, "none": False, **given})


def test_a_policy_is_a_tag() -> None:
    found = schedule._tag_of(CONTEXT, options(every="1d", keep=7, stop=True))
    assert found == "ganeti:backup:every:1d:keep:7:stop"
    assert schedule._tag_of(CONTEXT, options(none=True)) == "ganeti:backup:none"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "say how often"),
        ({"every": "1d", "keep": 0}, "keep: '0' is no number of points"),
        ({"every": "1d", "at": ""}, "at: '' are no hours"),
        ({"none": True, "every": "1d"}, "--none and --every exclude each other"),
        ({"none": True, "keep": 0}, "--none and --keep exclude each other"),
    ],
)
def test_what_makes_no_policy(given: dict[str, Any], words: str) -> None:
    """Without a look at them 0 points meant full exports, and --none made nothing of the others."""
    with pytest.raises(OpPrereqError, match=words):
        schedule._tag_of(CONTEXT, options(**given))


def test_a_name_that_no_instance_has_is_refused() -> None:
    """A misspelled one counted as well backed up."""
    client = SimpleNamespace(query_instances=lambda names, _fields: [["web1"]] * ("web1" in names))
    context = cast(Context, SimpleNamespace(client=client))
    with pytest.raises(OpPrereqError, match="instance 'wbe1' is not known"):
        schedule.schedule(context, options(), ["web1", "wbe1"])
