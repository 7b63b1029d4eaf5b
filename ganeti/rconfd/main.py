"""RConfD: answers questions about the configuration, on every master candidate.

Reads the node's own copy of the configuration and nothing else, so it answers as long as its node
runs, with or without a master.  Questions and answers are signed; unsigned questions are dropped.

Theory of operation.  Three things make a node answer: it is a master candidate (by the simple
configuration), it has the cluster's key, and it has a configuration that could be read.  Without
one of the first two it is silent; a configuration that turns bad leaves the old one in place.
Files are looked at when the kernel tells of a change, not more often than every quarter of a
second, and every 17 seconds anyway, in case it did not.

Source: design 2.1, "Ganeti Confd"; daemons-2.12, "Configuration query daemon"; confd.json.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import ConfigurationError, InotifyError, ProtocolError
from ganeti.base.paths import Paths
from ganeti.daemon.context import DaemonContext
from ganeti.daemon.main import DaemonSpec
from ganeti.daemon.options import NetworkOptions, Port
from ganeti.protocol.confd import DATAGRAM_BYTES_MAX, DEFAULT_PORT, Signer
from ganeti.rconfd.answers import Answerer
from ganeti.store import config_reader, ssconf
from ganeti.store.config_file import Identity
from ganeti.store.config_reader import ConfigReader
from ganeti.system import clock, environment, files
from ganeti.system.inotify import Kind, Watcher
from ganeti.transport.udp_server import serve_udp

logger = logging.getLogger(__name__)

SWEEP_S: Final = 17.0  # CONFD_CONFIG_RELOAD_TIMEOUT
RATE_LIMIT_S: Final = 0.25  # CONFD_CONFIG_RELOAD_RATELIMIT
_KINDS: Final[tuple[Kind, ...]] = ("moved_to", "moved_from", "close_write", "delete")
_FILES: Final = frozenset(
    {"config.data", "config.journal", "hmac.key", "ssconf_master_candidates", ""}
)


class Desk:
    """Where questions arrive; without an answerer nobody answers."""

    def __init__(self) -> None:
        self.answerer: Answerer | None = None
        self.dropped = 0
        self._last_drop = ""

    def handle(self, data: bytes, peer: str, now_s: int) -> bytes | None:
        """Answer a datagram, or drop it."""
        answerer = self.answerer
        if answerer is None:
            return None
        try:
            return answerer.answer(data, now_s)
        except ProtocolError as err:
            self.dropped += 1
            self._last_drop = f"{peer}: {err.message}"
            return None

    def report_drops(self) -> None:
        """Log how much was dropped since the last time, and why: clocks and keys go wrong."""
        if self.dropped:
            logger.info("Dropped %d packets, the last from %s", self.dropped, self._last_drop)
            self.dropped = 0


@dataclass(frozen=True, slots=True)
class _Source:
    """The key and the files that answers are made with."""

    key: bytes
    config: tuple[Identity, Identity | None]


class Follower:
    """Follows the files of a node and puts an answerer on the desk, or takes it away."""

    def __init__(self, paths: Paths, hostname: str, desk: Desk) -> None:
        self._paths = paths
        self._hostname = hostname
        self._desk = desk
        self._source: _Source | None = None
        self._config = ConfigReader(self._paths)
        self._silence = ""
        self._watcher: Watcher | None = None
        self._looked_s = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Look again and again, whether the kernel tells of changes or not."""
        while True:
            await asyncio.sleep(SWEEP_S)
            self._watch()
            self.look()
            self._desk.report_drops()

    def start(self) -> None:
        """Begin to follow, with a first look."""
        self._watch()
        self.look()

    def close(self) -> None:
        """Stop following."""
        self._desk.report_drops()
        if self._timer is not None:
            self._timer.cancel()
        if self._watcher is not None:
            self._watcher.close()

    def _watch(self) -> None:
        if self._watcher is not None:
            return
        try:
            watcher = Watcher()
        except InotifyError as err:
            logger.warning("%s; looking every %g s only", err.message, SWEEP_S)
            return
        try:
            watcher.watch(self._paths.data_dir, _KINDS, self._on_event)
        except InotifyError as err:  # the directory comes with the cluster
            watcher.close()
            logger.debug("%s; looking every %g s only", err.message, SWEEP_S)
        else:
            self._watcher = watcher

    def _on_event(self, name: str, _kind: Kind) -> None:
        if name in _FILES and self._timer is None:
            loop = asyncio.get_running_loop()
            at_s = max(loop.time(), self._looked_s + RATE_LIMIT_S)
            self._timer = loop.call_at(at_s, self.look)

    def look(self) -> None:
        """Look at the files, and answer by them from now on."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._looked_s = asyncio.get_running_loop().time()
        try:
            self._check_candidate()
            key = self._read_key()
        except ConfigurationError as err:
            self._be_silent(err.message)
            return
        try:
            self._refresh(_Source(key, config_reader.identity(self._paths)))
        except ConfigurationError as err:
            self._keep_old(err.message)

    def _check_candidate(self) -> None:
        if self._hostname not in ssconf.master_candidate_names(self._paths):
            raise ConfigurationError("this node is not a master candidate")

    def _read_key(self) -> bytes:
        try:
            key = files.read_bytes(self._paths.hmac_key)
        except OSError as err:
            raise ConfigurationError(f"cannot read {self._paths.hmac_key}: {err.strerror}") from err
        if not key.strip():
            raise ConfigurationError(f"{self._paths.hmac_key} is empty")
        return key

    def _refresh(self, source: _Source) -> None:
        """Read the configuration again, if it is not the one that is answered from."""
        before = self._desk.answerer
        if source == self._source and before is not None:
            return
        started_s = clock.monotonic()
        config = self._config.read()
        config.check()
        self._config.take(config)
        self._desk.answerer = Answerer(config, Signer(source.key))
        self._source = source
        took_ms = (clock.monotonic() - started_s) * 1000
        serial = config.serial_no
        if before is None or self._silence:
            logger.info("Answering; the configuration has serial number %d", serial)
        logger.debug("Read the configuration (serial number %d) in %.1f ms", serial, took_ms)
        self._silence = ""

    def _keep_old(self, reason: str) -> None:
        """Go on with the configuration as it was, if there is one; one line says so."""
        answerer = self._desk.answerer
        if answerer is None:
            self._be_silent(reason)
        elif reason != self._silence:
            serial = answerer.config.serial_no
            logger.warning("%s; answering from the old one (serial number %d)", reason, serial)
            self._silence = reason

    def _be_silent(self, reason: str) -> None:
        self._desk.answerer = None
        self._source = None
        self._config = ConfigReader(self._paths)
        if reason != self._silence:
            logger.info("Not answering: %s", reason)
            self._silence = reason


class Options(NetworkOptions, frozen=True, kw_only=True):
    """The options of RConfD."""

    port: Port = DEFAULT_PORT


async def serve(context: DaemonContext) -> None:
    """Answer until told to stop."""
    desk = Desk()
    address = context.options_as(Options).bind or _default_address(context)
    with serve_udp(
        address, context.options_as(Options).port, desk.handle, size_bytes_max=DATAGRAM_BYTES_MAX
    ) as server:
        logger.info("Listening on %s port %d", address or "all addresses", server.port)
        follower = Follower(context.paths, context.hostname, desk)
        try:
            follower.start()
            context.spawn(follower.run(), "following the configuration")
            context.ready()
            await context.stopping.wait()
        finally:
            follower.close()


def _default_address(context: DaemonContext) -> str | None:
    """Return where to listen: a virtual node shares its machine with others."""
    if context.paths.root:
        return environment.resolve(context.hostname, context.paths)[1]
    return None


SPEC: Final = DaemonSpec(
    name="ganeti-confd",
    description="Answers questions about the configuration, on every master candidate.",
    serve=serve,
    options=Options,
)
