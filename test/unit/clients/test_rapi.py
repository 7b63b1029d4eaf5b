from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from ganeti.base.errors import ProtocolError, TransportError
from ganeti.clients import rapi
from ganeti.clients.rapi import EndedJob, JobFailedError, Password, RapiRefusedError, Token
from ganeti.objects.tags import TagKind
from ganeti.opcodes.backup import ExportMode, OpBackupPrepare
from ganeti.opcodes.instance import (
    InstanceCreateMode,
    OpInstanceCreate,
    OpInstanceRemove,
    OpInstanceShutdown,
)
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.registry import all_op_ids, opcode_class
from ganeti.opcodes.tags import OpTagsSet
from ganeti.protocol.rapi.routes import Route
from ganeti.protocol.rapi.table import ROUTES, TABLE
from ganeti.transport.curl_pool import CurlResponse


def test_each_route_has_a_method_of_its_own() -> None:
    names = [rapi.method_name(route) for route in ROUTES]
    assert len(set(names)) == len(names)


class Recorder(rapi.RapiClient):
    """Keeps the last request instead of sending it."""

    def __init__(self) -> None:
        super().__init__("none.example.com")

    def _ask(self, route: Route, values: Any, query: Any, body: Any, if_match: str = "") -> Any:
        self.if_match = if_match
        path = re.sub(r"{\w+}", "{}", route.path).format(*values)
        sent = {name: value for name, value in query.items() if value is not UNSET}
        self.asked = (route.method, path, sent, body)
        return {"status": "success"}


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        (
            OpInstanceShutdown(instance_name="a", timeout=9, no_remember=True),
            ("PUT", "/2/instances/a/shutdown", {"no_remember": True}, {"timeout": 9}),
        ),
        (
            OpInstanceCreate(
                instance_name="a", os_type="x", mode=InstanceCreateMode.CREATE, disks=[], nics=[]
            ),
            (
                "POST",
                "/2/instances",
                {},
                {
                    "__version__": 1,
                    "name": "a",
                    "os": "x",
                    "mode": "create",
                    "disks": [],
                    "nics": [],
                },
            ),
        ),
        (OpInstanceRemove(instance_name="a"), ("DELETE", "/2/instances/a", {}, {})),
        (
            OpInstanceRemove(instance_name="a", ignore_failures=True),
            (
                "POST",
                "/2/opcodes/OP_INSTANCE_REMOVE",
                {},
                {"instance_name": "a", "ignore_failures": True},
            ),
        ),
        (
            OpTagsSet(kind=TagKind.NODE, name="n", tags=["x"]),
            ("PUT", "/2/nodes/n/tags", {"tag": ["x"]}, {}),
        ),
        (
            OpTagsSet(kind=TagKind.CLUSTER, tags=["x"], dry_run=True),
            ("PUT", "/2/tags", {"tag": ["x"], "dry-run": True}, {}),
        ),
        (
            OpBackupPrepare(instance_name="a", mode=ExportMode.REMOTE),
            ("PUT", "/2/instances/a/prepare-export", {"mode": "remote"}, {}),
        ),
    ],
)
def test_an_opcode_goes_by_the_route_of_3_0_that_takes_it(
    opcode: OpCode, expected: tuple[str, str, dict[str, Any], dict[str, Any]]
) -> None:
    recorder = Recorder()
    recorder.submit(opcode)
    assert recorder.asked == expected


def test_every_opcode_can_be_submitted_and_is_read_as_it_was_sent() -> None:
    recorder = Recorder()
    for op_id in all_op_ids():
        needed = {
            field.name: f"<{field.name}>"
            for field in msgspec.structs.fields(opcode_class(op_id))
            if field.required
        }
        recorder.submit(opcode_class(op_id)(**needed), reason="test")
        method, path, query, body = recorder.asked
        found = TABLE.find(path.replace("<", "").replace(">", ""))
        assert found is not None, path
        route = found[0].routes[method]
        assert query.pop("reason") == "test"
        assert query.keys() <= {each.name for each in route.arguments}
        assert not body or route.takes_body


@pytest.mark.parametrize(
    ("name", "values", "given", "expected"),
    [
        ("get_instances", (), {"bulk": True}, ("GET", "/2/instances", {"bulk": True}, {})),
        ("put_node_role", ("n", "drained"), {}, ("PUT", "/2/nodes/n/role", {}, "drained")),
        (
            "put_query",
            ("node",),
            {"fields": ["name"]},
            ("PUT", "/2/query/node", {}, {"fields": ["name"]}),
        ),
        (
            "post_instance_replace_disks",
            ("a",),
            {"mode": "replace_auto"},
            ("POST", "/2/instances/a/replace-disks", {}, {"mode": "replace_auto"}),
        ),
        (
            "put_instance_tags",
            ("a",),
            {"tag": ["x"], "reason": "r"},
            ("PUT", "/2/instances/a/tags", {"tag": ["x"], "reason": "r"}, {}),
        ),
        (
            "put_node_role",
            ("n", "offline"),
            {"auto_promote": True},
            ("PUT", "/2/nodes/n/role", {"auto-promote": True}, "offline"),
        ),
        ("post_instances", (), {"x": 1}, ("POST", "/2/instances", {}, {"__version__": 1, "x": 1})),
    ],
)
def test_routes_are_methods(
    name: str, values: tuple[str, ...], given: dict[str, Any], expected: tuple[object, ...]
) -> None:
    recorder = Recorder()
    getattr(recorder, name)(*values, **given)
    assert recorder.asked == expected


