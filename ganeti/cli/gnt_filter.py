"""``gnt-filter``: rules that hold, limit or refuse jobs."""

from __future__ import annotations

from ganeti.cli.declaration import common as opt
from ganeti.cli.declaration.program import ArgKind, Argument, Command, Option, Program
from ganeti.cli.declaration.values import ValueType

_RULE = (
    Option(
        ("--action",),
        "what happens to jobs that match",
        type=ValueType.FILTER_ACTION,
        metavar="ACTION",
        default="CONTINUE",
    ),
    Option(
        ("--predicates",),
        """what must match, as JSON: [["opcode", FILTER], ...], also for "jobid" and "reason"; a
FILTER is a list such as ["=", "OP_ID", "OP_NODE_ADD"], or text such as "OP_ID = 'OP_NODE_ADD'\"""",
        type=ValueType.JSON,
        metavar="PREDICATES",
        default=[],
    ),
    Option(
        ("--priority",),
        "rules are tried from the smallest number on",
        type=ValueType.INT,
        metavar="PRIORITY",
        default=0,
        dest="rule_priority",
    ),
)
_ONE_FILTER = (Argument(ArgKind.FILTER),)
_ANY_FILTERS = (Argument(ArgKind.FILTER, 0, None),)

PROGRAM = Program(
    "gnt-filter",
    "manage job filters",
    """A job filter accepts, pauses, rejects or limits jobs before they start.  Runs on the master
node.""",
    (
        Command(
            "add",
            "add a filter",
            "filter:add",
            (),
            _RULE,
            examples=(
                (
                    (
                        """gnt-filter add --priority=10 --action=PAUSE """
                        """--predicates='[["jobid", [">", "id", "watermark"]]]'"""
                    ),
                    "hold every job that is submitted from now on",
                ),
            ),
        ),
        Command("delete", "remove a filter", "filter:delete", _ONE_FILTER),
        Command("info", "show filters", "filter:info", _ANY_FILTERS),
        Command("list", "list filters", "lists:filters", _ANY_FILTERS, opt.LISTING),
        Command(
            "list-fields",
            "list the fields of filters",
            "lists:filter_fields",
            opt.ANY_FIELDS,
            opt.FIELD_LISTING,
        ),
        Command("replace", "replace a filter", "filter:replace", _ONE_FILTER, _RULE),
    ),
)


def main() -> int:
    """Run ``gnt-filter`` with the words of the command line."""
    from ganeti.cli.run.main import run

    return run(PROGRAM)
