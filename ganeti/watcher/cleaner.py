"""``ganeti-cleaner``: begun once a day, it removes files that nobody needs any more.

``node`` is for every node, ``master`` for those with a job archive, master candidates included.
Only what is old goes, and only from places whose files are made by the programs themselves; exports
that are complete are an operator's and stay.

Source: cli.json, "ganeti-cleaner"; config.json, "paths_ensured_by_installation".
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.daemon import log
from ganeti.daemon.main import EXIT_FAILURE, EXIT_SUCCESS
from ganeti.daemon.options import argument, parse
from ganeti.node_ops.machine.keys import remove_expired
from ganeti.node_ops.transfers.status import TransferFiles
from ganeti.protocol.export_description import PARTIAL_SUFFIX
from ganeti.store import ssconf
from ganeti.store.working_directory import OVF, RESTORE, is_used
from ganeti.system import clock, environment, files

logger = logging.getLogger(__name__)

NAME: Final = "ganeti-cleaner"
DESCRIPTION: Final = "remove old jobs, certificates, logs and temporary files"
AGE_S: Final = 21 * 86400.0
LOGS_KEPT: Final = 50
# Of files that are written whole, and of lock files; with the number of the process.
_TEMPORARY: Final = re.compile(r"\..+?\.([0-9]+)(?:\.[0-9]+)?\.tmp")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The command line."""

    what: Annotated[
        Literal["node", "master"], argument("the files of a node, or the archive of jobs")
    ]


class Rule(NamedTuple):
    """Entries of a directory that go once nothing in them was changed for so long (`AGE_S`).

    Those that a process left behind when it was killed go at once.

    Attributes:
        place: name of a well-known path.
        is_meant: tells by the name whether an entry is meant.
        is_used: tells by the path whether it is in use however old it is.
        is_left: tells by the name whether the process that made it is gone.
        depth: how many directories below the place the entries lie.
    """

    place: str
    is_meant: Callable[[str], bool]
    is_used: Callable[[str], bool] = lambda _path: False
    depth: int = 0
    is_left: Callable[[str], bool] = lambda _name: False


def _has_live_process(path: str) -> bool:
    return TransferFiles(path).live_pid() is not None


def _is_temporary(name: str) -> bool:
    return _TEMPORARY.fullmatch(name) is not None


def _is_left(name: str) -> bool:
    match = _TEMPORARY.fullmatch(name)
    return match is not None and not os.path.exists(f"/proc/{match.group(1)}")


def _temporary(place: str, depth: int = 0) -> Rule:
    return Rule(place, _is_temporary, depth=depth, is_left=_is_left)


def _working(place: str, prefix: str) -> Rule:
    return Rule(place, lambda name: name.startswith(prefix), is_used)


def _is_job(name: str) -> bool:
    return fnmatch(name, "job-[0-9]*")


_NODE: Final = (
    Rule("data_dir", lambda name: fnmatch(name, "watcher.*.instance-status")),
    *map(_temporary, ("data_dir", "run_dir", "queue_dir", "rapi_dir", "livelock_dir")),
    Rule("run_dir", lambda name: fnmatch(name, "iallocator-request-*")),
    Rule("import_export_dir", lambda name: not name.startswith("."), _has_live_process),
    Rule("export_dir", lambda name: name.endswith(PARTIAL_SUFFIX)),
    *(_working("data_dir", RESTORE), _working("export_dir", OVF)),
)
_MASTER: Final = (
    Rule("queue_archive_dir", _is_job),
    Rule("queue_archive_dir", _is_job, depth=1),
    _temporary("queue_archive_dir", 1),
)


def main() -> int:
    """Clean up once; returns the exit status."""
    options = parse(NAME, DESCRIPTION, Options, sys.argv[1:])
    is_master = options.what == "master"
    try:
        paths = environment.current_paths()
        if ssconf.read_key_or_none(paths, "master_node") is None:
            return EXIT_SUCCESS  # no node; timers run there, too
        directory = paths.log_master_cleaner_dir if is_master else paths.log_cleaner_dir
        files.ensure_directory(directory, 0o750, inherits_owner=is_master)
        name = time.strftime("cleaner-%Y-%m-%dT%H:%M:%S.log", time.localtime(clock.now()))
        log.set_up(NAME, os.path.join(directory, name), debug=False, console=False)
        now = clock.now()
        is_well = clean_master(paths, now) if is_master else clean_node(paths, now)
        _keep_newest(directory)
    except (GenericError, OSError) as err:
        sys.stderr.write(f"{NAME}: {err}\n")
        return EXIT_FAILURE
    return EXIT_SUCCESS if is_well else EXIT_FAILURE


def clean_node(paths: Paths, now: float) -> bool:
    """Remove the old files of a node; returns whether all went well."""
    is_well = _clean_all(paths, _NODE, now)
    if os.path.isdir(paths.crypto_keys_dir):
        for place in remove_expired(paths.crypto_keys_dir):
            logger.info("Removed %s: the certificate is over", place)
    return is_well


def clean_master(paths: Paths, now: float) -> bool:
    """Remove jobs that ended long ago, and directories of the archive that are empty then."""
    is_well = _clean_all(paths, _MASTER, now)
    for directory in _directories(paths.queue_archive_dir, 1):
        if _is_old(directory, now) and not os.listdir(directory):
            os.rmdir(directory)
            logger.info("Removed %s, which was empty", directory)
    return is_well


def _clean_all(paths: Paths, rules: Sequence[Rule], now: float) -> bool:
    failed = [rule for rule in rules if not _clean(paths, rule, now)]
    return not failed


def _clean(paths: Paths, rule: Rule, now: float) -> bool:
    """Remove what a rule means; returns whether all went well."""
    removed, is_well = 0, True
    for directory in _directories(getattr(paths, rule.place), rule.depth):
        for name in sorted(os.listdir(directory)):
            path = os.path.join(directory, name)
            try:
                is_over = rule.is_left(name) or (rule.is_meant(name) and _is_old(path, now))
                if is_over and not rule.is_used(path):
                    _remove(path)
                    removed += 1
                    logger.debug("Removed %s", path)
            except FileNotFoundError:  # somebody else removed it
                continue
            except (GenericError, OSError) as err:
                logger.warning("Cannot remove %s: %s", path, err)
                is_well = False
    if removed:
        logger.info("Removed %d old entries of %s", removed, getattr(paths, rule.place))
    return is_well


def _directories(top: str, depth: int) -> Iterator[str]:
    """Yield a directory, or those so far below it."""
    if not os.path.isdir(top):
        return
    if not depth:
        yield top
        return
    with os.scandir(top) as entries:
        below = sorted(each.path for each in entries if each.is_dir(follow_symlinks=False))
    for path in below:
        yield from _directories(path, depth - 1)


def _is_old(path: str, now: float) -> bool:
    """Tell whether nothing was changed for long: a file, or a directory with all that is in it."""
    changed = os.lstat(path).st_mtime
    if os.path.isdir(path) and not os.path.islink(path):
        inside = (os.path.join(top, name) for top, _, names in os.walk(path) for name in names)
        changed = max([changed, *(os.lstat(each).st_mtime for each in inside)])
    return changed < now - AGE_S


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def _keep_newest(directory: str) -> None:
    """Remove old logs of this program; their names sort by time."""
    names = sorted(name for name in os.listdir(directory) if name.startswith("cleaner-"))
    for name in names[:-LOGS_KEPT]:
        files.remove_if_exists(os.path.join(directory, name))
