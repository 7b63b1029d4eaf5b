"""WConfD: the only writer of the configuration and the only grantor of locks.

Theory of operation.  One loop.  A request is decided at once on state in memory, made lasting
(`committing` for the configuration, `volatile` for locks and reservations) and then answered, so
a client's acknowledged change survives ``kill -9``.  Everything else depends on these: `deaths`
frees the locks of dead owners, `distribution` brings the configuration to other nodes.

A configuration that cannot be read is refused with the place of the mistake and the files that
could take its place; nothing is guessed.

Source: design of the 2.12 daemons, "WConfD details"; wconfd.json; ARCHITECTURE.
"""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Callable
from typing import Annotated, Final

from ganeti.base.errors import ConfigurationError, ConfigVersionMismatch, GenericError
from ganeti.base.paths import Paths
from ganeti.clients.async_node_rpc import AsyncNodeRpcClient
from ganeti.config import reservation_file
from ganeti.config.deltas.journal import JournalDamaged
from ganeti.config.index import CLUSTER_ID
from ganeti.config.reservation_file import decode_reservations
from ganeti.config.state import ConfigState
from ganeti.daemon.context import DaemonContext
from ganeti.daemon.main import DaemonSpec
from ganeti.daemon.master_watch import MasterWatch, check_self, confirm, poll_everybody
from ganeti.daemon.options import MasterOptions, option
from ganeti.daemon.partner import give_signs_of_life, look_after
from ganeti.jobs.votes import SERIAL_LEAP
from ganeti.locking import serialisation
from ganeti.locking.serialisation import decode_locks
from ganeti.protocol.node_rpc_values import ConfigVersion
from ganeti.protocol.wconfd import MESSAGE_BYTES_MAX, SOCKET_MODE, ClientId
from ganeti.store import ssconf
from ganeti.store.config_file import (
    JournalFile,
    MastersFile,
    file_version,
    fold_journal,
    only_writer,
)
from ganeti.store.config_upgrade import load_and_upgrade
from ganeti.store.lease import CopiesReporter
from ganeti.system import clock, files
from ganeti.system.filelock import LiveLock, is_alive
from ganeti.system.files import NotSyncedError
from ganeti.transport.unix_server import UnixLimits, serve_unix
from ganeti.wconfd import signalling
from ganeti.wconfd.change_methods import OwnChanges, V3Changes
from ganeti.wconfd.copies.distribution import Distributor
from ganeti.wconfd.deaths import DeathWatch
from ganeti.wconfd.dispatch import Dispatcher
from ganeti.wconfd.keeper import Keeper, StateFiles
from ganeti.wconfd.lock_methods import LockMethods
from ganeti.wconfd.maintenance_methods import MaintenanceMethods
from ganeti.wconfd.read_methods import ReadMethods
from ganeti.wconfd.reservation_methods import ReservationMethods
from ganeti.wconfd.signalling import decode_signalled

logger = logging.getLogger(__name__)


def read_files(paths: Paths, *, has_journal: bool = False) -> StateFiles:
    """Read and check the files that hold the state.

    Args:
        has_journal: changes may stay in the journal while the file cannot be written.

    Raises:
        ConfigurationError: one cannot be used; the text names the mistake and the next step.
    """
    config, file, file_version = _read_config(paths, has_journal=has_journal)
    return StateFiles(
        config,
        file,
        file_version,
        _read_volatile(paths, paths.locks_data, serialisation.EMPTY, decode_locks),
        _read_volatile(paths, paths.locks_own_data, signalling.EMPTY, decode_signalled),
        _read_volatile(
            paths,
            paths.tempres_data,
            reservation_file.EMPTY,
            lambda data: decode_reservations(data, None),
        ),
        _read_volatile(
            paths,
            paths.tempres_own_data,
            reservation_file.EMPTY_OWN,
            lambda data: decode_reservations(reservation_file.EMPTY, data),
        ),
    )


def _read_config(
    paths: Paths, *, has_journal: bool
) -> tuple[ConfigState, MastersFile, ConfigVersion]:
    try:
        with only_writer(paths):
            is_behind = not _fold(paths, has_journal=has_journal)
            data = load_and_upgrade(paths, new_uuid=clock.new_uuid, tell=logger.info)
            file = MastersFile(paths)
            config = ConfigState(data)
            return config, file, file_version(paths) if is_behind else config.version
    except (ConfigVersionMismatch, JournalDamaged):
        raise
    except OSError as err:
        text = f"cannot write {paths.config_data}: {err.strerror}; it stays as it was"
        if os.path.exists(paths.config_journal):
            text += f". Put that right and start again. {_keep_journal(paths)}"
        raise ConfigurationError(text) from err
    except GenericError as err:
        raise ConfigurationError(
            f"{paths.config_data} cannot be used: {err.message}. {_way_back(paths)}"
        ) from err


