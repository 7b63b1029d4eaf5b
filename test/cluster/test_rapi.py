"""The remote API on a live cluster: users, jobs, lists, bad input, a new certificate."""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
from typing import Any

import pytest
from fakes.rapi import DAEMON, USERS, RapiClient, create_instance, wait_job, write_users
from fakes.virtual_cluster import TestCluster
from fakes.waiting import wait_until

from ganeti.base.paths import Paths
from ganeti.protocol.rapi import users as rapi_users
from ganeti.protocol.rapi.users import Grant
from ganeti.system import certificates, clock, daemon_control, files

TIMEOUT_S = 60.0
WEB, DB = "web1.example.com", "db1.example.com"


def submit(rapi: RapiClient, method: str, path: str, body: object = None) -> str:
    """Submit a job and wait for it; returns its status."""
    answer = rapi.ask(method, path, body)
    assert answer.status == 200, answer
    return wait_job(rapi, answer.json)


@pytest.mark.shows("2.1/allocator-dry/nodes")
def test_a_rehearsed_creation_answers_the_nodes_that_an_allocator_chose(
    cluster: TestCluster, rapi: RapiClient
) -> None:
    body = {
        "__version__": 1,
        "name": "dry.example.com",
        "mode": "create",
        "disk_template": "diskless",
        "disks": [],
        "nics": [],
        "os": "test",
        "no_install": True,
        "iallocator": "hail",
        "hypervisor": "fake",
        "ip_check": False,
        "name_check": False,
    }
    answer = rapi.ask("POST", "/2/instances?dry-run=1", body)
    assert wait_job(rapi, answer.json) == "success"
    [nodes] = rapi.ask("GET", f"/2/jobs/{answer.json}").json["opresult"]
    assert len(nodes) == 1
    assert set(nodes) <= set(cluster.nodes)
    assert "dry.example.com" not in cluster.instance_names()


def test_the_schedule_of_backups(cluster: TestCluster, rapi: RapiClient) -> None:
    words = "--no-name-check --no-ip-check -t diskless -H fake -o test --no-install --no-start"
    tag = "ganeti:backup:every:1d:stop"
    cluster.gnt(f"instance add {words} --tags={tag} -n {cluster.nodes[0]} daily.example.com")
    [stands] = rapi.ask("GET", "/2/backup-schedule", user="reader").json
    assert stands["instance"] == "daily.example.com"
    assert (stands["policy"], stands["of"]) == ("every 1d stop", "instance")
    assert (stands["newest"], stands["due"], stands["is_late"]) == (None, 0.0, False)
    assert stands["begins_on"] in cluster.nodes
    assert rapi.ask("GET", "/2/backup-schedule", user="limited").status == 403


def test_the_growth_of_the_cluster(cluster: TestCluster, rapi: RapiClient) -> None:
    before = rapi.ask("GET", "/2/growth").json
    assert len(before) == 8
    create_instance(rapi, cluster, "grown.example.com")
    cluster.gnt("instance modify -B memory=64 grown.example.com")
    cluster.gnt("job autoarchive 0")
    [now] = rapi.ask("GET", "/2/growth?weeks=1").json
    assert now["created"] == before[-1]["created"] + 1
    assert now["memory"] == before[-1]["memory"] + 64
    cluster.gnt("instance remove -f grown.example.com")
    [after] = rapi.ask("GET", "/2/growth?weeks=1").json
    assert (after["removed"], after["memory"]) == (now["removed"] + 1, before[-1]["memory"])
    assert rapi.ask("GET", "/2/growth?weeks=99").status == 400


def test_the_room_that_is_left(cluster: TestCluster, rapi: RapiClient) -> None:
    found = rapi.ask("GET", "/2/capacity?disk_template=file&memory=128&disk=64&vcpus=1").json
    assert found["disk-template"] == "file"
    assert (found["memory"], found["disk"], found["vcpus"]) == (128, 64, 1)
    assert found["count"] > 0
    halved = rapi.ask("GET", "/2/capacity?disk_template=file&memory=4096&disk=64&vcpus=1").json
    assert halved["count"] < found["count"]
    create_instance(rapi, cluster, "room.example.com")
    growth = rapi.ask("GET", "/2/capacity?disk_template=file&weeks=2").json["growth"]
    # The tests before may have removed more than they made: then there is no growth.
    assert growth is None or growth["weeks"] == growth["count"] / growth["per-week"]
    cluster.gnt("instance remove -f room.example.com")
    assert rapi.ask("GET", "/2/capacity?weeks=99").status == 400
    assert rapi.ask("GET", "/2/capacity?disk_template=none").status == 400


