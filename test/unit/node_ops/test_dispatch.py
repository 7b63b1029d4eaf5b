"""From request body to answer body."""

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.paths import Paths
from ganeti.node_ops import dispatch
from ganeti.node_ops.context import NodeContext, NodeHandler
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc import NodeCall
from ganeti.protocol.service import handlers_of

CONTEXT = NodeContext(Paths("/proc/nowhere"), "node1.example.com", "test_delay", "127.0.0.5")


def ask(name: str, *args: object, context: NodeContext = CONTEXT) -> Any:
    answer = dispatch.answer(context, NodeCalls.calls[name], json.dumps(args).encode())
    assert answer.endswith(b"\n")
    return json.loads(answer)


def with_handler(monkeypatch: pytest.MonkeyPatch, handler: type[NodeHandler]) -> None:
    found = {name: handler for name in vars(handler) if name in NodeCalls.calls}
    monkeypatch.setattr(dispatch, "_SERVED", found)


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
    class Broken(NodeHandler):
        def test_delay(self, duration: float) -> None:
            assert duration / 0

    with_handler(monkeypatch, Broken)
    assert ask("test_delay", 1) == [
        False,
        "internal error: ZeroDivisionError: float division by zero",
    ]
    assert "Traceback" in caplog.text


def test_a_result_that_is_no_json_is_an_answer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Strange(NodeHandler):
        def test_delay(self, duration: float) -> Any:
            return object()

    with_handler(monkeypatch, Strange)
    success, text = ask("test_delay", 1)
    assert not success
    assert "internal error" in text


@pytest.mark.parametrize(
    ("name", "args", "words"),
    [
        ("test_delay", ["x"], "wrong argument duration: Expected `float`, got `str`"),
        ("upload_file_single", ["/x", [0, ""], "0644", "r", "r", 0, 0], "wrong argument mode"),
        ("blockdev_find", [{"dev_type": "file"}], "wrong argument disk: RpcDisk: field"),
        ("instance_start", [{"name": "inst1"}, False, []], "wrong argument instance"),
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
    class Changes(NodeHandler):
        def set_watcher_pause(self, until: float | None) -> None:
            return None

    with_handler(monkeypatch, Changes)
    with caplog.at_level(logging.INFO):
        ask("set_watcher_pause", 5)
    assert re.search(r"set_watcher_pause\(until=5\) for 127\.0\.0\.5: done in", caplog.text)


SERVED = [name for name in NodeCalls.calls if dispatch.is_served(name)]
REFUSED = sorted(NodeCalls.calls.keys() - SERVED)


@pytest.mark.parametrize("handler", dispatch._HANDLERS)
def test_each_class_of_handlers_serves_some_calls(handler: type[NodeHandler]) -> None:
    assert handlers_of(NodeCalls, handler, leading=1)


@pytest.mark.parametrize("name", REFUSED)
def test_a_call_without_handler_is_refused(name: str) -> None:
    assert ask(name) == [False, f"not supported yet: {name}"]


@pytest.mark.parametrize("name", REFUSED)
def test_a_call_without_handler_stands_in_the_status(name: str) -> None:
    status = Path(__file__).parents[3] / "doc" / "status.md"
    assert f"`{name}`" in status.read_text().partition("## Not yet")[2]


def describe(call: NodeCall, *args: object) -> str:
    return dispatch.describe(call, args)


def test_a_log_line_shows_names_and_reasons_and_hides_parameters() -> None:
    instance = {"name": "inst1", "osparams": {"password": "geheim"}}
    reason = [["gnt:client:gnt-instance", "start", 1], ["gnt:user", "maintenance", 2]]
    assert describe(NodeCalls.calls["instance_start"], instance, True, reason) == (
        "instance_start(inst1, startup_paused=True,"
        " reason gnt:client:gnt-instance start; gnt:user maintenance)"
    )
    assert "geheim" not in describe(NodeCalls.calls["instance_os_add"], instance, False, 0)
    mirrored = {"uuid": "u", "dev_type": "drbd", "logical_id": ["a", "b", 11000, 0, 1, "geheim"]}
    assert describe(NodeCalls.calls["blockdev_remove"], mirrored) == (
        "blockdev_remove(u ['a', 'b', 11000, 0, 1])"
    )
    disk = {"iv_name": "disk/0", "logical_id": ["loop", "/x"]}
    assert (
        describe(NodeCalls.calls["blockdev_remove"], disk)
        == "blockdev_remove(disk/0 ['loop', '/x'])"
    )
    assert describe(NodeCalls.calls["hooks_runner"], "instance-add", "pre", {"K": "V"}) == (
        "hooks_runner(hpath=instance-add, phase=pre)"
    )
    assert describe(NodeCalls.calls["iallocator_runner"], "hail", "x" * 200, None) == (
        "iallocator_runner(name=hail, default_iallocator_params=None)"
    )


def test_a_log_line_shows_whatever_came() -> None:
    assert describe(NodeCalls.calls["instance_start"], 7, {}, "x") == (
        "instance_start(instance=7, reason=x)"
    )
    assert describe(NodeCalls.calls["instance_start"], {}, None, [3]) == (
        "instance_start(?, startup_paused=None, reason ?)"
    )
    assert describe(NodeCalls.calls["instance_start"]) == "instance_start()"
