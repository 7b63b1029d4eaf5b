"""What the agent does on its node, outside of etcd: daemons, fail-over, helpers, the watchdog."""

from __future__ import annotations

import asyncio
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from ganeti.availability.mastership import Report
from ganeti.availability.proof import Power
from ganeti.base.daemons import MASTER_DAEMONS
from ganeti.base.errors import GenericError, ProtocolError
from ganeti.base.json import loads
from ganeti.base.paths import Paths
from ganeti.ha.disk import Place
from ganeti.ha.watchdog import Watchdog
from ganeti.store import availability, lease, master_facts
from ganeti.store.availability import Settings, State
from ganeti.system import clock, daemon_control, process

logger = logging.getLogger(__name__)

_SETTLE_S: Final = 30.0  # beside what it asks etcd
_SETTLE_QUESTIONS: Final = 3
FAIL_OVER_S: Final = 300.0
_REBOOT: Final = "/proc/sysrq-trigger"
_HELPERS_AT_ONCE: Final = 32  # a rack


class NodeHands:
    """As `ganeti.ha.agent.Hands` declares."""

    def __init__(self, paths: Paths, settings: Settings, own: str) -> None:
        self._paths, self._settings = paths, settings
        self._watchdog = "" if own == settings.witness else settings.watchdog
        self._is_mute = False
        # Threads of their own: helpers may all hang, and those of the loop tell the daemons here.
        self._helpers = ThreadPoolExecutor(_HELPERS_AT_ONCE, "helper")

    def now(self) -> float:
        """As declared."""
        return clock.monotonic()

    def time(self) -> float:
        """As declared."""
        return clock.now()

    def is_master(self) -> bool:
        """As declared."""
        return any(daemon_control.running_pid(self._paths, name) for name in MASTER_DAEMONS)

    def has_jobs(self) -> bool:
        """As declared."""
        return bool(master_facts.running_jobs(self._paths))

    def arm(self, timeout_s: float, until_s: float) -> Watchdog | None:
        """As declared: a watchdog that cannot be used is none, and the log says why."""
        if not self._watchdog:
            return None
        try:
            path = self._paths.localize(self._watchdog)
            watchdog = Watchdog.arm(path, timeout_s, until_s)
        except GenericError as err:
            logger.warning("No watchdog guards this node: %s", err.message)
            return None
        logger.info("Watchdog %s resets this node after %g s", watchdog.identity, timeout_s)
        return watchdog

    @property
    def watchdog(self) -> str:
        """As declared."""
        return self._watchdog

    def place_on_disk(self, node: str) -> Place | None:
        """As declared."""
        disk, paths = self._settings.disk, self._paths
        if disk is None or node not in disk.slots:
            return None
        path = paths.localize(disk.path)
        return Place(path, bool(paths.root), disk.cluster, disk.lease, disk.slots[node])

    async def publish(self, state: State) -> None:
        """As declared: the file is in memory, except where a node is virtual."""
        try:
            await asyncio.to_thread(availability.write_state, self._paths, state)
        except OSError as err:
            if not self._is_mute:
                logger.warning("The daemons here do not hear of the agent: %s", err)
            self._is_mute = True
        else:
            self._is_mute = False

    def reports(self) -> list[Report]:
        """As declared."""
        return availability.read_reports(self._paths)

    def condemned(self) -> None:
        """As declared: where no watchdog does it, the kernel boots at once, without a sync."""
        logger.critical("This boot of the node was proved dead: it is reset")
        if self._paths.root:
            return  # a virtual node has no kernel of its own
        try:
            with open(_REBOOT, "w", encoding="ascii") as file:
                file.write("b")
        except OSError as err:
            logger.critical("The kernel cannot be told to boot: %s", err.strerror)

    async def fail_over(self) -> bool:
        """As declared."""
        argv = daemon_control.command("gnt-cluster", ["master-failover"])
        result = await asyncio.to_thread(
            process.run, argv, timeout_s=FAIL_OVER_S, env=daemon_control.environment_of(self._paths)
        )
        if result.status != 0:
            logger.error("The fail-over failed: %s", result.output_tail())
        return result.status == 0

    async def settle(self) -> bool:
        """As declared."""
        argv = daemon_control.command(lease.DRBD_HELPER, ["settle"])
        # Where leases are long, as machines are slow, etcd has longer for each answer, too.
        limit_s = _SETTLE_S + _SETTLE_QUESTIONS * self._settings.timing.command_s
        result = await asyncio.to_thread(
            process.run, argv, timeout_s=limit_s, env=daemon_control.environment_of(self._paths)
        )
        if result.status != 0:
            trouble = result.output_tail() or process.describe_end(result)
            logger.warning("Cannot settle which copies are outdated: %s", trouble)
        return result.status == 0

    async def switch_off(self, node: str) -> tuple[Power, str]:
        """As declared: it is off when the helper says so after it was told to switch it off."""
        program = self._paths.localize(self._settings.helpers[node])
        limit_s = self._settings.timing.helper_s
        loop = asyncio.get_running_loop()
        for words in (["power-off", node], ["power-status", node]):
            run = partial(process.run, [program, *words], timeout_s=limit_s / 2)
            try:
                result = await loop.run_in_executor(self._helpers, run)
            except GenericError as err:
                return Power.UNKNOWN, err.message
            if result.status != 0 or result.timed_out:
                return Power.UNKNOWN, f"{os.path.basename(program)}: {process.describe_end(result)}"
        try:
            said = loads(result.stdout)
        except ProtocolError as err:
            return Power.UNKNOWN, f"{os.path.basename(program)}: {err.message}"
        is_on = said.get("powered") if isinstance(said, dict) else None
        if is_on is False:
            return Power.OFF, ""
        return (Power.ON if is_on else Power.UNKNOWN), "it does not say that the node is off"
