"""Tests of ganeti/protocol/rapi/openapi.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from ganeti.protocol.rapi.openapi import openapi_document
from ganeti.protocol.rapi.table import ROUTES

DOCUMENT = openapi_document()
OPERATIONS = [
    (path, method, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]


def values_of(value: Any, key: str) -> Iterator[Any]:
    """Yield what stands under a key, anywhere."""
    if isinstance(value, dict):
        if isinstance(value.get(key), str):
            yield value[key]
        for each in value.values():
            yield from values_of(each, key)
    elif isinstance(value, list):
        for each in value:
            yield from values_of(each, key)


def test_every_route_is_described_once() -> None:
    assert len(OPERATIONS) == len(ROUTES)
    names = [operation["operationId"] for _, _, operation in OPERATIONS]
    assert len(set(names)) == len(names)


def test_all_references_lead_somewhere() -> None:
    for reference in set(values_of(DOCUMENT, "$ref")):
        found: Any = DOCUMENT
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]


def test_parameters_are_described_with_unit_range_and_default() -> None:
    create = DOCUMENT["components"]["schemas"]["OpInstanceCreate"]["properties"]
    assert create["beparams"]["properties"]["maxmem"]["description"] == (
        "The memory that the instance gets where there is enough (a size; in MiB; at least 1;"
        " default 128)"
    )
    assert (
        "the image" in create["hvparams"]["properties"]["cdrom_image_path"]["description"].lower()
    )
    assert "one of rw, ro" in create["disks"]["items"]["properties"]["mode"]["description"]
    cluster = DOCUMENT["components"]["schemas"]["OpClusterSetParams"]["properties"]
    [by_name] = [each for each in cluster["hvparams"]["anyOf"] if each["type"] == "object"]
    kvm = by_name["properties"]["kvm"]["properties"]
    assert "in MiB/s" in kvm["migration_bandwidth"]["description"]


def test_patterns_are_those_of_json_schema() -> None:
    for pattern in set(values_of(DOCUMENT, "pattern")):
        assert r"\A" not in pattern
        assert r"\Z" not in pattern
        re.compile(pattern)


def test_parameters_in_the_path_are_declared() -> None:
    for path, _, operation in OPERATIONS:
        declared = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
        assert declared == set(re.findall(r"\{(\w+)\}", path))


def test_a_body_lacks_what_the_server_sets() -> None:
    operation = DOCUMENT["paths"]["/2/instances/{instance}/shutdown"]["put"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    assert "timeout" in schema["properties"]
    assert {"instance_name", "no_remember", "dry_run", "reason"}.isdisjoint(schema["properties"])


def test_a_creation_has_the_names_of_the_remote_api() -> None:
    operation = DOCUMENT["paths"]["/2/instances"]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    assert {"name", "mode", "disks", "nics", "__version__"} <= set(schema["required"])
    assert "os" in schema["properties"]
    assert "os_type" not in schema["properties"]


def test_what_types_do_not_say_is_said() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    opcodes = schemas["JobBody"]["properties"]["opcodes"]
    assert (opcodes["minItems"], opcodes["items"]["required"]) == (1, ["OP_ID"])
    assert "OP_TEST_DELAY" in opcodes["items"]["properties"]["OP_ID"]["enum"]
    diskparams = schemas["OpGroupAdd"]["properties"]["diskparams"]["anyOf"][0]
    assert "drbd" in diskparams["propertyNames"]["enum"]
    change = schemas["OpInstanceSetParams"]["properties"]["disks"]["items"]
    assert [each["minItems"] for each in change["anyOf"]] == [3, 2, 2]


@pytest.mark.shows("2.0/rapi-resources/statuses")
def test_every_answer_has_its_statuses() -> None:
    for path, method, operation in OPERATIONS:
        assert {"200", "400", "401", "403", "404", "415", "500", "503"} <= set(
            operation["responses"]
        ), (method, path)
