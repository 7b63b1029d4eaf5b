"""Commands that submit an opcode: what options and arguments become."""

from __future__ import annotations

import io

import pytest
from fakes.luxi_client import FakeLuxiClient

from ganeti.base.errors import OpPrereqError
from ganeti.cli.declaration import common as opt
from ganeti.cli.declaration.parser import Options, options_of, parse
from ganeti.cli.declaration.program import ArgKind, Argument, Command, Program
from ganeti.cli.programs import PROGRAMS
from ganeti.cli.run.binding import bound, check_options, run_opcode
from ganeti.cli.run.context import Context, Terminal
from ganeti.cli.run.failures import NotConfirmed
from ganeti.opcodes.instance import OpInstanceReboot, OpInstanceRemove, OpInstanceSetParams
from ganeti.opcodes.opcode import COMMON_PARAMS
from ganeti.opcodes.registry import encode_opcode

REBOOT = Command(
    "reboot",
    "restart an instance",
    OpInstanceReboot,
    (Argument(ArgKind.INSTANCE),),
    (
        opt.option("-t --type", "how", dest="reboot_type", default="hard"),
        opt.option("--shutdown-timeout", "patience"),
        opt.flag("--ignore-secondaries", "whatever the others do"),
        opt.flag("--dry-run", "nothing is changed"),
        opt.flag("--loudly", "is no field of the opcode"),
    ),
)
REMOVE = Command(
    "remove",
    "remove an instance",
    OpInstanceRemove,
    (Argument(ArgKind.INSTANCE),),
    (opt.flag("-f --force", "do not ask"),),
    confirm="Remove {instance_name}?",
)
MODIFY = Command(
    "modify",
    "change an instance",
    OpInstanceSetParams,
    (Argument(ArgKind.INSTANCE),),
    (
        opt.option("--new-primary", "where to", dest="pnode"),
        opt.option("-n --node", "the other one", dest="remote_node"),
        opt.flag("--force", "do not ask"),
    ),
    exclusive=(("--new-primary", "-n"),),
    changes=True,
)
PROGRAM = Program("gnt-test", "test", "Tests.", (REBOOT, REMOVE, MODIFY))


def line(*words: str) -> tuple[Command, Options, list[str]]:
    found = parse(PROGRAM, words, {})
    return found.command, found.options, found.args


@pytest.mark.shows("backend/opcodes/one-command", "2.0/queue/one-command")
def test_what_has_the_name_of_a_field_sets_it() -> None:
    wire = encode_opcode(bound(*line("reboot", "-t", "soft", "--loudly", "--dry-run", "web1")))
    assert (wire["instance_name"], wire["reboot_type"]) == ("web1", "soft")
    assert wire["shutdown_timeout"] == 120
    assert "dry_run" not in wire, "the common options are those of the submission"


def test_types_choices_and_defaults_are_those_of_the_fields() -> None:
    kind, timeout, *_ = options_of(PROGRAM, REBOOT)
    assert set(kind.choices) == {"soft", "hard", "full"}
    assert timeout.default == 120
    assert line("reboot", "--shutdown-timeout=5", "x")[1].shutdown_timeout == 5


def test_a_question_is_asked_unless_an_option_answers_it() -> None:
    def run(*words: str) -> int:
        command, options, args = line(*words)
        terminal = Terminal(io.StringIO(), io.StringIO(), io.StringIO())
        context = Context("gnt-test", command, options, terminal)
        client = FakeLuxiClient(("success", [None], []))
        client.unknown = {"nowhere"}
        context._client = client  # type: ignore[assignment]
        return run_opcode(context, command, options, args)

    with pytest.raises(NotConfirmed, match="use --force"):
        run("remove", "web1")
    assert run("remove", "-f", "web1") == 0
    with pytest.raises(OpPrereqError, match="instance 'nowhere' is not known; see 'gnt-instance"):
        run("remove", "nowhere")  # refused before anything is asked


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--force", "web1"), "nothing to change"),
        (("-n", "a", "--new-primary", "b", "web1"), "either --new-primary or --node"),
    ],
)
def test_options_that_make_no_sense(words: tuple[str, ...], problem: str) -> None:
    command, options, _ = line("modify", *words)
    with pytest.raises(OpPrereqError, match=problem):
        check_options(command, options)


COMMANDS = [
    pytest.param(program, command, id=f"{program.name} {command.name}")
    for program in PROGRAMS
    for command in program.commands
    if isinstance(command.does, type)
]


@pytest.mark.parametrize(("program", "command"), COMMANDS)
def test_every_option_of_a_command_without_a_function_has_an_effect(
    program: Program, command: Command
) -> None:
    assert command.submits is not None
    fields = set(command.submits.__struct_fields__)
    of_submission = {*COMMON_PARAMS, "depend", "print_jobid", "submit", "priority"}
    settling = {"confirm", "force", "yes_do_it"} if command.confirm else set()
    if command.makes is None and command.each is None:
        for option in command.options:
            assert option.destination in fields | of_submission | settling, option.long
    if command.each is None:
        for argument in command.args:
            assert argument.destination, argument
            assert set(argument.destination.split()) <= fields, argument
