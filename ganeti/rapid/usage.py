"""What a node or an instance used lately, from the monitoring daemon of its node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import quote

from msgspec import Raw

from ganeti.base.json import dumps, loads_as
from ganeti.clients.mond import fetch_all
from ganeti.protocol.rapi.answers import no_such

_TIMEOUT_S: Final = 5.0
_BYTES_MAX: Final = 1 << 20  # thirty times the rings of one subject

Ask = Callable[[str, list[object]], Awaitable[Raw]]


async def usage(ask: Ask, names: Mapping[str, str]) -> bytes:
    """Return the rings of the node or the instance that is named, or why they are not known.

    Raises:
        HttpProblem: 404: there is no such thing.
        GenericError: LuxiD does not tell.
    """
    instance, node, target = names.get("instance"), names.get("node", ""), "/1/history/node"
    if instance is not None:
        rows = await ask("QueryInstances", [[instance], ["name", "pnode"], False])
        instances = loads_as(list[tuple[str, str]], bytes(rows))
        if not instances:
            raise no_such("instance", instance)
        [[name, node]] = instances
        target = f"/1/history/instance/{quote(name)}"
    rows = await ask("QueryNodes", [[node], ["name", "pip", "offline"], False])
    nodes = loads_as(list[tuple[str, str, bool]], bytes(rows))
    if not nodes:
        raise no_such("node", node)
    [[node, address, is_offline]] = nodes
    if is_offline:
        return b"null"
    found = await fetch_all(
        {node: address}, target, body_bytes_max=_BYTES_MAX, timeout_s=_TIMEOUT_S
    )
    answer = found[node]
    if isinstance(answer, str):
        return dumps({"problem": f"{node}: {answer}"})
    return answer
