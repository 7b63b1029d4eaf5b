"""A cluster in memory: configuration and nodes with the same signatures as the real clients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fakes.fake_config import FakeConfig
from fakes.fake_nodes import FakeNode, FakeRpc
from fakes.fake_records import GROUP, make_cluster, make_group, make_node, uuid_of

from ganeti.base.errors import JobCanceled
from ganeti.base.paths import Paths
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.processor import execute_opcode
from ganeti.opcodes.registry import decode_opcode

__all__ = [
    "GROUP",
    "FakeCluster",
    "FakeConfig",
    "FakeNode",
    "FakeRpc",
    "make_cluster",
    "make_group",
    "make_node",
    "uuid_of",
]


class FakeCluster:
    """Configuration, nodes and a job to work with."""

    def __init__(self, root: str, nodes: int = 3, **cluster: object) -> None:
        self.config = FakeConfig(root, nodes, **cluster)
        self.rpc = FakeRpc(root)
        self.messages: list[str] = []
        self.waits: list[float] = []
        self.clock = 1000.0
        self.cancel_after: int | None = None  # number of checks and waits until canceled
        self.jobs: list[Any] = []
        self._uuids = 0
        self.context = self._context(root)

    def _context(self, root: str) -> JobContext:
        return JobContext(
            paths=Paths(root),
            job_id=7,
            config=self.config,
            rpc=self.rpc,  # type: ignore[arg-type]  # plays the same part
            feedback=lambda message, kind="message": self.messages.append(str(message)),
            check_canceled=self._check_canceled,
            wait=self._wait,
            priority=lambda: 0,
            on_locks_held=lambda: None,
            submit_jobs=self._submit,
            interruptible=self._interruptible,
            now=lambda: self.clock,
            monotonic=lambda: self.clock,
            new_uuid=self._new_uuid,
        )

    def _check_canceled(self) -> None:
        if self.cancel_after is not None:
            self.cancel_after -= 1
            if self.cancel_after < 0:
                raise JobCanceled("Job canceled by request")

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """The request to cancel may come before a call, or while it is waited for."""
        self._check_canceled()
        yield
        self._check_canceled()

    def _wait(self, seconds: float) -> None:
        self._check_canceled()
        self.waits.append(seconds)
        self.clock += seconds

    def _submit(self, jobs: Sequence[Sequence[Any]]) -> list[int]:
        self.jobs.extend(jobs)
        return list(range(100, 100 + len(jobs)))

    def _new_uuid(self) -> str:
        self._uuids += 1
        return f"10000000-0000-4000-8000-{self._uuids:012x}"

    def execute(self, op_id: str, **params: object) -> Any:
        """Carry out one opcode."""
        return execute_opcode(self.context, decode_opcode({"OP_ID": op_id, **params}))

    def add_instance(self, name: str = "web1.example.com", **params: object) -> dict[str, Any]:
        """Make an instance and return its object; forget what was said and called for it."""
        values: dict[str, object] = {
            "instance_name": name,
            "mode": "create",
            "disk_template": "sharedfile",
            "disks": [{"size": 1024}],
            "nics": [{}],
            "os_type": "debian",
            "pnode": "node1",
            "name_check": False,
            "ip_check": False,
        }
        wanted = {name: value for name, value in {**values, **params}.items() if value is not None}
        self.execute("OP_INSTANCE_CREATE", **wanted)
        self.rpc.calls.clear()
        self.config.calls.clear()
        self.config.lock_history.clear()
        self.messages.clear()
        return self.config.instance(name)

    def said(self, part: str) -> bool:
        """Tell whether the job's log has a message with that text in it."""
        return any(part in message for message in self.messages)

    def leftovers(self) -> list[str]:
        """Return everything that is in the configuration or on a node besides the nodes."""
        left: list[str] = [*self.config.instances, *self.config.disks, *self.rpc.shared]
        for node in self.rpc.nodes.values():
            parts: Iterable[str] = (*node.disks, *node.directories, *node.running, *node.receiving)
            left += [f"{node.name}: {part}" for part in parts]
            left += [f"{node.name}: minor {minor}" for minor in node.sides]
        left += [*self.config.macs, *self.config.held, *map(str, self.config.resources)]
        return left
