"""Command lines: options before arguments, abbreviations, and what wrong ones are told."""

from __future__ import annotations

import pytest

from ganeti.cli.declaration import common as opt
from ganeti.cli.declaration import parser
from ganeti.cli.declaration.help import flags_label
from ganeti.cli.declaration.program import ArgKind, Argument, Command, Program
from ganeti.cli.declaration.values import Json, NamedValues


def _nothing(*_args: object) -> int:
    return 0


RUN = Command(
    "run",
    "run things",
    _nothing,
    (Argument(ArgKind.NODE), Argument(ArgKind.COMMAND, 0, None)),
    (
        opt.flag("-f --force", ""),
        opt.flag("-v --verbose", ""),
        opt.unflag("--no-wait", "", dest="wait"),
        opt.number("-n --number", "", default=3),
        opt.several("--disk", "", NamedValues, dest="disks"),
        opt.option("--disk-template", "", choices=("file", "plain")),
        opt.option("--list", "", Json),
        opt.constant("--all", "", dest="mode", const="cluster"),
        opt.constant("--node", "", dest="mode", const="nodes"),
    ),
    aliases=("go",),
)
SHOW = Command("show", "show things", _nothing, (Argument(ArgKind.CHOICE, choices=("a", "b")),))
PROGRAM = Program(
    "gnt-test", "test", "Tests.", (RUN, SHOW), environment_defaults={"run": "GNT_TEST_RUN"}
)


def parse(*words: str, environment: dict[str, str] | None = None) -> parser.CommandLine:
    return parser.parse(PROGRAM, words, environment or {})


def test_defaults_when_nothing_is_given() -> None:
    options = parse("run", "node1").options
    assert (options.force, options.wait, options.number) == (False, True, 3)
    assert (options.mode, list(options.disks), options.debug) == (None, [], 0)


@pytest.mark.shows("2.0/commands/consistent")
@pytest.mark.parametrize(
    "words",
    [
        ("-f", "-v", "-n", "5", "--no-wait"),
        ("-fvn5", "--no-wait"),
        ("--force", "--verbose", "--number=5", "--no-wait"),
        ("--forc", "--verb", "--num", "5", "--no-w"),
    ],
)
def test_ways_to_write_options(words: tuple[str, ...]) -> None:
    options = parse("go", *words, "node1").options
    assert (options.force, options.verbose, options.number) == (True, True, 5)
    assert options.wait is False


def test_repeated_and_constant_options() -> None:
    options = parse("run", "--disk", "0:size=1", "--disk=1:size=2", "--node", "n").options
    assert options.disks == [("0", {"size": "1"}), ("1", {"size": "2"})]
    assert options.mode == "nodes"


def test_options_end_at_the_first_argument() -> None:
    line = parse("run", "-f", "node1", "ls", "-l", "--force")
    assert line.args == ["node1", "ls", "-l", "--force"]


def test_two_dashes_end_options() -> None:
    assert parse("run", "--", "-f").args == ["-f"]


def test_exact_option_wins_over_a_longer_one() -> None:
    assert parse("run", "--disk", "0", "node1").options.disk_template is None


def test_environment_comes_first_and_can_be_overridden() -> None:
    environment = {"GNT_TEST_RUN": "--number 7 -f"}
    assert parse("run", "node1", environment=environment).options.number == 7
    assert parse("run", "--number=8", "node1", environment=environment).options.number == 8


