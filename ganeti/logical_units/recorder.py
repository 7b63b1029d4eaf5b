"""Notes what a job asks of WConfD, so that what is left over at the end is known.

Wraps the client; the table of methods says what each call may change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ganeti.clients.wconfd_stub import WConfStub
from ganeti.protocol.wconfd import WCONFD_METHODS, Effect


class RecordingConfig(WConfStub):
    """Passes every call on.

    Attributes:
        effects: kinds of changes asked for since it was last emptied.
        changed: whether the configuration was ever changed through this client.
    """

    def __init__(self, inner: WConfStub) -> None:
        self.owner = inner.owner
        self.effects: set[Effect] = set()
        self.changed = False
        self._inner = inner

    def _invoke(self, method: str, args: Sequence[object]) -> Any:
        effect = WCONFD_METHODS[method].effect
        self.effects.add(effect)
        self.changed = self.changed or effect is Effect.CONFIG
        return self._inner._invoke(method, args)  # noqa: SLF001 - same interface, one layer below
