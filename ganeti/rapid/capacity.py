"""How many more instances fit: a program that the server of the remote API starts.

    python -m ganeti.rapid.capacity ROOT < question > answer

It asks LuxiD for the cluster, fills it up as the allocator would, and ends: the server goes on
meanwhile, and the memory that a large cluster takes is given back.
"""

from __future__ import annotations

import sys
from typing import Any

from msgspec.structs import replace

from ganeti.allocation.capacity.filling import fill
from ganeti.allocation.capacity.forecast import forecast, lacking
from ganeti.allocation.capacity.search import Search, new_names
from ganeti.allocation.capacity.tiers import Size, has_exclusive_storage, size_of
from ganeti.allocation.model import Rules
from ganeti.allocation.snapshot import Snapshot
from ganeti.allocation.sources import listings
from ganeti.allocation.state import make_state
from ganeti.base.errors import GenericError
from ganeti.base.json import dumps, loads_as
from ganeti.base.paths import Paths
from ganeti.clients.luxi import LuxiClient
from ganeti.protocol.rapi.questions import ROOM_MAX, Wanted


def main() -> None:
    """Answer the question on the standard input."""
    wanted = loads_as(Wanted, sys.stdin.buffer.read())
    try:
        with LuxiClient(Paths(sys.argv[1])) as luxi:
            snapshot = listings.ask_master(luxi)
    except GenericError as err:
        sys.exit(err.message)
    sys.stdout.buffer.write(dumps(room(snapshot, wanted)))


def room(snapshot: Snapshot, wanted: Wanted) -> dict[str, Any]:
    """Return how much room there is, as the route of the remote API describes it."""
    state, policy = make_state(snapshot), snapshot.ipolicy
    template = wanted.disk_template or policy["disk-templates"][0]
    usual = size_of(policy["std"], is_exclusive=has_exclusive_storage(snapshot))
    size = replace(
        usual,
        memory=usual.memory if wanted.memory is None else wanted.memory,
        disk=usual.disk if wanted.disk is None else wanted.disk,
        vcpus=usual.vcpus if wanted.vcpus is None else wanted.vcpus,
    )
    search = Search(Rules(), list(state.groups))
    filled = fill(state, search, size.instance(template), new_names(), ROOM_MAX)
    future = forecast(state, search, wanted.weeks, size, template, ROOM_MAX)
    growth = None
    if future.pace is not None:
        growth = {
            **_fitting(future.count, future.lacking, future.pace.size),
            "per-week": future.pace.per_week,
            "weeks": future.weeks,
        }
    fitting = _fitting(len(filled.placed), lacking(filled), size)
    return {"disk-template": template, **fitting, "growth": growth}


def _fitting(count: int, lacks: str | None, size: Size) -> dict[str, Any]:
    each = {"memory": size.memory, "disk": size.disk, "vcpus": size.vcpus}
    return {"count": count, "lacking": lacks, **each}


if __name__ == "__main__":
    main()