# Who may do what.


# user, password; status of reading, of asking for a console, of changing something
RIGHTS: tuple[tuple[Any, ...], ...] = (
    (None, "", 200, 401, 401),
    ("writer", "secret", 200, 404, 404),
    ("hashed", "secret", 200, 404, 404),
    ("reader", "secret", 200, 404, 403),
    ("nobody", "secret", 200, 403, 403),
    ("writer", "wrong", 401),
    ("unknown", "secret", 401),
    ("tokens", "", 401),
)


@pytest.mark.shows("backend/rapi/users", "backend/rapi/changes-not", "2.0/rapi-security/basic")
def test_rights(rapi: RapiClient) -> None:
    requests = (
        ("GET", "/2/info"),
        ("GET", "/2/instances/none.example.com/console"),
        ("DELETE", "/2/filters/none"),
    )
    for user, password, *expected in RIGHTS:
        answers = [
            rapi.ask(method, path, user=user, password=password)
            for method, path in requests[: len(expected)]
        ]
        assert [answer.status for answer in answers] == expected, user
        for answer in answers:
            challenge = 'Basic realm="Ganeti Remote API"' if answer.status == 401 else None
            assert answer.headers.get("WWW-Authenticate") == challenge


@pytest.mark.shows("backend/rapi/users-changed")
def test_a_change_of_the_users_counts_without_a_restart(
    rapi: RapiClient, cluster: TestCluster
) -> None:
    def status() -> int:
        return rapi.ask("GET", "/version", user="eve", password="new").status

    assert status() == 401
    write_users(cluster.paths, USERS + "eve new\n")
    wait_until(lambda: status() == 200, "the new user is known", timeout_s=TIMEOUT_S)
    write_users(cluster.paths)
    wait_until(lambda: status() == 401, "the user is forgotten", timeout_s=TIMEOUT_S)


def test_a_role_is_for_some_instances(rapi: RapiClient, cluster: TestCluster) -> None:
    grants = [Grant(("read", "write"), ("/2/*",), names=("web*",), tags=("theirs",))]
    data = rapi_users.format_roles({"webs": grants})
    files.write_atomic(cluster.paths.rapi_roles, data)
    create_instance(rapi, cluster, WEB)
    create_instance(rapi, cluster, DB)

    def ask(method: str, path: str, body: object = None) -> int:
        return rapi.ask(method, path, body, user="limited").status

    wait_until(
        lambda: ask("GET", f"/2/instances/{WEB}") == 200, "the role is known", timeout_s=TIMEOUT_S
    )
    assert ask("GET", f"/2/instances/{DB}") == 403
    assert ask("GET", "/2/nodes") == 403
    assert ask("PUT", "/2/modify", {}) == 403
    assert ask("PUT", f"/2/instances/{DB}/startup") == 403
    rename = {"new_name": "db2.example.com", "ip_check": False, "name_check": False}
    assert ask("PUT", f"/2/instances/{WEB}/rename", rename) == 403
    assert ask("POST", "/2/opcodes/OP_INSTANCE_REMOVE", {"instance_name": DB}) == 403
    foreign = {"force": True, "depends": [[1, []]]}
    assert ask("PUT", f"/2/instances/{WEB}/modify", foreign) == 403
    for path in ("/2/instances", "/2/instances?bulk=1", "/2/instances?bulk=1&copies=1"):
        [shown] = rapi.ask("GET", path, user="limited").json
        assert WEB in (shown.get("id"), shown.get("name"))
        assert ("disk.copies" in shown) == ("copies" in path)
    answer = rapi.ask("PUT", f"/2/instances/{WEB}/tags?tag=x&dry-run=1", user="limited")
    assert wait_job(rapi, answer.json) == "success"
    his_id = answer.json
    db_id = rapi.ask("PUT", f"/2/instances/{DB}/tags?tag=other").json
    assert wait_job(rapi, db_id) == "success"
    for path in ("/2/jobs", "/2/jobs?bulk=1", "/2/jobs?limit=100"):
        shown_ids = {int(each["id"]) for each in rapi.ask("GET", path, user="limited").json}
        assert (his_id in shown_ids, db_id in shown_ids) == (True, False), path
    wait = {"fields": ["status"]}
    for job_id, status in ((his_id, 200), (db_id, 403)):
        assert ask("GET", f"/2/jobs/{job_id}") == status
        assert ask("PUT", f"/2/jobs/{job_id}/wait", wait) == status
        assert ask("DELETE", f"/2/jobs/{job_id}") == status
    assert ask("GET", "/2/jobs/999999999") == 200
    assert submit(rapi, "PUT", f"/2/instances/{DB}/tags?tag=theirs") == "success"
    assert ask("GET", f"/2/instances/{DB}") == 200
    assert ask("GET", f"/2/jobs/{db_id}") == 200


