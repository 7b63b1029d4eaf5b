"""The plan of a change to another version of the software: steps, each of them command lines.

Each step may be done twice: an upgrade that was interrupted goes on with the step it was in.  The
commands are those that this version and Ganeti 3.0 share, since either may be the one to be left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.base.text import parse_duration

OURS: Final = "ganeti-python"
OF_3_0: Final = "ganeti"
PACKAGES: Final = (OURS, OF_3_0)
DAEMON_UTIL: Final = "/usr/lib/ganeti/daemon-util"
CFGUPGRADE: Final = "/usr/lib/ganeti/tools/cfgupgrade"
PAUSE: Final = "4h"
PAUSE_S: Final = parse_duration(PAUSE)
STEP_TIMEOUT_S: Final = 3600.0
# What high availability has to be paused for at least when daemons are about to be stopped.
PAUSE_LEFT_S: Final = 2 * STEP_TIMEOUT_S
_PAUSE_HA: Final = ("gnt-cluster", "ha-pause", f"--for={PAUSE}", "--reason=upgrade")
PAUSE_HINT: Final = f"'{' '.join(_PAUSE_HA)}'"
_START_OTHERS: Final = "start the daemons of the other nodes"
_START_MASTER: Final = "start the daemons of the master"
_START: Final = (DAEMON_UTIL, "start-all")
# That of 3.0 fails if a daemon runs already, and its package has started some.
_START_3_0: Final = ("sh", "-c", f"{DAEMON_UTIL} stop-all; exec {DAEMON_UTIL} start-all")
_NOBODY_ASKED: Final = ("env", "DEBIAN_FRONTEND=noninteractive")
_APT: Final = (
    *("apt-get", "--quiet", "--yes", "--no-install-recommends", "--allow-downgrades"),
    *("--option", "Dpkg::Options::=--force-confdef", "--option", "Dpkg::Options::=--force-confold"),
    *("--option", "DPkg::Lock::Timeout=600"),
)
# What an earlier try left half done: apt refuses to begin beside it.
_MEND: Final = (
    'if [ -n "$(ls -A /var/lib/dpkg/updates; dpkg --audit)" ]; then'
    " dpkg --force-confdef --force-confold --configure --pending; fi"
)
# That may fail: another version takes the place of one whose own scripts do.
_INSTALL: Final = (*_NOBODY_ASKED, "sh", "-c", f'{_MEND}; exec "$@"', "sh", *_APT, "install")
# Jobs that have an end before them; the others have ended.
_UNFINISHED: Final = frozenset({"queued", "waiting", "canceling", "running"})


class Where(StrEnum):
    """The nodes of a step; those that are offline take part in none."""

    MASTER = "the master"
    OTHERS = "the other nodes"
    ALL = "all nodes"


class Step(NamedTuple):
    """One step.

    Attributes:
        is_kept: whether an interrupted upgrade need not do it again.
        may_fail: whether the upgrade goes on without it.
        starts: whether daemons may be started by it, agents of high availability too.
    """

    name: str
    where: Where
    argv: tuple[str, ...]
    is_kept: bool = True
    may_fail: bool = False
    starts: bool = False


class Member(msgspec.Struct, frozen=True):
    """A node, and how SSH reaches it."""

    name: str
    address: str
    port: int


class Upgrade(msgspec.Struct):
    """An upgrade under way, as it is kept in a file.

    Attributes:
        ha_paused_until: in seconds since the epoch; 0 where high availability is off, or if that
            is not known.
        drained: the queue accepted no jobs before, and is not to be opened.
        watcher_paused_until: how long the watcher was to pause anyhow; 0 if it did not.
    """

    package: str
    wanted: str
    master: str
    nodes: tuple[Member, ...]
    left_out: tuple[str, ...]
    began: int
    done: tuple[str, ...] = ()
    ha_paused_until: float = 0.0
    drained: bool = False
    watcher_paused_until: float = 0.0


class Target(NamedTuple):
    """The package to be installed, and the words by which apt knows this version of it."""

    package: str
    wanted: str

    @property
    def is_file(self) -> bool:
        """Whether it is a file that the nodes have to be given first."""
        return self.wanted.startswith("/")


def target_of(text: str, known: Iterable[tuple[str, str]]) -> Target:
    """Find out what ``--to`` means: a package's file, PACKAGE=VERSION, or a version.

    Args:
        known: names and versions of the packages that apt knows.

    Raises:
        OpPrereqError: there is no such package, or more than one.
    """
    if text.startswith("/"):
        name = text.rpartition("/")[2].partition("_")[0]
        if name not in PACKAGES:
            raise _refusal(f"{text} is not named as a file of one of {', '.join(PACKAGES)}")
        return Target(name, text)
    name, equals, version = text.rpartition("=")
    if equals and name not in PACKAGES:
        raise _refusal(f"{name!r} is none of {', '.join(PACKAGES)}")
    known = list(dict.fromkeys(known))
    found = [each for each in known if is_version(each[1], version) and name in ("", each[0])]
    found = [each for each in found if each[1] == version] or found
    if len(found) != 1:
        listed = ", ".join("=".join(each) for each in found or known) or "none at all"
        what = "more than one version fits" if found else "apt knows no such version"
        raise _refusal(f"{text!r}: {what}; there are {listed}")
    return Target(found[0][0], "=".join(found[0]))


def is_version(version: str, wanted: str) -> bool:
    """Tell whether a version is the one that is wanted, which may leave out Debian's part.

    >>> is_version("3.0.2-3", "3.0.2"), is_version("3.0.20-1", "3.0.2")
    (True, False)
    """
    return version == wanted or version.startswith((f"{wanted}-", f"{wanted}+"))


def known_packages(madison: str) -> list[tuple[str, str]]:
    """Read the output of ``apt-cache madison``: names and versions."""
    rows = [[word.strip() for word in line.split("|")] for line in madison.splitlines()]
    return [(row[0], row[1]) for row in rows if len(row) == 3]


def is_idle(statuses: Iterable[str]) -> bool:
    """Tell whether no job has its end before it."""
    return _UNFINISHED.isdisjoint(statuses)


MEND: Final = Step(
    "end installations that were cut off",
    Where.ALL,
    (*_NOBODY_ASKED, "sh", "-c", _MEND),
    may_fail=True,
)
_STOP: Final = Step("stop the daemons", Where.ALL, (DAEMON_UTIL, "stop-all"))
_PATHS: Final = Paths("")
_JOURNAL: Final = _PATHS.config_journal
# Ganeti 3.0 does not read it.  What cfgupgrade says is the reason if it is there still.
_FOLD: Final = (
    f"[ ! -e {_JOURNAL} ] || {{ {CFGUPGRADE} --no-verify </dev/null >&2; [ ! -e {_JOURNAL} ]; }} ||"
    f" {{ echo 'Ganeti 3.0 would not see the changes in {_JOURNAL}' >&2; exit 1; }}"
)
PAUSE_HA: Final = Step("pause high availability", Where.MASTER, _PAUSE_HA)
_MEMBER: Final = _PATHS.ha_member
# So that high availability can be paused once no daemon runs.
ETCD_ALONE: Final = (
    _STOP,
    Step(
        "start etcd alone",
        Where.ALL,
        ("sh", "-c", f"[ ! -e {_MEMBER} ] || exec {DAEMON_UTIL} start ganeti-etcd"),
        may_fail=True,
    ),
)
UNPAUSED: Final = (
    "high availability is not paused for long enough, and its agents would take daemons that are"
    f" stopped for losses: have etcd run ('{DAEMON_UTIL} start ganeti-etcd' on its members), and"
    f" pause it: {PAUSE_HINT}"
)


def checks(target: Target) -> tuple[Step, ...]:
    """Return the steps that only look: all of them have to succeed before anything is changed."""
    wanted = (*_NOBODY_ASKED, *_APT, "--simulate", "install", target.wanted)
    found = (
        Step("scripts of the package are there", Where.ALL, ("test", "-x", DAEMON_UTIL)),
        Step("the package can be installed", Where.ALL, wanted),
    )
    if target.package == OURS:
        return found
    argv = (CFGUPGRADE, "--downgrade", "--dry-run", "--no-verify")
    return (*found, Step("Ganeti 3.0 can use the configuration", Where.MASTER, argv))


def steps(upgrade: Upgrade) -> tuple[Step, ...]:
    """Return the steps that change something, in their order."""
    backup = f"/var/backups/ganeti-before-{upgrade.began}.tar.gz"
    save = (
        f"umask 077; tar --create --gzip --file={backup}"
        " --exclude=./export --directory=/var/lib/ganeti ."
    )
    install = (*_INSTALL, upgrade.wanted)
    is_ours = upgrade.package == OURS
    start = _START if is_ours else _START_3_0
    fold = Step("bring the journal into the configuration", Where.MASTER, ("sh", "-c", _FOLD))
    return (
        _STOP,
        *(() if is_ours else (fold,)),
        Step("keep the state", Where.ALL, ("sh", "-c", save)),
        Step("install on the other nodes", Where.OTHERS, install, starts=True),
        Step("install on the master", Where.MASTER, install, starts=True),
        Step(_START_OTHERS, Where.OTHERS, start, starts=True),
        Step(_START_MASTER, Where.MASTER, start, starts=True),
        Step("send the configuration", Where.MASTER, ("gnt-cluster", "redist-conf")),
        Step("verify", Where.MASTER, ("gnt-cluster", "verify"), is_kept=False, may_fail=True),
    )


# Before the first of them, and when the last has been done; jobs are not accepted between.
CLOSE: Final = (
    Step("accept no jobs", Where.MASTER, ("gnt-cluster", "queue", "drain")),
    Step("pause the watcher", Where.MASTER, ("gnt-cluster", "watcher", "pause", PAUSE)),
)
OPEN: Final = (
    Step("accept jobs", Where.MASTER, ("gnt-cluster", "queue", "undrain")),
    Step("let the watcher go on", Where.MASTER, ("gnt-cluster", "watcher", "continue")),
)
# The pause of before, if it is not over.
_PAUSE_UNTIL: Final = (
    "left=$(($1 - $(date +%s))); if [ $left -gt 0 ];"
    " then exec gnt-cluster watcher pause $left; fi; exec gnt-cluster watcher continue"
)


def watcher_as_before(upgrade: Upgrade) -> Step:
    """Return the step that ends our pause of the watcher, and no other one."""
    if not upgrade.watcher_paused_until:
        return OPEN[1]
    argv = ("sh", "-c", _PAUSE_UNTIL, "sh", f"{upgrade.watcher_paused_until:.0f}")
    return Step("let the watcher pause as before", Where.MASTER, argv)


STATUSES: Final = ("gnt-job", "list", "--no-headers", "--output=status")


def arranged(upgrade: Upgrade) -> tuple[Step, ...]:
    """Return all steps that change something once no job runs, in their order.

    A queue that was drained before stays so, without jobs of ours either.
    """
    *begin, redistribute, verify = steps(upgrade)
    watcher = watcher_as_before(upgrade)
    if upgrade.drained:
        return (*begin, watcher)
    return (*begin, OPEN[0], redistribute, watcher, verify)


def has_started(upgrade: Upgrade) -> bool:
    """Tell whether the master's daemons run again, and all others with them."""
    return _START_MASTER in upgrade.done


