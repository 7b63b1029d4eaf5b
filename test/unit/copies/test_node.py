"""What one node should have and has: versions, trips, doubt and rest."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ganeti.copies.node import PATIENCE_S, NodeCopies, Trip

FILES = ("a", "b", "c")


def begin(copies: NodeCopies, now_s: float = 0.0, files_max: int = 9) -> Trip | None:
    return copies.next_trip(now_s, may_send=lambda _: True, files_max=files_max)


def must_begin(copies: NodeCopies, now_s: float = 0.0) -> Trip:
    trip = begin(copies, now_s)
    assert trip is not None
    return trip


def test_everything_that_is_wanted_goes_at_once_each_file_in_its_newest_version() -> None:
    copies = NodeCopies()
    copies.want("a", 1)
    copies.want("a", 2)
    copies.want("b", 3)
    copies.want("b", 1)
    assert must_begin(copies).versions == {"a": 2, "b": 3}
    assert begin(copies) is None


def test_a_file_goes_with_one_trip_at_a_time() -> None:
    copies = NodeCopies()
    copies.want("a", 1)
    first = must_begin(copies)
    copies.want("a", 2)
    copies.want("b", 3)
    assert must_begin(copies).versions == {"b": 3}
    copies.arrived(first, first.versions, {}, 0.0)
    assert copies.has_version("a", 1)
    assert not copies.has_version("a", 2)
    assert must_begin(copies).versions == {"a": 2}


def test_a_file_that_cannot_be_had_now_stays_wanted() -> None:
    copies = NodeCopies()
    copies.want("a", 1)
    assert copies.next_trip(0.0, may_send=lambda _: False, files_max=9) is None
    assert must_begin(copies).versions == {"a": 1}


def test_after_no_answer_the_first_acknowledgement_does_not_count() -> None:
    copies = NodeCopies()
    copies.want("a", 1)
    copies.lost(must_begin(copies), "hangs", 10.0)
    copies.want("a", 2)
    assert begin(copies, 10.1) is None
    again = must_begin(copies, 10.6)
    copies.arrived(again, again.versions, {}, 10.7)
    assert not copies.has_version("a", 2), "version 1 may still arrive after it"
    last = must_begin(copies, 10.7)
    copies.arrived(last, last.versions, {}, 10.8)
    assert copies.has_version("a", 2)
    assert begin(copies, 10.9) is None


def test_a_missing_node_is_tried_even_without_files_and_less_and_less_often() -> None:
    copies = NodeCopies(silent_delay_s_max=4.0)
    now, tries = 0.0, []
    copies.fail("refused", now)
    for _ in range(5):
        now = copies.retry_s() or 0.0
        tries.append(now)
        trip = must_begin(copies, now)
        assert not trip.versions
        assert begin(copies, now) is None, "one at a time"
        copies.lost(trip, "refused", now, was_sent=False)
    assert [later - now for now, later in itertools.pairwise(tries)] == [1, 2, 4, 4]
    copies.hurry()
    trip = must_begin(copies, now)
    copies.arrived(trip, {}, {}, now)
    assert not copies.is_missing
    assert copies.retry_s() is None
    assert copies.error is None


def test_a_refused_file_rests_and_others_go() -> None:
    copies = NodeCopies()
    copies.want("a", 1)
    copies.want("b", 1)
    copies.arrived(must_begin(copies), {"b": 1}, {"a": "is a directory"}, 0.0)
    assert not copies.is_missing
    assert copies.error == "is a directory"
    copies.want("c", 1)
    assert must_begin(copies, 0.1).versions == {"c": 1}
    assert must_begin(copies, copies.retry_s() or 0.0).versions == {"a": 1}


def test_a_refused_file_waits_for_the_end_of_a_trip_that_leaves_room_for_no_other() -> None:
    copies = NodeCopies(trips_max=1)
    copies.want("a", 1)
    copies.want("b", 1)
    copies.arrived(must_begin(copies), {"b": 1}, {"a": "no space"}, 0.0)
    retry_s = copies.retry_s() or 0.0
    copies.want("b", 2)
    trip = must_begin(copies, 0.1)
    assert begin(copies, retry_s) is None
    assert copies.retry_s() is None, "the courier would look again and again"
    copies.arrived(trip, {"b": 2}, {}, retry_s)
    assert must_begin(copies, retry_s).versions == {"a": 1}


def test_a_newer_version_of_a_refused_file_goes_at_once() -> None:
    copies = NodeCopies()
    copies.want("a", 1)
    copies.want("b", 1)
    copies.arrived(must_begin(copies), {"b": 1}, {"a": "no"}, 0.0)
    copies.want("a", 2)
    assert must_begin(copies, 0.1).versions == {"a": 2}


def test_a_node_that_refuses_everything_is_missing() -> None:
    copies = NodeCopies()
    copies.want("a", 1)
    copies.arrived(must_begin(copies), {}, {"a": "disk full"}, 0.0)
    assert copies.is_missing
    assert copies.rests(0.1)
    trip = must_begin(copies, 1.0)
    assert trip.versions == {"a": 1}
    assert not copies.rests(1.0)


def test_a_node_that_refuses_after_it_was_away_is_tried_again_soon() -> None:
    copies = NodeCopies()
    copies.want("a", 1)
    now = 0.0
    for _ in range(9):
        copies.lost(must_begin(copies, now), "refused", now, was_sent=False)
        now = copies.retry_s() or 0.0
    copies.arrived(must_begin(copies, now), {}, {"a": "in use"}, now)
    assert copies.retry_s() == now + 0.5


def test_each_trip_that_is_cut_short_leaves_the_next_one_twice_the_time() -> None:
    copies = NodeCopies()
    copies.want("a", 1)
    times = []
    for _ in range(3):
        times.append(copies.time_beside_s())
        trip = must_begin(copies)
        copies.cut(trip, 0.0)
        assert copies.in_doubt == {"a"}
        assert copies.retry_s() == 0.0, "the node is there"
    assert times == [PATIENCE_S, 2 * PATIENCE_S, 4 * PATIENCE_S]
    trip = must_begin(copies)
    copies.arrived(trip, trip.versions, {}, 0.0)
    assert copies.time_beside_s() == PATIENCE_S


def test_a_small_file_that_arrives_does_not_shorten_the_next_trip_of_a_large_one() -> None:
    copies = NodeCopies()
    copies.want("large", 1)
    for cuts in range(1, 4):
        copies.cut(must_begin(copies), 0.0)
        copies.want("small", cuts)
        trip = must_begin(copies)
        copies.arrived(trip, {"small": cuts}, {}, 0.0)
        assert copies.time_beside_s() == PATIENCE_S * 2**cuts
    trip = must_begin(copies)
    copies.arrived(trip, trip.versions, {}, 0.0)
    trip = must_begin(copies)  # the second one ends the doubt
    copies.arrived(trip, trip.versions, {}, 0.0)
    assert copies.time_beside_s() == PATIENCE_S


def test_a_slow_node_is_set_aside_and_is_back_with_its_answer() -> None:
    copies = NodeCopies()
    assert copies.patience_left_s(5.0) == PATIENCE_S
    copies.want("a", 1)
    trip = must_begin(copies, 5.0)
    assert copies.patience_left_s(5.0 + PATIENCE_S / 2) == PATIENCE_S / 2
    assert copies.patience_left_s(9.0) == 0
    copies.arrived(trip, trip.versions, {}, 9.0)
    assert copies.patience_left_s(9.0) == PATIENCE_S
    copies.fail("gone", 9.0)
    assert copies.patience_left_s(9.0) == 0


def test_what_is_forgotten_while_it_is_under_way_is_not_known_to_be_there() -> None:
    copies = NodeCopies()
    copies.want("a", 7)
    trip = must_begin(copies)
    copies.forget(["a"])
    copies.arrived(trip, trip.versions, {}, 0.0)
    copies.want("a", 1)
    assert must_begin(copies).versions == {"a": 1}


def test_what_is_forgotten_and_wanted_again_while_it_is_under_way_goes_again() -> None:
    copies = NodeCopies()
    copies.want("a", 7)
    trip = must_begin(copies)
    copies.forget(["a"])
    copies.want("a", 7)
    copies.arrived(trip, trip.versions, {}, 0.0)
    assert not copies.has_version("a", 7), "it was made for what the node had before"
    again = must_begin(copies)
    copies.arrived(again, again.versions, {}, 0.0)
    assert copies.has_version("a", 7)


@given(st.integers(1, 5), st.integers(0, 12))
def test_a_trip_has_so_many_files_at_most(files_max: int, count: int) -> None:
    copies = NodeCopies()
    for number in range(count):
        copies.want(f"job-{number}", 1)
    sent = 0
    while (trip := begin(copies, files_max=files_max)) is not None:
        assert len(trip.versions) <= files_max
        copies.arrived(trip, trip.versions, {}, 0.0)
        sent += len(trip.versions)
    assert sent == count


@dataclass
class Node:
    """A node that takes requests late: those that nobody waits for any more, too."""

    files: dict[str, int] = field(default_factory=dict)
    abandoned: list[dict[str, int]] = field(default_factory=list)

    def take(self, versions: dict[str, int]) -> None:
        self.files.update(versions)

    def take_abandoned(self) -> None:
        """A node works off what it has accepted before it answers anything newer."""
        for versions in self.abandoned:
            self.take(versions)
        self.abandoned.clear()


class Life(RuleBasedStateMachine):
    """Any order of wishes, answers, refusals and silence."""

    def __init__(self) -> None:
        super().__init__()
        self.copies = NodeCopies()
        self.node = Node()
        self.under_way: list[Trip] = []
        self.newest: dict[str, int] = {}
        self.now = 0.0

    @rule(file=st.sampled_from(FILES))
    def want(self, file: str) -> None:
        self.newest[file] = self.newest.get(file, 0) + 1
        self.copies.want(file, self.newest[file])

    @rule(seconds=st.sampled_from([0.1, 1.0, 20.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def begin(self) -> None:
        trip = begin(self.copies, self.now)
        if trip is not None:
            going = [file for each in self.under_way for file in each.versions]
            assert not set(going) & set(trip.versions), "each file with one trip at a time"
            self.under_way.append(trip)

    def _end(self, end: Callable[[Trip], None], number: int) -> None:
        if self.under_way:
            end(self.under_way.pop(number % len(self.under_way)))

    @rule(number=st.integers(0, 3), refused=st.sets(st.sampled_from(FILES)))
    def answer(self, number: int, refused: set[str]) -> None:
        def end(trip: Trip) -> None:
            taken = {file: v for file, v in trip.versions.items() if file not in refused}
            doubtful = {file for file in taken if file in self.copies.in_doubt}
            self.node.take(taken)
            reasons = {file: "no" for file in trip.versions if file in refused}
            self.copies.arrived(trip, taken, reasons, self.now)
            if doubtful:
                self.node.take_abandoned()  # later than what was just answered

        self._end(end, number)

    @rule(number=st.integers(0, 3), arrives=st.booleans())
    def silence(self, number: int, arrives: bool) -> None:
        def end(trip: Trip) -> None:
            if arrives:
                self.node.abandoned.append(dict(trip.versions))
            self.copies.lost(trip, "no answer", self.now)

        self._end(end, number)

    @invariant()
    def a_version_that_counts_stays(self) -> None:
        """Not even a request that nobody waits for any more takes it back."""
        for file, version in self.copies.has.items():
            assert version <= self.newest[file]
            late = [each[file] for each in self.node.abandoned if file in each]
            assert min([self.node.files[file], *late]) >= version

    def teardown(self) -> None:
        """When the node answers, it gets everything, within a few trips."""
        for trip in self.under_way:
            self.node.take(dict(trip.versions))
            self.copies.arrived(trip, trip.versions, {}, self.now)
        self.node.take_abandoned()
        for _ in range(10):
            self.now += 100.0
            while next_trip := begin(self.copies, self.now):
                self.node.take(dict(next_trip.versions))
                self.copies.arrived(next_trip, next_trip.versions, {}, self.now)
        assert self.node.files == self.newest
        assert all(self.copies.has_version(file, v) for file, v in self.newest.items())


TestLife = Life.TestCase
