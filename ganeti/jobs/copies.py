"""How many copies of a record count as enough.

With C master candidates, the master included, a record counts when it is on W = ceil(C / 2) of
them, the master's own copy counted: of two candidates one is enough, so that a two-node cluster
goes on alone; of three, two.

Source: ARCHITECTURE, invariant 9.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

# Opcodes that mend a lack of candidates, so they are accepted with fewer copies.
MENDING_OPS: Final = frozenset({"OP_NODE_SET_PARAMS"})


def copies_needed(candidate_count: int) -> int:
    """Return how many copies, the master's own included, make a record count."""
    return max(1, (candidate_count + 1) // 2)


def describe_shortage(what: str, copies: int, needed: int, missing: Collection[str]) -> str:
    """Say which candidates did not answer, and what to type."""
    names = ", ".join(sorted(missing)) or "none known"
    name = min(missing, default="NODE")
    return (
        f"{what} is on {copies} of the {needed} master candidates that it has to be on; not"
        f" reached: {names}. Repair them, or take one out with"
        f" 'gnt-node modify --offline=yes {name}' or promote another with"
        " 'gnt-node modify --master-candidate=yes NODE'"
    )


def only_mends(inputs: Sequence[dict[str, object]]) -> bool:
    """Tell whether a job does nothing but change which nodes are candidates or offline."""
    return all(
        item.get("OP_ID") in MENDING_OPS
        and any(item.get(key) is not None for key in ("offline", "master_candidate", "drained"))
        for item in inputs
    )
