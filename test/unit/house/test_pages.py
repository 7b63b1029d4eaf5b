"""The commands on the pages and in messages exist, with these options, and so do targets of make."""

from __future__ import annotations

import ast
import os
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module

import pytest
from fakes import pages

from ganeti.base.daemons import DAEMONS, PERIODIC
from ganeti.base.errors import GenericError
from ganeti.cli.declaration.parser import HelpWanted, UsageError, VersionWanted, parse
from ganeti.cli.documents.write import tools
from ganeti.cli.programs import PROGRAMS
from ganeti.daemon.options import options_of as options_of_daemon

OURS = {program.name: program for program in (*PROGRAMS, *tools())}
TARGETS = set(re.findall(r"^([a-z-]+):", (pages.CHECKOUT / "Makefile").read_text(), re.MULTILINE))
# Told of as wrong.
REFUSED = {"gnt-instance snapshot --disk 0:snapshot_name=x inst2"}
# A value that the reader is to choose, or a part that was left out.
PLACEHOLDER = re.compile(r"\b[A-Z][A-Z_]+\b|\.\.\.|…|[<$*\[{]")


def complaint(words: list[str], *, is_part: bool) -> str:
    """Return what is wrong with one command of ours; nothing of others."""
    name = os.path.basename(words[0])
    if name == "make" and len(words) > 1 and words[0] == "make":
        goals = [word for word in words[1:] if re.fullmatch(r"[a-z][a-z-]*", word)]
        return "" if set(goals[:1]) <= TARGETS else f"make has no target {goals[0]}"
    if name in FLAGS:
        flags = {word.partition("=")[0] for word in words[1:] if word.startswith("-")}
        return ", ".join(f"{name} has no option {flag}" for flag in sorted(flags - FLAGS[name]))
    program = OURS.get(name)
    if program is None or (is_part and len(words) == 1):
        return ""
    try:
        parse(program, words[1:], {})
    except (HelpWanted, VersionWanted):
        return ""
    except UsageError as err:
        text = err.message
    except GenericError as err:
        text = f"wrong value: {err}"
    else:
        return ""
    if re.match(r"unknown command|no such option", text):
        return text
    return "" if is_part or PLACEHOLDER.search(" ".join(words)) else text


def flags_of_daemons() -> dict[str, set[str]]:
    """Return the options of each program that is started without a person."""
    kinds = {
        each.name: import_module(f"ganeti.{each.package}.main").SPEC.options for each in DAEMONS
    }
    kinds |= {name: import_module(f"ganeti.{path}").Options for name, path in PERIODIC.items()}
    asked_for = {"-h", "--help", "--version"}
    return {
        name: {flag for option in options_of_daemon(kind) for flag in option.flags} | asked_for
        for name, kind in kinds.items()
    }


FLAGS = flags_of_daemons()


@pytest.mark.parametrize("page", pages.pages())
def test_every_command_of_a_page_exists(page: str) -> None:
    wrong = []
    for line in pages.lines_of(page):
        for words in pages.commands_in(line):
            found = complaint(words, is_part=line.is_inline)
            if found and line.text not in REFUSED:
                wrong.append(f"{line.text}\n    {found}")
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gnt-instance lst", "unknown command 'lst'"),
        ("x=$(gnt-node list --no-headers | gnt-job watch --colour 3)", "no such option: --colour"),
        ("tools/vcluster run .demo node1 -- gnt-instance list --bad", "no such option: --bad"),
        ("gnt-node add", "<node"),
        ("ganeti-noded --nonsense", "ganeti-noded has no option --nonsense"),
        ("make cofee", "make has no target cofee"),
    ],
)
def test_a_wrong_command_is_noticed(text: str, expected: str) -> None:
    found = [
        complaint(words, is_part=False)
        for words in pages.commands_in(pages.Line("page", text, False))
    ]
    assert expected in "".join(found)


@pytest.mark.parametrize("page", pages.pages())
def test_who_enables_a_disk_template_is_told_to_allow_it_too(page: str) -> None:
    lines = [line.text for line in pages.lines_of(page) if "gnt-cluster modify" in line.text]
    wrong = [text for text in lines if "--enabled-disk" in text and "--ipolicy-disk" not in text]
    assert wrong == []


def test_definitions_of_examples_have_their_variants() -> None:
    """Those of an option -o or of a word of its own, on pages and in manual pages."""
    examples = pages.CHECKOUT / "doc/examples/os"
    known = set()
    for path in examples.iterdir():
        variants = path / "variants.list"
        lines = variants.read_text("utf-8").splitlines() if variants.exists() else []
        known |= {f"{path.name}+{line}" for line in lines if line and not line.startswith("#")}
    texts = [(pages.CHECKOUT / page).read_text("utf-8") for page in pages.pages()]
    texts += [path.read_text("utf-8") for path in sorted((pages.CHECKOUT / "man").iterdir())]
    names = "|".join(path.name for path in examples.iterdir())
    found = {
        word.rstrip(".")
        for text in texts
        for word in re.findall(rf"\b(?:{names})\+[a-z][\w.-]*", text.replace("\\-", "-"))
    }
    assert len(found) > 4
    assert found - known == set()


def texts_of(source: str) -> Iterator[str]:
    """Return the texts of a module, with a word in place of each value that is put in."""
    inner: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            inner |= {id(part) for part in node.values}
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "NAME"
                for part in node.values
            )
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner
        ):
            yield node.value


def wrong_hints(source: str) -> list[str]:
    """Return the commands of ours that the messages of a module name in quotes and that are none."""
    hints = [
        hint for text in texts_of(source) for hint in re.findall(r"'(gnt-\w+ [a-z][^']*)'", text)
    ]
    lines = [pages.Line("", hint, is_inline=True) for hint in hints if "--NAME" not in hint]
    return [
        line.text
        for line in lines
        for words in pages.commands_in(line)
        if complaint(words, is_part=True)
    ]


def test_commands_that_messages_name_exist() -> None:
    modules = sorted((pages.CHECKOUT / "ganeti").rglob("*.py"))
    found = {str(path): wrong_hints(path.read_text("utf-8")) for path in modules}
    assert {path: hints for path, hints in found.items() if hints} == {}


def test_a_wrong_command_of_a_message_is_noticed() -> None:
    source = (
        """f"no provider {name!r};" " see 'gnt-storage " f"list {name}'; 'gnt-storage info'" """
    )
    assert wrong_hints(source) == ["gnt-storage list NAME"]


def test_the_layers_of_the_guide_are_those_that_are_checked() -> None:
    guide = (pages.CHECKOUT / "doc/development.md").read_text("utf-8")
    table = guide.partition("| row | packages |")[2].partition("\n\n")[0]
    named = [re.findall(r"`(\w+)`", row.split("|")[2]) for row in table.splitlines()[2:]]
    contracts = tomllib.loads((pages.CHECKOUT / "pyproject.toml").read_text("utf-8"))
    [layers] = [
        each["layers"]
        for each in contracts["tool"]["importlinter"]["contracts"]
        if each["type"] == "layers"
    ]
    checked = [name for layer in layers for name in re.findall(r"\w+", layer)]
    assert [name for row in named for name in row] == checked


def test_answers_are_compared_but_for_times() -> None:
    assert pages.same("Sat Nov 28 04:06:54 2026 * a\n", "Sun Nov 29 14:06:54 2026 * a\n")
    assert pages.same("a\n...\nb\n", "a\nx\ny\nb\n")
    assert not pages.same("a\n...\nb\n", "a\nx\ny\n")
    assert not pages.same("node1 C\n", "node1 M\n")
