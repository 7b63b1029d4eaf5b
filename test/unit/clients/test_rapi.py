from __future__ import annotations

import inspect
import os
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from ganeti.base.errors import ProtocolError, TransportError
from ganeti.clients import rapi, rapi_stub
from ganeti.clients.rapi import EndedJob, JobFailedError, Password, RapiRefusedError, Token
from ganeti.protocol.rapi import ROUTES
from ganeti.protocol.rapi_jobs import Submission
from ganeti.protocol.rapi_stub import method_name, render_stub
from ganeti.transport.curl_pool import CurlResponse


def test_the_stub_is_what_the_table_says() -> None:
    with open(rapi_stub.__file__, encoding="utf-8") as file:
        assert file.read() == render_stub(), "run python -m ganeti.protocol.rapi_stub"


def test_each_route_has_a_method_of_its_own() -> None:
    names = [method_name(route) for route in ROUTES]
    assert len(set(names)) == len(names)
    made = {name for name in vars(rapi_stub.RapiStub) if not name.startswith("_")}
    assert made == set(names)


class Recorder(rapi_stub.RapiStub):
    """Keeps what was asked."""

    def _ask(self, kind: Any, method: str, path: str, values: Any = (), **more: Any) -> Any:
        self.asked = (method, path.format(*values), more)
        return None


def test_each_method_asks_for_its_route() -> None:
    recorder = Recorder()
    for route in ROUTES:
        method = getattr(recorder, method_name(route))
        parameters = inspect.signature(method).parameters.values()
        needed = {
            each.name: f"<{each.name}>"
            for each in parameters
            if each.default is inspect.Parameter.empty and each.kind is not each.VAR_KEYWORD
        }
        method(**needed)
        path = route.path.replace("{", "<").replace("}", ">")
        assert recorder.asked[:2] == (route.method, path)
        query = {**recorder.asked[2].get("query", {}), **recorder.asked[2].get("repeated", {})}
        body = recorder.asked[2].get("body", {})
        for argument in route.arguments:
            assert argument.name in query or argument.name in body, (path, argument)
        if isinstance(route.action, Submission):
            assert "reason" in query or "options" in recorder.asked[2], path


def test_it_needs_no_daemon() -> None:
    """It is small enough to be a library for others: nothing of the opcodes or the daemons."""
    code = (
        "import sys, ganeti.clients.rapi as module\n"
        "print(*sorted(name for name in sys.modules if name.startswith('ganeti.')))"
    )
    argv = [sys.executable, "-c", code]
    out = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()
    parts = {name.split(".")[1] for name in out}
    assert parts <= {"base", "clients", "system", "transport"}


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
    assert rapi.encoded_body(UNSET, {}) == b""
    assert rapi.encoded_body({"a": UNSET}, {}) == b"", "3.0 refuses an empty one beside a query"
    assert rapi.encoded_body({"a": None, "b": UNSET}, {"priority": 1}) == b'{"a":null,"priority":1}'
    assert rapi.encoded_body("offline", {}) == b'"offline"'


def test_answers() -> None:
    assert rapi.decoded(CurlResponse(200, b"12"), int, "x") == 12
    assert rapi.decoded(CurlResponse(200, b"<html>"), None, "x") == "<html>"
    with pytest.raises(ProtocolError, match="x: the answer is not what"):
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


def test_the_generator_prints_it() -> None:
    argv = [sys.executable, "-m", "ganeti.protocol.rapi_stub"]
    out = subprocess.run(argv, check=True, capture_output=True, text=True, env=dict(os.environ))
    assert out.stdout == render_stub()
