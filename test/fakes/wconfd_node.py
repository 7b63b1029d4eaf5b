"""A master node for tests: its files and a real WConfD process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import Any, Self

from fakes.large_config import MASTER, large_config_bytes
from fakes.waiting import wait_until

from ganeti.base.errors import TransportError
from ganeti.base.paths import Paths
from ganeti.clients.wconfd import WConfClient
from ganeti.protocol.wconfd import ClientId
from ganeti.store import config_file, ssconf
from ganeti.system import files
from ganeti.system.environment import HOSTNAME_VARIABLE
from ganeti.system.filelock import LiveLock

CHECKOUT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEADLINE_S = 60.0
ALONE = ("--no-voting", "--yes-do-it")  # the other nodes have no daemons to ask


class Owner:
    """A client identity with a lock file that this process holds."""

    def __init__(self, node: WconfdNode, identifier: int | str) -> None:
        path = f"{node.paths.livelock_dir}/job_{identifier}_{node.next_number()}"
        self.paths = node.paths
        self.livelock = LiveLock.create(path)
        self.id = ClientId(identifier, path, os.getpid())
        self.client = WConfClient(node.paths, self.id)

    def hold(self, *locks: str) -> Owner:
        """Take the BGL shared and these locks exclusively, as a job does before it changes things."""
        request = [("cluster/BGL", "shared"), *((lock, "exclusive") for lock in locks)]
        assert self.client.try_update_locks(request) == []
        return self

    def hold_everything(self) -> Owner:
        """Take the BGL exclusively, which is enough for every change."""
        assert self.client.try_update_locks([("cluster/BGL", "exclusive")]) == []
        return self

    def die(self) -> None:
        """Let go of the lock without removing the file, as a killed process does."""
        self.client.close()
        os.close(self.livelock._descriptor)
        self.livelock._descriptor = -1


class WconfdNode:
    """One node; `start` runs WConfD on it."""

    name = MASTER

    def __init__(self, instances: int = 2, nodes: int = 3, candidates: int = 1) -> None:
        self._base = tempfile.mkdtemp(prefix="wconfd")  # short: socket paths have 107 bytes
        self.paths = Paths(f"{self._base}/{self.name}")
        self.process: subprocess.Popen[bytes] | None = None
        self._numbers = 0
        self._owners: list[Owner] = []
        paths = self.paths
        for directory in (paths.data_dir, paths.run_dir, paths.socket_dir, paths.lock_dir):
            files.ensure_directory(directory)
        files.ensure_directory(paths.log_dir)
        files.ensure_directory(paths.livelock_dir)
        files.write_durable(paths.config_data, large_config_bytes(instances, nodes, candidates))
        ssconf.write_values(paths, {"master_node": self.name})

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def __enter__(self) -> Self:
        self._hostname_before = os.environ.get(HOSTNAME_VARIABLE)
        os.environ[HOSTNAME_VARIABLE] = self.name  # its clients are processes of this node
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._hostname_before is None:
            del os.environ[HOSTNAME_VARIABLE]
        else:
            os.environ[HOSTNAME_VARIABLE] = self._hostname_before
        for owner in self._owners:
            owner.client.close()
            owner.livelock.release()
        self.stop()
        shutil.rmtree(self._base)

    def environment(self) -> dict[str, str]:
        return {**os.environ, "GANETI_ROOTDIR": self.paths.root, "GANETI_HOSTNAME": self.name}

    def start(self, *options: str) -> WconfdNode:
        """Run WConfD, by default without a vote; returns once it answers."""
        process = self.spawn(*(options or ALONE))
        client = WConfClient(self.paths, ClientId("test", "", 0), restart_timeout_s=0.0)

        def answers() -> bool:
            assert process.poll() is None, f"WConfD ended: {self.stderr()}"
            try:
                return client.echo("here") == "here"
            except TransportError:
                return False

        wait_until(answers, "WConfD to answer")
        client.close()
        return self

    def spawn(self, *options: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, f"{CHECKOUT}/daemons/ganeti-wconfd", "-f", *options]
        with open(f"{self.paths.log_dir}/stderr", "ab") as log:
            self.process = subprocess.Popen(argv, env=self.environment(), stderr=log)
        return self.process

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int | None:
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def owner(self, identifier: int | str = 1) -> Owner:
        owner = Owner(self, identifier)
        self._owners.append(owner)
        return owner

    def stderr(self) -> str:
        with open(f"{self.paths.log_dir}/stderr", encoding="utf-8") as log:
            return log.read()

    def log(self) -> str:
        with open(self.paths.log_file("ganeti-wconfd"), encoding="utf-8") as log:
            return log.read()

    def config(self) -> Any:
        return json.loads(config_file.read_config(self.paths))
