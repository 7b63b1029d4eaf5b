"""What the agents of high availability keep in etcd: its records, and the keys they stand under.

    CLUSTER/master          Mastership, bound to the lease of the master's agent
    CLUSTER/acting/NODE     Mastership: it was the master in that boot, and jobs may still run there
    CLUSTER/alone           Mastership: of two candidates this one goes on without the other
    CLUSTER/nodes/NODE      Presence, bound to the lease of the node's agent
    CLUSTER/guards/NODE     Guard: the last boot that was present, and its watchdog
    CLUSTER/losses/NODE     Loss: the node is missed, and later proved dead
    CLUSTER/fencing/NODE    Fencing: what the node's out-of-band helper answered last
    CLUSTER/pause           Pause: nobody is to act
    CLUSTER/outdated/NODE/PORT  Outdated: that node's copy of the disk whose halves talk by that
                            port lacks writes; nobody is to use it

Presence is written only while no proved loss names this boot of the node; a loss is written
only by the holder of ``master``, in a transaction that says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Final

from ganeti.objects.record import Record

MASTER_KEY: Final = "master"
ALONE_KEY: Final = "alone"
PAUSE_KEY: Final = "pause"
ACTING: Final = "acting/"
NODES: Final = "nodes/"
GUARDS: Final = "guards/"
LOSSES: Final = "losses/"
FENCING: Final = "fencing/"
OUTDATED: Final = "outdated/"
_STAYING: Final = (ACTING, GUARDS, LOSSES, FENCING, OUTDATED)  # of a node, after it has gone


class Proof(StrEnum):
    """How a node was proved dead."""

    FENCED = "fenced"  # its out-of-band helper switched it off, and says that it is off
    WATCHDOG = "watchdog"  # its watchdog has reset it, as nobody may have fed it
    DISK = "disk"  # it has written on the lease disk that it feeds its watchdog no more
    CONFIRMED = "confirmed"  # a person said so


class Mastership(Record, frozen=True, kw_only=True):
    """The node that may start a fail-over to itself, and that acts on losses."""

    node: str
    boot_id: str


class Presence(Record, frozen=True, kw_only=True):
    """A node that runs."""

    boot_id: str


class Guard(Record, frozen=True, kw_only=True):
    """What stays of a node that is not present any more; written before it is present.

    Attributes:
        watchdog_s: from the last time that its watchdog was fed to the reset; None where none runs.
        dead_after_s: when it is reset at the latest after its last good answer, by its own times;
            those of the others may have been changed while it did not hear of it.
        has_left: its agent was stopped in order; nobody watches over the node.
        disk: the lease disk by which it may live on, too; "" for none.
        nodes: by which list of nodes it counts (`electorate`); agents of earlier versions leave ""
        is_dead: that boot was proved dead, and its loss was dealt with.
    """

    boot_id: str
    watchdog_s: float | None = None
    dead_after_s: float = 0.0
    has_left: bool = False
    disk: str = ""
    nodes: str = ""
    is_dead: bool = False


class Loss(Record, frozen=True, kw_only=True):
    """A node that is missed; dead once there is a proof.

    Attributes:
        boot_id: of the boot that is missed; "" if nobody knows it.
        since: in seconds since the epoch.
        proof: None while it is only suspected.
        by: the node, or the person, that proved it.
    """

    uuid: str
    node: str
    boot_id: str = ""
    since: float = 0.0
    proof: Proof | None = None
    by: str = ""


class Fencing(Record, frozen=True, kw_only=True):
    """An attempt to switch a node off.

    Attributes:
        by: the node that ran the helper.
        at: in seconds since the epoch.
        power: what the helper said then: "on", "off" or "unknown".
        trouble: why it is not known to be off; "" if it is.
    """

    by: str
    at: float
    power: str
    trouble: str = ""


class Pause(Record, frozen=True, kw_only=True):
    """Nobody is to act until then, in seconds since the epoch."""

    until: float
    by: str = ""
    why: str = ""


class Outdated(Record, frozen=True, kw_only=True):
    """A copy that lacks writes of the other one, or will from now on.

    Attributes:
        by: the node with the other copy.
        since: in seconds since the epoch.
    """

    by: str
    since: float = 0.0


def outdated_key(node: str, port: int) -> str:
    """Return the key of the record of a copy."""
    return f"{OUTDATED}{node}/{port}"


def keys_of_others(keys: Iterable[str], nodes: Collection[str]) -> list[str]:
    """Return the keys that stay of nodes other than these."""
    return [key for key in keys if key.startswith(_STAYING) and key.split("/")[1] not in nodes]
