"""What the watcher does about nodes that do not answer.  Pure; off unless the cluster wants it.

Each run tries a silent node over SSH.  After so many tries as the cluster says it is set offline,
unless it is the majority of the nodes that is silent: then the master may be the one that is cut
off.  A node that is offline and answers again is offered back, by a tag and a line of the log; to
take it back is left to a person.

Under high availability no node is set offline here, as nobody proves the death of one that is: the
maintenance daemon does that, once it is proved dead.

Source: design of Ganeti 2.0, "Node flags", "offline flag".
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from ganeti.base.text import natural_sorted
from ganeti.watcher.planning import Note

OFFER_TAG: Final = "ganeti:watcher:answers-again"


class NodeWork(StrEnum):
    """The things that are done about a node; the text reads after "to"."""

    TRY = "start its daemon over SSH"
    SET_OFFLINE = "set it offline"
    OFFER = "offer it back"
    WITHDRAW = "withdraw that offer"


class SilentRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many runs have tried a node, and whether it was offered back."""

    tries: int = 0
    is_offered: bool = False


class NodesMemory(msgspec.Struct, frozen=True):
    """The memory of the watcher about all nodes."""

    node: Mapping[str, SilentRecord] = {}


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """Whether a node is offline, and why it does not answer; "" if it does."""

    is_offline: bool
    silence: str = ""


@dataclass(frozen=True, slots=True)
class NodesPlan:
    """What is done, {node: work}, and what is remembered then."""

    work: Mapping[str, NodeWork]
    memory: NodesMemory
    notes: tuple[Note, ...]


def plan_nodes(
    memory: NodesMemory,
    nodes: Mapping[str, NodeAnswer],
    tries_max: int,
    busy: Collection[str] = (),
    *,
    is_available: bool = False,
) -> NodesPlan:
    """Decide what is to be done about the nodes; the master is none of them.

    Args:
        tries_max: how many runs try a silent node before it is set offline.
        busy: nodes that jobs are about.
        is_available: high availability is on.
    """
    online = [each for each in nodes.values() if not each.is_offline]
    silent_count = sum(bool(each.silence) for each in online)
    sees_most = 2 * silent_count < len(online) + 1  # the master itself answers
    work: dict[str, NodeWork] = {}
    records: dict[str, SilentRecord] = {}
    notes: list[Note] = []
    for name in natural_sorted(nodes):
        node, known = nodes[name], memory.node.get(name, SilentRecord())
        if node.is_offline:
            chosen, record, found = _offline(name, node, known)
        else:
            is_left = name in busy or not sees_most or is_available
            chosen, record, found = _online(name, node, known, tries_max, is_left=is_left)
        notes += found
        if chosen is not None:
            work[name] = chosen
        if record != SilentRecord():
            records[name] = record
    if not sees_most and not is_available:
        text = f"{silent_count} of {len(online) + 1} nodes are silent: setting none of them offline"
        notes.append((logging.ERROR, text))
    return NodesPlan(work, NodesMemory(records), tuple(notes))


def _online(
    name: str, node: NodeAnswer, known: SilentRecord, tries_max: int, *, is_left: bool
) -> tuple[NodeWork | None, SilentRecord, list[Note]]:
    if not node.silence:
        back = [(logging.INFO, f"Node {name} answers again")] if known.tries else []
        return (NodeWork.WITHDRAW if known.is_offered else None), SilentRecord(), back
    if known.tries < tries_max:
        tries = known.tries + 1
        text = (
            f"Node {name} is silent ({node.silence}): trying it over SSH ({tries} of {tries_max})"
        )
        return NodeWork.TRY, SilentRecord(tries), [(logging.WARNING, text)]
    text = f"Node {name} is still silent after {known.tries} tries"
    if is_left:
        return NodeWork.TRY, known, [(logging.WARNING, f"{text}; trying it over SSH")]
    return NodeWork.SET_OFFLINE, known, [(logging.ERROR, f"{text}: setting it offline")]


def _offline(
    name: str, node: NodeAnswer, known: SilentRecord
) -> tuple[NodeWork | None, SilentRecord, list[Note]]:
    if not node.silence:
        if known.is_offered:
            return None, known, []
        text = f"Node {name} is offline and answers again; to take it back:"
        text += f" gnt-node modify --offline=no {name}"
        return NodeWork.OFFER, SilentRecord(is_offered=True), [(logging.WARNING, text)]
    if known.is_offered:
        text = f"Node {name} is offline and does not answer any more"
        return NodeWork.WITHDRAW, SilentRecord(), [(logging.WARNING, text)]
    return None, SilentRecord(), []