def is_open(upgrade: Upgrade) -> bool:
    """Tell whether it let jobs in again."""
    return OPEN[0].name in upgrade.done


def closed_again(upgrade: Upgrade, *, drained: bool, watcher_paused_until: float) -> Upgrade:
    """Return an upgrade that lets no jobs in, and the watcher pause, and opens both at its end.

    Args:
        drained: whether the queue accepts no jobs, if this upgrade has opened it.
        watcher_paused_until: how long the watcher pauses, if this upgrade has let it go on.
    """
    had_watcher_go_on = watcher_as_before(upgrade).name in upgrade.done
    opened = (OPEN[0].name, watcher_as_before(upgrade).name)
    return msgspec.structs.replace(
        upgrade,
        drained=drained if is_open(upgrade) else upgrade.drained,
        watcher_paused_until=(
            watcher_paused_until if had_watcher_go_on else upgrade.watcher_paused_until
        ),
        done=tuple(name for name in upgrade.done if name not in opened),
    )


def stopped_again(upgrade: Upgrade) -> Upgrade:
    """Return an upgrade that stops all daemons first, as packages have started some."""
    again = (_STOP.name, _START_OTHERS)
    done = tuple(name for name in upgrade.done if name not in again)
    return msgspec.structs.replace(upgrade, done=done)


