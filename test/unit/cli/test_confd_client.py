"""The command ``confd-client``: its table, and how answers are shown."""

from __future__ import annotations

import pytest

from ganeti.cli.declaration.help import command_help
from ganeti.cli.declaration.parser import options_of
from ganeti.cli.declaration.program import Command
from ganeti.cli.tools.confd_client import PROGRAM, TABLES, TEST, with_command
from ganeti.protocol.confd_queries import QueryType

# cli.json, "tools"
FLAGS_OF_3_0 = {("--hmac",), ("-a", "--address"), ("-r", "--requests")}


def test_every_query_is_a_command() -> None:
    names = [command.name for command in PROGRAM.commands]
    assert names == [*(query.label for query in QueryType), TEST]


def test_options_of_3_0_are_there_without_a_command() -> None:
    command = PROGRAM.find(TEST)
    assert command is not None
    assert {option.flags for option in options_of(PROGRAM, command)} >= FLAGS_OF_3_0
    assert with_command(["-a", "x"]) == [TEST, "-a", "x"]
    assert with_command([]) == [TEST]
    for words in (["--help"], ["--version"], ["ping", "-a", "x"]):
        assert with_command(words) == words


@pytest.mark.parametrize("command", PROGRAM.commands, ids=lambda one: one.name)
def test_commands_are_built_and_explained(command: Command) -> None:
    assert callable(command.does)
    text = command_help(PROGRAM, command, 100)
    assert all(option.long in text for option in command.options)


@pytest.mark.parametrize(
    ("kind", "value", "args", "rows"),
    [
        (QueryType.PING, 3000000, [], [[3000000]]),
        (QueryType.NODE_ROLE, 0, ["n"], [["n", "master"]]),
        (QueryType.NODE_ROLE, 9, ["n"], [["n", 9]]),
        (QueryType.NODE_PIP_BY_INSTANCE_IP, "192.0.2.1", ["x"], [["x", "192.0.2.1"]]),
        (
            QueryType.NODE_PIP_BY_INSTANCE_IP,
            [[0, "a", 3], [1, 0, 0], [1, 2, 0]],
            ["x", "y", "z"],
            [["x", "a"], ["y", "-"], ["z", "error 2"]],
        ),
        (QueryType.CLUSTER_MASTER, "m", [], [["name", "m"]]),
        (QueryType.CLUSTER_MASTER, ["m", "i"], ["name", "ip"], [["name", "m"], ["ip", "i"]]),
        (QueryType.NODE_PIP_LIST, ["a", "b"], [], [["a"], ["b"]]),
        (QueryType.MC_PIP_LIST, ["a"], [], [["a"]]),
        (QueryType.INSTANCES_IPS_LIST, [], [], []),
        (QueryType.NODE_DRBD, [["n", 0, "i", "disk/0", "primary", "p"]], ["n"], None),
        (QueryType.NODE_DRBD_PART, [["n", 0, "i", "disk/0", "primary", "p"]], ["n"], None),
        (QueryType.OFFLINE_NODES, ["n", "m"], [], [["n"], ["m"]]),
        (QueryType.INSTANCE_LIST, ["i"], [], [["i"]]),
        (QueryType.INSTANCE_PRIMARY_NODES, [["i", "n"]], [], None),
        (QueryType.CONFIG_PART, [["u", {"a": 1}], 5], ["/x"], [['["u",{"a":1}]'], ["5"]]),
        (
            QueryType.NODE_INSTANCE_SERIALS,
            [[["u", 5]], [["v", 6]]],
            ["n"],
            [["u", "primary", 5], ["v", "secondary", 6]],
        ),
        (
            QueryType.NODE_INSTANCES,
            [[{"name": "a", "uuid": "u"}], [{"name": "b", "admin_state": "up"}]],
            ["n"],
            [["a", "primary", None, "u"], ["b", "secondary", "up", None]],
        ),
        (QueryType.INSTANCE_DISKS, [{"size": 5}], ["i"], [["disk/0", None, 5, None]]),
        (QueryType.CONFIG_QUERY, {"a": [1]}, ["/a"], [['{"a":[1]}']]),
        (
            QueryType.DATA_COLLECTORS,
            {"lv": {"active": True, "interval": 2500000}},
            [],
            [["lv", True, 2.5]],
        ),
    ],
)
def test_answers_become_rows(
    kind: QueryType, value: object, args: list[str], rows: list[list[object]] | None
) -> None:
    titles, make_rows = TABLES[kind]
    found = make_rows(value, args)
    assert found == (value if rows is None else rows)
    assert all(len(row) == len(titles.split()) for row in found)
