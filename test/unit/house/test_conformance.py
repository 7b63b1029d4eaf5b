"""The page of promises: complete, up to date, and every marker is that of a test."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import pytest
from conformance import promises, runs

DOCUMENTS = promises.read_designs()


@pytest.fixture(scope="module")
def markers() -> promises.Markers:
    """All of them; no process that only collects tests needs them."""
    return promises.read_markers()


def test_every_row_has_one_state_and_every_marker_a_promise(markers: promises.Markers) -> None:
    assert promises.problems(DOCUMENTS, markers) == []


def test_the_page_is_up_to_date(markers: promises.Markers) -> None:
    written = promises.PAGE.read_text(encoding="utf-8")
    assert written == promises.page(DOCUMENTS, markers), "run: make conformance"


def read(text: str) -> promises.Markers:
    found = promises.Markers()
    promises._read_markers("test/unit/test_example.py", ast.parse(text), found)
    return found


def test_a_marker_is_found_on_a_test_on_its_examples_and_on_a_module() -> None:
    found = read(
        'pytestmark = [pytest.mark.qemu, pytest.mark.shows("a/b/c")]\n'
        '@pytest.mark.shows("a/b/d", "a/b/e")\n'
        "def test_one(): pass\n"
        '@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.shows("a/b/f"))])\n'
        "async def test_two(n): pass\n"
    )
    assert not found.problems
    assert [(test.id, test.shows) for test in found.tests] == [
        ("test/unit/test_example.py", ("a/b/c",)),
        ("test/unit/test_example.py::test_one", ("a/b/d", "a/b/e")),
        ("test/unit/test_example.py::test_two", ("a/b/f",)),
    ]


@pytest.mark.parametrize(
    "text",
    [
        '@pytest.mark.shows("a/b/c")\ndef helper(): pass\n',
        'def test_one():\n    mark = pytest.mark.shows("a/b/c")\n',
        'pytestmark = pytest.mark.shows("a/b/c")\n',
        '@pytest.mark.shows("a/b/c")\ndef test_one(): pass\ndef test_one(): pass\n',
    ],
)
def test_a_marker_that_belongs_to_no_test_is_told(text: str) -> None:
    assert len(read(text).problems) == 1


ROW = promises.Promise("a/b/c", "a promise")


@pytest.mark.parametrize(
    ("row", "shows"),
    [
        (ROW, ()),
        (promises.Promise("a/b/c", "a promise", not_yet="DRBD"), ("a/b/c",)),
        (promises.Promise("a/b/c", "a promise", not_yet="some day"), ()),
        (promises.Promise("a/b/c", "a promise", decided="no heading", because="so"), ()),
        (ROW, ("a/b/c", "a/b/unknown")),
        (ROW, ("a/b/c", "a/b/c")),
    ],
)
def test_a_row_without_or_with_a_wrong_state_is_told(
    row: promises.Promise, shows: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(promises, "decisions", lambda: set[str]())
    document = promises.Document("a", "A", (promises.Section("B", "", (row,)),))
    markers = promises.Markers([promises.MarkedTest("test/test_a.py::test_a", shows)])
    assert len(promises.problems([document], markers)) == 1


def test_a_test_of_another_suite_counts_once_it_has_passed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: promises.Path
) -> None:
    monkeypatch.setattr(promises, "decisions", lambda: set[str]())
    monkeypatch.setattr(promises, "RECORDED", tmp_path / "recorded.toml")
    document = promises.Document("a", "A", (promises.Section("B", "", (ROW,)),))
    name = "test/real/test_a.py::test_a"
    markers = promises.Markers([promises.MarkedTest(name, ("a/b/c",), "real")])
    assert promises.problems([document], markers)
    promises.record("real", {name}, "2026-01-02")
    promises.record("real", {"test/real/test_b.py::test_b"}, "2026-01-03")
    assert promises.problems([document], markers) == []
    assert "(real, passed 2026-01-02)" in promises.page([document], markers)


def report(test: str, outcome: str, *marks: str, when: str = "call") -> Any:
    facts = dict.fromkeys(("passed", "failed", "skipped"), False) | {outcome: True}
    return SimpleNamespace(nodeid=test, keywords=dict.fromkeys(marks, 1), when=when, **facts)


@pytest.mark.parametrize("demanded", [True, False])
def test_a_run_in_which_nothing_may_be_missing_fails_for_a_marked_test_that_was_left_out(
    monkeypatch: pytest.MonkeyPatch, *, demanded: bool
) -> None:
    for name in runs.REQUIREMENTS:
        monkeypatch.setenv(name, "1" if demanded else "")
    watch = runs.MarkedRuns()
    for found in (
        report("test_a.py::test_a[1]", "skipped", "shows", when="setup"),
        report("test_a.py::test_a[2]", "passed", "shows"),
        report("test_a.py::test_b", "skipped", "shows", when="setup"),
        report("test_a.py::test_c", "skipped", when="setup"),
        report("test_a.py::test_d", "skipped", "shows", "real", when="setup"),
    ):
        watch.pytest_runtest_logreport(found)
    watch.pytest_collectreport(report("test/unit/house/test_conformance.py", "skipped"))
    session: Any = SimpleNamespace(config=SimpleNamespace(), exitstatus=0)
    watch.pytest_sessionfinish(session)
    assert watch.not_shown() == ["test/unit/house/test_conformance.py", "test_a.py::test_b"]
    assert bool(session.exitstatus) is demanded


def test_what_another_suite_showed_is_written_down(
    monkeypatch: pytest.MonkeyPatch, tmp_path: promises.Path
) -> None:
    monkeypatch.setattr(promises, "RECORDED", tmp_path / "recorded.toml")
    monkeypatch.setenv("GANETI_TEST_REAL", "1")
    watch = runs.MarkedRuns()
    watch.pytest_runtest_logreport(report("test/real/test_a.py::test_a", "passed", "shows", "real"))
    watch.pytest_runtest_logreport(report("test/real/test_a.py::test_b", "passed", "shows", "real"))
    watch.pytest_runtest_logreport(
        report("test/real/test_a.py::test_b", "failed", "shows", "real", when="teardown")
    )
    session: Any = SimpleNamespace(config=SimpleNamespace(), exitstatus=0)
    watch.pytest_sessionfinish(session)
    assert list(promises.read_recorded()) == ["test/real/test_a.py::test_a"]
