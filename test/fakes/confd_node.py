"""A node for tests with a real RConfD process, on a free port of the loopback address."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from fakes.confd_config import confd_config, encoded
from fakes.waiting import wait_until

from ganeti.base.paths import Paths
from ganeti.clients.confd import ConfdClient
from ganeti.protocol.confd import Reply, Signer, open_reply, request_packet
from ganeti.store import ssconf
from ganeti.system import files

CHECKOUT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEADLINE_S = 60.0
KEY = b"0123456789abcdef0123456789abcdef01234567\n"
OWN_NAME = "node2.example.com"
CANDIDATES = ("node1.example.com", OWN_NAME)


class ConfdNode:
    """One node; `start` runs RConfD on it."""

    def __init__(
        self,
        config: dict[str, Any] | None = None,
        *,
        candidates: Sequence[str] = CANDIDATES,
        address: str = "127.0.0.1",
    ) -> None:
        self._base = tempfile.mkdtemp(prefix="confd")
        self.paths = Paths(f"{self._base}/{OWN_NAME}")
        self.address = address
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        for directory in (self.paths.data_dir, self.paths.lock_dir, self.paths.log_dir):
            files.ensure_directory(directory)
        self.config = confd_config() if config is None else config
        self.write_config()
        files.write_atomic(self.paths.hmac_key, KEY)
        self.set_candidates(candidates)

    def write_config(self) -> None:
        """Replace the configuration by what `config` is now."""
        files.write_atomic(self.paths.config_data, encoded(self.config))

    def set_candidates(self, names: Sequence[str]) -> None:
        """Write who is a master candidate."""
        ssconf.write_values(self.paths, {"master_candidates": "\n".join(names)})

    def __enter__(self) -> ConfdNode:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()
        shutil.rmtree(self._base)

    def start(self, *options: str) -> ConfdNode:
        """Run the daemon; returns once it is ready."""
        argv = [sys.executable, f"{CHECKOUT}/daemons/ganeti-confd", "-f", "-p", "0"]
        env = {**os.environ, "GANETI_ROOTDIR": self.paths.root, "GANETI_HOSTNAME": OWN_NAME}
        with open(f"{self.paths.log_dir}/stderr", "ab") as log:
            self.process = subprocess.Popen(
                [*argv, "-b", self.address, *options], env=env, stderr=log
            )
        self.wait_log("INFO Ready")
        found = re.search(r"Listening on \S+ port (\d+)", self.log())
        assert found
        self.port = int(found[1])
        return self

    def stop(self) -> int | None:
        """Stop the daemon and return its exit status; None if it did not run."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def log(self) -> str:
        data = files.read_bytes_or_none(self.paths.log_file("ganeti-confd"))
        return (data or b"").decode()

    def wait_log(self, text: str, times: int = 1) -> None:
        """Wait until a text stands in the log so often."""

        def has_it() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, f"RConfD ended: {self.log()}"
            return self.log().count(text) >= times

        wait_until(has_it, f"{text!r} in the log")

    def client(self, *, timeout_s: float = DEADLINE_S, key: bytes = KEY) -> ConfdClient:
        return ConfdClient(key, [self.address], port=self.port, timeout_s=timeout_s)

    def value(self, kind: int, question: object = None) -> object:
        with self.client() as client:
            return client.value(kind, question)  # type: ignore[arg-type]  # as on the wire

    def memory_kb(self) -> int:
        """Return how much memory the daemon uses."""
        assert self.process is not None
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


class RawClient:
    """Sends what it is given and tells what comes back."""

    def __init__(self, node: ConfdNode) -> None:
        family = socket.AF_INET6 if ":" in node.address else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_DGRAM)
        self.socket.connect((node.address, node.port))
        self.socket.settimeout(DEADLINE_S)
        self._signer = Signer(KEY)
        self._salts = 0

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.socket.close()

    def packet(self, kind: int, question: object = None, *, off_s: int = 0) -> bytes:
        """Return a question, signed at some time."""
        self._salts += 1
        now_s = int(time.time()) + off_s
        return request_packet(self._signer, kind, question, rsalt=f"s{self._salts}", now_s=now_s)

    def answers_nothing_to(self, *datagrams: bytes) -> None:
        """Check that none is answered: the answer to a question asked later comes first."""
        for data in datagrams:
            self.socket.send(data)
        question = self.packet(0)
        self.socket.send(question)
        assert self.receive()[0] == f"s{self._salts}"

    def answers_only_own(self, *datagrams: bytes) -> None:
        """Send, and wait for the answer to a question sent last.

        Before it only such answers may come as belong to questions of ours: a packet that was
        mutated can be another way to write the same.
        """
        for data in datagrams:
            self.socket.send(data)
        self.socket.send(self.packet(0))
        while True:
            salt, _reply = self.receive()
            if salt == f"s{self._salts}":
                return
            assert salt.startswith("s")

    def receive(self) -> tuple[str, Reply]:
        return open_reply(self._signer, self.socket.recv(65536))
