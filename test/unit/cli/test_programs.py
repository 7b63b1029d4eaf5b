"""The tables of all programs: complete, as 3.0 has them, and usable."""

from __future__ import annotations

import json
import os
import shlex
from importlib.metadata import entry_points
from typing import Any

import pytest

from ganeti.cli import programs
from ganeti.cli.declaration import values
from ganeti.cli.declaration.help import command_help, program_help
from ganeti.cli.declaration.parameters import tables_of
from ganeti.cli.declaration.parser import options_of, parse
from ganeti.cli.declaration.program import Action, Command, Option, Program
from ganeti.cli.documents.write import tools
from ganeti.cli.programs import named
from ganeti.objects import parameters
from ganeti.objects.hypervisors import HVPARAMS

DATA = os.path.join(os.path.dirname(__file__), "..", "..", "data", "command_lines.json")
with open(DATA, encoding="utf-8") as file:
    FACTS: dict[str, Any] = json.load(file)["programs"]

PROGRAMS: dict[str, Program] = {name: named(name) for name in FACTS}
COMMANDS = [
    pytest.param(program, command, id=f"{program.name} {command.name}")
    for program in (*PROGRAMS.values(), *tools())
    for command in program.commands
]
# Options and commands that 3.0 does not have (there).
OUR_OPTIONS = {
    *("--before", "--depend", "--diagnose-data-collector-filename", "--incremental"),
    *("--explain", "--iallocators-for", "--limit", "--wait-for", "--wait-timeout"),
    *(
        "--auto-balance-cluster",
        "--auto-balance-threshold",
        "--auto-balance-load",
        "--auto-balance-disk-moves",
        "--auto-repair-instances",
        "--maintenance-interval",
    ),
    *("--gluster-storage-dir", "--iallocators-for"),
    *("--max-disk-transfers", "--point", "-n --target-node", "--quiesce", "--snapshot"),
    *("--silent-node-tries", "--new-etcd-certificates", "--instead", "--without"),
}
OURS = {
    "gnt-backup": {"rehearse", "schedule", "set-policy", "remove-policy"},
    "gnt-cluster": {
        *("remove-repair", "repair-volume-groups", "verify-config", "backup", "restore"),
        *("apply", "export-spec"),
        *("ha-enable", "ha-disable", "ha-status", "ha-pause", "ha-confirm-dead", "ha-accept-copy"),
    },
    "gnt-debug": {"simulate-ha"},
    "gnt-instance": {"adopt", "repair", "snapshot", "ssh"},
    "gnt-node": {"repair-command"},
}
# Values of options that 3.0 does not have there.
OUR_CHOICES = {"--mode": {"balance", "capacity"}, "--storage-type": {"rados"}}
# What 3.0 calls the types of options; commas between words are its own business where it says text.
TYPES: dict[Any, set[str]] = {
    str: {"text"},
    None: {"text", "choice"},
    values.Int: {"int"},
    values.Float: {"float"},
    values.YesNo: {"bool"},
    values.Size: {"unit"},
    values.Commas: {"list", "text"},
    values.Names: {"text"},
    values.Netmask: {"text"},
    values.UidPool: {"text"},
    values.Switches: {"keyval"},
    values.Intervals: {"keyval"},
    values.MaybeFloat: {"maybefloat"},
    values.KeyValues: {"keyval"},
    values.Settings: {"keyval"},
    values.BackendSettings: {"keyval"},
    values.PlainValues: {"keyprivateval"},
    values.NamedValues: {"identkeyval"},
    values.SpecGroups: {"multilistidentkeyval"},
    values.Json: {"json"},
    values.FilterAction: {"filteraction"},
}
# Options of one word that 3.0 declares as text although they are numbers.
_NUMBERS_AS_TEXT = {"0": 0, "1": 1}


def shared_commands(name: str) -> list[Command]:
    """Return the commands of a program that 3.0 has as well."""
    ours = OURS.get(name, set())
    return [command for command in PROGRAMS[name].commands if command.name not in ours]


@pytest.mark.shows("2.0/overview/same-operations")
@pytest.mark.parametrize("name", FACTS)
def test_program_has_the_same_commands(name: str) -> None:
    program, facts = PROGRAMS[name], FACTS[name]
    ours = OURS.get(name, set())
    assert {command.name for command in program.commands} == set(facts["subcommands"]) | ours
    assert program.environment_defaults == facts["environment"]
    for command in shared_commands(name):
        assert list(command.aliases) == facts["subcommands"][command.name]["aliases"]


@pytest.mark.parametrize("name", FACTS)
def test_commands_have_the_same_arguments(name: str) -> None:
    for command in shared_commands(name):
        facts = FACTS[name]["subcommands"][command.name]["args"]
        ours = [(str(arg.kind), arg.min, arg.max, list(arg.choices)) for arg in command.args]
        theirs = [(arg["kind"], arg["min"], arg["max"], arg.get("choices", [])) for arg in facts]
        assert ours == theirs, command.name


