"""Commands in short forms: arguments, options and examples as texts."""

from __future__ import annotations

import pytest

from ganeti.cli.command import ArgKind, command, opt
from ganeti.cli.declaration.program import Action, Argument


def look(_context: object, _options: object, _args: object) -> None:
    """Look at things.

    More is for those who read the code.
    """


def test_name_and_summary_are_those_of_the_function() -> None:
    assert (command(look).name, command(look).summary) == ("look", "look at things")
    titled = command(look, title="see: see things: all of them")
    assert (titled.name, titled.summary) == ("see", "see things: all of them")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<instance>", Argument(ArgKind.INSTANCE, metavar="<instance>")),
        ("[<node>...]=nodes", Argument(ArgKind.NODE, 0, None, metavar="<node>", dest="nodes")),
        ("<job-id>...", Argument(ArgKind.JOB_ID, 1, None, metavar="<job-id>")),
        ("<new-name>:host=name", Argument(ArgKind.HOST, metavar="<new-name>", dest="name")),
        ("<tag>", Argument(ArgKind.TEXT, metavar="<tag>")),
        ("{on|off}", Argument(ArgKind.CHOICE, choices=("on", "off"))),
    ],
)
def test_arguments_are_written_as_in_usage_lines(text: str, expected: Argument) -> None:
    assert command(look, text).args == (expected,)
    assert text.startswith(expected.usage)


def test_words_name_shared_options_and_groups_of_them() -> None:
    own = opt.flag("--much -> is_much", "much of it")
    found = command(look, "<file> --force SUBMISSION", own)
    flags = [each.long for each in found.options]
    assert flags == ["--depend", "--force", "--much", "--print-jobid", "--priority", "--submit"]
    assert own.destination == "is_much"
    with pytest.raises(KeyError):
        command(look, "--no-such-option")


def test_flags_tell_label_parameter_and_completion() -> None:
    named = opt.several("-n --node=<node> -> nodes", "a node")
    assert (named.flags, named.metavar, named.destination) == (("-n", "--node"), "<node>", "nodes")
    assert (named.completes, named.action) == (ArgKind.NODE, Action.APPEND)
    assert opt.unflag("--no-name-check", "").destination == "name_check"


def test_examples_are_lines_with_a_comment() -> None:
    found = command(look, examples="\nlook here  # what is here\nlook")
    assert found.examples == (("look here", "what is here"), ("look", ""))