def test_who_waits_for_a_job_that_has_ended_is_answered_at_once(rapi: RapiClient) -> None:
    job_id = rapi.ask("PUT", "/2/tags?tag=waited-for").json
    assert wait_job(rapi, job_id) == "success"
    for fields, seen in ((["status"], ["success"]), (["id", "status"], [job_id, "success"])):
        body = {"fields": fields, "previous_job_info": seen, "previous_log_serial": 1 << 30}
        for method in ("GET", "PUT"):
            answer = rapi.ask(method, f"/2/jobs/{job_id}/wait", body).json
            assert answer == {"job_info": seen, "log_entries": []}
    assert wait_job(rapi, rapi.ask("DELETE", "/2/tags?tag=waited-for").json) == "success"


def test_the_newest_jobs_are_listed(rapi: RapiClient) -> None:
    delay = {"OP_ID": "OP_TEST_DELAY", "duration": 0.0, "on_master": False}
    ids = [rapi.ask("POST", "/2/jobs", {"opcodes": [delay]}).json for _ in range(3)]
    for job_id in ids:
        assert wait_job(rapi, job_id) == "success"
    shown = rapi.ask("GET", "/2/jobs?bulk=1&limit=2").json
    assert [job["id"] for job in shown] == ids[1:]
    older = rapi.ask("GET", f"/2/jobs?limit=1&before={ids[1]}").json
    assert [int(job["id"]) for job in older] == ids[:1]


def test_the_command_manages_users_roles_and_tokens(rapi: RapiClient, cluster: TestCluster) -> None:
    def run(words: str, stdin: bytes | None = None) -> str:
        outcome = cluster.run(["gnt-rapi", *words.split()], stdin=stdin)
        assert outcome.status == 0, outcome
        return outcome.out

    run("set-role --local --rights=read,write --resources=/2/tags,/2/info ops")
    run("set-user --roles=ops sue", b"first\n")
    other = cluster.paths_of(cluster.nodes[1])
    assert "sue {scrypt}" in files.read_bytes(other.rapi_users).decode()
    token = run("add-token --local --days=1 sue").strip()

    def status(**how: str) -> int:
        headers = {"Authorization": f"Bearer {how['token']}"} if "token" in how else {}
        user = None if "token" in how else "sue"
        return rapi.ask(
            "PUT",
            "/2/tags?tag=x&dry-run=1",
            user=user,
            password=how.get("password", ""),
            headers=headers,
        ).status

    wait_until(lambda: status(token=token) == 200, "the token is known", timeout_s=TIMEOUT_S)
    assert status(password="first") == 200
    assert rapi.ask("GET", "/2/nodes", user="sue", password="first").status == 403
    assert "sue" in run("list-tokens")
    assert "role" in run("list-users")
    cluster.refused("rapi remove-role ops", "is that of sue")
    cluster.refused("rapi set-user --roles=none sue", "there is no role 'none'")
    run(f"remove-token --local {token.partition('.')[0]}")
    wait_until(lambda: status(token=token) == 401, "the token is gone", timeout_s=TIMEOUT_S)
    run("remove-user --local sue")
    run("remove-role --local ops")
    assert "ops" not in run("list-roles")
    write_users(cluster.paths)


# Answers.


def test_a_question_that_needs_a_job_leaves_none_in_the_queue(rapi: RapiClient) -> None:
    before = {job["id"] for job in rapi.ask("GET", "/2/jobs").json}
    assert rapi.ask("GET", "/2/os", user=None).status == 200
    wait_until(
        lambda: {job["id"] for job in rapi.ask("GET", "/2/jobs").json} <= before,
        "the job is archived",
        timeout_s=TIMEOUT_S,
    )
    shown = rapi.ask("GET", f"/2/jobs/{max(before | {0}) + 1}").json
    assert shown["summary"] == ["OS_DIAGNOSE"]


