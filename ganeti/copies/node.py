"""The versions of files that one node should have and has, and the time of its next trial.

Theory of operation.  A caller that copies files to nodes only says which version of a
file a node should have.  Nothing is queued: a newer version takes the place of an older one that
has not been sent.
Whenever the node can be called, everything that it lacks goes out in one *trip*; a file goes with
one trip at a time, so versions arrive in order.

A trip ends in one of two ways.  The node answers: it has the files, or refuses some of them; those
rest for a while.  Or it does not answer: then nobody knows whether the files arrived, or still
will, after newer ones perhaps.  Such a file is *in doubt*: the next acknowledgement only ends the
doubt, the one after that counts.  The node is *missing* until it answers again.  It is tried
again and again, less and less often, with nothing but a question first.

A node whose trip takes long is *set aside*: a write that waits for copies goes on without it.  The
trip itself goes on, as the node may only be slow, and the node is asked beside it whether it is
there.  If it answers and the trip still does not end, the trip is cut short, as the files got lost
on the way.  Each cut gives the next trip twice the time, so a slow line gets everything in the end.

Times are seconds of a monotonic clock, given by the caller.

Source: ARCHITECTURE, invariants 8 and 9.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping
from typing import Final

from msgspec import Struct

# A node that needs longer for a small file is set aside.
PATIENCE_S: Final = 0.5
# Each connection costs a handshake at both ends; a few carry all that a disk can take.
TRIPS_MAX: Final = 3
# A trip that takes so long is looked after.
OVERDUE_S: Final = 1.5
RETRY_DELAYS_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0)

Versions = Mapping[str, int]
Wanted = Mapping[str, Versions]  # by name of the node


class Trip(Struct, frozen=True, eq=False):
    """Versions of files on their way; without any it only asks whether the node is there."""

    versions: Versions
    begun_s: float


class NodeCopies:
    """One node.

    Attributes:
        wanted: versions that the node should have and has not, by file.
        has: versions that the node has acknowledged, by file.
        in_doubt: files of which an older version may still arrive.
        is_missing: the node did not answer the last time, or refused everything.
        error: the last failure, as text; None since the node took something.
        silent_delay_s_max: longest time between two tries of a node that does not answer.
        refused_delay_s_max: the same for a node that refuses: each try sends whole files.
    """

    def __init__(
        self,
        *,
        trips_max: int = TRIPS_MAX,
        silent_delay_s_max: float = 1.5,
        refused_delay_s_max: float = 15.0,
    ) -> None:
        self.wanted: dict[str, int] = {}
        self.has: dict[str, int] = {}
        self.in_doubt: set[str] = set()
        self.is_missing = False
        self.error: str | None = None
        self.silent_delay_s_max = silent_delay_s_max
        self.refused_delay_s_max = refused_delay_s_max
        self._trips_max = trips_max
        self._trips: list[Trip] = []
        self._on_the_way: set[str] = set()
        self._refused: set[str] = set()
        self._cuts = 0
        self._cut_files: set[str] = set()
        self._failures = 0
        self._was_silent = False
        self._not_before_s = 0.0

    # The files that it should have.

    def want(self, file: str, version: int) -> None:
        """Note the version of a file that the node should have; never goes back."""
        if version > max(self.has.get(file, 0), self.wanted.get(file, 0)):
            self.wanted[file] = version
            self._refused.discard(file)

    def forget(self, files: Collection[str]) -> None:
        """Forget the versions of these files that the node should have and has."""
        for file in files:
            self.wanted.pop(file, None)
            self.has.pop(file, None)
            self._refused.discard(file)
            self._cut_files.discard(file)
            if file in self._on_the_way:
                self.in_doubt.add(file)  # what is acknowledged next was made for what it had

    def lacks_any(self, versions: Versions) -> bool:
        """Tell whether the node lacks one of these versions of files that it should have."""
        return any(
            file in self.wanted and not self.has_version(file, version)
            for file, version in versions.items()
        )

    def has_version(self, file: str, version: int) -> bool:
        """Tell whether the node has this version of a file, or a newer one."""
        return self.has.get(file, 0) >= version

    # When it is tried.

    def next_trip(
        self, now_s: float, *, may_send: Callable[[str], bool], files_max: int
    ) -> Trip | None:
        """Begin a trip, unless there is nothing to do now.

        Args:
            may_send: tells whether a file can be sent at this time.
        """
        if self._has_all_trips:
            return None
        rests = now_s < self._not_before_s
        if rests and self.is_missing:
            return None
        if not rests:
            self._refused.clear()
        resting = self._on_the_way | (self._refused if rests else set())
        sendable = (each for each in self.wanted.items() if each[0] not in resting)
        sent = (each for each in sendable if may_send(each[0]))
        versions = dict(itertools.islice(sent, files_max))
        if not versions and not self.is_missing:
            return None
        trip = Trip(versions, now_s)
        self._trips.append(trip)
        self._on_the_way.update(versions)
        return trip

    @property
    def _has_all_trips(self) -> bool:
        return len(self._trips) >= (1 if self.is_missing else self._trips_max)

    def retry_s(self) -> float | None:
        """Return when there is something to try again; None if that is not a matter of time."""
        if self._has_all_trips:
            return None  # the end of one comes first
        return self._not_before_s if self.is_missing or self._refused else None

    def hurry(self) -> None:
        """Try the node again at once, even if it failed to answer a moment ago."""
        self._not_before_s = 0.0

    def rests(self, now_s: float) -> bool:
        """Tell whether the node has failed, and is not being tried at this moment."""
        return self.is_missing and not self._trips and now_s < self._not_before_s

    def patience_left_s(self, now_s: float) -> float:
        """Return how much longer the node is waited for; 0 if it is set aside."""
        if self.is_missing:
            return 0.0
        begun_s = min((trip.begun_s for trip in self._trips), default=now_s)
        return max(0.0, begun_s + PATIENCE_S - now_s)

    def time_beside_s(self) -> float:
        """Return how long a trip goes on after the node has answered something else."""
        return float(PATIENCE_S * 2**self._cuts)

    # How a trip ended.

    def arrived(
        self, trip: Trip, taken: Versions, refused: Mapping[str, str], now_s: float
    ) -> None:
        """Note that the node answered.

        Args:
            taken: the versions that it has now, of all or some files of the trip.
            refused: files that it would not take, with the reasons; they rest for a while.
        """
        self._end(trip)
        # A small file that gets through says nothing of the large one that was cut short.
        self._cut_files.difference_update(taken)
        if not self._cut_files:
            self._cuts = 0
        for file, version in taken.items():
            self._acknowledged(file, version)
        self.is_missing = bool(refused) and not taken
        self.error = next(iter(refused.values()), None)
        if self._was_silent or not refused:
            self._failures = 0  # whoever is back is not made to wait for having been away
        self._was_silent = False
        if refused:
            self._refused.update(file for file in refused if file in self.wanted)
            self._rest(now_s, self.refused_delay_s_max)

    def lost(self, trip: Trip, error: str, now_s: float, *, was_sent: bool = True) -> None:
        """Note that the node did not answer.

        Args:
            was_sent: the files may have arrived, or still do.
        """
        self._end(trip)
        if was_sent:
            self.in_doubt.update(trip.versions)
        self.fail(error, now_s)

    def cut(self, trip: Trip, now_s: float) -> None:
        """Note that a trip was cut short, as the node answers and this does not end."""
        self._cuts += 1
        self._cut_files.update(trip.versions)
        self.lost(trip, "what was sent got lost", now_s)
        self.hurry()

    def fail(self, error: str, now_s: float) -> None:
        """Note that the node is missing, as some other call found out."""
        self.is_missing = self._was_silent = True
        self.error = error
        self._rest(now_s, self.silent_delay_s_max)

    def _end(self, trip: Trip) -> None:
        self._trips.remove(trip)
        self._on_the_way.difference_update(trip.versions)

    def _acknowledged(self, file: str, version: int) -> None:
        if file in self.in_doubt:
            self.in_doubt.discard(file)
            return  # it stays wanted: the next acknowledgement counts
        if file not in self.wanted:
            return  # it was forgotten meanwhile
        if self.wanted[file] <= version:
            del self.wanted[file]
        self.has[file] = max(version, self.has.get(file, 0))

    def _rest(self, now_s: float, delay_s_max: float) -> None:
        delay_s = RETRY_DELAYS_S[min(self._failures, len(RETRY_DELAYS_S) - 1)]
        self._failures += 1
        self._not_before_s = now_s + min(delay_s, delay_s_max)
