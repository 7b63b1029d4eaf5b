"""What a node or an instance used lately, from the monitoring daemon of its node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import quote

from msgspec import Raw

from ganeti.base.json import dumps, loads_as
from ganeti.clients.mond import fetch_all

_TIMEOUT_S: Final = 5.0
_BYTES_MAX: Final = 1 << 20  # thirty times the rings of one subject

Ask = Callable[[str, list[object]], Awaitable[Raw]]


async def usage(ask: Ask, names: Mapping[str, str]) -> bytes:
    """Return the rings of the node or the instance that is named, or why they are not known.

    Raises:
        GenericError: there is no such thing.
    """
    instance, node, target = names.get("instance"), names.get("node", ""), "/1/history/node"
    if instance is not None:
        rows = await ask("QueryInstances", [[instance], ["name", "pnode"], False])
        [[name, node]] = loads_as(list[tuple[str, str]], bytes(rows))
        target = f"/1/history/instance/{quote(name)}"
    rows = await ask("QueryNodes", [[node], ["name", "pip", "offline"], False])
    [[node, address, is_offline]] = loads_as(list[tuple[str, str, bool]], bytes(rows))
    if is_offline:
        return b"null"
    found = await fetch_all(
        {node: address}, target, body_bytes_max=_BYTES_MAX, timeout_s=_TIMEOUT_S
    )
    answer = found[node]
    if isinstance(answer, str):
        return dumps({"problem": f"{node}: {answer}"})
    return answer
