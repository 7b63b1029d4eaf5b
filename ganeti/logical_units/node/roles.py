"""What a change of a node's flags means: plain decisions over plain values.

A node is at most one of candidate, drained and offline.  Setting one of them clears the others;
whatever changes without having been asked for is explained.

Source: design-2.0, "Node flags"; opcodes.json, OP_NODE_SET_PARAMS.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError

FLAGS: Final = ("master_candidate", "drained", "offline")


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags of a node; at most one of the first three is set."""

    master_candidate: bool
    drained: bool
    offline: bool
    master_capable: bool
    vm_capable: bool


@dataclass(frozen=True, slots=True)
class FlagPlan:
    """New values of the flags that change, and why those change that nobody asked for."""

    changes: Mapping[str, bool]
    reasons: Mapping[str, str]


def plan_flags(
    name: str, old: Flags, asked: Mapping[str, bool], *, is_master: bool, has_room: bool
) -> FlagPlan:
    """Decide the new flags.

    Args:
        name: the node's name, for errors.
        asked: the flags given, of all five.
        has_room: one more candidate is wanted.

    Raises:
        OpPrereqError: the flags contradict each other, or the node cannot have them.
    """
    chosen = [flag for flag in FLAGS if asked.get(flag)]
    if len(chosen) > 1:
        raise OpPrereqError(
            f"node {name!r}: only one of {' and '.join(chosen)} can be set", ErrorCode.INVAL
        )
    _check_master(name, asked, chosen, is_master=is_master)
    capable = asked.get("master_capable", old.master_capable)
    if "master_candidate" in chosen and not capable:
        raise OpPrereqError(
            f"node {name!r} is not master_capable, so it cannot be a master candidate",
            ErrorCode.STATE,
        )
    new = {flag: getattr(old, flag) for flag in FLAGS} | {
        flag: asked[flag] for flag in FLAGS if flag in asked
    }
    reasons: dict[str, str] = {}
    for flag in FLAGS:
        if chosen and flag not in chosen and new[flag]:
            new[flag] = False
            reasons[flag] = f"auto-unset due to {chosen[0]}"
    if new["master_candidate"] and not capable:
        new["master_candidate"] = False
        reasons["master_candidate"] = "auto-demotion due to not being master capable"
    if _is_freed(old, new, asked) and capable and has_room:
        new["master_candidate"] = True
        reasons["master_candidate"] = "auto-promotion, there is room among the candidates"
    new |= {flag: asked[flag] for flag in ("master_capable", "vm_capable") if flag in asked}
    changes = {flag: value for flag, value in new.items() if getattr(old, flag) != value}
    return FlagPlan(changes, {flag: why for flag, why in reasons.items() if flag in changes})


def _check_master(
    name: str, asked: Mapping[str, bool], chosen: list[str], *, is_master: bool
) -> None:
    if not is_master:
        return
    loses: list[str] = [flag for flag in chosen if flag != "master_candidate"]
    loses += [flag for flag in ("master_candidate", "master_capable") if asked.get(flag) is False]
    if loses:
        raise OpPrereqError(
            f"node {name!r} is the master node, {loses[0]} cannot be changed on it; fail the master"
            " role over first ('gnt-cluster master-failover')",
            ErrorCode.INVAL,
        )


def _is_freed(old: Flags, new: Mapping[str, bool], asked: Mapping[str, bool]) -> bool:
    """Tell whether a node that could be no candidate now is an ordinary one."""
    if any(new[flag] for flag in FLAGS) or asked.get("master_candidate") is False:
        return False
    was_bound = old.drained or old.offline
    became_capable = bool(asked.get("master_capable")) and not old.master_capable
    return was_bound or became_capable