@pytest.mark.shows("2.1/uuid-two/rapi")
def test_an_instance_is_found_by_its_uuid_as_well(rapi: RapiClient, cluster: TestCluster) -> None:
    create_instance(rapi, cluster, "byuuid.example.com")
    shown = rapi.ask("GET", "/2/instances/byuuid.example.com").json
    assert rapi.ask("GET", f"/2/instances/{shown['uuid']}").json["name"] == "byuuid.example.com"
    assert submit(rapi, "PUT", f"/2/instances/{shown['uuid']}/tags?tag=found") == "success"
    assert rapi.ask("GET", "/2/instances/byuuid.example.com/tags").json == ["found"]
    assert submit(rapi, "DELETE", f"/2/instances/{shown['uuid']}") == "success"


def test_a_chain_of_exports_grows_by_the_remote_api(rapi: RapiClient, cluster: TestCluster) -> None:
    name, (one, two, _three) = "chained.example.com", cluster.nodes
    cluster.gnt(
        "instance add -H fake -t file --disk 0:size=1 --no-install --no-start --no-name-check"
        f" --no-ip-check -n {one} {name}"
    )
    for _point in range(2):
        body = {"destination": two, "shutdown": True, "incremental": True}
        assert submit(rapi, "PUT", f"/2/instances/{name}/export", body) == "success"
    listed = cluster.gnt(f"backup list -n {two} --no-headers --separator=| -o export,points").out
    assert f"{name}|[0, 1]" in listed.splitlines()
    answer = rapi.ask("PUT", f"/2/instances/{name}/export", {**body, "incremental": "much"})
    assert answer.status == 400
    assert submit(rapi, "DELETE", f"/2/exports/{name}") == "success"
    cluster.gnt(f"instance remove -f {name}")


@pytest.mark.shows("2.0/rapi-design/etag")
def test_a_change_may_ask_for_a_version(rapi: RapiClient, cluster: TestCluster) -> None:
    create_instance(rapi, cluster, WEB)
    for kind, path in (
        ("instance", f"/2/instances/{WEB}"),
        ("node", f"/2/nodes/{cluster.master}"),
        ("node group", "/2/groups/default"),
        ("cluster", "/2/info"),
    ):
        change = f"{path.removesuffix('/info')}/tags?tag=versioned"
        first = rapi.ask("GET", path)
        tag = first.headers["ETag"]
        assert tag == f'"{first.json["uuid"]}/{first.json["serial_no"]}"', kind
        assert rapi.ask("GET", path, headers={"If-None-Match": tag}).status == 200
        wrong = rapi.ask("PUT", change, headers={"If-Match": '"x/1"'})
        assert (wrong.status, wrong.headers["ETag"]) == (412, tag)
        answer = rapi.ask("PUT", change, headers={"If-Match": f'"x/1", {tag}'})
        assert wait_job(rapi, answer.json) == "success"
        assert rapi.ask("PUT", change, headers={"If-Match": tag}).status == 412
        late = {"kind": kind.replace("node group", "nodegroup"), "tags": ["late"]}
        late |= {"name": None if kind == "cluster" else path.rpartition("/")[2]}
        late |= {"expected_version": tag.strip('"')}
        job_id = rapi.ask("POST", "/2/opcodes/OP_TAGS_SET", late).json
        assert wait_job(rapi, job_id) == "error"
        [result] = rapi.ask("GET", f"/2/jobs/{job_id}").json["opresult"]
        assert "was changed meanwhile" in result[1][0]
        assert submit(rapi, "DELETE", change) == "success"
    assert rapi.ask("DELETE", "/2/instances/none", headers={"If-Match": "*"}).status == 404
    tag = rapi.ask("GET", f"/2/instances/{WEB}").headers["ETag"]
    answer = rapi.ask("DELETE", f"/2/instances/{WEB}", headers={"If-Match": tag})
    assert wait_job(rapi, answer.json) == "success"


def test_an_answer_that_the_client_has_is_not_sent_again(rapi: RapiClient) -> None:
    first = rapi.ask("GET", "/2/nodes")
    tag = first.headers["ETag"]
    again = rapi.ask("GET", "/2/nodes", headers={"If-None-Match": f'"x", {tag}'})
    assert (again.status, again.body) == (304, b"")
    assert rapi.ask("GET", "/2/nodes", headers={"If-None-Match": '"x"'}).body == first.body
    assert rapi.ask("HEAD", "/2/nodes").body == b""


