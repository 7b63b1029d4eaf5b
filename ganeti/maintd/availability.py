"""What the maintenance daemon tells of high availability: for LuxiD, RapiD and Prometheus."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from ganeti.availability.status import Status, look
from ganeti.base.errors import GenericError
from ganeti.base.json import dumps
from ganeti.base.paths import Paths
from ganeti.clients.availability import look_around
from ganeti.clients.etcd import EtcdClient
from ganeti.store import availability

logger = logging.getLogger(__name__)

LEASES: Final = ("held", "missed", "dead", "left", "never", "unknown")


async def told(paths: Paths, *, as_metrics: bool) -> bytes:
    """Return how everything is now, as JSON or as text for Prometheus.

    Raises:
        ConfigurationError: the files of this node cannot be read; metrics are left out then.
    """
    if not as_metrics:
        return dumps(await status_of(paths))
    try:
        status = await status_of(paths, with_memory=False)
    except GenericError as err:
        logger.warning("Nothing is told of high availability: %s", err.message)
        return b""
    return b"" if status is None else "".join(f"{line}\n" for line in metrics(status)).encode()


async def status_of(paths: Paths, *, with_memory: bool = True) -> Status | None:
    """Return how everything is now; None while high availability is off.

    Args:
        with_memory: ask the nodes for their free memory; without, no instance finds a place.

    Raises:
        ConfigurationError: the files of this node cannot be read.
    """
    settings = availability.read(paths)
    if settings is None:
        return None
    async with EtcdClient.of(settings, settings.timing.command_s) as etcd:
        sight = await look_around(paths, settings, etcd, with_memory=with_memory)
        return look(sight.seen)


def metrics(status: Status) -> Iterator[str]:
    """Yield lines for Prometheus."""
    leases = Counter(each.lease for each in status.nodes)
    waiting = sum(
        len(each.if_lost.starts) + len(each.if_lost.left)
        for each in status.nodes
        if each.lease == "dead"
    )
    yield from _gauge("etcd_readable", "1 if etcd answers with a quorum.", {"": not status.trouble})
    yield from _gauge(
        "master_lease_held", "1 if a node holds the master's lease.", {"": bool(status.holder)}
    )
    yield from _gauge(
        "candidates_ready",
        "Master candidates that may take over now.",
        {"": len(status.may_take_over)},
    )
    yield from _gauge(
        "nodes", "Nodes by their lease.", {f'lease="{name}"': leases[name] for name in LEASES}
    )
    yield from _gauge(
        "restarts_waiting", "Instances of dead nodes that do not run elsewhere yet.", {"": waiting}
    )
    yield from _gauge(
        "paused_until_timestamp_seconds",
        "Until when nobody acts on losses; 0 while it is not paused.",
        {"": status.paused_until or 0},
    )
    yield from _gauge(
        "copies_outdated",
        "Instances and nodes whose copy of a disk lacks writes.",
        {"": sum(len(each.outdated) for each in status.nodes)},
    )
    if status.lease_disk:
        held = {f'node="{each.name}"': each.holds_disk for each in status.nodes}
        yield from _gauge("disk_lease_held", "1 if the node holds a lease on the disk.", held)
    members = {f'member="{url}"': not trouble for url, trouble in status.members.items()}
    yield from _gauge("etcd_member_up", "1 if this member answers and has a leader.", members)


def _gauge(name: str, text: str, values: Mapping[str, float]) -> Iterator[str]:
    name = f"ganeti_ha_{name}"
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} gauge"
    for labels, value in values.items():
        yield f"{name}{{{labels}}} {float(value):.15g}" if labels else f"{name} {float(value):.15g}"
