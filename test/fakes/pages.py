"""The pages of ``doc/``: the command lines on them, and the answers that they show."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]
# Texts of others that are quoted there, commands that never came to be among them.
QUOTES = {"doc/conformance.md"}
ELSEWHERE = "<!-- begins elsewhere"

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?<=\n\n)((?:(?: {4}.*)?\n)+)")
_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_ENDS = {"|", "||", "&&", ";", "&", "(", ")", "<", ">", ">>", "#", ";;"}
_VOLATILE = (
    (r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}", "TIME"),
    (r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID"),
    (r"[\d.]+ MiB of data, [\d.]+ MiB/s", "AMOUNT"),
    (r"^.* \* disk \d+: .*\n", ""),  # how far a slow copy is
    (r"from job \d+ follows", "from job N follows"),
    (r"^-+$", "----"),  # as wide as the terminal
    (r"[ \t]+$", ""),
)


class Line(NamedTuple):
    """One command line of a page: where it stands, and whether it is only named in a sentence."""

    page: str
    text: str
    is_inline: bool


class Step(NamedTuple):
    """A command that is typed, and the lines that it answers; a line "..." stands for any."""

    command: str
    answer: str


def pages() -> list[str]:
    """Return the pages whose commands are ours to keep true."""
    found = [CHECKOUT / "README.md", *sorted((CHECKOUT / "doc").glob("*.md"))]
    names = [str(path.relative_to(CHECKOUT)) for path in found]
    return [name for name in names if name not in QUOTES]


def lines_of(page: str) -> Iterator[Line]:
    """Return all command lines of a page: from blocks, and from sentences."""
    text = (CHECKOUT / page).read_text("utf-8")
    blocks = [match[2] for match in _FENCED.finditer(text)]
    rest = _FENCED.sub("", text)
    blocks += [match[1] for match in _INDENTED.finditer(rest)]
    for block in blocks:
        typed = re.findall(r"^\s*[$#] (.*)", block, re.MULTILINE)
        for line in typed or block.replace("\\\n", " ").splitlines():
            yield Line(page, line.strip(), False)
    for span in _SPAN.finditer(_INDENTED.sub("", rest)):
        yield Line(page, " ".join(span[1].split()), True)


def commands_in(line: Line) -> Iterator[list[str]]:
    """Return the words of each simple command in a line, and of each that another one starts."""
    lexer = shlex.shlex(line.text, posix=True, punctuation_chars=True)
    lexer.commenters = ""
    lexer.whitespace_split = True
    try:
        tokens = list(lexer)
    except ValueError:  # a quote that is only a part
        tokens = line.text.split()
    words: list[str] = []
    for token in [*tokens, ";"]:
        if re.match(r"[<>]", token) and words and re.fullmatch("[012]", words[-1]):
            words.pop()  # the number of a file
        if token in _ENDS or set(token) <= set("();<>|&"):
            yield from _started_by(words)
            words = []
        else:
            words.append(token.rstrip(",") if line.is_inline else token)


def _started_by(words: list[str]) -> Iterator[list[str]]:
    """Return a simple command, and those of ours that it runs elsewhere or later."""
    while words and re.match(r"\w+=", words[0]):  # values of variables
        words = words[1:]
    for start, word in enumerate(words):
        if start == 0 or words[start - 1] == "--" or re.match(r"gnt-\w+$|ganeti-\w+$", word):
            yield words[start:]


def steps_of(page: str) -> list[Step]:
    """Return the console blocks of a page in their order, but those for another place."""
    found = []
    text = (CHECKOUT / page).read_text("utf-8")
    for match in _FENCED.finditer(text):
        before = text[: match.start()].rstrip().rpartition("\n")[2]
        if match[1] == "console" and not before.startswith(ELSEWHERE):
            _, *parts = re.split(r"^\$ ", match[2], flags=re.MULTILINE)
            found += [Step(*part.partition("\n")[::2]) for part in parts]
    return found


def same(shown: str, printed: str) -> bool:
    """Tell whether a command printed what the page shows, but for times and the like."""
    parts = [re.escape(part) for part in re.split(r"^\.\.\.\n", _plain(shown), flags=re.MULTILINE)]
    return re.fullmatch("(?s:.*)".join(parts), _plain(printed)) is not None


def _plain(text: str) -> str:
    for pattern, instead in _VOLATILE:
        text = re.sub(pattern, instead, text, flags=re.MULTILINE)
    return text