@pytest.mark.shows("backend/rapi/rest", "2.0/rapi/rest")
def test_lists_are_the_same_as_single_objects(rapi: RapiClient, cluster: TestCluster) -> None:
    create_instance(rapi, cluster, WEB)
    create_instance(rapi, cluster, DB)
    for path in ("/2/instances", "/2/nodes", "/2/groups"):
        for shown in rapi.ask("GET", f"{path}?bulk=1").json:
            single = rapi.ask("GET", f"{path}/{shown['name']}").json
            changing = {"mfree", "dfree", "mnode"}
            assert {k: v for k, v in shown.items() if k not in changing} == {
                k: v for k, v in single.items() if k not in changing
            }
    assert [each["name"] for each in rapi.ask("GET", "/2/instances?bulk=1").json] == [DB, WEB]
    whole, more = (
        rapi.ask("GET", "/2/instances?bulk=1").json,
        rapi.ask("GET", "/2/instances?bulk=1&copies=1").json,
    )
    ours = {"disk.copies": [], "disk.copied": [], "disk.templates": []}
    assert more == [{**each, **ours} for each in whole]
    assert submit(rapi, "DELETE", f"/2/instances/{WEB}") == "success"
    assert [each["name"] for each in rapi.ask("GET", "/2/instances?bulk=1").json] == [DB]


@pytest.mark.shows("backend/masterd/two-sources", "2.0/rapi-design/progress")
def test_a_job_can_be_followed_hurried_and_archived(rapi: RapiClient) -> None:
    delay = {"OP_ID": "OP_TEST_DELAY", "duration": 0.0, "on_master": False}
    job_id = rapi.ask("POST", "/2/jobs", {"opcodes": [delay, delay]}).json
    assert wait_job(rapi, job_id) == "success"
    assert rapi.ask("GET", f"/2/jobs/{job_id}").json["opstatus"] == ["success", "success"]
    done, _text = rapi.ask("PUT", f"/2/jobs/{job_id}/priority", {"priority": 5}).json
    assert done is False
    assert rapi.ask("POST", f"/2/jobs/{job_id}/archive").json is True
    unknown = rapi.ask("GET", "/2/jobs/999999999").json
    assert unknown.pop("id") == 999999999
    assert set(unknown.values()) == {None}


def test_the_watcher_can_be_paused(rapi: RapiClient) -> None:
    until = clock.now() + 600
    assert rapi.ask("PUT", "/2/watcher", {"until": until}).status == 200
    assert rapi.ask("GET", "/2/watcher").json == {"until": pytest.approx(until)}
    assert rapi.ask("PUT", "/2/watcher", {"until": None}).status == 200
    assert rapi.ask("GET", "/2/watcher").json == {"until": None}


@pytest.mark.shows(
    "backend/masterd/needed",
    "2.12/rapid/one-peer",
    "2.0/rapi-design/own-daemon",
    "2.0/rapi-design/over-luxi",
    "2.0/rapi-resources/version",
)
def test_without_luxid_the_answer_says_so(rapi: RapiClient, cluster: TestCluster) -> None:
    daemon_control.stop_daemon(cluster.paths, "ganeti-luxid")
    try:
        answer = rapi.ask("GET", "/2/nodes")
        assert (answer.status, "ganeti-luxid" in answer.json["message"]) == (502, True)
        assert rapi.ask("GET", "/version").json == 2
    finally:
        daemon_control.start_daemon(cluster.paths, "ganeti-luxid", hostname=cluster.master)
    assert rapi.ask("GET", "/2/nodes").status == 200


# Bad input.


def raw(rapi: RapiClient, data: bytes) -> bytes:
    """Send bytes over TLS and return what comes, the head at least."""
    plain = socket.create_connection((rapi.address, rapi.port), timeout=TIMEOUT_S)
    with rapi.tls.wrap_socket(plain) as sock:
        received = b""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            sock.sendall(data)
            while b"\r\n\r\n" not in received and (chunk := sock.recv(1 << 16)):
                received += chunk
        return received