def _fold(paths: Paths, *, has_journal: bool) -> bool:
    """Bring the journal into the file; returns whether that has all changes now.

    Raises:
        OSError: it cannot be written, and no journal is to be kept.
        NotSyncedError: it is not known which one is there.
    """
    try:
        count = fold_journal(paths, clock.now())
    except NotSyncedError:
        raise
    except OSError as err:
        if not has_journal:
            raise
        JournalFile(paths).append([])  # so that its records are durable
        logger.warning("Cannot write %s: %s. %s", paths.config_data, err, _keep_journal(paths))
        return False
    if count:
        logger.info("Changes that the journal had, and the file had not: %d", count)
    return True


def _keep_journal(paths: Paths) -> str:
    return f"Do not remove {paths.config_journal}: it has changes that the file has not"


def _way_back(paths: Paths) -> str:
    """Return the files that could take the place of a configuration that cannot be read."""
    ways = []
    backups = sorted(glob.glob(glob.escape(paths.config_data) + ".*"))
    if backups:
        ways.append(f"copies on this node: {', '.join(backups)}")
    try:
        candidates = [node.name for node in ssconf.master_candidates(paths)]
        own = ssconf.read_key_or_none(paths, "master_node")
        others = [name for name in candidates if name != own]
        if others:
            ways.append(f"these master candidates have one as well: {', '.join(others)}")
    except ConfigurationError as err:
        ways.append(f"the list of master candidates is not known ({err.message})")
    text = f"Put a good copy in its place and start again; {'; '.join(ways) or 'no copy is known'}."
    if os.path.exists(paths.config_journal):
        text += (
            f" Later changes of that copy which are in {paths.config_journal} are made again: move"
            " it away as well if they are not to be."
        )
    return text


def _read_volatile(
    paths: Paths, path: str, empty: bytes, check: Callable[[bytes], object]
) -> bytes:
    """Read a file of which a power cut may have left anything, but only if nobody lives.

    After a power cut all owners are dead, and the file may begin anew.  If an owner lives, the
    file matters and must be readable.
    """
    try:
        data = files.read_bytes_or_none(path)
    except OSError as err:
        raise ConfigurationError(f"cannot read {path}: {err.strerror}") from err
    if data is None:
        return empty
    try:
        check(data)
    except GenericError as err:
        living = _living(paths)
        if living:
            raise ConfigurationError(
                f"{path} cannot be used: {err.message}. These are alive and may own what it"
                f" listed: {', '.join(living)}. End them, move the file away and start again."
            ) from err
        logger.warning("%s cannot be used, beginning anew: %s", path, err.message)
        return empty
    return data


def _living(paths: Paths) -> list[str]:
    try:
        names = sorted(os.listdir(paths.livelock_dir))
    except FileNotFoundError:
        return []
    return [
        name
        for name in names
        if not name.startswith((".", "luxi-daemon_", "wconf-daemon_", "maint-daemon_"))
        and is_alive(os.path.join(paths.livelock_dir, name))
    ]


DRAIN_S: Final = 1.0  # a change takes milliseconds; a waiter for a lock asks the next WConfD
_LIVELOCK_MODE: Final = 0o750


class Options(MasterOptions, frozen=True, kw_only=True):
    """The options of WConfD."""

    force_node: Annotated[bool, option("run even if this node is not the master")] = False
    config_journal: Annotated[
        bool, option("make changes durable by a journal; the whole file follows within a second")
    ] = False
    changes_without_owner: Annotated[
        bool, option("allow the calls of Ganeti 3.0 that change things and name no owner")
    ] = False


