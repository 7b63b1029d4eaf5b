"""Allocators, restricted commands and out-of-band helpers."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.shell_scripts import write_script

from ganeti.base.errors import CommandError, GenericError
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.machine import commands
from ganeti.system import clock
from ganeti.system.filelock import FileLock


def test_an_allocator_gets_its_request_and_options(context: NodeContext) -> None:
    directory = Path(context.paths.iallocator_search_path[1])
    write_script(directory / "mine", 'cat "$1"; shift; echo " $@"')
    options = {"ignore-soft-errors": None, "capacity": 3}
    answer = commands.Commands(context).iallocator_runner("mine", '{"x": 1}', options)
    assert answer == '{"x": 1} --ignore-soft-errors --capacity=3\n'
    assert os.listdir(context.paths.run_dir) == []


def test_a_failing_or_missing_allocator_is_named(context: NodeContext) -> None:
    directory = Path(context.paths.iallocator_search_path[0])
    write_script(directory / "bad", "echo no nodes; exit 1")
    with pytest.raises(CommandError, match="no nodes"):
        commands.Commands(context).iallocator_runner("bad", "{}", None)
    with pytest.raises(GenericError, match="iallocator 'hail' is not in"):
        commands.Commands(context).iallocator_runner("hail", "{}", None)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("exec sleep 600", "did not end in time and was killed"),
        ("exec head -c 1000000000 /dev/zero", "printed too much and was killed"),
        ("kill -9 $$", "was killed by SIGKILL"),
    ],
)
def test_an_allocator_that_goes_astray_is_ended(context: NodeContext, body: str, said: str) -> None:
    directory = Path(context.paths.iallocator_search_path[0])
    write_script(directory / "astray", body)
    # The script's time is over at once when the call's is: it then gets the least there is.
    hurried = replace(context, deadline_s=clock.monotonic()) if "sleep" in body else context
    with pytest.raises(CommandError, match=said) as caught:
        commands.Commands(hurried).iallocator_runner("astray", "{}", None)
    assert len(caught.value.message) < 20_000


@pytest.mark.parametrize("name", ["", "-x", "a b", "a=b", "x\n"])
def test_a_parameter_is_one_long_option_and_nothing_else(context: NodeContext, name: str) -> None:
    directory = Path(context.paths.iallocator_search_path[0])
    write_script(directory / "mine", "exit 0")
    with pytest.raises(GenericError, match="is not a valid name"):
        commands.Commands(context).iallocator_runner("mine", "{}", {name: 1})


@pytest.mark.shows("backend/iallocator/directory")
@pytest.mark.parametrize("name", ["../mine", "/bin/true", "", ".", "a/b", "mine\x00"])
def test_an_allocator_is_found_by_a_plain_name_only(context: NodeContext, name: str) -> None:
    directory = Path(context.paths.iallocator_search_path[1])
    write_script(directory.parent / "mine", "exit 0")
    directory.mkdir(parents=True, exist_ok=True)
    with pytest.raises(GenericError, match="is not a valid name"):
        commands.Commands(context).iallocator_runner(name, "{}", None)


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the delays that were waited for, which take no time here."""
    found: list[float] = []
    monkeypatch.setattr(clock, "pause", found.append)
    return found


@pytest.fixture
def restricted(context: NodeContext) -> Path:
    path = Path(context.paths.restricted_commands_dir)
    path.mkdir(mode=0o755)
    return path


@pytest.mark.shows("maintd/security/restricted")
def test_a_restricted_command_runs_without_environment(
    context: NodeContext, restricted: Path
) -> None:
    write_script(restricted / "show", "env | grep -v -e ^PWD= -e ^_= -e ^SHLVL= -e ^OLDPWD=; pwd")
    assert commands.Commands(context).restricted_command("show") == "/\n"


@pytest.mark.shows("maintd/security/restricted")
def test_restricted_commands_that_anybody_could_have_written_are_refused(
    context: NodeContext, restricted: Path
) -> None:
    write_script(restricted / "open", "echo x", 0o757)
    write_script(restricted / "plain", "echo x", 0o644)
    write_script(restricted / "fails", "echo broken; exit 3")
    (restricted / "link").symlink_to("/bin/true")
    for name, words in (
        ("open", "can be changed by others"),
        ("plain", "not an executable file"),
        ("link", "symbolic link"),
        ("absent", "No such file"),
        ("../show", "not a valid name"),
    ):
        with pytest.raises(GenericError, match=words):
            commands.Commands(context).restricted_command(name)
    with pytest.raises(CommandError, match="broken"):
        commands.Commands(context).restricted_command("fails")
    restricted.chmod(0o777)
    with pytest.raises(GenericError, match="restricted-commands can be changed by others"):
        commands.Commands(context).restricted_command("fails")


@pytest.fixture
def repairs(context: NodeContext) -> Path:
    path = Path(context.paths.repair_commands_dir)
    path.mkdir(mode=0o755)
    return path


