"""Shared by all tests: the fakes and guests are importable, every test has a hard limit of time."""

from __future__ import annotations

import faulthandler
import os
import shutil
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, os.path.dirname(__file__))

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

TEST_SECONDS_MAX = 600  # a test that hangs ends the run with every thread's stack printed


def pytest_configure() -> None:
    """Refuse to skip the tests with real guests where they are demanded."""
    if os.environ.get("GANETI_TEST_REQUIRE_QEMU") and shutil.which("qemu-system-x86_64") is None:
        raise pytest.UsageError("GANETI_TEST_REQUIRE_QEMU is set, and there is no QEMU")


@pytest.fixture(autouse=True)
def _hard_limit() -> Iterator[None]:
    faulthandler.dump_traceback_later(TEST_SECONDS_MAX, exit=True, file=sys.__stderr__)
    yield
    faulthandler.cancel_dump_traceback_later()
