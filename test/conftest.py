"""Shared by all tests: the fakes and guests are importable, every test has a hard limit of time."""

from __future__ import annotations

import atexit
import faulthandler
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, os.path.dirname(__file__))

import machine
from conformance.runs import MarkedRuns
from fakes.chance import EXPLORES

# How long an example takes says how busy the machine is, not whether the program is right; and a
# change is judged by the same examples as the one before it.
settings.register_profile(
    "any machine",
    deadline=None,
    derandomize=not EXPLORES,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any machine")

# Modules are compiled once, and not by every process again, whatever the environment says.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Before anything makes a temporary file; worker processes and daemons inherit it.
machine.work_in_memory()

if machine.hides() and not os.environ["PATH"].endswith("-without"):
    # Before any test module asks for a program; worker processes inherit it.
    _directory = Path(tempfile.mkdtemp(prefix="gnt-path-", suffix="-without"))
    machine.hide(_directory)
    atexit.register(shutil.rmtree, _directory, ignore_errors=True)

# The longest files first, whole clusters that also wait; the many short ones fill the end of the run.
ORDER = ("fault", "cluster", "compat", "daemon", "unit")

OWN_DIRECTORY = pytest.StashKey[str]()
TEST_SECONDS_MAX = 600  # a test that hangs ends the run with every thread's stack printed


def pytest_configure(config: pytest.Config) -> None:
    """Choose the directory of the run; refuse to skip tests with real guests that are demanded."""
    if config.option.basetemp is None:  # in worker processes it is set already
        config.option.basetemp = machine.directory_of_run()
        config.stash[OWN_DIRECTORY] = config.option.basetemp
    config.pluginmanager.register(MarkedRuns())
    if os.environ.get("GANETI_TEST_REQUIRE_QEMU") and shutil.which("qemu-system-x86_64") is None:
        raise pytest.UsageError("GANETI_TEST_REQUIRE_QEMU is set, and there is no QEMU")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Remove the directory of the run, unless a failed test left something to look at."""
    if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        shutil.rmtree(session.config.stash.get(OWN_DIRECTORY, ""), ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the files begin in an order that leaves no process without work at the end."""
    places = {name: place for place, name in enumerate(ORDER)}
    top = Path(__file__).parent
    items.sort(key=lambda item: places.get(item.path.relative_to(top).parts[0], len(ORDER)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Close with the tests that were left out, why, and the command that brings the programs."""
    skipped: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        skipped[reason.removeprefix("Skipped: ")] += 1
    for line in machine.left_out(skipped):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def seconds_max() -> int:
    """How long a test may take, or a round of one."""
    return TEST_SECONDS_MAX


@pytest.fixture(scope="session")
def _terminal(pytestconfig: pytest.Config) -> Iterator[int]:
    """Standard error as it is outside tests: what is captured of one would end with the run."""
    with pytestconfig.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        descriptor = os.dup(2)
    yield descriptor
    os.close(descriptor)


@pytest.fixture(autouse=True)
def limit_again(seconds_max: int, _terminal: int) -> Iterator[Callable[[], None]]:
    """What gives a test, and each round of a long one, its time from now on."""

    def limit() -> None:
        faulthandler.dump_traceback_later(seconds_max, exit=True, file=_terminal)

    limit()
    yield limit
    faulthandler.cancel_dump_traceback_later()
