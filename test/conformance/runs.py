"""What a run of the tests says about promises: marked tests that did not run, and other suites' results."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import pytest
from conformance import promises

SUITES = {"real": "GANETI_TEST_REAL", "debootstrap": "GANETI_TEST_DEBOOTSTRAP"}
REQUIREMENTS = ("GANETI_TEST_REQUIRE_QEMU", "GANETI_TEST_REQUIRE_BROWSER")


class MarkedRuns:
    """Watches the tests that show promises; where nothing may be missing, a left out one fails the run."""

    def __init__(self) -> None:
        self.ran: set[str] = set()
        self.left_out: set[str] = set()
        self.failed: set[str] = set()
        self.suites: dict[str, set[str]] = {}

    def not_shown(self) -> list[str]:
        """Return the tests, or files, of which no example ran."""
        return sorted(self.left_out - self.ran)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Notice a file that is left out as a whole."""
        path = promises.ROOT / report.nodeid
        if (
            report.skipped
            and path.is_file()
            and promises.MARKER in path.read_text(encoding="utf-8")
        ):
            self.left_out.add(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notice what becomes of a marked test."""
        if "shows" not in report.keywords:
            return
        test = report.nodeid.partition("[")[0]
        suite = next((name for name in promises.OUTSIDE if name in report.keywords), "")
        if report.failed:
            self.failed.add(test)
        elif report.skipped and not suite:
            self.left_out.add(test)
        elif report.when == "call" and report.passed:
            self.ran.add(test)
            if suite:
                self.suites.setdefault(suite, set()).add(test)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail where nothing may be missing; write down what other suites showed."""
        if hasattr(session.config, "workerinput"):
            return
        if self.not_shown() and all(os.environ.get(name) for name in REQUIREMENTS):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        for suite, passed in self.suites.items():
            if os.environ.get(SUITES[suite]) and passed - self.failed:
                today = datetime.datetime.now(datetime.UTC).date().isoformat()
                promises.record(suite, passed - self.failed, today)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """List the promises' tests that did not run."""
        tests = self.not_shown()
        if tests:
            page = promises.PAGE.relative_to(Path(promises.ROOT))
            terminalreporter.write_line(f"Not run, though {page} names them ({len(tests)}):")
        for test in tests:
            terminalreporter.write_line(f"  {test}")
