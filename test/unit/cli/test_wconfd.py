"""Short words for WConfD's methods, and its answers as people read them."""

from __future__ import annotations

from typing import Any

import pytest

from ganeti.base.errors import OpPrereqError, ProtocolError
from ganeti.cli.debug import wconfd
from ganeti.cli.debug.opcodes import _pending, _priorities

ONE, TWO = [7, "/l/one", 11], [8, "/l/two", 12]
OWNERS = [["cluster/BGL", [[ONE, "shared"], [["luxid-1", "/l", 3], "shared"]]], ["node/n1", []]]
WAITERS = [[-10, TWO, [["cluster/BGL", "exclusive"], ["node/n1", "release"]]]]
ANSWERS: dict[str, Any] = {
    "listLocksWaitingStatus": [OWNERS, WAITERS],
    "listAllLocksOwners": OWNERS,
    "listAllLocks": ["cluster/BGL", "node/n1"],
    "cleanupLocks": [],
    "flushConfig": [],
}


class FakeConnection:
    """Answers as WConfD does, and remembers what it was asked."""

    def __init__(self, answers: dict[str, Any] = ANSWERS) -> None:
        self.answers = answers
        self.calls: list[tuple[str, list[Any]]] = []

    def call(self, method: str, args: list[Any]) -> Any:
        self.calls.append((method, args))
        if method == "echo":
            return args[0]
        if method == "listLocks":
            return [["cluster/BGL", "shared"]] if args[0] == ONE else []
        return self.answers[method]


def say(word: str, *words: str, connection: FakeConnection | None = None) -> list[str]:
    return wconfd._short(connection or FakeConnection(), word, words)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["echo", "hello", "there"], ["hello there"]),
        (["echo"], [""]),
        (["cleanuplocks"], ["Freed the locks of dead owners."]),
        (["flushconfig"], ["The configuration is on enough master candidates."]),
        (["listalllocks"], ["cluster/BGL", "node/n1"]),
        (["listalllocksowners"], ["cluster/BGL: job 7 (shared), luxid-1 (shared)", "node/n1: "]),
        (["listlocks", "7"], ["cluster/BGL: shared"]),
        (["listlocks", "8"], ["Job 8 holds no locks; it waits for some."]),
        (["listlocks", "9"], ["Job 9 holds no locks and waits for none."]),
    ],
)
def test_short_words(words: list[str], lines: list[str]) -> None:
    assert say(*words) == lines


def test_who_waits_is_told_with_the_priority() -> None:
    assert say("listlockswaitingstatus")[2:] == [
        "job 8 waits with priority -10: cluster/BGL (exclusive), node/n1 (release)"
    ]


def test_locks_of_a_job_are_asked_for_by_its_whole_identity() -> None:
    connection = FakeConnection()
    say("listlocks", "8", connection=connection)
    assert connection.calls[-1] == ("listLocks", [TWO])


@pytest.mark.parametrize(
    "words", [["listlocks"], ["listlocks", "x"], ["listlocks", "²"], ["flushconfig", "x"]]
)
def test_wrong_words_are_refused(words: list[str]) -> None:
    with pytest.raises(OpPrereqError):
        say(*words)


def test_another_answer_is_no_surprise() -> None:
    with pytest.raises(ProtocolError):
        say("listlockswaitingstatus", connection=FakeConnection({"listLocksWaitingStatus": 3}))


def test_columns_of_the_list_of_locks() -> None:
    assert _pending([["exclusive", ["job7", "job8"]], ["shared", ["job9"]]]) == (
        "exclusive:job7,job8;shared:job9"
    )
    assert _priorities([["job8", -10], ["job7", 0], ["job9", 3]]) == "job8:high,job7:normal,job9:3"
    assert _priorities([]) == _pending([]) == "-"
