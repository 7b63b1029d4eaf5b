"""The facts that this node answers in a vote, and its note of the announced next master.

Source: ARCHITECTURE, invariant 9; `ganeti.jobs.votes` decides with them.
"""

from __future__ import annotations

import logging
import os
import re
from typing import Final

import msgspec

from ganeti.base import errors
from ganeti.base.daemons import MASTER_DAEMONS
from ganeti.base.json import dumps, loads_as
from ganeti.base.paths import Paths
from ganeti.config.deltas.journal import JournalDamaged
from ganeti.protocol.node_rpc_values import NodeFacts
from ganeti.store import config_file, ssconf
from ganeti.store.config_file import readable_config
from ganeti.store.config_reader import identity
from ganeti.store.job_files import JobFiles
from ganeti.system import clock, filelock, files
from ganeti.system.filelock import FileLock

logger = logging.getLogger(__name__)

_CLAIM_BYTES_MAX: Final = 4096
_CLAIM_MODE: Final = 0o600
_FAILOVER_LOCK_MODE: Final = 0o644
_LOCK_TIMEOUT_S: Final = 5.0
_JOB_LOCK: Final = re.compile(r"job_([0-9]+)_[0-9]+")
# A file replaced twice within a tick of the file system's clock may look as if it had not been.
_SETTLED_S: Final = 1.0


class Claim(msgspec.Struct, frozen=True):
    """Somebody's announcement to become master with a configuration of that serial number."""

    serial_no: int = 0
    name: str = ""


class _ClusterHead(msgspec.Struct, frozen=True):
    uuid: str = ""
    master_node: str = ""


class _NodeHead(msgspec.Struct, frozen=True):
    name: str = ""
    master_candidate: bool = False


class _ConfigHead(msgspec.Struct, frozen=True):
    """The parts of a configuration that count in a vote; reading skips all others."""

    serial_no: int = 0
    cluster: _ClusterHead = _ClusterHead()
    nodes: dict[str, _NodeHead] = {}

    @property
    def master_name(self) -> str:
        node = self.nodes.get(self.cluster.master_node)
        return "" if node is None else node.name


_decoder: Final = msgspec.json.Decoder(_ConfigHead)
_known: Final[dict[str, tuple[object, _ConfigHead]]] = {}  # of the file read last, by its path


def own_facts(paths: Paths) -> NodeFacts:
    """Return the facts that this node answers in a vote; unreadable files count as not there.

    Where the simple configuration was never written, ``config.data`` is asked.
    """
    head = _config_head(paths)
    claim = read_claim(paths)
    return NodeFacts(
        master_name=_master_name(paths, head),
        cluster_uuid=head.cluster.uuid,
        config_serial=head.serial_no,
        last_job_id=JobFiles(paths).last_id(),
        candidates=_candidates(paths, head),
        claim_serial=claim.serial_no,
        claim_name=claim.name,
        daemons=running_daemons(paths),
        running_jobs=running_jobs(paths),
        takes_many_files=True,
        fails_over=_is_failing_over(paths),
        patches_config=True,
        keeps_ssconf=True,
        patches_ssconf=True,
        patches_both=True,
        confirms_config=True,
    )


def _is_failing_over(paths: Paths) -> bool:
    try:
        return filelock.is_alive(failover_lock(paths).path)
    except PermissionError:  # a master's daemon; the others ask the node daemon, which may see it
        return False


def running_daemons(paths: Paths) -> tuple[str, ...]:
    """Return the master's daemons that run on this node."""
    running = {name: filelock.running_pid(paths.pid_file(name)) for name in MASTER_DAEMONS}
    return tuple(name for name, pid in running.items() if pid is not None)


def failover_lock(paths: Paths) -> FileLock:
    """Return the lock that a fail-over to this node holds, not yet taken."""
    return FileLock(f"{paths.lock_dir}/ganeti-master-failover.lock", _FAILOVER_LOCK_MODE)


def _config_head(paths: Paths) -> _ConfigHead:
    if not config_file.has_config(paths):
        return _ConfigHead()
    try:
        return _known_head(paths)
    except errors.ConfigurationError as err:
        logger.warning("The configuration here cannot be used: %s; ignoring", err.message)
        return _ConfigHead()


def _known_head(paths: Paths) -> _ConfigHead:
    """Return the head of the configuration; a file that is as it was is not read again.

    Daemons of the master vote twice a minute, and when they start.
    """
    path = paths.config_data
    present = identity(paths)
    file, journal = present
    known = _known.get(path)
    if known is not None and known[0] == present:
        return known[1]
    changed_s = max(file[1], 0 if journal is None else journal[1]) / 1e9
    is_settled = clock.now() - changed_s > _SETTLED_S
    head = _read_head(readable_config(paths))
    if is_settled and identity(paths) == present:
        _known.clear()
        _known[path] = (present, head)
    return head


def _read_head(data: bytes) -> _ConfigHead:
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as err:
        raise errors.ConfigurationError(f"not JSON, or not a configuration: {err}") from err


def _master_name(paths: Paths, head: _ConfigHead) -> str:
    try:
        name = ssconf.read_key_or_none(paths, "master_node")
    except errors.ConfigurationError as err:
        logger.warning("The master is not known here: %s; ignoring", err.message)
        return ""
    return head.master_name if name is None else name


