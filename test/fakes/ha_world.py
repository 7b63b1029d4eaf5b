"""A virtual cluster under high availability: its etcd, and watchdogs that end a node's processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from fakes.dog import DEVICE, Dog
from fakes.failing_cluster import FailingCluster
from fakes.waiting import wait_until

from ganeti.availability.records import (
    GUARDS,
    LOSSES,
    MASTER_KEY,
    NODES,
    Guard,
    Loss,
    Mastership,
    Proof,
)
from ganeti.base.errors import GenericError
from ganeti.clients.etcd import EtcdClient, Snapshot
from ganeti.store import availability
from ganeti.store.availability import Settings
from ganeti.system import daemon_control

TIMING: Final = "lease=3,beat=0.5,answer=1.5,watchdog=4,margin=0.5,retry=1,helper=4"
WATCHDOG_S: Final = 4.0  # machines under test are busy
DEADLINE_S: Final = 90.0
AGENT: Final = "ganeti-ha"
WITHOUT: Final = ("ganeti-mond", "ganeti-rapi", "ganeti-confd")
_ASK_S: Final = 10.0


class World:
    """The cluster, its etcd, its dogs."""

    timing = TIMING

    def __init__(self, cluster: FailingCluster) -> None:
        self.cluster = cluster
        self.dogs = {node: Dog(cluster, node, WATCHDOG_S) for node in cluster.nodes}

    @property
    def settings(self) -> Settings:
        found = availability.read(self.cluster.paths)
        assert found is not None
        return found

    def read(self) -> Snapshot:
        """Return everything that etcd has of the cluster."""
        settings = self.settings

        async def read() -> Snapshot:
            async with EtcdClient.of(settings, _ASK_S) as client:
                return await client.read()

        return asyncio.run(read())

    def loss_of(self, node: str) -> Loss | None:
        return self.read().one(LOSSES + node, Loss)

    def boot_of(self, node: str) -> str:
        return Path(self.cluster.paths_of(node).run_dir, "boot-id").read_text()

    def is_dead(self, node: str, boot: str) -> bool:
        """Tell whether its watchdog proves that a boot of a node is over."""
        loss = self.loss_of(node)
        return loss is not None and (loss.boot_id, loss.proof) == (boot, Proof.WATCHDOG)

    def wait_dead(self, boots: Mapping[str, str]) -> None:
        """Wait until it proves so of all these nodes; what was dealt with is forgotten soon."""
        dead: set[str] = set()

        def are_dead() -> bool:
            dead.update(node for node, boot in boots.items() if self.is_dead(node, boot))
            return dead == {*boots}

        self.wait(are_dead, f"{sorted(boots)} are proved dead")

    def present(self) -> set[str]:
        keys = self.read().entries
        return {key.removeprefix(NODES) for key in keys if key.startswith(NODES)}

    def guarded(self) -> set[str]:
        """Return the nodes whose watchdogs run, as etcd has it."""
        guards = self.read().below(GUARDS, Guard).items()
        return {node for node, guard in guards if guard.watchdog_s is not None}

    def holder(self) -> str:
        found = self.read().one(MASTER_KEY, Mastership)
        return "" if found is None else found.node

    def agent(self, node: str) -> int | None:
        return daemon_control.running_pid(self.cluster.paths_of(node), AGENT)

    def has_bitten(self, *nodes: str) -> bool:
        return all(self.dogs[node].bitten_s is not None for node in nodes)

    def has_moved(self) -> bool:
        """Tell whether another node is the master, which the commands run on from now on."""
        for node in self.cluster.others:
            if len(self.cluster.running(node)) == 2:
                self.cluster.master = node
                return True
        return False

    def enable(self, *options: str) -> None:
        timing = [f"--timing={self.timing}"] if self.timing else []
        words = [f"--watchdog={DEVICE}", *timing, *options]
        self.cluster.gnt(f"cluster ha-enable {' '.join(words)}")

    def wait(self, what: Callable[[], object], text: str) -> None:
        """Wait; etcd may have no leader for a moment."""

        def is_so() -> object:
            try:
                return what()
            except GenericError:
                return None

        wait_until(is_so, text, timeout_s=DEADLINE_S, step_s=0.05)

    def boot(self, node: str) -> None:
        """Switch a node on that was off."""
        self.dogs[node].bitten_s = None
        self.cluster.switch_on(node)

    def back(self, *nodes: str) -> None:
        """Let nodes boot, and take them into the cluster again."""
        for node in nodes:
            self.boot(node)
        for node in nodes:
            self.cluster.gnt(f"node modify --offline=no --auto-promote --force {node}")
        self.wait(lambda: {*nodes} <= self.present(), f"{nodes} are there again")

    def close(self) -> None:
        for dog in self.dogs.values():
            dog.stop()
