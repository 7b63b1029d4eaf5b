"""What a node knows of high availability: its settings, and what its agent sees.

The master writes the settings on every node when high availability is switched on, and takes them
away when it is switched off; without them no agent runs.  Agents, LuxiD and maintd read them.

With each beat the agent writes its state for the daemons of the same node, which do not ask etcd
themselves; and those that copy what the master acknowledges tell it which candidates lack some of
that.  These files do not outlive the boot.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final, Literal

import msgspec
from msgspec import field

from ganeti.availability.mastership import Report
from ganeti.availability.restarts import Limits
from ganeti.availability.timing import Timing
from ganeti.base.daemons import MASTER_DAEMONS
from ganeti.base.errors import ConfigurationError, ProtocolError
from ganeti.base.json import dumps, loads_as
from ganeti.base.paths import Paths
from ganeti.system import clock, files

_BYTES_MAX: Final = 1 << 20
_STATE_MODE: Final = 0o644
_WATCHDOG: Final = "/dev/watchdog"


class SharedDisk(msgspec.Struct, frozen=True, kw_only=True):
    """The disk on which nodes hold leases, too.

    Attributes:
        path: on each node.
        cluster: the UUID of the cluster.
        lease: which preparation of the disk.
        size: how many slots it has.
        slots: {node: its slot}; one that came when none was free has none.
    """

    path: str
    cluster: str
    lease: str
    size: int
    slots: Mapping[str, int] = {}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The file.

    Attributes:
        endpoints: URLs of etcd's members for clients.
        prefix: of all keys; it has the cluster's UUID.
        certificate: PEM file with our key and certificate for etcd; "" where etcd asks for none.
        authority: PEM file with the authority of etcd's certificates.
        watchdog: path of the device; "" for none.
        helpers: {node: path of its out-of-band program}.
        members: the nodes that run a member of etcd; none where the site runs one.
        disk: on which nodes hold leases, too; None for none.
        witness: the node that only votes; "" for none.
        adopted: the witness was no node before.
        renewed: another one each time that the certificates are renewed, so that they are read.
    """

    endpoints: list[str]
    prefix: str
    certificate: str = ""
    authority: str = ""
    watchdog: str = _WATCHDOG
    timing: Timing = field(default_factory=Timing)
    limits: Limits = field(default_factory=Limits)
    helpers: Mapping[str, str] = {}
    members: list[str] = []
    disk: SharedDisk | None = None
    witness: str = ""
    adopted: bool = False
    renewed: str = ""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """The file of a node that is a member of the etcd which the cluster runs itself.

    Attributes:
        name: the node's, among the members.
        client_url: ``https://ADDRESS:PORT`` at which it answers clients.
        peer_url: the same for other members.
        initial_cluster: {name: peer URL} of all members, this one as well.
        state: "new" for all members of a new etcd, "existing" for one that was added.
        token: of this etcd; another one for each that is made.
        id: of a member that was added, as etcd numbers it; another one begins without data.
        certificate: PEM file with its key and certificate.
        authority: PEM file with the authority of all members and clients, without key.
        election_ms: after so many milliseconds without its leader etcd looks for another one.
    """

    name: str
    client_url: str
    peer_url: str
    initial_cluster: Mapping[str, str]
    token: str
    certificate: str
    authority: str
    state: Literal["new", "existing"] = "new"
    id: str = ""
    election_ms: int = 1000


def read_member(paths: Paths) -> Member | None:
    """Return what this node is to etcd; its paths are of this node; None if it is no member.

    Raises:
        ConfigurationError: the file cannot be read or understood.
    """
    path = paths.ha_member
    try:
        data = files.read_bytes_or_none(path, _BYTES_MAX)
        member = None if data is None else loads_as(Member, data)
        return member and msgspec.structs.replace(
            member,
            certificate=paths.localize(member.certificate),
            authority=paths.localize(member.authority),
        )
    except Exception as err:
        raise ConfigurationError(f"{path}: {err}") from err


def digest(text: bytes) -> str:
    """Return the digest of a file of settings, by which nodes tell which they have."""
    return hashlib.sha256(text).hexdigest()