def test_methods_that_there_are_not() -> None:
    recorder = Recorder()
    with pytest.raises(AttributeError, match="nothing named 'get_nonsense'"):
        recorder.get_nonsense()
    with pytest.raises(TypeError, match="wrong arguments"):
        recorder.get_instance("a", nonsense=1)
    with pytest.raises(TypeError, match="wrong arguments"):
        recorder.get_instance()


def test_answers_can_be_read_as_a_type() -> None:
    assert Recorder().read(dict[str, str], "get_job", 1) == {"status": "success"}
    with pytest.raises(ProtocolError, match="get_job: the answer has an unexpected form"):
        Recorder().read(int, "get_job", 1)


def test_it_needs_no_daemon() -> None:
    """It is small enough to be a library for others: nothing of the daemons or their state."""
    code = (
        "import sys, ganeti.clients.rapi as module\n"
        "print(*sorted(name for name in sys.modules if name.startswith('ganeti.')))"
    )
    argv = [sys.executable, "-c", code]
    out = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()
    parts = {name.split(".")[1] for name in out}
    assert parts <= {"base", "clients", "objects", "opcodes", "protocol", "system", "transport"}


@pytest.mark.parametrize(
    ("query", "repeated", "expected"),
    [
        ({}, {}, ""),
        ({"a": UNSET}, {}, ""),
        ({"bulk": True, "x": False}, {}, "?bulk=1&x=0"),
        ({"fields": ["id", "status"]}, {}, "?fields=id%2Cstatus"),
        ({"disks": [0, 2]}, {}, "?disks=0%2C2"),
        ({}, {"tag": ["a", "b c&d"]}, "?tag=a&tag=b+c%26d"),
        ({"reason": "a & b"}, {}, "?reason=a+%26+b"),
    ],
)
def test_queries(query: dict[str, Any], repeated: dict[str, Any], expected: str) -> None:
    assert rapi.encoded_query({**query, **repeated}, repeated.keys()) == expected


def test_bodies() -> None:
    assert rapi.encoded_body({}) == b"", "3.0 refuses an empty one beside a query"
    assert rapi.encoded_body({"a": None, "priority": 1}) == b'{"a":null,"priority":1}'
    assert rapi.encoded_body("offline") == b'"offline"'


def test_answers() -> None:
    assert rapi.decoded(CurlResponse(200, b"12"), int, "x") == 12
    assert rapi.decoded(CurlResponse(200, b"<html>"), None, "x") == "<html>"
    with pytest.raises(ProtocolError, match="x: the answer has an unexpected form"):
        rapi.decoded(CurlResponse(200, b'"12"'), int, "x")
    with pytest.raises(TransportError, match="x: no answer within 3 s"):
        rapi.decoded(CurlResponse(error="no answer within 3 s"), int, "x")
    body = msgspec.json.encode({"code": 404, "message": "no &#x27;a&#x27;", "explain": "Nothing"})
    with pytest.raises(RapiRefusedError, match="x: no 'a'") as caught:
        rapi.decoded(CurlResponse(404, body), int, "x")
    assert (caught.value.status, caught.value.explanation) == (404, "Nothing")
    with pytest.raises(RapiRefusedError, match="x: Bad gateway") as caught:
        rapi.decoded(CurlResponse(502, b"Bad gateway"), int, "x")
    assert caught.value.status == 502


def test_secrets_are_not_shown() -> None:
    assert "secret" not in repr(Password("jim", "secret")) + repr(Token("secret"))
    assert Password("jim", "pä:ss").header == "Basic amltOnDDpDpzcw=="
    assert Token("abc").header == "Bearer abc"


def test_a_failed_job_says_why() -> None:
    job = EndedJob(3, "error", ["INSTANCE_STARTUP(a)"], [["OpExecError", ["no memory"]]])
    text = "Job 3 (INSTANCE_STARTUP(a)) ended in error: no memory"
    assert JobFailedError(job).message == text


def test_results_of_what_went_well_are_no_reasons() -> None:
    results = ["new-name", ["OpPrereqError", ["there is none", "unknown_entity"]], None]
    job = EndedJob(3, "error", [], results, ["success", "error", "error"])
    assert rapi.failure_reason(job) == "there is none"
    early = EndedJob(4, "canceled", [], [None, None], ["canceled", "canceled"])
    assert rapi.failure_reason(early) == ""


def test_a_change_asks_for_the_version_that_was_read() -> None:
    recorder = Recorder()
    recorder.put_instance_startup("a", if_match=rapi.tag_of({"uuid": "u-1", "serial_no": 4}))
    assert recorder.if_match == '"u-1/4"'
    assert recorder.asked == ("PUT", "/2/instances/a/startup", {}, {})
