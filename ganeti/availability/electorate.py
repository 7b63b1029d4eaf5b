"""By which list of nodes votes are counted, and when that list may change.  Pure.

A node X that lives on by its friends needs most nodes of the list that it knows, the master that
proves X dead most nodes of its own.  The proof (`ganeti.availability.proof`) needs a node in both
majorities.  Two lists that differ by one node have such a node: of n nodes it takes n // 2 + 1, and
n // 2 + (n + 1) // 2 + 2 is more than n + 1.  Lists that differ by several nodes need not.  So

- a node vouches only for one that counts by the same list;
- the list changes by one node at a time, and only when most nodes of the last one know it, or all
  that are not dead.

Let the lists be L0, L1, ... in turn, X know Lj and the master Lk, with k > j + 1.  Before L(j+2)
came, most nodes of L(j+1) knew that one, and they keep to it or to a later one.  The friends of X
are most nodes of Lj, which differs from it by one node; so one of them is among these, knows a
later list than X does, and does not vouch.  (What was answered and condemned before does not count:
the master begins the proof anew when its list changes.)  So that dead nodes can be removed when few
are left, it is enough, too, that all know the list that are not proved dead: then only dead ones
count by an earlier list, and only until they hear of the new one when they are back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ganeti.availability.keeper import is_dead
from ganeti.availability.records import Guard, Loss
from ganeti.jobs.votes import votes_needed

_DIGITS: Final = 16


def digest_of(nodes: Iterable[str]) -> str:
    """Return what is the same on all who count by these nodes."""
    return hashlib.sha256("\n".join(sorted(nodes)).encode()).hexdigest()[:_DIGITS]


def counts_alike(theirs: str, own: str) -> bool:
    """Tell whether somebody counts by the same nodes; agents of earlier versions do not say."""
    return theirs in ("", own)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why the list may not change now.

    Attributes:
        gone: nodes that neither hold a lease nor are proved dead.
        behind: nodes that are there, and count by another list.
    """

    gone: Collection[str]
    behind: Collection[str]


def obstacle(
    nodes: Collection[str],
    present: Collection[str],
    guards: Mapping[str, Guard],
    losses: Mapping[str, Loss],
) -> Obstacle | None:
    """Return what speaks against another list than this one; None for nothing.

    A dead node may come back and count by its old list, so it counts only where no other does that.

    Args:
        present, guards, losses: what etcd has, by node.
    """
    own = digest_of(nodes)
    gone, behind, dead = list[str](), list[str](), list[str]()
    for name in nodes:
        guard, loss = guards.get(name), losses.get(name)
        if name in present:
            if guard is not None and not counts_alike(guard.nodes, own):
                behind.append(name)
        else:
            (dead if _is_dead(guard, loss) else gone).append(name)
    others = [*gone, *behind, *dead]
    is_most = len(nodes) - len(others) >= votes_needed(len(nodes))
    return None if is_most or others == dead else Obstacle(gone, behind)


def _is_dead(guard: Guard | None, loss: Loss | None) -> bool:
    """Tell whether the last boot of a node that etcd knows was proved dead."""
    if guard is None:
        return loss is not None and loss.proof is not None
    return guard.is_dead or is_dead(loss, guard.boot_id)
