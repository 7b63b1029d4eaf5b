"""Allocators, restricted commands and out-of-band helpers."""

import os
from pathlib import Path

import pytest
from fakes.shell_scripts import write_script

from ganeti.base.errors import CommandError, GenericError
from ganeti.node_ops import commands
from ganeti.node_ops.context import NodeContext


def test_an_allocator_gets_its_request_and_options(context: NodeContext) -> None:
    directory = Path(context.paths.iallocator_search_path[1])
    write_script(directory / "mine", 'cat "$1"; shift; echo " $@"')
    options = {"ignore-soft-errors": None, "capacity": 3}
    answer = commands.iallocator_runner(context, "mine", '{"x": 1}', options)
    assert answer == '{"x": 1} --ignore-soft-errors --capacity=3\n'
    assert not [name for name in os.listdir("/tmp") if name.startswith("ganeti-iallocator-")]


def test_a_failing_or_missing_allocator_is_named(context: NodeContext) -> None:
    directory = Path(context.paths.iallocator_search_path[0])
    write_script(directory / "bad", "echo no nodes; exit 1")
    with pytest.raises(CommandError, match="no nodes"):
        commands.iallocator_runner(context, "bad", "{}", None)
    with pytest.raises(GenericError, match="iallocator 'hail' is not in"):
        commands.iallocator_runner(context, "hail", "{}", None)


@pytest.fixture
def restricted(context: NodeContext) -> Path:
    path = Path(context.paths.restricted_commands_dir)
    path.mkdir(mode=0o755)
    return path


def test_a_restricted_command_runs_without_environment(
    context: NodeContext, restricted: Path
) -> None:
    write_script(restricted / "show", "env | grep -v -e ^PWD= -e ^_= -e ^SHLVL= -e ^OLDPWD=; pwd")
    assert commands.restricted_command(context, "show") == "/\n"


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
            commands.restricted_command(context, name)
    with pytest.raises(CommandError, match="broken"):
        commands.restricted_command(context, "fails")
    restricted.chmod(0o777)
    with pytest.raises(GenericError, match="restricted-commands can be changed by others"):
        commands.restricted_command(context, "fails")


def test_out_of_band_helpers(context: NodeContext) -> None:
    script = 'case "$1" in power-status) echo "{\\"powered\\": true}";; health) echo "?";; esac'
    write_script(Path(context.paths.localize("/opt/oob")), script)
    status = commands.run_oob(context, "/opt/oob", "power-status", "node2", 60)
    assert status == {"powered": True}
    assert commands.run_oob(context, "/opt/oob", "power-on", "node2", 60) is None
    with pytest.raises(GenericError, match="/opt/oob health: answer is invalid JSON"):
        commands.run_oob(context, "/opt/oob", "health", "node2", 60)
    with pytest.raises(GenericError, match="unknown out-of-band command"):
        commands.run_oob(context, "/opt/oob", "explode", "node2", 60)
    with pytest.raises(GenericError, match="not an executable file"):
        commands.run_oob(context, "/opt/none", "health", "node2", 60)


def test_an_out_of_band_helper_that_hangs_is_ended(context: NodeContext) -> None:
    write_script(Path(context.paths.localize("/opt/oob")), "sleep 600")
    with pytest.raises(CommandError, match="did not end in time"):
        commands.run_oob(context, "/opt/oob", "power-off", "node2", 0.3)
