"""A model of etcd for the simulator: keys, leases, and a leader that needs most members."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ganeti.jobs.votes import votes_needed

ELECTION_S: Final = 1.5

Reaches = Callable[[str, str], bool]
"""Whether two nodes reach each other, and both run."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A value, the revision that wrote it, and the owner of the lease it is bound to."""

    value: object
    revision: int
    lease: str = ""


@dataclass(slots=True)
class EtcdModel:
    """The members' common state.

    Attributes:
        leases: {owner: when it ends}.
        lease_s: {owner: how long it lasts}.
    """

    members: Sequence[str]
    entries: dict[str, Entry] = field(default_factory=dict)
    leases: dict[str, float] = field(default_factory=dict)
    lease_s: dict[str, float] = field(default_factory=dict)
    stopped: set[str] = field(default_factory=set)
    leader: str | None = None
    _vacant_s: float = 0.0
    _revision: int = 0

    def tick(self, now_s: float, reaches: Reaches) -> None:
        """Elect a leader if there is none, and forget what belongs to ended leases."""
        if self.leader is None or not self._can_lead(self.leader, reaches):
            if self.leader is not None:
                self.leader, self._vacant_s = None, now_s
            able = [name for name in self.members if self._can_lead(name, reaches)]
            if not able:
                self._vacant_s = now_s
            elif now_s >= self._vacant_s + ELECTION_S:
                self.leader = able[0]
                # A new leader gives all leases their whole time.
                self.leases = {name: now_s + self.lease_s[name] for name in self.leases}
        if self.leader is not None:
            for owner in [name for name, end_s in self.leases.items() if now_s >= end_s]:
                del self.leases[owner]
                for key in [key for key, each in self.entries.items() if each.lease == owner]:
                    del self.entries[key]

    def answers(self, node: str, reaches: Reaches) -> bool:
        """Tell whether a node gets an answer from a member that follows the leader."""
        leader = self.leader
        return leader is not None and any(
            reaches(node, name) and reaches(name, leader)
            for name in self.members
            if name not in self.stopped
        )

    def keep_alive(self, owner: str, now_s: float) -> bool:
        """Renew a lease; returns whether it still exists."""
        if owner not in self.leases:
            return False
        self.leases[owner] = now_s + self.lease_s[owner]
        return True

    def grant(self, owner: str, now_s: float, lease_s: float) -> None:
        """Give a new lease, and bind to it what was bound to the one before."""
        self.lease_s[owner] = lease_s
        self.leases[owner] = now_s + lease_s

    def put(self, key: str, value: object, lease: str = "") -> None:
        """Write a key."""
        self._revision += 1
        self.entries[key] = Entry(value, self._revision, lease)

    def get(self, key: str) -> object | None:
        """Return the value of a key."""
        found = self.entries.get(key)
        return None if found is None else found.value

    def revision(self, key: str) -> int:
        """Return the revision that wrote a key; 0 where there is none."""
        found = self.entries.get(key)
        return 0 if found is None else found.revision

    def delete(self, key: str) -> None:
        """Take a key away."""
        self.entries.pop(key, None)

    def _can_lead(self, name: str, reaches: Reaches) -> bool:
        others = [each for each in self.members if each not in self.stopped]
        if name not in others:
            return False
        return sum(reaches(name, each) for each in others) >= votes_needed(len(self.members))
