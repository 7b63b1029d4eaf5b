"""How many copies of a record count as enough.

With C master candidates, the master included, a record counts when it is on W = ceil(C / 2) of
them, the master's own copy counted: of two candidates one is enough, so that a two-node cluster
goes on alone; of three, two.  Where high availability is on, both of two are needed, until it is
recorded that one goes on alone (`ganeti.store.lease`).

Source: ARCHITECTURE, invariant 9.
"""

from __future__ import annotations

from collections.abc import Iterable


def copies_needed(candidate_count: int) -> int:
    """Return how many copies, the master's own included, make a record count."""
    return max(1, (candidate_count + 1) // 2)


class Tally:
    """How many candidates have something.

    Args:
        others: names of the candidates besides the master, which has it.
        reached: names of those of them that have it as well.
        needed: how many copies make it count, if that is not `copies_needed`.
    """

    def __init__(
        self, others: Iterable[str], reached: Iterable[str], needed: int | None = None
    ) -> None:
        others = frozenset(others)
        self.missing = others - frozenset(reached)
        self.copies = 1 + len(others) - len(self.missing)
        self.needed = copies_needed(len(others) + 1) if needed is None else needed

    @property
    def is_enough(self) -> bool:
        """Whether it counts."""
        return self.copies >= self.needed

    def shortage(self, what: str) -> str:
        """Return a text that names the candidates without a copy and the command to type."""
        names = ", ".join(sorted(self.missing)) or "none known"
        name = min(self.missing, default="NODE")
        return (
            f"{what} is on {self.copies} of the {self.needed} master candidates that it has to be"
            f" on; not reached: {names}. Repair them, or take one out with"
            f" 'gnt-node modify --offline=yes {name}' or promote another with"
            " 'gnt-node modify --master-candidate=yes NODE'"
        )