@pytest.mark.shows("2.0/overview/same-operations", "2.0/gnt-instance/add")
@pytest.mark.parametrize("name", FACTS)
def test_commands_have_the_same_options(name: str) -> None:
    for command in shared_commands(name):
        facts = FACTS[name]["subcommands"][command.name]["options"]
        of_all = PROGRAMS[name].common_options
        own = [each for each in options_of(PROGRAMS[name], command) if each not in of_all]
        ours = {" ".join(option.flags): option for option in own}
        for flags in (OUR_OPTIONS & set(ours)) - set(facts):
            del ours[flags]
        assert set(ours) == set(facts), command.name
        for flags, option in ours.items():
            _compare(option, facts[flags])


def _compare(option: Option, facts: dict[str, Any]) -> None:
    if option.type == values.Priority:
        assert facts["choices"] == list(option.choices)
        return
    action = None if option.action is Action.STORE else str(option.action)
    if option.action is Action.APPEND:
        action = "append to list"
    assert facts.get("action") == action, option.flags
    if option.takes_value:
        kind = "choice" if option.choices and option.type is None else None
        assert facts.get("type", "text") in ({kind} if kind else TYPES[option.type]), option.flags
    own_choices = OUR_CHOICES.get(option.flags[-1], set())
    assert sorted(facts.get("choices", [])) == sorted({*option.choices} - own_choices), option.flags
    default = facts.get("default")
    if default != [] or option.action is not Action.APPEND:
        assert option.default == _NUMBERS_AS_TEXT.get(str(default), default), option.flags
    if option.action is Action.CONST:
        const = list(option.const) if isinstance(option.const, tuple) else option.const
        assert const == facts["const"]


@pytest.mark.parametrize(("program", "command"), COMMANDS)
def test_handler_exists(program: Program, command: Command) -> None:
    assert command.does is None or callable(command.does)
    assert program.find(command.name) is command or program.is_single


@pytest.mark.parametrize(("program", "command"), COMMANDS)
def test_help_names_every_option(program: Program, command: Command) -> None:
    text = command_help(program, command, 80)
    lines = text.partition("\nExamples:")[0].splitlines()
    assert max(map(len, lines)) <= 120  # usage lines are not wrapped
    for option in command.options:
        assert option.long in text
        assert option.help


@pytest.mark.shows("2.0/commands/consistent")
@pytest.mark.parametrize(("program", "command"), COMMANDS)
def test_no_flag_is_declared_twice(program: Program, command: Command) -> None:
    flags = [flag for option in command.options for flag in option.flags]
    flags += [flag for option in program.common_options for flag in option.flags]
    assert len(flags) == len(set(flags))


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=list(PROGRAMS))
def test_program_help_lists_every_command(program: Program) -> None:
    text = program_help(program, 80)
    for command in program.commands:
        assert f"  {command.name} " in text


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=list(PROGRAMS))
def test_the_table_names_the_commands_of_each_module(program: Program) -> None:
    for command in program.commands:
        for name in (command.name, *command.aliases):
            assert program.find(name) is command
    declared = {word for words in program.modules.values() for word in words.split()}
    assert declared == {
        name for command in program.commands for name in (command.name, *command.aliases)
    }


# The commands that people use most; each has an example.
OFTEN = """
gnt-backup: export import remove
gnt-cluster: command copyfile info init master-failover modify queue redist-conf verify verify-disks
gnt-group: add assign-nodes modify
gnt-instance: add console failover grow-disk info list migrate modify move reboot reinstall remove
 rename shutdown startup
gnt-job: cancel info list watch
gnt-network: add connect disconnect modify
gnt-node: add evacuate failover list migrate modify powercycle remove
gnt-os: diagnose list
"""


@pytest.mark.parametrize("line", OFTEN.strip().replace("\n ", " ").splitlines())
def test_what_people_use_most_has_an_example(line: str) -> None:
    program, _, names = line.partition(": ")
    found = {name: PROGRAMS[program].find(name) for name in names.split()}
    assert [name for name, each in found.items() if each is None or not each.examples] == []


@pytest.mark.parametrize(("program", "command"), COMMANDS)
def test_every_example_is_understood(program: Program, command: Command) -> None:
    for line, what in command.examples:
        words = shlex.split(line.partition(" > ")[0])
        if os.path.basename(words[0]) == program.name:
            understood = parse(program, words[1:], {})
            assert understood.command.name == command.name, line
        else:
            assert program.name in line, line
        assert what, line


@pytest.mark.parametrize(("program", "command"), COMMANDS)
def test_help_describes_the_parameters_of_each_option(program: Program, command: Command) -> None:
    text = "".join(command_help(program, command, 100).split())
    for option in options_of(program, command):
        for table in tables_of(option).values():
            for parameter, spec in table.items():
                assert "".join(f"{parameter} {spec.described}".split()) in text


def test_each_parameter_has_a_sentence_and_tells_its_values() -> None:
    tables = [*HVPARAMS.values(), *parameters.DISKPARAMS.values()]
    tables += [each for each in vars(parameters).values() if isinstance(each, dict)]
    for table in tables:
        for name, spec in table.items():
            if isinstance(spec, parameters.ParamSpec):
                assert len(spec.summary.split()) > 2, name
                assert "default" in spec.described, name
                assert spec.unit or "seconds" not in spec.summary, name


def test_each_program_is_installed() -> None:
    scripts = {
        each.name for each in entry_points(group="console_scripts", module="ganeti.cli.programs")
    }
    placement = {name for name, module in programs.TOOLS.items() if module.startswith("htools.")}
    assert scripts == {each.name for each in programs.PROGRAMS} | (placement - {"hail"})
