"""The tables of ``cfgupgrade`` and ``query-config``: usable, and with the options of 3.0."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from fakes.old_configs import CURRENT_VERSION, config_bytes

from ganeti.base.paths import Paths
from ganeti.cli.declaration.help import command_help, program_help
from ganeti.cli.declaration.program import Command
from ganeti.cli.documents.manual import manual_page
from ganeti.cli.run.failures import EXIT_CONFIGURATION
from ganeti.cli.run.main import run
from ganeti.cli.tools import cfgupgrade, query_config
from ganeti.cli.tools.query_config import COLUMNS
from ganeti.config.config_data import TABLES
from ganeti.system.filelock import PidFile

# cli.json, "tools"
CFGUPGRADE_FLAGS = {
    ("--dry-run",),
    ("-f", "--force"),
    ("-d", "--debug"),
    ("-v", "--verbose"),
    ("--ignore-hostname",),
    ("--path",),
    ("--confdir",),
    ("--no-verify",),
    ("--downgrade",),
}


def test_cfgupgrade_has_the_options_of_3_0() -> None:
    assert {option.flags for option in cfgupgrade.OPTIONS} == CFGUPGRADE_FLAGS
    assert all(option.help for option in cfgupgrade.OPTIONS)


def test_a_failure_with_debug_has_a_traceback_and_the_same_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.data").write_text("{")
    words = ["--dry-run", "--path", str(tmp_path)]
    status = run(cfgupgrade.PROGRAM, words)
    plain = capsys.readouterr().err
    assert status == EXIT_CONFIGURATION
    assert run(cfgupgrade.PROGRAM, ["-d", *words]) == status
    shown = capsys.readouterr().err
    assert shown.startswith("Traceback")
    assert shown.endswith(plain)


@pytest.mark.parametrize("meanwhile", ["a daemon", "a change", "a journal"])
def test_what_happens_while_it_asks_is_not_written_over(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    meanwhile: str,
) -> None:
    paths = Paths(str(tmp_path))
    for directory in (paths.data_dir, paths.run_dir):
        Path(directory).mkdir(parents=True)
    config = Path(paths.config_data)
    config.write_bytes(config_bytes("2.12"))
    daemon = PidFile(paths.pid_file("ganeti-wconfd"))

    def answer(*_args: object) -> None:
        match meanwhile:
            case "a daemon":
                daemon.acquire()
            case "a change":
                config.write_bytes(config_bytes("2.7"))
            case _:
                Path(paths.config_journal).write_bytes(b"{}")

    monkeypatch.setattr(cfgupgrade, "confirm", answer)
    with daemon:
        assert run(cfgupgrade.PROGRAM, ["--ignore-hostname", "--path", paths.data_dir]) == 1
    assert re.search("is running|changed meanwhile", capsys.readouterr().err)
    left = "2.7" if meanwhile == "a change" else "2.12"
    assert config.read_bytes() == config_bytes(left)
    assert len(list(config.parent.glob("config.data*"))) == 1


def test_every_kind_of_object_can_be_listed() -> None:
    assert set(query_config.KINDS) == set(TABLES) == set(COLUMNS)


@pytest.mark.parametrize("uuid", [[], {"a": []}, 5])
def test_disks_whose_uuid_is_no_text_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], uuid: object
) -> None:
    config = json.loads(config_bytes(CURRENT_VERSION))
    disk = {"dev_type": "plain", "size": 777, "uuid": uuid}
    config["disks"]["d1"] = disk
    next(iter(config["instances"].values()))["disks"] = [uuid, disk]
    (tmp_path / "config.data").write_text(json.dumps(config))
    assert run(query_config.PROGRAM, ["list", f"--path={tmp_path}/config.data", "disks"]) == 0
    assert "777" in capsys.readouterr().out


@pytest.mark.parametrize("command", query_config.PROGRAM.commands, ids=lambda one: one.name)
def test_commands_are_built_and_explained(command: Command) -> None:
    assert callable(command.does)
    text = command_help(query_config.PROGRAM, command, 100)
    assert all(option.long in text for option in command.options)
    assert command.name in program_help(query_config.PROGRAM, 100)
    assert f".SS {command.name}" in manual_page(query_config.PROGRAM, [])
