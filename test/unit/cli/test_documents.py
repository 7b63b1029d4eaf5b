"""Manual pages and shell completion: generated for everything, in a usable form."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from ganeti.cli.documents import write
from ganeti.cli.documents.manual import escape, manual_page
from ganeti.cli.documents.write import documents, tools
from ganeti.cli.programs import PROGRAMS
from ganeti.protocol.wconfd import WConfCalls


@pytest.mark.parametrize("program", [*PROGRAMS, *tools()], ids=lambda p: p.name)
def test_manual_page_names_every_command_and_option(program) -> None:  # type: ignore[no-untyped-def]
    page = documents()[f"man/{program.name}.{program.manual_section}"]
    assert page.startswith(f".TH {program.name} {program.manual_section}")
    for command in program.commands:
        assert f".SS {escape(command.name)}" in page or program.is_single
        for option in command.options:
            assert escape(option.long) in page


@pytest.mark.parametrize("program", [*PROGRAMS, *tools()], ids=lambda p: p.name)
def test_the_page_has_the_text_of_the_program(program) -> None:  # type: ignore[no-untyped-def]
    page = documents()[f"man/{program.name}.{program.manual_section}"]
    prose = Path(__file__).parents[3] / "doc" / "manual" / f"{program.name}.txt"
    text = prose.read_text() if prose.exists() else ""
    for title in re.findall(r"^# (.+)$", text, re.MULTILINE):
        assert f".SH {title}\n" in page


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_only_pages_of_programs_that_make_jobs_speak_of_submit(program) -> None:  # type: ignore[no-untyped-def]
    options = {opt.long for command in program.commands for opt in command.options}
    page = manual_page(program, []).replace("\\-", "-")
    assert ("--submit" in page) == ("--submit" in options)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_no_line_is_taken_for_an_unknown_request(program) -> None:  # type: ignore[no-untyped-def]
    for line in manual_page(program, []).splitlines():
        if line.startswith((".", "'")):
            assert re.match(r"\.(TH|SH|SS|TP|PP|B|nh|ad)\b", line), line


@pytest.mark.parametrize(
    ("text", "escaped"), [("a-b", r"a\-b"), (r"a\b", r"a\eb"), (".x", r"\&.x"), ("'x", r"\&'x")]
)
def test_text_is_protected(text: str, escaped: str) -> None:
    assert escape(text) == escaped


def test_long_words_may_be_broken_after_separators() -> None:
    word = "N:[mac=...][,ip=...][,mode=...][,link=...]"
    assert r"\:" in escape(word)
    assert escape(word).replace(r"\:", "") == word
    assert escape("a/b,c=d") == "a/b,c=d"


def test_the_page_of_the_configuration_daemon_names_its_methods_and_files() -> None:
    page = documents()["man/ganeti-wconfd.8"]
    for method in WConfCalls.calls:
        assert f"\\fB{method}\\fR" in page
    for title in ("LOCKS", "CONSISTENCY", "FILES", "SIGNALS", "EXIT STATUS", "SEE ALSO"):
        assert f".SH {title}\n" in page


@pytest.mark.parametrize("path", [path for path in documents() if path.endswith(".8")])
def test_every_page_says_in_a_phrase_what_it_is_about(path: str) -> None:
    name = Path(path).stem
    line = documents()[path].splitlines()[4]
    assert line.startswith(f"{escape(name)} \\- ")
    assert not line.endswith(".")


def test_documents_in_the_tree_are_those_of_the_tables() -> None:
    root = Path(__file__).resolve().parents[3]
    stale = [
        path
        for path, content in documents().items()
        if not (root / path).exists() or (root / path).read_text(encoding="utf-8") != content
    ]
    assert stale == [], "run 'make docs'"


@pytest.mark.parametrize(("words", "status"), [(["--help"], 0), (["--into=x"], 1), (["a", "b"], 1)])
def test_an_option_is_no_directory(
    words: list[str],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["make-docs", *words])
    assert write.main() == status
    assert "usage: make-docs [DIRECTORY]" in "".join(capsys.readouterr())
    assert list(tmp_path.iterdir()) == []
