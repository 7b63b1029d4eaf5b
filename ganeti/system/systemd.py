"""Daemons as units of systemd, where that runs the machine and has units for them.

A daemon that is started beside its unit would be in the way of it: ``systemctl`` would call the
unit dead, start a second daemon, and stop none.

Source: systemctl(1), daemon(7), sd_booted(3).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from ganeti.base.errors import CommandError
from ganeti.base.paths import Paths
from ganeti.system import files, process

_IS_BOOTED: Final = "/run/systemd/system"  # sd_booted(3)
_UNIT_DIRECTORIES: Final = (  # systemd.unit(5)
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
_QUICK_TIMEOUT_S: Final = 20.0
_CGROUP_BYTES_MAX: Final = 65536
_LINES_MAX: Final = 20
_FINAL_WORDS: Final = "Cannot go on: "  # before the reason why a daemon ends
_UP_STATES: Final = ("active", "activating", "reloading")  # systemctl(1)
_ONCE_VARIABLE: Final = "ONCE_ARGS"


def unit_of(paths: Paths, name: str) -> str | None:
    """Return the unit of a daemon; None where there is none, as on virtual nodes."""
    if paths.root or not os.path.isdir(_IS_BOOTED):
        return None
    unit = f"{name}.service"
    has_unit = any(os.path.exists(f"{directory}/{unit}") for directory in _UNIT_DIRECTORIES)
    return unit if has_unit else None


def runs(unit: str, pid: int) -> bool:
    """Tell whether a process was started by a unit."""
    try:
        data = files.read_bytes(f"/proc/{pid}/cgroup", _CGROUP_BYTES_MAX)
    except OSError:  # it has ended
        return False
    return is_in_unit(unit, data.decode("utf-8", "replace"))


def is_in_unit(unit: str, control_groups: str) -> bool:
    """Tell whether a process with these control groups belongs to a unit.

    >>> is_in_unit("a.service", "0::/system.slice/a.service/guests")
    True
    >>> is_in_unit("a.service", "0::/user.slice/user-0.slice/session-3.scope")
    False
    """
    return any(unit in line.split("/") for line in control_groups.splitlines())


def is_up(unit: str) -> bool:
    """Tell whether systemd has a unit run, or is about to start it, anew too."""
    return _facts(unit).get("ActiveState") in _UP_STATES


def start(paths: Paths, name: str, unit: str, args: Sequence[str], *, timeout_s: float) -> str:
    """Start a unit, with more arguments this once; returns when its daemon says that it is ready.

    Returns:
        Why it does not run; "" if systemd says that it does, or that it need not.
    """
    # The daemons' users write in the run directory; who writes this file may be root by it.
    once = f"{paths.once_dir}/{name}"
    _systemctl("reset-failed", unit, timeout_s=_QUICK_TIMEOUT_S)  # fails where there is nothing to
    if args:
        files.ensure_directory(paths.once_dir, 0o700)
        files.write_atomic(once, f"{_ONCE_VARIABLE}={' '.join(args)}\n".encode(), 0o600)
    try:
        result = _systemctl("start", unit, timeout_s=timeout_s)
    finally:
        files.remove_if_exists(once)
    if result.timed_out:
        return f"systemd has not started {unit} within {timeout_s:g} s; see 'systemctl list-jobs'"
    return last_words(unit) if result.status else ""


def stop(unit: str, *, timeout_s: float, waits: bool = True) -> None:
    """Stop a unit; returns once its daemon has ended, or, without waiting, is being told.

    Raises:
        CommandError: systemd cannot stop it.
    """
    words = (unit,) if waits else ("--no-block", unit)
    _systemctl("stop", *words, timeout_s=timeout_s).check()


def last_words(unit: str) -> str:
    """Return the last output of the daemon of a unit, or why systemd did not start it."""
    facts = _facts(unit)
    if facts.get("ConditionResult") == "no":
        return f"a condition of {unit} is not met (systemctl status {unit})"
    invocation = facts.get("InvocationID", "")
    argv = ["journalctl", "--no-pager", "--quiet", "--output=cat", f"--lines={_LINES_MAX}"]
    said = ""
    if invocation:
        argv.append(f"_SYSTEMD_INVOCATION_ID={invocation}")
        said = process.run(argv, timeout_s=_QUICK_TIMEOUT_S).stdout.decode("utf-8", "replace")
    reason = said.rpartition(_FINAL_WORDS)[2].strip()
    return reason or f"systemd says {facts.get('Result', 'nothing')!r}"


def _facts(unit: str) -> dict[str, str]:
    wanted = "--property=ActiveState,ConditionResult,InvocationID,Result"
    try:
        shown = _systemctl("show", unit, wanted, timeout_s=_QUICK_TIMEOUT_S).check()
    except CommandError:
        return {}
    lines = shown.stdout.decode("utf-8", "replace").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def _systemctl(verb: str, *words: str, timeout_s: float) -> process.CommandResult:
    argv = ["systemctl", "--no-ask-password", "--quiet", verb, *words]
    return process.run(argv, timeout_s=timeout_s)
