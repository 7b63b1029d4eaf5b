"""Running the hooks of a phase."""

import json
from pathlib import Path

import pytest
from fakes.shell_scripts import write_script

from ganeti.base.errors import GenericError
from ganeti.node_ops import dispatch
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.machine.commands import Commands
from ganeti.protocol.node_calls import NodeCalls

ENV = {"PATH": "/sbin:/bin:/usr/sbin:/usr/bin", "GANETI_HOOKS_PHASE": "pre"}


def test_each_script_is_answered_with_its_code_and_output(context: NodeContext) -> None:
    directory = Path(context.paths.hooks_dir, "instance-add-pre.d")
    write_script(directory / "10-fine", "echo ' phase' $GANETI_HOOKS_PHASE $HOME; pwd")
    write_script(directory / "20-refuses", "echo no room >&2; exit 4")
    write_script(directory / "30-silent", "exit 4")
    write_script(directory / "40-off", "exit 4", 0o644)
    write_script(directory / "50.disabled", "exit 4")
    assert Commands(context).hooks_runner("instance-add", "pre", ENV) == [
        ("instance-add-pre.d/10-fine", 2, "phase pre\n/"),
        ("instance-add-pre.d/20-refuses", 1, "no room"),
        ("instance-add-pre.d/30-silent", 1, "failed with exit status 4"),
        ("instance-add-pre.d/40-off", 0, ""),
        ("instance-add-pre.d/50.disabled", 0, ""),
    ]


def test_no_hooks_no_results(context: NodeContext) -> None:
    assert Commands(context).hooks_runner("instance-add", "post", ENV) == []


def test_without_scripts_there_is_no_need_for_a_child(context: NodeContext) -> None:
    def answer(path: str, phase: str = "pre") -> bytes | None:
        body = json.dumps([path, phase, ENV]).encode()
        return dispatch.answer_if_nothing_to_do(context, NodeCalls.calls["hooks_runner"], body)

    directory = Path(context.paths.hooks_dir, "instance-add-pre.d")
    assert answer("instance-add") == b"[true,[]]\n"
    directory.mkdir(parents=True)
    assert answer("instance-add") == b"[true,[]]\n"
    write_script(directory / "10-fine", "exit 0")
    assert answer("instance-add") is None
    assert answer("instance-add", "post") == b"[true,[]]\n"
    assert answer("../x") is None  # the child complains
    assert answer("x", "during") is None


@pytest.mark.parametrize(
    ("path", "phase"), [("../x", "pre"), ("a/b", "pre"), ("", "pre"), ("x", "during")]
)
def test_nothing_else_is_run(context: NodeContext, path: str, phase: str) -> None:
    with pytest.raises(GenericError):
        Commands(context).hooks_runner(path, phase, ENV)