BAD: tuple[tuple[str, str, bytes | None, dict[str, str], int], ...] = (
    ("PUT", "/2/modify", b"{", {}, 400),
    ("PUT", "/2/modify", b"\xff\xfe", {}, 400),
    ("PUT", "/2/modify", b"[" * 100_000, {}, 400),
    ("PUT", "/2/modify", b'{"candidate_pool_size": "many"}', {}, 400),
    ("PUT", "/2/modify", b'{"comment": "\\ud800"}', {}, 400),
    ("PUT", "/2/modify", b"{}", {"Content-Type": "text/xml"}, 415),
    ("GET", "/2/info", None, {"Accept": "text/xml"}, 406),
    ("POST", "/2/info", b"{}", {}, 501),
    ("PATCH", "/2/info", None, {}, 501),
    ("POST", "/2/watcher", b"{}", {}, 405),
    ("GET", "/2/nodes?bulk=yes", None, {}, 400),
    ("GET", "/2/nodes?bulk=" + "9" * 5000, None, {}, 400),
    ("GET", "/2/nodes/..", None, {}, 404),
    ("GET", "/../../etc/passwd", None, {}, 404),
    ("GET", "/2/%00", None, {}, 404),
    ("GET", "/2/instances/%ff%fe", None, {}, 404),
    ("GET", "/2/query/node?fields=nonsense%00", None, {}, 200),
    ("GET", "/2/query/nonsense?fields=name", None, {}, 400),
    ("GET", "/2/instances?lock=1", None, {}, 400),
)


@pytest.mark.shows("2.0/rapi-resources/statuses")
def test_bad_input_is_answered(rapi: RapiClient) -> None:
    for method, path, data, headers, status in BAD:
        answer = rapi.ask(method, path, raw=data, headers=headers)
        assert answer.status == status, (method, path, answer)
        if status >= 400:
            assert set(answer.json) - {"detail"} == {"code", "message", "explain"}
            assert ("detail" in answer.json) == (status == 404)
        assert rapi.ask("GET", "/version").status == 200


def test_two_authorizations_are_one_too_many(rapi: RapiClient) -> None:
    right, wrong = (
        b"Authorization: Basic %s\r\n" % base64.b64encode(words)
        for words in (b"writer:secret", b"writer:wrong")
    )
    head = b"GET /2/info HTTP/1.1\r\nHost: x\r\n%sConnection: close\r\n\r\n"
    assert raw(rapi, head % right).startswith(b"HTTP/1.1 200 ")
    for both in (right + wrong, wrong + right, right + right):
        assert raw(rapi, head % both).startswith(b"HTTP/1.1 400 ")