@pytest.mark.shows("maintd/security/stdin", "maintd/command/executed")
def test_a_repair_command_reads_its_input_and_nothing_else(
    context: NodeContext, repairs: Path
) -> None:
    assert str(repairs).endswith("/etc/ganeti/node-repair-commands")
    write_script(
        repairs / "fix",
        'cat; echo "[$*]"; env | grep -v -e ^PWD= -e ^_= -e ^SHLVL= -e ^OLDPWD=; pwd',
    )
    found = commands.Commands(context).repair_command("fix", '{"status": "live-repair"}\n')
    assert found == '{"status": "live-repair"}\n[]\n/\n'
    assert commands.Commands(context).repair_command("fix", None) == "[]\n/\n"
    large = "x" * (1 << 20)
    write_script(repairs / "count", "wc -c")
    assert commands.Commands(context).repair_command("count", large).strip() == str(len(large))
    write_script(repairs / "deaf", "exit 0")
    assert commands.Commands(context).repair_command("deaf", large) == ""


@pytest.mark.shows("maintd/security/stdin", "maintd/security/restricted")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("open", "can be changed by others"),
        ("group", "can be changed by others"),
        ("plain", "not an executable file"),
        ("link", "symbolic link"),
        ("directory", "not an executable file"),
        ("absent", "No such file"),
        ("../fix", "not a valid name"),
        ("/bin/true", "not a valid name"),
        ("", "not a valid name"),
        ("a b", "not a valid name"),
        ("a\x00b", "not a valid name"),
    ],
)
def test_a_repair_command_that_is_refused_is_not_run_and_takes_its_time(
    context: NodeContext, repairs: Path, pauses: list[float], name: str, words: str
) -> None:
    write_script(repairs / "open", "touch ran", 0o757)
    write_script(repairs / "group", "touch ran", 0o775)
    write_script(repairs / "plain", "touch ran", 0o644)
    write_script(repairs.parent / "fix", "touch ran")
    (repairs / "link").symlink_to("/bin/true")
    (repairs / "directory").mkdir()
    with pytest.raises(GenericError, match=words):
        commands.Commands(context).repair_command(name, "{}")
    assert pauses == [commands.REFUSAL_DELAY_S]
    assert commands.REFUSAL_DELAY_S == 10


def test_a_repair_command_of_another_owner_is_refused(
    context: NodeContext, repairs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_script(repairs / "fix", "echo fixed")
    assert commands.Commands(context).repair_command("fix", None) == "fixed\n"
    os.chown(repairs / "fix", 12345, -1)
    with pytest.raises(GenericError, match="can be changed by others"):
        commands.Commands(context).repair_command("fix", None)
    os.chown(repairs / "fix", os.getuid(), -1)
    os.chown(repairs, 12345, -1)
    with pytest.raises(GenericError, match="node-repair-commands can be changed by others"):
        commands.Commands(context).repair_command("fix", None)


def test_repair_commands_run_one_at_a_time(
    context: NodeContext, repairs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_script(repairs / "fix", "echo fixed")
    write_script(repairs / "fails", "echo broken; exit 3")
    monkeypatch.setattr(commands, "_RESTRICTED_LOCK_TIMEOUT_S", 0.05)
    held = FileLock(context.paths.repair_commands_lock)
    held.acquire(timeout_s=1.0)
    with held, pytest.raises(GenericError, match="lock"):
        commands.Commands(context).repair_command("fix", None)
    with pytest.raises(CommandError, match="broken"):
        commands.Commands(context).repair_command("fails", None)
    assert commands.Commands(context).repair_command("fix", None) == "fixed\n"


def test_out_of_band_helpers(context: NodeContext) -> None:
    script = 'case "$1" in power-status) echo "{\\"powered\\": true}";; health) echo "?";; esac'
    write_script(Path(context.paths.localize("/opt/oob")), script)
    status = commands.Commands(context).run_oob("/opt/oob", "power-status", "node2", 60)
    assert status == {"powered": True}
    assert commands.Commands(context).run_oob("/opt/oob", "power-on", "node2", 60) is None
    with pytest.raises(GenericError, match="/opt/oob health: answer is invalid JSON"):
        commands.Commands(context).run_oob("/opt/oob", "health", "node2", 60)
    with pytest.raises(GenericError, match="unknown out-of-band command"):
        commands.Commands(context).run_oob("/opt/oob", "explode", "node2", 60)
    with pytest.raises(GenericError, match="not an executable file"):
        commands.Commands(context).run_oob("/opt/none", "health", "node2", 60)


def test_an_out_of_band_helper_that_hangs_is_ended(context: NodeContext) -> None:
    write_script(Path(context.paths.localize("/opt/oob")), "sleep 600")
    with pytest.raises(CommandError, match="did not end in time"):
        commands.Commands(context).run_oob("/opt/oob", "power-off", "node2", 0.3)
