"""What the design documents promise, and the tests that show it: ``doc/conformance.md``.

The files in ``designs/`` list the promises, a line each in our own words, by document and section.  A
test says what it shows by a marker::

    @pytest.mark.shows("2.0/locks/ordered")

As ``pytestmark`` of a module the marker stands for all tests of the module.  Markers are found in the
sources, without importing them.  Tests that ``make test`` leaves out (`OUTSIDE`) count if
``recorded.toml`` says when they last passed; a run that has them writes it.

``python test/conformance/promises.py`` writes the page and prints its counts.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DESIGNS = Path(__file__).parent / "designs"
RECORDED = Path(__file__).parent / "recorded.toml"
PAGE = ROOT / "doc" / "conformance.md"
DECISIONS = ROOT / "doc" / "design.md"
DECISIONS_TITLE = "Where we do not follow the designs"

# What is still to be built; nothing else may be "not yet".
SUBJECTS = ("LVM", "DRBD", "storage", "htools", "maintd", "packages", "guests")
# Tests that ``make test`` leaves out: the marker that names their suite, and what runs it.
OUTSIDE = {
    "real": "make test-real",
    "debootstrap": "GANETI_TEST_DEBOOTSTRAP=1 pytest -m debootstrap",
}
MARKER = "pytest.mark.shows"


@dataclass(frozen=True)
class Promise:
    """One row: the test that shows it is found, everything else is said here."""

    id: str
    text: str
    not_yet: str = ""
    decided: str = ""  # the heading in doc/design.md
    because: str = ""


@dataclass(frozen=True)
class Section:
    """A section of a document; one without promises has a note that says why."""

    title: str
    note: str
    promises: tuple[Promise, ...]


@dataclass(frozen=True)
class Document:
    """A design document."""

    key: str
    title: str
    sections: tuple[Section, ...]


@dataclass(frozen=True)
class MarkedTest:
    """A test, or a file for all of its tests, and the promises that it shows."""

    id: str
    shows: tuple[str, ...]
    suite: str = ""  # one of `OUTSIDE`


@dataclass
class Markers:
    """All markers of the sources."""

    tests: list[MarkedTest] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_design(path: Path) -> Document:
    """Read one file of promises."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    sections = []
    for name, rows in content["sections"].items():
        title, note = rows.pop("title"), rows.pop("note", "")
        promises = []
        for word, row in rows.items():
            facts = {"text": row} if isinstance(row, str) else dict(row)
            promises.append(
                Promise(
                    f"{content['key']}/{name}/{word}",
                    facts.pop("text"),
                    facts.pop("not-yet", ""),
                    facts.pop("decided", ""),
                    facts.pop("because", ""),
                )
            )
            if facts:
                raise ValueError(f"{path.name}: {name}/{word} has unknown keys {sorted(facts)}")
        sections.append(Section(title, note, tuple(promises)))
    return Document(content["key"], content["title"], tuple(sections))


def read_designs() -> list[Document]:
    """Read all promises; the names of the files give the order."""
    return [read_design(path) for path in sorted(DESIGNS.glob("*.toml"))]


def read_recorded() -> dict[str, str]:
    """Return {test that ``make test`` leaves out: day on which it passed}."""
    if not RECORDED.exists():
        return {}
    return {
        test: day
        for suite in tomllib.loads(RECORDED.read_text(encoding="utf-8")).values()
        for test, day in suite.items()
    }


def record(suite: str, passed: Collection[str], day: str) -> None:
    """Write down that marked tests of a suite passed."""
    suites: dict[str, dict[str, str]] = {}
    if RECORDED.exists():
        suites = tomllib.loads(RECORDED.read_text(encoding="utf-8"))
    suites.setdefault(suite, {}).update(dict.fromkeys(passed, day))
    lines = [
        "# Written by runs of the suites that `make test` leaves out: marked tests that passed."
    ]
    for name in sorted(suites):
        lines += [
            "",
            f"[{name}]",
            *(f'"{test}" = "{day}"' for test, day in sorted(suites[name].items())),
        ]
    RECORDED.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _is_marker(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and ast.unparse(node) == MARKER


def _ids(nodes: Sequence[ast.AST]) -> list[str]:
    """Return the arguments of all markers within some nodes."""
    return [
        str(argument.value) if isinstance(argument, ast.Constant) else ast.unparse(argument)
        for top in nodes
        for node in ast.walk(top)
        if isinstance(node, ast.Call) and _is_marker(node.func)
        for argument in node.args
    ]


def _suite(path: str, nodes: Sequence[ast.AST]) -> str:
    if path.startswith("test/real/"):
        return "real"
    text = " ".join(ast.unparse(node) for node in nodes)
    return next((name for name in OUTSIDE if f"pytest.mark.{name}" in text), "")


def _is_test(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
        "test_"
    )


def _read_markers(path: str, tree: ast.Module, found: Markers) -> None:
    everywhere = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    tests = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_test(node)
    ]
    if ids := _ids(everywhere):
        found.tests.append(MarkedTest(path, tuple(ids), _suite(path, everywhere)))
        if not tests:
            found.problems.append(f"{path}: all its tests are marked, and there are none")
    understood = len(ids)
    names = Counter(node.name for node in tests)
    for test in tests:
        if ids := _ids(test.decorator_list):
            understood += len(ids)
            suite = _suite(path, [*everywhere, *test.decorator_list])
            found.tests.append(MarkedTest(f"{path}::{test.name}", tuple(ids), suite))
            if names[test.name] > 1:
                found.problems.append(f"{path}::{test.name} stands there twice, one does not run")
            if not test.body or not Path(path).name.startswith("test_"):
                found.problems.append(f"{path}::{test.name} is not collected")
    if understood != len(_ids([tree])):
        found.problems.append(f"{path}: a marker stands neither on a test nor on the module")


