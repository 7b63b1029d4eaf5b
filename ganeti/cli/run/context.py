"""What a command is given besides its options: the node it runs on, the master, the terminal."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Self

from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.terminal import Terminal
from ganeti.system import clock
from ganeti.system.environment import current_paths

if TYPE_CHECKING:
    from ganeti.clients.luxi import LuxiClient

REASON_SOURCE_CLIENT = "gnt:client"
REASON_SOURCE_USER = "gnt:user"


class Context:
    """One run of one command."""

    def __init__(self, program: str, command: str, options: Options, terminal: Terminal) -> None:
        self.program = program
        self.command = command
        self.options = options
        self.terminal = terminal
        self.waiting_for: list[JobId] = []
        self._client: LuxiClient | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        if self._client is not None:
            self._client.close()

    @cached_property
    def paths(self) -> Paths:
        """The paths of the node that the command runs on."""
        return current_paths()

    @property
    def client(self) -> LuxiClient:
        """The connection to LuxiD, made when first asked for."""
        if self._client is None:
            from ganeti.clients.luxi import LuxiClient

            self._client = LuxiClient(self.paths)
        return self._client

    def reconnect(self) -> None:
        """Give the connection up, because LuxiD was restarted; the next question makes another."""
        if self._client is not None:
            self._client.close()
        self._client = None

    def reason_trail(self) -> list[object]:
        """Return how a job came to be: what the user said, and which command it was."""
        now_ns = int(clock.now() * 1_000_000_000)
        trail: list[object] = []
        if self.options.get("reason"):
            trail.append([REASON_SOURCE_USER, self.options.get("reason"), now_ns])
        trail.append([f"{REASON_SOURCE_CLIENT}:{self.program}", self.command, now_ns])
        return trail

    def write(self, text: str = "") -> None:
        """Write a line of output."""
        self.terminal.write(text)

    def interruption_text(self) -> str:
        """Return what to say when the user gives up waiting."""
        if not self.waiting_for:
            return "Interrupted."
        jobs = " ".join(str(job_id) for job_id in self.waiting_for)
        return (
            f"Interrupted; what was submitted goes on (jobs {jobs}).\n"
            f"'gnt-job watch {self.waiting_for[-1]}' follows it."
        )
