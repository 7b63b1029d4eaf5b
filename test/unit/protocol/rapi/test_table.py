"""Tests of ganeti/protocol/rapi/table.py and the tables behind it: complete, as 3.0 has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ganeti.opcodes.registry import all_op_ids
from ganeti.protocol.luxi import LuxiCalls
from ganeti.protocol.rapi.jobs import Submission
from ganeti.protocol.rapi.routes import Question
from ganeti.protocol.rapi.table import ROUTES, TABLE
from ganeti.protocol.rapi.values import FIELDS

MODEL = Path(__file__).resolve().parents[3] / "data" / "model" / "rapi.json"
FACTS: dict[str, Any] = json.loads(MODEL.read_text(encoding="utf-8"))
OUR_ARGUMENTS = {
    "DELETE /2/jobs/{job_id}": {"kill"},
    "GET /2/jobs": {"limit", "before"},
    "GET /2/instances": {"copies"},
}
OUR_FIELDS = {
    "instance_copies": ["disk.copies", "disk.copied", "disk.templates"],  # where asked for
    "network": ["external_reservations6"],
}
# The one may be in the body or in the query, the other is what the server makes of the body.
SET_OTHERWISE = {
    "POST /2/instances/{instance}/replace-disks": {"disks"},
    "POST /2/instances-multi-alloc": {"instances", "name", "os"},
    "POST /2/nodes/{node}/migrate": {"mode"},
}


@pytest.mark.shows(
    "backend/rapi/rest",
    "2.0/rapi/rest",
    "2.0/rapi-resources/methods",
    "2.0/rapi-resources/version",
    "2.0/rapi-resources/tags",
    "2.1/migrate-node/rapi",
    "2.1/evacuate-node/rapi",
)
@pytest.mark.parametrize("name", FACTS["routes"])
def test_a_route_is_as_in_the_model(name: str) -> None:
    facts = FACTS["routes"][name]
    method, path = name.split()
    route = TABLE.resources[path].routes[method]
    assert list(route.access) == facts["access"]
    assert not route.is_new
    arguments = {each.name for each in route.arguments}
    assert arguments - OUR_ARGUMENTS.get(name, set()) == set(facts["query_args"])
    if "submits" in facts:
        assert isinstance(route.action, Submission)
        submits = facts["submits"]
        assert list(route.action.op_ids) == (submits if isinstance(submits, list) else [submits])
        assert dict(route.action.renames) == facts.get("body_renames", {})
    if "set_by_server" in facts:
        assert isinstance(route.action, Submission)
        differs = SET_OTHERWISE.get(name, set())
        ours = route.action.set_by_server(route.arguments)
        uuids = {name for name in ours if name.endswith("_uuid")}  # taken by 3.0, used by nobody
        assert ours - differs - uuids == set(facts["set_by_server"]) - differs


@pytest.mark.shows("2.0/interaction/in-rapi", "2.1/uuid-one/queried")
def test_the_fields_of_objects_are_those_of_the_model() -> None:
    of_lists = {"instance_copies": [*FIELDS["instance"], *OUR_FIELDS["instance_copies"]]}
    expected = {**FACTS["object_fields"], **of_lists}
    ours = set(OUR_FIELDS["network"])
    shown = {what: list(fields) for what, fields in FIELDS.items()}
    assert ours < set(shown["network"])
    shown["network"] = [field for field in shown["network"] if field not in ours]
    assert shown == expected


@pytest.mark.shows("2.0/rapi/read-write", "2.1/migrate-node/rapi", "2.1/evacuate-node/rapi")
def test_every_opcode_has_a_resource() -> None:
    assert {f"/2/opcodes/{op_id}" for op_id in all_op_ids()} <= TABLE.resources.keys()


@pytest.mark.shows("2.12/rapid/one-peer", "2.0/rapi-design/over-luxi")
def test_questions_name_methods_of_luxi() -> None:
    methods = {route.action.method for route in ROUTES if isinstance(route.action, Question)}
    assert methods <= LuxiCalls.calls.keys()


@pytest.mark.shows("backend/rapi/changes-not")
def test_what_changes_something_asks_for_a_right() -> None:
    for route in ROUTES:
        changes = isinstance(route.action, Submission) or (
            isinstance(route.action, Question)
            and LuxiCalls.calls[route.action.method].rules.changes
        )
        if changes and route.path != "/2/instances/{instance}/info":
            assert route.access == ("write",), route.path


@pytest.mark.shows("2.0/rapi-resources/uris")
@pytest.mark.parametrize(
    ("path", "template", "values"),
    [
        ("/", "/", {}),
        ("/2/instances/web-1.x_y", "/2/instances/{instance}", {"instance": "web-1.x_y"}),
        ("/2/jobs/archive", "/2/jobs/archive", {}),
        ("/2/jobs/17", "/2/jobs/{job_id}", {"job_id": "17"}),
        (
            "/2/instances/a/disk/3/grow",
            "/2/instances/{instance}/disk/{disk}/grow",
            {"instance": "a", "disk": "3"},
        ),
        ("/2/os/debian+12/modify", "/2/os/{os}/modify", {"os": "debian+12"}),
        ("/2/groups/räck 1/rename", "/2/groups/{group}/rename", {"group": "räck 1"}),
    ],
)
def test_a_path_finds_its_resource(path: str, template: str, values: dict[str, str]) -> None:
    found = TABLE.find(path)
    assert found is not None
    assert (found[0].path, found[1]) == (template, values)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/3",
        "/2/jobs/x",
        "/2/instances/a b",
        "/2/instances/",
        "/2/instances/a/b/c",
        "//2",
        "/2/x",
    ],
)
def test_other_paths_find_nothing(path: str) -> None:
    assert TABLE.find(path) is None


@pytest.mark.shows("2.0/rapi-resources/uris")
def test_every_path_finds_itself() -> None:
    values = {"job_id": "1", "disk": "0"}
    for path, resource in TABLE.resources.items():
        names = resource.routes[next(iter(resource.routes))].placeholders
        found = TABLE.find(path.format(**{name: values.get(name, "x.y") for name in names}))
        assert found is not None
        assert found[0] is resource


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/2/instances/{instance}/startup", "instances_name_startup"),
        ("/2/instances/{instance}/disk/{disk}/grow", "instances_name_disk_grow"),
        ("/2/jobs/{job_id}/wait", "jobs_id_wait"),
        ("/2/instances-multi-alloc", "instances_multi_alloc"),
        ("/", "root"),
    ],
)
def test_the_reason_trail_names_the_resource(path: str, name: str) -> None:
    assert next(iter(TABLE.resources[path].routes.values())).name == name
