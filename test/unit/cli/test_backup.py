"""What ``gnt-backup export`` makes of the result of its job."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ganeti.cli.backup import exports as backup
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.context import Context, Terminal
from ganeti.cli.run.failures import EXIT_FAILURE, EXIT_SUCCESS

_OPTIONS: dict[str, Any] = {
    "target_node": "node3",
    "remove_instance": False,
    "force": False,
    "compress": "none",
    "shutdown": True,
    "shutdown_timeout": 120,
    "ignore_remove_failures": False,
    "zero_free_space": False,
    "zeroing_timeout_fixed": None,
    "zeroing_timeout_per_mib": None,
    "long_sleep": False,
}

COMMAND = next(each for each in backup.COMMANDS if each.name == "export")


@pytest.mark.parametrize(
    ("dry_run", "result", "status", "text"),
    [
        (False, [True, [True, True]], EXIT_SUCCESS, ""),
        (False, [True, [True, False]], EXIT_FAILURE, "not complete; disks: 1"),
        (False, [False, [True]], EXIT_FAILURE, "not complete; disks: -"),
        (True, None, EXIT_SUCCESS, ""),  # a job that only looked has no result
        (False, None, EXIT_FAILURE, ""),
    ],
)
def test_the_exit_status_is_that_of_the_export(
    monkeypatch: pytest.MonkeyPatch, dry_run: bool, result: object, status: int, text: str
) -> None:
    monkeypatch.setattr(backup, "submit", lambda context, options, args: result)
    out = io.StringIO()
    terminal = Terminal(out, out, io.StringIO(), is_interactive=False)
    context = cast(Context, SimpleNamespace(terminal=terminal, command=COMMAND))
    options = Options({**_OPTIONS, "dry_run": dry_run})
    assert backup.export(context, options, ["vm"]) == status
    assert text in out.getvalue()