@pytest.mark.parametrize(
    ("words", "text", "status"),
    [
        ([], "give a command", 1),
        (["rum"], "did you mean run", 1),
        (["run"], "<node> is missing", 1),
        (["show", "a", "b"], "takes fewer arguments", 1),
        (["show", "a", "--verbose"], "options come before", 1),
        (["show", "c"], "not one of a, b", 1),
        (["run", "--nope", "x"], "no such option: --nope", 2),
        (["run", "--fource", "x"], "did you mean --force", 2),
        (["run", "-x", "node"], "no such option: -x", 2),
        (["run", "--no"], "could be any of --no-wait, --node", 2),
        (["run", "-n"], "-n needs a value", 2),
        (["run", "-n", "x", "node"], "--number: 'x' is not a whole number", 2),
        (["run", "--disk-template=x", "n"], "not one of file, plain", 2),
        (["run", "--force=yes", "n"], "takes no value", 2),
        (["run", "--list={", "n"], "not JSON", 1),
    ],
)
def test_wrong_command_lines(words: list[str], text: str, status: int) -> None:
    with pytest.raises(parser.UsageError) as raised:
        parse(*words)
    assert text in raised.value.message
    assert raised.value.exit_code == status


def test_help_and_version() -> None:
    with pytest.raises(parser.VersionWanted):
        parse("--version")
    for words, command in (
        (("--help",), None),
        (("-h",), None),
        (("run", "--help"), RUN),
        (("run", "-f", "-h"), RUN),
        (("help", "go"), RUN),
    ):
        with pytest.raises(parser.HelpWanted) as raised:
            parse(*words)
        assert raised.value.command is command


def test_option_behind_names_is_not_taken_for_a_name() -> None:
    names = Command("list", "", _nothing, (Argument(ArgKind.NODE, 0, None),), (opt.flag("-v", ""),))
    program = Program("gnt-test", "", "", (names,))
    with pytest.raises(parser.UsageError, match="option -v stands after 'node1'"):
        parser.parse(program, ["list", "node1", "-v"], {})
    assert parser.parse(program, ["list", "node1", "-x"], {}).args == ["node1", "-x"]


def test_unknown_option_name_is_our_own_mistake() -> None:
    with pytest.raises(AttributeError):
        _ = parse("show", "a").options.nonsense


def test_interspersed_options_end_at_a_command_to_run() -> None:
    program = Program("vc", "", "", (RUN,), is_interspersed=True)
    line = parser.parse(program, ["run", "node1", "-f", "ls", "-v"], {})
    assert line.args == ["node1", "ls", "-v"]
    assert (line.options.force, line.options.verbose) == (True, False)
    line = parser.parse(program, ["run", "node1", "--", "ls", "-v"], {})
    assert line.args == ["node1", "ls", "-v"]


OPTIONAL = Command(
    "look",
    "look at things",
    _nothing,
    (Argument(ArgKind.FILE, 0, 1),),
    (
        opt.option("-p --print-nodes=FIELDS", "", alone=""),
        opt.option("--mond", "", choices=("yes", "no"), alone="yes"),
    ),
)


def test_a_value_that_may_be_left_out_stands_at_the_flag() -> None:
    program = Program("hlook", "test", "Tests.", (OPTIONAL,), is_single=True, is_interspersed=True)
    assert parser.parse(program, ["-pname", "file"], {}).options.print_nodes == "name"
    assert parser.parse(program, ["-p", "file"], {}).args == ["file"]
    for flag, whole in (("-p", "-pname"), ("--print-nodes", "--print-nodes=name")):
        with pytest.raises(parser.UsageError) as caught:
            parser.parse(program, [flag, "name", "file"], {})
        assert f"the value of {flag} is written without a blank: {whole}" in caught.value.message
    with pytest.raises(parser.UsageError) as caught:
        parser.parse(program, ["-p", "--mond", "a", "b"], {})
    assert "--mond=a" in caught.value.message
    with pytest.raises(parser.UsageError) as caught:
        parser.parse(program, ["a", "-p", "b"], {})
    assert "-pb" in caught.value.message
    with pytest.raises(parser.UsageError) as caught:
        parser.parse(program, ["a", "b", "-p"], {})
    assert "blank" not in caught.value.message


def test_help_shows_that_a_value_may_be_left_out() -> None:
    labels = [flags_label(option) for option in OPTIONAL.options]
    assert labels == ["-p[FIELDS], --print-nodes[=FIELDS]", "--mond[=yes|no]"]