def read_markers() -> Markers:
    """Find all markers below ``test``."""
    found = Markers()
    for path in sorted((ROOT / "test").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if MARKER in text and path != Path(__file__).resolve():
            _read_markers(str(path.relative_to(ROOT)), ast.parse(text), found)
    return found


def shown_by(markers: Markers) -> dict[str, list[MarkedTest]]:
    """Return {promise: tests that show it}, without those of other suites that never passed."""
    recorded = read_recorded()
    result: dict[str, list[MarkedTest]] = {}
    for test in markers.tests:
        if not test.suite or test.id in recorded:
            for promise in test.shows:
                result.setdefault(promise, []).append(test)
    return result


def all_promises(documents: Sequence[Document]) -> Iterator[Promise]:
    """Yield the rows of all documents."""
    for document in documents:
        for section in document.sections:
            yield from section.promises


def anchor(heading: str) -> str:
    """Return what a heading is called in links."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def decisions() -> set[str]:
    """Return the headings below the section about deviations in doc/design.md."""
    text = DECISIONS.read_text(encoding="utf-8")
    _before, _heading, rest = text.partition(f"\n## {DECISIONS_TITLE}\n")
    return {
        line.removeprefix("### ")
        for line in rest.partition("\n## ")[0].splitlines()
        if line.startswith("### ")
    }


def problems(documents: Sequence[Document], markers: Markers) -> list[str]:
    """Return what is wrong with rows and markers."""
    rows = list(all_promises(documents))
    shown = shown_by(markers)
    known = {row.id for row in rows}
    headings = decisions()
    found = list(markers.problems)
    found += [
        f"{name} stands there twice" for name, n in Counter(r.id for r in rows).items() if n > 1
    ]
    for test in markers.tests:
        found += [
            f"{test.id} shows {name}, which is no promise"
            for name in test.shows
            if name not in known
        ]
        found += [
            f"{test.id} shows {name} twice" for name, n in Counter(test.shows).items() if n > 1
        ]
        if test.suite and test.id not in read_recorded():
            found.append(f"{test.id} never passed: run {OUTSIDE[test.suite]}")
    for row in rows:
        states = [bool(shown.get(row.id)), bool(row.not_yet), bool(row.decided)]
        if sum(states) != 1:
            found.append(
                f"{row.id}: {'nothing shows it' if not any(states) else 'it has two states'}"
            )
        if row.not_yet and row.not_yet not in SUBJECTS:
            found.append(f"{row.id}: {row.not_yet!r} is no subject")
        if row.decided and (row.decided not in headings or not row.because):
            found.append(
                f"{row.id}: doc/design.md has no {row.decided!r}, or the reason is missing"
            )
    found += [
        f"no row refers to {heading!r} of doc/design.md"
        for heading in sorted(decisions() - {row.decided for row in rows})
    ]
    for document in documents:
        for section in document.sections:
            if bool(section.note) == bool(section.promises):
                found.append(f"{document.key}, {section.title}: either promises, or a note why not")
    return found


def counts(rows: Collection[Promise]) -> tuple[int, int, Mapping[str, int]]:
    """Return how many are shown, how many decided otherwise, and {subject: not yet}."""
    later = Counter(row.not_yet for row in rows if row.not_yet)
    decided = sum(bool(row.decided) for row in rows)
    return len(rows) - decided - later.total(), decided, dict(sorted(later.items()))


def summary(rows: Collection[Promise]) -> list[str]:
    """Return the counts as lines."""
    shown, decided, later = counts(rows)
    lines = [f"{len(rows)} promises: {shown} shown by tests, {decided} decided otherwise"]
    lines[0] += f", {sum(later.values())} not yet."
    if later:
        lines.append(f"Not yet: {', '.join(f'{name} {count}' for name, count in later.items())}.")
    return lines


def _state(row: Promise, tests: Sequence[MarkedTest], recorded: Mapping[str, str]) -> str:
    if row.not_yet:
        return f"*not yet*: {row.not_yet}"
    if row.decided:
        return f"*decided otherwise*: {row.because} ([why](design.md#{anchor(row.decided)}))"
    return "<br>".join(
        f"`{test.id}`" + (f" ({test.suite}, passed {recorded[test.id]})" if test.suite else "")
        for test in tests
    )


def page(documents: Sequence[Document], markers: Markers) -> str:
    """Return the text of ``doc/conformance.md``."""
    shown, recorded = shown_by(markers), read_recorded()
    lines = [
        "# What the designs promise",
        "",
        "Every section of the design documents with its promises, in our own words, and for each the tests",
        "that show it.  `make conformance` writes this page; [development.md](development.md) says how.",
        "",
        *summary(list(all_promises(documents))),
    ]
    for document in documents:
        rows = [row for section in document.sections for row in section.promises]
        lines += ["", f"## {document.title}", "", *summary(rows)]
        for section in document.sections:
            lines += ["", f"### {section.title}", ""]
            if section.note:
                lines.append(section.note)
                continue
            lines += ["| promise | id | shown by |", "|---|---|---|"]
            lines += [
                f"| {row.text} | `{row.id}` | {_state(row, shown.get(row.id, ()), recorded)} |"
                for row in section.promises
            ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the page and print the counts; with problems, print these and fail."""
    documents, markers = read_designs(), read_markers()
    found = problems(documents, markers)
    for line in found:
        print(line, file=sys.stderr)
    PAGE.write_text(page(documents, markers), encoding="utf-8")
    print("\n".join(summary(list(all_promises(documents)))))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
