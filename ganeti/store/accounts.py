"""The users of the daemons, where the installation has them: owners of files and of processes.

An installation has them when its data directory belongs to the user of the master's daemons, as on
Debian.  There a program that root starts gives every file to its owner, and a daemon becomes its
user before it does anything else.

Source: config.json, "user_names_note".
"""

from __future__ import annotations

import contextlib
import glob
import grp
import os
import pwd
import stat
from collections.abc import Iterator
from typing import Final, NamedTuple

from ganeti.base.daemons import MASTERD, Daemon
from ganeti.base.errors import OpPrereqError
from ganeti.base.owned_files import DIRECTORY, OWNED, SHARED_LOCKS, SSCONF, Owned
from ganeti.base.paths import Paths
from ganeti.system.files import closing

_SHARED_LOCK_MODE: Final = 0o660


class Difference(NamedTuple):
    """A file or directory that belongs to somebody else, or has another mode, than it should."""

    path: str
    found: str
    wanted: str
    uid: int
    gid: int
    mode: int


def uid_of(name: str) -> int | None:
    """Return the number of a user; None if there is none of that name."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def gid_of(name: str) -> int | None:
    """Return the number of a group; None if there is none of that name."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


def has_accounts(paths: Paths) -> bool:
    """Tell whether this installation has users for the daemons."""
    try:
        owner = os.stat(paths.data_dir).st_uid
    except FileNotFoundError:
        return False
    return owner != 0 and owner == uid_of(MASTERD)


def differences(paths: Paths) -> Iterator[Difference]:
    """Compare owners and modes with the table; missing files and links are passed over.

    Rows whose user or group this machine does not have are as well, and the simple configuration:
    everybody may read it, and it belongs to its last writer, the node daemon or WConfD.
    """
    for row in OWNED:
        uid, gid = uid_of(row.user), gid_of(row.group)
        if uid is None or gid is None or row.pattern == SSCONF:
            continue
        for path in _paths_of(row, paths):
            try:
                status = os.lstat(path)
            except FileNotFoundError:
                continue
            mode = stat.S_IMODE(status.st_mode)
            is_directory = stat.S_ISDIR(status.st_mode)
            if stat.S_ISLNK(status.st_mode) or is_directory != (row.kind == DIRECTORY):
                continue
            if (status.st_uid, status.st_gid, mode) != (uid, gid, row.mode):
                found = f"{status.st_uid}:{status.st_gid} {mode:04o}"
                wanted = f"{row.user}:{row.group} {row.mode:04o}"
                yield Difference(path, found, wanted, uid, gid, row.mode)


def _paths_of(row: Owned, paths: Paths) -> list[str]:
    place: str = getattr(paths, row.place)
    if not row.pattern:
        return [place]
    return sorted(glob.glob(f"{glob.escape(place)}/{row.pattern}"))


def settle(paths: Paths) -> list[Difference]:
    """Give every file its owner and mode; returns the files that were changed.

    Raises:
        OSError: we may not, or the disk fails.
    """
    found = []
    for difference in differences(paths):
        with contextlib.suppress(FileNotFoundError):
            if _settle_one(difference):
                found.append(difference)
    group = gid_of(MASTERD)
    for name in SHARED_LOCKS if group is not None else ():
        with closing(_shared_lock(getattr(paths, name))) as descriptor:
            os.fchown(descriptor, 0, group or 0)
            os.fchmod(descriptor, _SHARED_LOCK_MODE)
    return found


def _settle_one(difference: Difference) -> bool:
    """Give a file its owner and mode; one that became a link meanwhile is left alone."""
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    with closing(os.open(difference.path, flags)) as descriptor:
        if stat.S_ISLNK(os.fstat(descriptor).st_mode):
            return False
        path = f"/proc/self/fd/{descriptor}"  # this very file, whatever its name is now
        os.chown(path, difference.uid, difference.gid)
        os.chmod(path, difference.mode)  # chown takes some bits away
    return True


def _shared_lock(path: str) -> int:
    """Open a lock in a directory where everybody may make files, and may have made this one."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags, 0o600)
    except PermissionError:  # fs.protected_regular
        os.unlink(path)
        return os.open(path, flags | os.O_EXCL, 0o600)


def user_of(daemon: Daemon) -> int:
    """Return the number of the user that a daemon runs as.

    Raises:
        OpPrereqError: there is no such user.
    """
    found = uid_of(daemon.user)
    if found is None:
        raise OpPrereqError(f"user {daemon.user}, whom {daemon.name} runs as, does not exist")
    return found


def become(daemon: Daemon) -> None:
    """Give up being root for good, and be the user of a daemon.

    Raises:
        OSError: the system does not let us.
    """
    user = pwd.getpwnam(daemon.user)
    group = gid_of(daemon.group)
    gid = user.pw_gid if group is None else group
    # The user's own group as well, for files of a group that the daemon itself is not of.
    os.setgroups(sorted({*os.getgrouplist(user.pw_name, user.pw_gid), gid}))
    os.setgid(gid)
    os.setuid(user.pw_uid)