def digest_here(paths: Paths) -> str:
    """Return the digest of this node's settings; "" where high availability is off.

    Raises:
        OSError: the file cannot be read.
    """
    text = files.read_bytes_or_none(paths.high_availability, _BYTES_MAX)
    return "" if text is None else digest(text)


def read(paths: Paths) -> Settings | None:
    """Return the settings; None where high availability is off.

    Raises:
        ConfigurationError: the file cannot be read or understood.
    """
    path = paths.high_availability
    try:
        data = files.read_bytes_or_none(path, _BYTES_MAX)
        return None if data is None else _localized(loads_as(Settings, data), paths)
    except Exception as err:
        raise ConfigurationError(f"{path}: {err}") from err


def limits_of(paths: Paths) -> Limits:
    """Return how many instances start at a time; as usual if nobody can read the settings."""
    try:
        settings = read(paths)
    except ConfigurationError:
        return Limits()
    return Limits() if settings is None else settings.limits


def _localized(settings: Settings, paths: Paths) -> Settings:
    if not settings.certificate:
        return settings
    return msgspec.structs.replace(
        settings,
        certificate=paths.localize(settings.certificate),
        authority=paths.localize(settings.authority),
    )


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent of this node sees; times are of the monotonic clock, in seconds.

    Attributes:
        time: when the agent wrote this.
        master_until: until when etcd keeps the key ``master`` for this node at least; None where
            another node, or nobody, holds it.
        holder: the node that holds that key; "" for nobody.
        alone: of two candidates the one that goes on without the other; "" for none.
        pause: why nobody is to act; "" if they may.
        etcd: why etcd could not be read; then the rest is what was known before.
        vouched: when this node last asked, and most nodes said that nobody condemned it.
        known: until when etcd does not forget it, by its last answer, counted from the question.
        settings: the digest of the settings that the agent works with; "" until it does.
        disk: why the lease on the disk is not held; "" if it is, None where there is no such disk.
        absent: what the agent of a master candidate knows, as its node may become the master before
            it hears of that: nodes that are not present in etcd, and may be proved dead although
            they have booted since; and those that were proved dead, until that is dealt with,
            though they may be back.  Nothing is to start there.
    """

    time: float
    master_until: float | None = None
    holder: str = ""
    alone: str = ""
    pause: str = ""
    etcd: str = ""
    vouched: float = 0.0
    known: float = 0.0
    settings: str = ""
    disk: str | None = None
    absent: list[str] = []

    def is_master(self, now_s: float) -> bool:
        """Tell whether this node holds the lease of the master."""
        return self.master_until is not None and now_s < self.master_until


def read_state(paths: Paths) -> State | None:
    """Return what the agent wrote last; None if it has written nothing in this boot.

    A file that cannot be read, or understood, is none.
    """
    try:
        data = files.read_bytes_or_none(paths.ha_state, _BYTES_MAX)
        state = None if data is None else loads_as(State, data)
    except (OSError, ProtocolError):
        return None
    return None if state is None or state.time > clock.monotonic() else state


def write_state(paths: Paths, state: State) -> None:
    """Let the daemons of this node know.

    Raises:
        OSError: they go on with what was written before.
    """
    files.write_atomic(paths.ha_state, dumps(state), _STATE_MODE)


def read_reports(paths: Paths) -> list[Report]:
    """Return what the daemons say of their copies; one that says nothing sensible is left out."""
    found = []
    for daemon in MASTER_DAEMONS:
        try:
            data = files.read_bytes_or_none(f"{paths.ha_copies}.{daemon}", _BYTES_MAX)
            if data is not None:
                found.append(loads_as(Report, data))
        except (OSError, ProtocolError):
            continue
    return found


def write_report(paths: Paths, daemon: str, report: Report) -> None:
    """Let the agent of this node know.

    Raises:
        OSError: it goes by what was written before, for a while.
    """
    files.write_atomic(f"{paths.ha_copies}.{daemon}", dumps(report), _STATE_MODE)
