"""Requests made from the OpenAPI document that the daemon serves, fitting and not, to the daemon.

The queue is drained meanwhile, so that jobs are checked and then refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from fakes.metric_page import values_on
from fakes.rapi import RapiClient, rapi_of
from fakes.virtual_cluster import TestCluster
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ganeti.collectors.metrics import served_names
from ganeti.protocol.rapi.openapi import openapi_document

DOCUMENT = openapi_document()
SCHEMAS = DOCUMENT["components"]["schemas"]
LETS_JOBS_RUN = ("/2/queue", "put")
OPERATIONS = [
    (method, path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
    if (path, method) != LETS_JOBS_RUN
]
EXAMPLES = 4
PARTS = 6  # a test has a limit of time, and machines may be slow
FUZZ = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=6), inner, max_size=2)
    ),
    max_leaves=4,
)


def fitting(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return values that a schema allows (or nearly: limits of few are left out)."""
    if "$ref" in schema:
        return fitting(SCHEMAS[schema["$ref"].rpartition("/")[2]])
    if "anyOf" in schema:
        return st.one_of([fitting(each) for each in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "const" in schema:
        return st.just(schema["const"])
    kind = schema.get("type")
    if kind == "string" and "pattern" in schema:
        return st.from_regex(
            schema["pattern"].replace("$", r"\Z"), alphabet=st.characters(codec="ascii")
        )
    if kind == "array":
        if "prefixItems" in schema:
            return st.tuples(*(fitting(each) for each in schema["prefixItems"])).map(list)
        return st.lists(fitting(schema.get("items", {})), max_size=2)
    if kind == "object":
        properties = schema.get("properties", {})
        required = {key: fitting(properties[key]) for key in schema.get("required", ())}
        optional = {key: fitting(value) for key, value in properties.items() if key not in required}
        return st.fixed_dictionaries(required, optional=optional)
    simple: dict[str | None, st.SearchStrategy[Any]] = {
        "string": st.text(min_size=schema.get("minLength", 0), max_size=10),
        "integer": st.integers(schema.get("minimum"), schema.get("maximum")),
        "number": st.floats(allow_nan=False, allow_infinity=False),
        "boolean": st.booleans(),
        "null": st.none(),
    }
    return simple.get(kind, ANY_JSON)


@st.composite
def spoilt(draw: st.DrawFn, schema: dict[str, Any]) -> Any:
    """Return a body that fits, or one in which something does not, or just anything."""
    how = draw(st.sampled_from(["fits", "fits", "one wrong", "one unknown", "anything"]))
    if how == "anything":
        return draw(ANY_JSON)
    body = draw(fitting(schema))
    if isinstance(body, dict) and how == "one unknown":
        return {**body, draw(st.text(min_size=1, max_size=6)): draw(ANY_JSON)}
    if isinstance(body, dict) and body and how == "one wrong":
        return {**body, draw(st.sampled_from(sorted(body))): draw(ANY_JSON)}
    return body


@st.composite
def requests(draw: st.DrawFn, path: str, operation: dict[str, Any]) -> tuple[str, Any]:
    """Return the target and the body of a request."""
    values: dict[str, str] = {}
    query: list[tuple[str, str]] = []
    for parameter in operation["parameters"]:
        name = parameter["name"]
        if parameter["in"] == "path":
            values[name] = quote(str(draw(fitting(parameter["schema"]))), safe="")
        elif parameter.get("required") or draw(st.booleans()):
            value = draw(fitting(parameter["schema"]) | st.text(max_size=5))
            query += [(name, str(each)) for each in (value if isinstance(value, list) else [value])]
    target = path.format(**values) + (f"?{urlencode(query)}" if query else "")
    body = None
    if "requestBody" in operation:
        content = operation["requestBody"]["content"]["application/json"]
        body = draw(st.none() | spoilt(content["schema"]))
    return target, body


@pytest.fixture(scope="module")
def rapi(cluster: TestCluster) -> Iterator[RapiClient]:
    with rapi_of(cluster) as client:
        assert client.ask("PUT", "/2/queue", {"drained": True}).status == 200
        try:
            yield client
        finally:
            assert client.ask("PUT", "/2/watcher", {"until": None}).status == 200
            for rule in client.ask("GET", "/2/filters").json:
                assert client.ask("DELETE", rule["uri"]).status == 200
            assert client.ask("PUT", "/2/queue", {"drained": False}).status == 200


def check(rapi: RapiClient, method: str, path: str, operation: dict[str, Any]) -> None:
    """Send some requests to one operation and look at what is answered."""

    @FUZZ
    @given(requests(path, operation))
    def ask(request: tuple[str, Any]) -> None:
        target, body = request
        answer = rapi.ask(method.upper(), target, body)
        assert str(answer.status) in operation["responses"], answer
        assert answer.status != 500, answer
        if answer.status >= 400:
            assert answer.json["code"] == answer.status
        else:
            kinds = operation["responses"]["200"]["content"]
            assert answer.headers["Content-Type"].partition(";")[0] in kinds

    ask()


@pytest.mark.shows("2.0/rapi-resources/stateless")
@pytest.mark.parametrize("part", range(PARTS))
def test_only_what_is_documented_is_answered(rapi: RapiClient, part: int) -> None:
    for method, path, operation in OPERATIONS[part::PARTS]:
        check(rapi, method, path, operation)


def test_the_document_is_the_one_that_is_served(rapi: RapiClient, cluster: TestCluster) -> None:
    assert rapi.ask("GET", "/2/openapi.json").json == json.loads(json.dumps(DOCUMENT))
    page = rapi.ask("GET", "/2/docs").body.decode()
    assert rapi.ask("GET", "/metrics", user=None).status == 401
    counts = rapi.ask("GET", "/metrics").body.decode()
    told = values_on(counts)
    assert told["ganeti_rapi_requests_total", "GET", "/2/docs", "200"] >= 1
    assert {name for (name, *_) in told} == {
        name for name in served_names() if name.startswith("ganeti_rapi_")
    }
    assert "/2/instances/{instance}/startup" in page
    assert "://" not in page.replace("http://www.w3.org", "")  # nothing from elsewhere
    log = open(cluster.paths.log_file("ganeti-rapi"), encoding="utf-8").read()  # noqa: SIM115
    assert "Traceback" not in log