def without(upgrade: Upgrade, names: Sequence[str]) -> Upgrade:
    """Return an upgrade that leaves out more nodes.

    Raises:
        OpPrereqError: one takes no part in it, or is the master.
    """
    for name in names:
        if name == upgrade.master:
            raise _refusal(f"{name} is the master, and cannot be left out")
        if name not in {*upgrade.left_out, *(node.name for node in upgrade.nodes)}:
            raise _refusal(f"node {name!r} takes no part in the upgrade")
    return msgspec.structs.replace(
        upgrade,
        nodes=tuple(node for node in upgrade.nodes if node.name not in names),
        left_out=tuple(sorted({*upgrade.left_out, *names})),
    )


def hint(upgrade: Upgrade) -> str:
    """Return how to go on once a step has failed."""
    resume = (
        "mend that, then run 'gnt-cluster upgrade --resume'; --without=NODE leaves out a node that"
        " is lost, and --to with --instead changes to another version, the one before too"
    )
    if upgrade.package == OURS:
        return resume
    return f"{resume}; use the programs of an unpacked {OURS}, if it is not installed any more"


def to_do(upgrade: Upgrade) -> tuple[Step, ...]:
    """Return the steps that are left."""
    return tuple(
        step for step in arranged(upgrade) if not (step.is_kept and step.name in upgrade.done)
    )


def nodes_of(step: Step, upgrade: Upgrade) -> Sequence[Member]:
    """Return the nodes of a step, the master the last."""
    order = sorted(upgrade.nodes, key=lambda node: node.name == upgrade.master)
    if step.where is Where.ALL:
        return order
    wants_master = step.where is Where.MASTER
    return [node for node in order if (node.name == upgrade.master) == wants_master]


def _refusal(text: str) -> OpPrereqError:
    return OpPrereqError(text, ErrorCode.INVAL)