async def serve(context: DaemonContext) -> None:
    """Run WConfD until it is told to stop."""
    paths, has_journal = context.paths, context.options_as(Options).config_journal
    context.spawn(give_signs_of_life(context, SPEC.name), "signs of life for LuxiD")
    if context.options_as(Options).force_node:
        logger.warning("Not asking whether this node is the master, as was wished")
        contents = read_files(paths, has_journal=has_journal)
    else:
        await check_self(context)  # before any file is touched
        contents = read_files(paths, has_journal=has_journal)
        await confirm(context)
    keeper = Keeper(paths, contents, has_journal=has_journal)
    files.ensure_directory(paths.livelock_dir, _LIVELOCK_MODE)
    with _own_livelock(paths) as livelock:
        async with AsyncNodeRpcClient(paths) as rpc:
            own = ClientId(os.path.basename(livelock.path), livelock.path, os.getpid())
            watch = MasterWatch(context, rpc)
            distributor = Distributor(
                keeper,
                rpc,
                context.hostname,
                context.spawn,
                None if context.options_as(Options).no_voting else watch,
            )
            watch.reporter = CopiesReporter(
                paths, SPEC.name, distributor.wanted, distributor.lacking
            )
            deaths = DeathWatch(keeper, livelock.path)
            locks = LockMethods(keeper, deaths, own)
            dispatcher = Dispatcher(
                keeper,
                [
                    locks,
                    ReadMethods(keeper, distributor),
                    ReservationMethods(keeper),
                    OwnChanges(keeper),
                    V3Changes(keeper, locks),
                    MaintenanceMethods(keeper),
                ],
                changes_without_owner=context.options_as(Options).changes_without_owner,
            )
            context.spawn(keeper.committer.run(), "writer of the configuration")
            if keeper.checkpoints is not None:
                context.spawn(keeper.checkpoints.run(), "writer of the whole file")
            try:
                await deaths.sweep()  # before anybody asks, and before locks go to the dead
                context.spawn(deaths.run(), "watch over owners")
                limits = UnixLimits(message_bytes_max=MESSAGE_BYTES_MAX, drain_s=DRAIN_S)
                async with serve_unix(paths.wconfd_socket, SOCKET_MODE, dispatcher, limits):
                    distributor.start()
                    _watch_masters(context, keeper, rpc, watch)
                    partner = look_after(context, "ganeti-luxid")
                    context.spawn(partner, "watch over LuxiD")
                    context.ready()
                    await context.stopping.wait()
                if keeper.checkpoints is not None:
                    if not await keeper.checkpoints.write():
                        logger.error("The file could not be written. %s", _keep_journal(paths))
                    await distributor.finish()
            finally:
                deaths.close()
                keeper.close()


def _watch_masters(
    context: DaemonContext, keeper: Keeper, rpc: AsyncNodeRpcClient, watch: MasterWatch
) -> None:
    if context.options_as(Options).no_voting:
        context.spawn(_overrule(context, keeper, rpc), "overruling other masters")
    options = context.options_as(Options)
    asks_nobody = options.no_voting or options.force_node
    context.spawn(watch.only_report() if asks_nobody else watch.run(), "watch over the master role")


async def _overrule(context: DaemonContext, keeper: Keeper, rpc: AsyncNodeRpcClient) -> None:
    """Make the configuration newer than any other, after a start without a vote.

    Nodes refuse an older one, and the operator wants this one to count.
    """
    try:
        poll = await poll_everybody(rpc, context.paths, context.hostname)
    except GenericError as err:
        logger.warning("Cannot overrule other configurations: %s; ignoring", err.message)
        return
    known = poll.known()
    serials = [facts.config_serial for name, facts in known.items() if name != context.hostname]
    highest = max([*serials, *(facts.claim_serial for facts in known.values())])
    before = keeper.state.serial_no
    if highest <= before:
        return
    # Changes may be on their way to the disk: the next one to be written gets the number.
    keeper.state.serial_floor = highest + SERIAL_LEAP
    try:
        await keeper.change(lambda change: change.touch(CLUSTER_ID))
    except GenericError as err:
        logger.warning(
            "Others have a configuration with serial number %s, this one is raised above it by the"
            " next change: %s",
            *(highest, err.message),
        )
        return
    logger.warning(
        "Others have a configuration with serial number %s; this one had %s, and was raised to %s",
        *(highest, before, keeper.state.serial_no),
    )


def _own_livelock(paths: Paths) -> LiveLock:
    seconds = int(clock.now())
    while True:
        path = f"{paths.livelock_dir}/wconf-daemon_{seconds}"
        if not os.path.lexists(path):
            return LiveLock.create(path)
        seconds += 1


SPEC: Final = DaemonSpec(
    name="ganeti-wconfd",
    description="Keeps the configuration and the locks of the cluster.",
    serve=serve,
    options=Options,
)
