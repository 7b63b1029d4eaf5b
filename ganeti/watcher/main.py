"""``ganeti-watcher``: begun every five minutes on each node, it puts right what has stopped.

On every node it starts daemons that died and runs the administrator's scripts; on the master it
also looks after instances, by a process for each node group.  It changes nothing of the cluster but
by jobs.

Source: cli.json, "ganeti-watcher"; hooks_os_ext.json, "watcher".
"""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import Annotated, Final

import msgspec

from ganeti.base.errors import GenericError, LockError, NotMasterError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.base.text import parse_duration
from ganeti.daemon import log
from ganeti.daemon.main import EXIT_FAILURE, EXIT_NOTMASTER, EXIT_SUCCESS
from ganeti.daemon.options import option, parse
from ganeti.store import ssconf
from ganeti.store.notes import watcher_pause
from ganeti.system import environment, files
from ganeti.system.filelock import FileLock
from ganeti.watcher.group import watch_group
from ganeti.watcher.master_part import Children, look_after_master
from ganeti.watcher.node_part import look_after_node, stop_master_daemons

logger = logging.getLogger(__name__)

NAME: Final = "ganeti-watcher"
DESCRIPTION: Final = "start daemons and instances that have stopped"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The command line."""

    debug: Annotated[bool, option("log more, and to standard error as well", "-d")] = False
    node_group: Annotated[
        str | None, option("look after the instances of this group only", "-g", "NODEGROUP")
    ] = None
    job_age: Annotated[
        str, option("archive jobs that ended so long ago: 90, 30m, 6h, 2d or 1w", "-A", "AGE")
    ] = "6h"
    ignore_pause: Annotated[bool, option("work even while the watcher is paused")] = False
    wait_children: Annotated[bool, option("wait for the processes of the groups (the default)")] = (
        False
    )
    no_wait_children: Annotated[bool, option("end without waiting for them")] = False
    no_verify_disks: Annotated[bool, option("leave disks alone that are not in use")] = False
    rapi_ip: Annotated[
        str | None, option("address at which the remote API answers", metavar="ADDRESS")
    ] = None


def main() -> int:
    """Run once; returns the exit status."""
    options = parse(NAME, DESCRIPTION, Options, sys.argv[1:])
    try:
        age_s = _checked(options)
        paths = environment.current_paths()
        if not _is_member(paths):
            return EXIT_SUCCESS
        files.ensure_directory(paths.lock_dir, 0o755)
        files.ensure_directory(paths.log_dir, 0o770)
        log.set_up(
            NAME,
            paths.log_watcher,
            debug=options.debug,
            console=options.debug,
            fallback=log.console_of(paths),
        )
    except (GenericError, OSError) as err:
        sys.stderr.write(f"{NAME}: {_text_of(err)}\n")
        return EXIT_FAILURE
    try:
        return _run(paths, options, job_age_s=age_s)
    except NotMasterError as err:
        logger.warning("%s", err.message)
        return EXIT_NOTMASTER
    except (GenericError, OSError) as err:
        return _fail(_text_of(err))
    except Exception:
        logger.exception("Internal error")
        return _fail("internal error; see the log")


def _fail(text: str) -> int:
    logger.error("Cannot go on: %s", text)
    if os.isatty(sys.stderr.fileno()):
        sys.stderr.write(f"{NAME}: {text}\n")
    return EXIT_FAILURE


def _text_of(error: GenericError | OSError) -> str:
    if isinstance(error, GenericError):
        return error.message
    return f"{error.filename}: {error.strerror}" if error.filename else str(error)


def _is_member(paths: Paths) -> bool:
    """Tell whether this machine belongs to a cluster; timers run on others, too."""
    is_known = ssconf.read_key_or_none(paths, "master_node") is not None
    return is_known and os.path.exists(paths.server_pem)


def _checked(options: Options) -> int:
    """Return the age of jobs to archive, in seconds.

    Raises:
        OpPrereqError: options are wrong, or contradict each other.
    """
    if options.wait_children and options.no_wait_children:
        raise OpPrereqError("--wait-children and --no-wait-children exclude each other")
    try:
        return parse_duration(options.job_age)
    except OpPrereqError as err:
        raise OpPrereqError(f"--job-age: {err.message}") from err


def _run(paths: Paths, options: Options, *, job_age_s: int) -> int:
    until = watcher_pause.read(paths)
    if until is not None and not options.ignore_pause:
        logger.info("Paused until %s", time.ctime(until))
        return EXIT_SUCCESS
    if options.node_group is not None:
        is_well = watch_group(paths, options.node_group, verifies_disks=not options.no_verify_disks)
        return EXIT_SUCCESS if is_well else EXIT_FAILURE
    lock = FileLock(paths.watcher_lock)
    try:
        lock.acquire()
    except LockError as err:
        raise LockError(
            f"{err.message}: another run of the watcher, or a command that has stopped the daemons"
        ) from err
    with lock:
        if not _is_member(paths):  # it was, before whoever had the lock
            return EXIT_SUCCESS
        is_well = look_after_node(paths)
        hostname = environment.own_hostname()
        if ssconf.master_node(paths) != hostname:
            is_well &= stop_master_daemons(paths)
            return EXIT_SUCCESS if is_well else EXIT_FAILURE
        children = Children(paths, _words_for_children(options))
        is_well &= look_after_master(
            paths, children, job_age_s=job_age_s, rapi_address=options.rapi_ip
        )
    # Others may begin: each group has a lock of its own.
    if not options.no_wait_children:
        is_well &= children.wait()
    return EXIT_SUCCESS if is_well else EXIT_FAILURE


def _words_for_children(options: Options) -> list[str]:
    given = {"--debug": options.debug, "--no-verify-disks": options.no_verify_disks}
    # The pause was looked at, and one that begins now is for the next run.
    return ["--ignore-pause", *(word for word, is_given in given.items() if is_given)]
