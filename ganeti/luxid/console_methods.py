"""Opens consoles for RapiD, which may not talk to nodes itself.

LuxiD only says where the instance is: the bytes go through a process of their own
(`console_relay`), so that a screen that is redrawn holds up nobody's job.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError, ProtocolError
from ganeti.base.json import dumps, loads_as
from ganeti.base.paths import Paths
from ganeti.daemon.context import run_aside
from ganeti.luxid.config_view import ConfigView
from ganeti.luxid.console_relay import RelayAnswer, RelayRequest
from ganeti.protocol.luxi import ConsoleWay
from ganeti.protocol.node_rpc import DEFAULT_PORT
from ganeti.query.live import request_of

_RELAY: Final = "ganeti.luxid.console_relay"
_START_S_MAX: Final = 30.0
_ANSWER_BYTES_MAX: Final = 1 << 16
_AT_ONCE_MAX: Final = 4  # being opened


class ConsoleMethods:
    """The handler of a call, declared in `ganeti.protocol.luxi`."""

    def __init__(self, paths: Paths, view: ConfigView) -> None:
        self._paths = paths
        self._view = view
        self._turns = asyncio.Semaphore(_AT_ONCE_MAX)

    async def open_console(self, instance: str, way: ConsoleWay) -> str:
        request = self._request(instance, way)
        async with self._turns:
            found = await run_aside(
                [sys.executable, "-m", _RELAY, self._paths.root],
                timeout_s=_START_S_MAX,
                stdin=dumps(request),
                output_bytes_max=_ANSWER_BYTES_MAX,
            )
        try:
            answer = loads_as(RelayAnswer, found.check().stdout)
        except ProtocolError as err:
            raise ProtocolError(f"the relay of consoles broke: {found.output_tail()}") from err
        if answer.error:
            raise OpPrereqError(answer.error, ErrorCode.STATE)
        return answer.socket

    def _request(self, name: str, way: ConsoleWay) -> RelayRequest:
        tables = self._view.tables
        uuid = tables.instances.find(name)
        if uuid is None:
            raise OpPrereqError(f"there is no instance {name!r}", ErrorCode.NOENT)
        instance = tables.instances[uuid]
        node = tables.nodes[instance.primary_node]
        if node.offline:
            raise OpPrereqError(f"node {node.name} is offline", ErrorCode.STATE)
        body = dumps(request_of(instance, self._view.snapshot())).decode()
        return RelayRequest(node.name, node.primary_ip, DEFAULT_PORT, way, body)