def test_too_much_is_refused_before_it_is_taken(rapi: RapiClient) -> None:
    head = b"PUT /2/modify HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%s\r\n\r\n"
    large = b"Content-Length: 100000000"
    right = b"Authorization: Basic d3JpdGVyOnNlY3JldA==\r\n"
    assert raw(rapi, head % (right + large)).startswith(b"HTTP/1.1 413 ")
    assert raw(rapi, head % large).startswith(b"HTTP/1.1 401 ")
    flood = b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(20_000))
    assert b" 431 " in raw(rapi, flood)
    assert raw(rapi, b"rubbish\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert rapi.ask("GET", "/version").status == 200


def test_slow_clients_and_rubbish_hold_up_nobody(rapi: RapiClient) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(200):
            sock = socket.create_connection((rapi.address, rapi.port), timeout=TIMEOUT_S)
            stack.callback(sock.close)
            sock.sendall(b"\x16\x03\x01" if number % 2 else b"GET / HTTP/1.1\r\n\r\n")
        client = RapiClient(rapi.address, rapi.port)
        stack.callback(client.close)
        assert client.ask("GET", "/2/info").status == 200
    assert rapi.ask("GET", "/version").status == 200


@pytest.mark.shows("2.0/logging/rapi-access")
def test_every_answer_is_in_the_access_log(rapi: RapiClient, cluster: TestCluster) -> None:
    rapi.ask("GET", "/2/features?from=log", user="reader")
    with open(f"{cluster.paths.log_dir}/rapi-access.log", encoding="ascii") as file:
        line = next(line for line in file if "from=log" in line)
    assert " - reader [" in line
    assert '"GET /2/features?from=log HTTP/1.1" 200 ' in line


# The certificate.


def shown_certificate(rapi: RapiClient) -> bytes | None:
    plain = socket.create_connection((rapi.address, rapi.port), timeout=TIMEOUT_S)
    with rapi.tls.wrap_socket(plain) as sock:
        return sock.getpeercert(binary_form=True)


@pytest.mark.shows("backend/certificates/rapi-pem", "2.0/core/https")
def test_a_new_certificate_is_used_without_a_restart(
    rapi: RapiClient, cluster: TestCluster
) -> None:
    paths: Paths = cluster.paths
    pid = daemon_control.running_pid(paths, DAEMON)
    rapi.close()
    assert rapi.ask("GET", "/version").status == 200  # this connection is kept
    old = shown_certificate(rapi)
    files.write_atomic(paths.rapi_pem, b"rubbish", 0o440)
    wait_until(
        lambda: "old certificate stays" in log_of(paths),
        "the bad certificate is complained of",
        timeout_s=TIMEOUT_S,
    )
    assert shown_certificate(rapi) == old
    past = clock.now() - 1000 * 86400
    files.write_atomic(paths.rapi_pem, certificates.make_self_signed(now=past, days=10), 0o440)
    wait_until(lambda: shown_certificate(rapi) != old, "it is shown", timeout_s=TIMEOUT_S)
    old = shown_certificate(rapi)
    assert f"The certificate in {paths.rapi_pem} expired on" in log_of(paths)
    pem = certificates.make_self_signed(now=clock.now())
    files.write_atomic(paths.rapi_pem, pem, 0o440)
    wait_until(lambda: shown_certificate(rapi) != old, "the new one is shown", timeout_s=TIMEOUT_S)
    assert rapi.ask("GET", "/version").status == 200
    assert daemon_control.running_pid(paths, DAEMON) == pid


def log_of(paths: Paths) -> str:
    with open(paths.log_file(DAEMON), encoding="utf-8") as file:
        return file.read()


def test_users_make_and_remove_tokens_of_their_own(rapi: RapiClient, cluster: TestCluster) -> None:
    def ask(method: str, path: str, user: str | None, body: object = None, token: str = "") -> Any:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return rapi.ask(method, path, body, user=None if token else user, headers=headers)

    own = "/2/user/tokens"
    made = ask("POST", own, "reader", {"days": 2}).json
    assert wait_job(rapi, made["job"]) == "success"
    others = cluster.paths_of(cluster.nodes[1]).rapi_tokens
    number, _, secret = made["token"].partition(".")
    kept = files.read_bytes(others).decode()
    assert number in kept, "the other candidates have it"
    assert secret not in kept, "and nobody has its secret"
    shown = ask("GET", "/2/user", None, token=made["token"]).json
    assert (shown["name"], shown["rights"]) == ("reader", ["read"])
    assert shown["tokens"] == [{"id": number, "expires": made["expires"]}]
    assert 0 < made["expires"] - clock.now() - 86400 < 86400 + 1

    refused = ask("POST", own, None, token=made["token"])
    assert (refused.status, "needs the password" in refused.json["message"]) == (403, True)
    assert [ask("POST", own, each, {}).status for each in (None, "nobody")] == [401, 403]
    assert [ask("POST", own, "reader", {"days": days}).status for days in (0, 367, "x")] == [
        400
    ] * 3
    for user, status in ((None, 401), ("reader", 403), ("limited", 403)):
        assert ask("GET", "/2/users", user).status == status
    assert ask("DELETE", f"/2/users/reader/tokens/{number}", "reader").status == 403
    assert ask("DELETE", f"{own}/{number}", "writer").status == 404, "it is another's"
    assert ask("DELETE", f"/2/users/writer/tokens/{number}", "writer").status == 404

    answer = ask("GET", "/2/users", "writer")
    [reader] = [each for each in answer.json["users"] if each["name"] == "reader"]
    assert reader == {
        "name": "reader",
        "password": "cleartext",
        "rights": ["read"],
        "roles": [],
        "tokens": shown["tokens"],
    }
    assert not [each for each in (b"secret", b"scrypt}", secret.encode()) if each in answer.body]
    assert ask("DELETE", f"/2/users/reader/tokens/{number}", "writer").status == 200
    assert ask("GET", "/2/user", None, token=made["token"]).status == 401
    again = ask("POST", own, "reader", {}).json["token"]
    job = ask("DELETE", f"{own}/{again.partition('.')[0]}", None, token=again)
    assert (job.status, wait_job(rapi, job.json)) == (200, "success")
    assert ask("GET", "/2/user", None, token=again).status == 401
    assert files.read_bytes(others).decode() == ""