def _candidates(paths: Paths, head: _ConfigHead) -> tuple[str, ...]:
    try:
        return tuple(node.name for node in ssconf.master_candidates(paths))
    except errors.ConfigurationError as err:
        logger.debug("The simple configuration names no candidates: %s; ignoring", err.message)
        return tuple(node.name for node in head.nodes.values() if node.master_candidate)


def running_jobs(paths: Paths) -> tuple[int, ...]:
    """Return the ids of the jobs that have a live process on this node."""
    try:
        names = os.listdir(paths.livelock_dir)
    except FileNotFoundError:
        return ()
    found = ((_JOB_LOCK.fullmatch(name), name) for name in names)
    return tuple(
        sorted(
            int(match.group(1))
            for match, name in found
            if match and filelock.is_alive(os.path.join(paths.livelock_dir, name))
        )
    )


def remove_dead_locks(paths: Paths) -> list[str]:
    """Remove the lock files that nobody holds; returns their names.

    Files in the making, with names that begin with a dot, stay.
    """
    try:
        names = sorted(os.listdir(paths.livelock_dir))
    except FileNotFoundError:
        return []
    found = [(name, os.path.join(paths.livelock_dir, name)) for name in names]
    dead = [
        (name, path)
        for name, path in found
        if not name.startswith(".") and not filelock.is_alive(path)
    ]
    return [name for name, path in dead if files.remove_if_exists(path)]


# Claims.


def claim_path(paths: Paths) -> str:
    """Return the file that holds the claim this node took note of last."""
    return f"{paths.data_dir}/master_claim"


def read_claim(paths: Paths) -> Claim:
    """Return the claim that this node took note of last."""
    data = files.read_bytes_or_none(claim_path(paths), _CLAIM_BYTES_MAX)
    if data is None:
        return Claim()
    try:
        return loads_as(Claim, data)
    except errors.ProtocolError as err:
        logger.warning("%s cannot be used: %s; ignoring", claim_path(paths), err.message)
        return Claim()


def take_claim(paths: Paths, *, known_serial: int, claim: Claim) -> None:
    """Take note of a claim, if nothing changed since its author asked.

    Args:
        known_serial: the serial number of this node's claim when its author asked; a claim that
            is to be taken back is replaced in the same way.

    Raises:
        OpPrereqError: another claim came first; the text names its author.
    """
    with _locked(paths):
        present = read_claim(paths)
        if present.serial_no != known_serial and present != claim:
            raise errors.OpPrereqError(
                f"node {present.name} has announced itself as the next master meanwhile (serial"
                f" number {present.serial_no})",
                errors.ErrorCode.STATE,
            )
        files.write_durable(claim_path(paths), dumps(claim), _CLAIM_MODE)


def accept_master(paths: Paths, *, serial_no: int, values: dict[str, str]) -> list[str]:
    """Take over the simple configuration of the new master; returns the keys that changed.

    Args:
        serial_no: of its claim, which this node must have taken note of last.

    Raises:
        OpPrereqError: it is not the one that this node took note of.
    """
    with _locked(paths):
        present = read_claim(paths)
        if present.serial_no != serial_no:
            raise errors.OpPrereqError(
                f"the claim with serial number {serial_no} is not the one that this node took"
                f" note of last: {present.serial_no}, of {present.name or 'nobody'}"
            )
        return ssconf.write_values(paths, values)


def keep_ssconf(paths: Paths, *, serial_no: int, values: dict[str, str]) -> list[str]:
    """Write the simple configuration of a master; returns the keys that changed.

    A master that stood still while another one took over goes on where it stopped, which may be
    right before this.

    Args:
        serial_no: of a configuration that the master has.

    Raises:
        OpPrereqError: this node follows one that came later.
    """
    with _locked(paths):
        claim, name = read_claim(paths), values.get("master_node")
        present = ssconf.read_key_or_none(paths, "master_node")
        if serial_no < claim.serial_no and name not in (None, present):
            raise errors.OpPrereqError(
                f"node {name} is not the master any more: {present} is, with a configuration of"
                f" serial number {claim.serial_no}",
                errors.ErrorCode.STATE,
            )
        return ssconf.write_values(paths, values)


def set_config_aside(paths: Paths, *, now: float) -> str | None:
    """Rename the configuration here, and forget the claim; returns the new path, if there was one.

    The job queue goes with it, under a name with the same ending: its ids are those of other jobs.

    Raises:
        OSError: it stays.
    """
    with _locked(paths), config_file.only_writer(paths):
        files.remove_if_exists(claim_path(paths))
        if not config_file.has_config(paths):
            return None
        try:
            config_file.fold_journal(paths, now)
        except JournalDamaged as err:
            path = config_file.set_journal_aside(paths, now)
            logger.warning("%s; it is now %s", err.message, path)
        label = f"aside-{_config_head(paths).serial_no}"
        if os.path.isdir(paths.queue_dir):  # before its configuration, by which it is found
            os.rename(paths.queue_dir, config_file.free_name(paths.queue_dir, label, now))
        path = config_file.free_name(paths.config_data, label, now)
        os.rename(paths.config_data, path)
        files.fsync_directory(paths.data_dir)
        return path


def _locked(paths: Paths) -> FileLock:
    lock = FileLock(f"{paths.lock_dir}/ganeti-master-claim.lock")
    try:
        lock.acquire(timeout_s=_LOCK_TIMEOUT_S)
    except OSError as err:
        raise errors.GenericError(f"cannot lock {lock.path}: {err.strerror}") from err
    return lock
