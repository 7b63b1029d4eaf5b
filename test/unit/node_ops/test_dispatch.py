"""From request body to answer body."""

import json
import logging
import re
from typing import Any

import pytest

from ganeti.base.paths import Paths
from ganeti.node_ops import dispatch, registry
from ganeti.node_ops.context import NodeContext
from ganeti.protocol.node_rpc import NODE_RPC, NodeCall

CONTEXT = NodeContext(Paths("/proc/nowhere"), "node1.example.com", "test_delay", "127.0.0.5")


def ask(name: str, *args: object, context: NodeContext = CONTEXT) -> Any:
    answer = dispatch.answer(context, NODE_RPC[name], json.dumps(args).encode())
    assert answer.endswith(b"\n")
    return json.loads(answer)


def with_handler(monkeypatch: pytest.MonkeyPatch, handler: registry.Handler) -> None:
    monkeypatch.setattr(dispatch, "find_handler", lambda _call: handler)


def test_a_result_is_an_answer() -> None:
    assert ask("test_delay", 0) == [True, None]


def test_an_error_of_ours_is_its_text() -> None:
    success, text = ask("test_delay", -1)
    assert not success
    assert text == "test_delay: duration -1.0 is negative"


def test_an_error_of_the_system_names_the_file() -> None:
    success, text = ask("jobqueue_purge")
    assert not success
    assert text == "/proc/nowhere: No such file or directory"


def test_a_mistake_of_ours_is_an_answer_and_a_traceback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_context: NodeContext, duration: float) -> float:
        return duration / 0

    with_handler(monkeypatch, broken)
    assert ask("test_delay", 1) == [
        False,
        "internal error: ZeroDivisionError: float division by zero",
    ]
    assert "Traceback" in caplog.text


def test_a_result_that_is_no_json_is_an_answer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def strange(_context: NodeContext, _duration: float) -> object:
        return object()

    with_handler(monkeypatch, strange)
    success, text = ask("test_delay", 1)
    assert not success
    assert "internal error" in text


@pytest.mark.parametrize(
    ("name", "args", "words"),
    [
        ("test_delay", ["x"], "wrong argument duration: Expected `float`, got `str`"),
        ("upload_file_single", ["/x", [0, ""], "0644", "r", "r", 0, 0], "wrong argument mode"),
        ("blockdev_find", [{"dev_type": "file"}], "wrong argument disk: RpcDisk: field"),
        ("instance_start", [{"name": "inst1"}, False, []], "wrong argument instance_hvp_bep"),
        ("hooks_runner", ["x", "pre", {"A": 1}], "wrong argument env"),
    ],
)
def test_a_wrong_argument_is_named(name: str, args: list[object], words: str) -> None:
    success, text = ask(name, *args)
    assert not success
    assert words in text
    assert text.startswith(f"{name}: ")


def test_changes_are_logged_with_who_asked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def changes(_context: NodeContext, _until: float) -> None:
        return None

    with_handler(monkeypatch, changes)
    with caplog.at_level(logging.INFO):
        ask("set_watcher_pause", 5)
    assert re.search(r"set_watcher_pause\(until=5\) for 127\.0\.0\.5: done in", caplog.text)


def describe(call: NodeCall, *args: object) -> str:
    return dispatch.describe(call, args)


def test_a_log_line_shows_names_and_reasons_and_hides_parameters() -> None:
    instance = {"name": "inst1", "osparams": {"password": "geheim"}}
    reason = [["gnt:client:gnt-instance", "start", 1], ["gnt:user", "maintenance", 2]]
    assert describe(NODE_RPC["instance_start"], instance, True, reason) == (
        "instance_start(inst1, startup_paused=True,"
        " reason gnt:client:gnt-instance start; gnt:user maintenance)"
    )
    assert "geheim" not in describe(NODE_RPC["instance_os_add"], instance, False, 0)
    disk = {"iv_name": "disk/0", "logical_id": ["loop", "/x"]}
    assert describe(NODE_RPC["blockdev_remove"], disk) == "blockdev_remove(disk/0 ['loop', '/x'])"
    assert describe(NODE_RPC["hooks_runner"], "instance-add", "pre", {"K": "V"}) == (
        "hooks_runner(hpath=instance-add, phase=pre)"
    )
    assert describe(NODE_RPC["iallocator_runner"], "hail", "x" * 200, None) == (
        "iallocator_runner(name=hail, default_iallocator_params=None)"
    )


def test_a_log_line_shows_whatever_came() -> None:
    assert describe(NODE_RPC["instance_start"], 7, {}, "x") == (
        "instance_start(instance_hvp_bep=7, reason=x)"
    )
    assert describe(NODE_RPC["instance_start"], {}, None, [3]) == (
        "instance_start(?, startup_paused=None, reason ?)"
    )
    assert describe(NODE_RPC["instance_start"]) == "instance_start()"
