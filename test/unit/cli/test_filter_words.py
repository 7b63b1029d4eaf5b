"""Job filters as people read and type them."""

from __future__ import annotations

import io

import pytest

from ganeti.base.errors import OpPrereqError, QueryFilterParseError
from ganeti.cli.declaration.parser import Options
from ganeti.cli.filter import add, read_predicate
from ganeti.cli.programs import named
from ganeti.cli.run.context import Context, Terminal


def test_a_filter_for_every_job_has_to_be_meant() -> None:
    command = named("gnt-filter").find("add")
    assert command is not None
    options = Options({"predicates": []})
    context = Context("gnt-filter", command, options, Terminal(*(io.StringIO() for _ in range(3))))
    with pytest.raises(OpPrereqError, match="the filter is for every job"):
        add(context, options, [])


def test_a_predicate_may_be_text() -> None:
    assert read_predicate(["opcode", "OP_ID = 'OP_NODE_ADD' and not dry_run"]) == [
        "opcode",
        ["&", ["==", "OP_ID", "OP_NODE_ADD"], ["!", ["?", "dry_run"]]],
    ]
    assert read_predicate(["jobid", "id > 'watermark'"]) == ["jobid", [">", "id", "watermark"]]


@pytest.mark.parametrize("predicate", [["jobid", [">", "id", 5]], ["jobid"], "x", None, 5])
def test_what_is_no_text_is_left_to_the_daemon(predicate: object) -> None:
    assert read_predicate(predicate) is predicate


def test_a_wrong_text_is_refused() -> None:
    with pytest.raises(QueryFilterParseError, match="cannot understand"):
        read_predicate(["jobid", "id >"])
