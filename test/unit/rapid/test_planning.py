"""Tests of ganeti/rapid/planning.py: from requests to what is asked of LuxiD."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.opcodes.registry import opcode_class
from ganeti.protocol.rapi import users
from ganeti.protocol.rapi.jobs import Submission
from ganeti.protocol.rapi.routes import Question, Route
from ganeti.protocol.rapi.table import ROUTES
from ganeti.protocol.rapi.values import HttpProblem
from ganeti.rapid import planning
from ganeti.rapid.planning import Target
from ganeti.transport.http_message import HttpRequest

NOW_NS = 1_700_000_000_000_000_000
JSON_TYPE = {"content-type": "application/json"}


def request(
    method: str, target: str, body: object = None, headers: dict[str, str] | None = None
) -> HttpRequest:
    data = b"" if body is None else json.dumps(body).encode()
    known = {"content-length": str(len(data)), **(JSON_TYPE if data else {}), **(headers or {})}
    return HttpRequest(method, target, known, data, None, "127.0.0.1")


def job(method: str, target: str, body: object = None) -> list[dict[str, Any]]:
    """Return the opcodes without their reason."""
    sent = request(method, target, body)
    found = planning.find_target(sent)
    planning.check_head(found, sent)
    inputs = planning.read_inputs(found, sent)
    opcodes = planning.job_of(found, inputs, planning.reason_of(sent), NOW_NS)
    return [{key: value for key, value in opcode.items() if key != "reason"} for opcode in opcodes]


def question(method: str, target: str, body: object = None) -> tuple[str, list[Any]]:
    sent = request(method, target, body)
    found = planning.find_target(sent)
    action = found.route.action
    assert isinstance(action, Question)
    args = action.args(planning.read_inputs(found, sent))
    return action.method, json.loads(planning.luxi_request(action.method, args))["args"]


def refusal(method: str, target: str, body: object = None) -> HttpProblem:
    with pytest.raises(HttpProblem) as found:
        job(method, target, body)
    return found.value


CREATION = {"__version__": 1, "name": "a", "mode": "create", "disks": [], "nics": []}


@pytest.mark.shows("backend/rapi/forwards", "2.0/rapi-design/jobs")
@pytest.mark.parametrize(
    ("method", "target", "body", "expected"),
    [
        (
            "PUT",
            "/2/instances/a/startup?force=1&no_remember=0",
            None,
            [
                {
                    "OP_ID": "OP_INSTANCE_STARTUP",
                    "instance_name": "a",
                    "force": True,
                    "no_remember": False,
                }
            ],
        ),
        (
            "POST",
            "/2/instances/a/reboot",
            {"shutdown_timeout": 5},
            [
                {
                    "OP_ID": "OP_INSTANCE_REBOOT",
                    "instance_name": "a",
                    "reboot_type": "hard",
                    "shutdown_timeout": 5,
                }
            ],
        ),
        (
            "POST",
            "/2/instances?dry-run=1",
            {**CREATION, "os": "debian", "hvparams": {"usb_devices": "a b"}},
            [
                {
                    "OP_ID": "OP_INSTANCE_CREATE",
                    "instance_name": "a",
                    "mode": "create",
                    "disks": [],
                    "nics": [],
                    "os_type": "debian",
                    "hvparams": {"usb_devices": "a,b"},
                    "dry_run": True,
                }
            ],
        ),
        (
            "POST",
            "/2/instances/a/disk/2/grow",
            {"amount": 10},
            [{"OP_ID": "OP_INSTANCE_GROW_DISK", "instance_name": "a", "disk": 2, "amount": 10}],
        ),
        (
            "PUT",
            "/2/nodes/n/role?force=1",
            "drained",
            [
                {
                    "OP_ID": "OP_NODE_SET_PARAMS",
                    "node_name": "n",
                    "force": True,
                    "drained": True,
                    "offline": None,
                    "master_candidate": None,
                }
            ],
        ),
        (
            "PUT",
            "/2/instances/a/tags?tag=x&tag=y",
            ["a body that 3.0 does not look at"],
            [{"OP_ID": "OP_TAGS_SET", "kind": "instance", "name": "a", "tags": ["x", "y"]}],
        ),
        (
            "PUT",
            "/2/groups/g/modify",
            {"custom_ndparams": {}},
            [{"OP_ID": "OP_GROUP_SET_PARAMS", "group_name": "g", "ndparams": {}}],
        ),
        (
            "GET",
            "/2/nodes/n/storage?storage_type=file&output_fields=name,size",
            None,
            [
                {
                    "OP_ID": "OP_NODE_QUERY_STORAGE",
                    "nodes": ["n"],
                    "storage_type": "file",
                    "output_fields": ["name", "size"],
                }
            ],
        ),
        (
            "PUT",
            "/2/nodes/n/storage/modify?storage_type=lvm-pv&name=sda&allocatable=0",
            None,
            [
                {
                    "OP_ID": "OP_NODE_MODIFY_STORAGE",
                    "node_name": "n",
                    "storage_type": "lvm-pv",
                    "name": "sda",
                    "changes": {"allocatable": False},
                }
            ],
        ),
        (
            "POST",
            "/2/instances/a/replace-disks?mode=replace_auto&disks=0,1",
            None,
            [
                {
                    "OP_ID": "OP_INSTANCE_REPLACE_DISKS",
                    "instance_name": "a",
                    "mode": "replace_auto",
                    "disks": [0, 1],
                }
            ],
        ),
        (
            "POST",
            "/2/nodes/n/migrate?live=0",
            None,
            [{"OP_ID": "OP_NODE_MIGRATE", "node_name": "n", "mode": "non-live"}],
        ),
        (
            "PUT",
            "/2/os/debian/modify",
            {"osparams": {"x": "y"}, "hidden": True},
            [
                {
                    "OP_ID": "OP_CLUSTER_SET_PARAMS",
                    "osparams": {"debian": {"x": "y"}},
                    "hidden_os": [["add", "debian"]],
                }
            ],
        ),
        (
            "POST",
            "/2/opcodes/OP_TEST_DELAY",
            {"duration": 1.0},
            [{"OP_ID": "OP_TEST_DELAY", "duration": 1.0}],
        ),
        (
            "POST",
            "/2/exports/a/rehearse",
            {"pnode": "n", "seconds": 5},
            [{"OP_ID": "OP_BACKUP_REHEARSE", "instance_name": "a", "pnode": "n", "seconds": 5}],
        ),
        ("DELETE", "/2/exports/a", None, [{"OP_ID": "OP_BACKUP_REMOVE", "instance_name": "a"}]),
    ],
)
def test_a_request_becomes_a_job(
    method: str, target: str, body: object, expected: list[dict[str, Any]]
) -> None:
    assert job(method, target, body) == expected


@pytest.mark.shows("backend/opcodes/one-command")
def test_a_reinstallation_is_three_opcodes() -> None:
    def ids(target: str, body: object = None) -> list[str]:
        return [opcode["OP_ID"] for opcode in job("POST", target, body)]

    path = "/2/instances/a/reinstall"
    all_three = ["OP_INSTANCE_SHUTDOWN", "OP_INSTANCE_REINSTALL", "OP_INSTANCE_STARTUP"]
    assert ids(path) == all_three
    assert ids(f"{path}?nostartup=1") == all_three[:2]
    assert ids(path, {"start": False}) == all_three[:2]
    assert job("POST", f"{path}?os=x")[1]["os_type"] == "x"
    assert refusal("POST", f"{path}?os=x", {"os": "x"}).status == 400


def test_several_creations_are_one_opcode() -> None:
    bodies = [{key: value for key, value in CREATION.items() if key != "__version__"}]
    [opcode] = job("POST", "/2/instances-multi-alloc", {"instances": bodies})
    assert opcode["OP_ID"] == "OP_INSTANCE_MULTI_ALLOC"
    assert opcode["instances"][0]["OP_ID"] == "OP_INSTANCE_CREATE"
    assert opcode["instances"][0]["instance_name"] == "a"


def test_the_reason_trail_says_why_and_by_what() -> None:
    sent = request("PUT", "/2/instances/a/startup?reason=because")
    found = planning.find_target(sent)
    inputs = planning.read_inputs(found, sent)
    [opcode] = planning.job_of(found, inputs, planning.reason_of(sent), NOW_NS)
    assert opcode["reason"] == [
        ["gnt:user", "because", NOW_NS],
        ["gnt:library:rlib2:instances_name_startup", "", NOW_NS],
    ]


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "text"),
    [
        ("PUT", "/2/instances/a/shutdown", {"instance_name": "b"}, 400, "instance_name"),
        ("PUT", "/2/instances/a/shutdown", {"no_remember": True}, 400, "no_remember"),
        ("PUT", "/2/instances/a/shutdown", {"nonsense": 1}, 400, "nonsense"),
        ("PUT", "/2/instances/a/shutdown", {"timeout": "soon"}, 400, "timeout"),
        ("PUT", "/2/instances/a/shutdown", [1], 400, "object"),
        ("PUT", "/2/instances/a/shutdown", {"reason": []}, 400, "reason"),
        ("PUT", "/2/instances/a/shutdown?no_remember=x", {}, 400, "no_remember"),
        ("PUT", "/2/modify", {"compression_tools": []}, 403, "compression_tools"),
        ("POST", "/2/opcodes/OP_CLUSTER_SET_PARAMS", {"compression_tools": []}, 403, "compression"),
        ("POST", "/2/jobs", {"opcodes": [{"OP_ID": "OP_NOTHING"}]}, 400, "OP_NOTHING"),
        ("POST", "/2/jobs", {"opcodes": []}, 400, "at least one"),
        ("POST", "/2/instances", {"name": "a"}, 400, "__version__"),
        ("POST", "/2/instances", {**CREATION, "instance_name": "b"}, 400, "same"),
        ("POST", "/2/instances-multi-alloc", {"instances": [1]}, 400, "instances"),
        ("POST", "/2/instances-multi-alloc", {"instances": [{"name": 1}]}, 400, "instance_name"),
        ("PUT", "/2/nodes/n/role", "king", 400, "king"),
        ("PUT", "/2/nodes/n/role", {}, 400, "role"),
        ("POST", "/2/nodes/n/migrate?live=1&mode=live", None, 400, "Only one"),
        ("GET", "/2/nodes/n/storage?storage_type=file", None, 400, "output_fields"),
        ("POST", "/2/nodes/n/migrate?dry-run=1", {"mode": "live"}, 400, "'dry_run' in the body"),
        ("PUT", "/2/instances/a/failover?dry-run=1", None, 400, "'dry_run' in the body"),
        ("DELETE", "/2/jobs/1?dry-run=1", None, 400, "no query argument"),
        ("POST", "/2/instances/a/reinstall?dry-run=1", None, 400, "no query argument"),
        ("PUT", "/2/os/debian/modify", {}, 400, "Nothing to change"),
        ("GET", "/2/nothing", None, 404, "nothing"),
        ("GET", "/2/../../etc/passwd", None, 404, "passwd"),
        ("GET", "/2/instances/%2e%2e%2f%2e%2e", None, 404, "there is nothing"),
        ("POST", "/version", None, 501, "GET"),
        ("POST", "/2/queue", None, 405, "GET, PUT"),
        ("BREW", "/2/queue", None, 501, "GET, PUT"),
    ],
)
def test_what_is_wrong_with_a_request_is_said(
    method: str, target: str, body: object, status: int, text: str
) -> None:
    problem = refusal(method, target, body)
    assert problem.status == status
    assert text.lower() in problem.message.lower()


def test_what_is_not_only_tried_is_carried_out() -> None:
    [opcode] = job("PUT", "/2/instances/a/failover?dry-run=0&nonsense=1")
    assert "dry_run" not in opcode
    [opcode] = job("PUT", "/2/instances/a/failover", {"dry_run": True})
    assert opcode["dry_run"]


@pytest.mark.parametrize(
    ("method", "site", "is_refused"),
    [
        ("POST", "cross-site", True),
        ("POST", "same-site", True),
        ("POST", "same-origin", False),
        ("POST", "none", False),
        ("GET", "cross-site", False),
    ],
)
def test_pages_of_other_servers_change_nothing(method: str, site: str, is_refused: bool) -> None:
    path = "/2/instances/a/reboot" if method == "POST" else "/2/info"
    sent = request(method, path, headers={"sec-fetch-site": site})
    target = planning.find_target(sent)
    if not is_refused:
        planning.check_head(target, sent)
        return
    with pytest.raises(HttpProblem) as found:
        planning.check_head(target, sent)
    assert found.value.status == 403


def test_conditions() -> None:
    planning.check_tag("", '"a/1"', "It")
    for header in ("*", '"a/1"', '"b/2", "a/1"'):
        planning.check_tag(header, '"a/1"', "It")
    with pytest.raises(HttpProblem, match=r'It has the ETag "a/1" now') as found:
        planning.check_tag('"a/2", W/"a/1"', '"a/1"', "It")
    assert (found.value.status, found.value.headers) == (412, {"ETag": '"a/1"'})
    about = {route.about for route in ROUTES}
    assert about == {"", "instance", "node", "group", "network", "cluster"}
    assert len([route for route in ROUTES if route.shows_version]) == 5


@pytest.mark.parametrize(
    ("method", "path", "is_refused"),
    [
        ("PUT", "/2/modify", False),
        ("PUT", "/2/instances/a/startup", False),
        ("GET", "/2/nodes", False),
        ("POST", "/2/instances", True),
        ("POST", "/2/opcodes/OP_CLUSTER_VERIFY", True),
        ("DELETE", "/2/filters/a", True),
    ],
)
def test_a_condition_that_nobody_could_judge_is_refused(
    method: str, path: str, is_refused: bool
) -> None:
    sent = request(method, path, headers={"if-match": '"a/1"'})
    route = planning.find_target(sent).route
    if not is_refused:
        planning.check_conditions(route, sent)
        return
    with pytest.raises(HttpProblem) as found:
        planning.check_conditions(route, sent)
    assert found.value.status == 412


def names_by_uuid(route: Route) -> set[str]:
    """Return the fields by which a body could name the object of the path once more."""
    if not isinstance(route.action, Submission) or route.action.parts is not None:
        return set()
    known = {
        name for op_id in route.action.op_ids for name in opcode_class(op_id).__struct_fields__
    }
    return known & {f"{placeholder}_uuid" for placeholder in route.placeholders}


NAMED_TWICE = [
    (route, field) for route in ROUTES if route.takes_body for field in names_by_uuid(route)
]


@pytest.mark.parametrize(
    ("route", "field"),
    NAMED_TWICE,
    ids=[f"{route.method} {route.path}" for route, _ in NAMED_TWICE],
)
def test_a_body_names_no_other_object_than_the_path(route: Route, field: str) -> None:
    path = route.path_of(dict.fromkeys(route.placeholders, "1"))
    refused = refusal(route.method, path, {field: "uuid-of-another"})
    assert refused.status == 400
    assert refused.message == f"Parameter '{field}' may not be in the body"


def test_objects_could_be_named_twice_in_many_bodies() -> None:
    paths = {route.path for route, _ in NAMED_TWICE}
    assert {
        "/2/instances/{instance}/migrate",
        "/2/instances/{instance}/replace-disks",
        "/2/instances/{instance}/disk/{disk}/grow",
        "/2/nodes/{node}/evacuate",
        "/2/nodes/{node}/migrate",
    } <= paths
    assert len(NAMED_TWICE) > 20


def test_a_body_may_name_other_nodes_by_uuid() -> None:
    path, uuids = "/2/instances/a/replace-disks", {"remote_node_uuid": "u"}
    assert job("POST", path, {"mode": "replace_new_secondary", **uuids})[0].items() >= uuids.items()


@given(name=st.from_regex(users.NAME, fullmatch=True))
def test_every_user_and_role_that_can_be_has_a_resource(name: str) -> None:
    for path in (f"/2/users/{name}", f"/2/roles/{name}"):
        for form in (path, path.replace("@", "%40").replace("+", "%2B")):
            target = planning.find_target(request("DELETE", form))
            assert list(target.values.values()) == [name]
    token = f"/2/users/{name}/tokens/t1"
    assert planning.find_target(request("DELETE", token)).values["user"] == name


@pytest.mark.shows("2.0/rapi-resources/methods")
def test_a_method_that_is_not_there_comes_with_those_that_are() -> None:
    assert refusal("POST", "/2/queue").headers == {"Allow": "GET, PUT"}


@pytest.mark.shows("backend/rapi/forwards", "2.0/rapi-design/questions")
@pytest.mark.parametrize(
    ("method", "target", "body", "expected"),
    [
        ("GET", "/2/instances", None, ("QueryInstances", [[], ["name"], False])),
        ("GET", "/2/nodes/n/role?lock=1", None, ("QueryNodes", [["n"], ["role"], True])),
        (
            "GET",
            "/2/query/node?fields=name,role",
            None,
            ("Query", ["node", ["name", "role"], None]),
        ),
        (
            "GET",
            "/2/query/node?fields=%20name,%20role%20,",
            None,
            ("Query", ["node", ["name", "role"], None]),
        ),
        (
            "PUT",
            "/2/query/node?fields=a",
            {"fields": ["b"], "filter": ["=", "b", 1]},
            ("Query", ["node", ["b"], ["=", "b", 1]]),
        ),
        (
            "GET",
            "/2/jobs/7/wait",
            {"fields": ["status"], "previous_job_info": ["queued"], "previous_log_serial": 3},
            ("WaitForJobChange", ["7", ["status", "end_ts"], ["queued", None], 3, 10]),
        ),
        (
            "PUT",
            "/2/jobs/7/wait",
            {"fields": ["id"]},
            ("WaitForJobChange", ["7", ["id", "end_ts"], None, None, 10]),
        ),
        ("POST", "/2/filters", {"priority": 5}, ("ReplaceFilter", [None, 5, [], "CONTINUE", []])),
        (
            "POST",
            "/2/filters",
            {"reason": [["gnt:user", "why", 1]]},
            ("ReplaceFilter", [None, 0, [], "CONTINUE", [["gnt:user", "why", 1]]]),
        ),
        ("GET", "/2/jobs", None, ("QueryJobs", [None, ["id"]])),
        ("GET", "/2/jobs?limit=5", None, ("QueryJobs", [None, ["id"], 5, None])),
        ("GET", "/2/jobs?limit=5&before=9", None, ("QueryJobs", [None, ["id"], 5, 9])),
        ("DELETE", "/2/jobs/7?kill=1", None, ("CancelJob", ["7", True])),
        ("PUT", "/2/jobs/7/priority", {"priority": -3}, ("ChangeJobPriority", ["7", -3])),
        ("PUT", "/2/watcher", {"until": None}, ("SetWatcherPause", [None])),
    ],
)
def test_a_request_becomes_a_question(
    method: str, target: str, body: object, expected: tuple[str, list[Any]]
) -> None:
    assert question(method, target, body) == expected


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("PUT", "/2/query/node", {}),
        ("GET", "/2/jobs/7/wait", {"fields": "status"}),
        ("POST", "/2/filters", {"priority": -1}),
        ("POST", "/2/filters", {"nonsense": 1}),
        ("POST", "/2/filters", {"reason": [["gnt:user", "why"]]}),
        ("POST", "/2/filters", {"reason": [["gnt:user", "why", "now"]]}),
        ("PUT", "/2/queue", None),
        ("GET", "/2/query/node", None),
        ("GET", "/2/jobs?limit=-1", None),
        ("GET", "/2/jobs?limit=many", None),
        ("GET", "/2/jobs?before=" + "9" * 19, None),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(method: str, target: str, body: object) -> None:
    with pytest.raises(HttpProblem) as found:
        question(method, target, body)
    assert found.value.status == 400


# Heads.


@pytest.mark.shows("2.0/rapi-resources/accept")
@pytest.mark.parametrize(
    ("header", "is_taken"),
    [
        ("", True),
        ("*/*", True),
        ("application/*", True),
        ("text/html, application/json;q=0.1", True),
        ("text/html", False),
        ("application/json;q=0", False),
        ("*/*, application/json;q=0.0", False),
        ("rubbish;;;,,", False),
    ],
)
def test_what_a_client_accepts(header: str, is_taken: bool) -> None:
    assert planning.accepts(header, "application/json") is is_taken


def test_a_body_of_another_type_is_refused() -> None:
    for headers in ({"content-type": "text/plain"}, {"content-type": ""}):
        sent = request("PUT", "/2/modify", {}, headers)
        with pytest.raises(HttpProblem) as found:
            planning.check_head(planning.find_target(sent), sent)
        assert found.value.status == 415


# Instances.


SEVERAL = "/2/opcodes/OP_INSTANCE_MULTI_ALLOC"
CREATE: dict[str, object] = {
    "OP_ID": "OP_INSTANCE_CREATE",
    **{key: value for key, value in CREATION.items() if key not in ("__version__", "name")},
    "instance_name": "a",
}


IMPORT = {**CREATION, "mode": "import", "src_node": "n"}
NESTED = {key: value for key, value in CREATION.items() if key != "__version__"}


@pytest.mark.parametrize("nested", [{"OP_ID": "OP_INSTANCE_REMOVE", "instance_name": "a"}, 5, "a"])
def test_only_creations_are_placed_together(nested: object) -> None:
    found = refusal("POST", SEVERAL, {"instances": [CREATE, nested]})
    assert (found.status, "OP_INSTANCE_CREATE and nothing else" in found.message) == (400, True)


def test_the_jobs_that_a_job_depends_on() -> None:
    waits = [[7, ["success"]], [-1, []]]
    several = {"instances": [{**CREATE, "depends": [["8", []]]}], "depends": waits}
    assert planning.jobs_in(job("POST", SEVERAL, several)) == ["7", "8"]


@pytest.mark.parametrize(
    ("method", "target", "body", "names"),
    [
        ("PUT", "/2/instances/a/startup", None, ["a"]),
        ("POST", "/2/instances", CREATION, ["a"]),
        ("PUT", "/2/instances/a/rename", {"new_name": "b"}, ["a", "b"]),
        (
            "POST",
            "/2/opcodes/OP_INSTANCE_SET_PARAMS",
            {"instance_name": "a", "instance_uuid": "u"},
            None,
        ),
        ("PUT", "/2/instances/a/tags?tag=x", None, ["a"]),
        ("PUT", "/2/tags?tag=x", None, None),
        ("POST", "/2/opcodes/OP_TAGS_SET", {"kind": "node", "name": "a", "tags": []}, None),
        ("PUT", "/2/modify", {}, None),
        ("GET", "/2/instances/a/info", None, ["a"]),
        ("POST", "/2/opcodes/OP_INSTANCE_QUERY_DATA", {}, None),
        (
            "POST",
            "/2/jobs",
            {
                "opcodes": [
                    {"OP_ID": "OP_INSTANCE_REMOVE", "instance_name": "a"},
                    {"OP_ID": "OP_CLUSTER_VERIFY"},
                ]
            },
            None,
        ),
        ("POST", SEVERAL, {"instances": [CREATE, {**CREATE, "instance_name": "b"}]}, ["a", "b"]),
        ("POST", SEVERAL, {"instances": []}, None),
        ("POST", "/2/instances", {**CREATION, "mode": "import"}, ["a", "a"]),
        ("POST", "/2/instances", {**IMPORT, "src_path": "b"}, ["a", "b"]),
        ("POST", "/2/instances", {**IMPORT, "src_path": "b+new"}, ["a", "b"]),
        ("POST", "/2/instances", {**IMPORT, "src_path": "/var/lib/ganeti/export/b"}, ["a", "b"]),
        ("POST", "/2/instances", {**IMPORT, "src_path": "/var/lib/ganeti/export/b/a"}, None),
        ("POST", "/2/instances", {**IMPORT, "src_path": "/var/lib/ganeti/export/b/"}, None),
        ("POST", "/2/instances", {**IMPORT, "src_path": "../export/b"}, None),
        (
            "POST",
            SEVERAL,
            {"instances": [CREATE, {**CREATE, "mode": "import", "src_path": "b"}]},
            ["a", "a", "b"],
        ),
        (
            "POST",
            "/2/instances-multi-alloc",
            {"instances": [{**NESTED, "mode": "import", "src_path": "/srv/b"}]},
            None,
        ),
        ("POST", "/2/instances", {**CREATION, "disks": [{"size": 1}, {"adopt": "b"}]}, None),
        (
            "POST",
            "/2/instances-multi-alloc",
            {"instances": [{**NESTED, "disks": [{"adopt": "b"}]}]},
            None,
        ),
        ("PUT", "/2/instances/a/modify", {"disks": [["add", {"size": 1}]]}, ["a"]),
        ("PUT", "/2/instances/a/modify", {"disks": [["add", {"adopt": "b"}]]}, None),
        ("PUT", "/2/instances/a/modify", {"disks": [["add", 0, {"adopt": "b"}]]}, None),
        ("PUT", "/2/instances/a/modify", {"disks": [["attach", {"uuid": "b"}]]}, None),
        ("PUT", "/2/instances/a/modify", {"disks": [["attach", 0, {"name": "b"}]]}, None),
        ("PUT", "/2/instances/a/move", {"target_node": "n"}, ["a"]),
        ("POST", "/2/instances/a/replace-disks", {"mode": "replace_auto", "disks": [0]}, ["a"]),
    ],
)
def test_the_instances_that_a_job_is_about(
    method: str, target: str, body: object, names: list[str] | None
) -> None:
    found: Target = planning.find_target(request(method, target))
    inputs = planning.read_inputs(found, request(method, target, body))
    opcodes = planning.job_of(found, inputs, "", NOW_NS)
    assert planning.instances_in(opcodes) == names


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
JOB_PATHS = st.sampled_from(
    [
        ("POST", "/2/instances"),
        ("POST", "/2/instances-multi-alloc"),
        ("POST", "/2/instances/a/reinstall"),
        ("POST", "/2/instances/a/replace-disks"),
        ("PUT", "/2/nodes/n/role"),
        ("PUT", "/2/os/x/modify"),
        ("POST", "/2/jobs"),
        ("PUT", "/2/instances/a/modify"),
    ]
)


@given(JOB_PATHS, ANY_JSON, st.sampled_from(["instances", "opcodes", "disks", "hvparams", ""]))
def test_any_body_is_a_job_or_a_problem(where: tuple[str, str], body: object, key: str) -> None:
    status = 200
    try:
        job(*where, {"__version__": 1, key: body} if key else body)
    except HttpProblem as problem:
        status = problem.status
    assert status in (200, 400, 403)
