"""The parts of a played cluster: nodes with their agents, instances, jobs, settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ganeti.availability.disk import Round, Verdict
from ganeti.availability.keeper import Keeper
from ganeti.availability.mastership import Claimant
from ganeti.availability.proof import Judge
from ganeti.availability.timing import Timing


class Helper(StrEnum):
    """How the out-of-band helper of a node behaves."""

    NONE = "none"
    WORKS = "works"
    HANGS = "hangs"
    FAILS = "fails"


@dataclass(slots=True)
class SimGuest:
    """An instance.

    Attributes:
        is_shared: every node reaches its disks; otherwise only its two nodes.
    """

    name: str
    primary: str
    secondary: str | None = None
    is_shared: bool = False
    memory: int = 1
    priority: int | None = 0


@dataclass(slots=True)
class Settings:
    """What a configuration says: it counts on most candidates."""

    serial: int = 0
    primary: dict[str, str] = field(default_factory=dict)
    offline: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()

    def copy(self) -> Settings:
        """Return another one with the same contents."""
        return Settings(self.serial, dict(self.primary), self.offline, self.nodes)


@dataclass(slots=True)
class SimJob:
    """A restart: the configuration is changed, then the guest starts."""

    guest: str
    source: str
    target: str
    configured_s: float
    is_configured: bool = False


@dataclass(slots=True)
class SimNode:
    """A node and everything on it.

    Attributes:
        follows: the master that it knows.
        knows: the nodes that it knows; none while it is no part of the cluster.
        dies_s: when its watchdog resets it, unless it is fed; None while it does not run.
        watchdog_s: the time of that watchdog.
        is_armed: the agent that runs feeds it.
        has_let_go: it has closed the device for good, so that its death feeds it no more.
        has_watchdog, watchdog_works: whether it has one, and whether that fires.
        next_timing: other times that its agent is to take up.
        jobs: of the master on it.
        ends_s: when a master that steps down has ended its jobs.
        mid_feed: the agent stands still between the look at the clock and the feeding.
        sees_disk: it reaches the lease disk.
        is_at_disk: it reads and writes there; `round` is the last time that it has done so.
        verdicts: what it has on that disk against others, or is to have.
    """

    name: str
    keeper: Keeper
    judge: Judge
    claimant: Claimant
    follows: str
    knows: frozenset[str]
    settings: Settings
    helper: Helper = Helper.NONE
    has_watchdog: bool = True
    watchdog_works: bool = True
    memory: int = 100
    is_up: bool = True
    agent_stands: bool = False
    mid_feed: bool = False
    sees_disk: bool = True
    is_at_disk: bool = False
    round: Round | None = None
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    boots_s: float | None = None
    boot_no: int = 1
    dies_s: float | None = None
    watchdog_s: float = 0.0
    is_armed: bool = False
    has_let_go: bool = False
    next_timing: Timing | None = None
    next_beat_s: float = 0.0
    is_appeared: bool = False
    is_master: bool = False
    ends_s: float | None = None
    failing_over_s: float | None = None
    jobs: list[SimJob] = field(default_factory=list)
    guests: set[str] = field(default_factory=set)
    answered_s: dict[str, float] = field(default_factory=dict)

    @property
    def timing(self) -> Timing:
        """The times of its agent."""
        return self.keeper.timing

    @property
    def boot_id(self) -> str:
        """The id that the kernel draws at each boot."""
        return f"{self.name}.{self.boot_no}"
