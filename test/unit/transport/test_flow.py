"""What one connection does to a server, where a real one would need luck."""

from __future__ import annotations

import asyncio
import errno
import os

import pytest

from ganeti.transport.flow import ReadingWatch, contained


class GoneTransport(asyncio.Transport):
    """Its peer went away between the last write and now."""

    def __init__(self, *, is_tls: bool = False) -> None:
        super().__init__()
        self.is_tls = is_tls
        self.is_aborted = False

    def can_write_eof(self) -> bool:
        return not self.is_tls

    def write_eof(self) -> None:
        assert not self.is_tls
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))

    def abort(self) -> None:
        self.is_aborted = True


@pytest.mark.parametrize("is_tls", [False, True])
def test_a_peer_that_is_gone_need_not_hear_that_nothing_more_comes(is_tls: bool) -> None:
    transport = GoneTransport(is_tls=is_tls)
    ReadingWatch(transport, 1.0, "the client").end_writing()
    assert transport.is_aborted is not is_tls


def test_an_error_drops_its_connection_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    dropped = []

    async def fail() -> None:
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))

    async def go_on() -> None:
        await asyncio.sleep(0)

    async def serve() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(contained(fail(), lambda: dropped.append("one"), "client one"))
            tasks.create_task(contained(go_on(), lambda: dropped.append("two"), "client two"))

    asyncio.run(serve())
    assert dropped == ["one"]
    assert "dropping client one" in caplog.text
