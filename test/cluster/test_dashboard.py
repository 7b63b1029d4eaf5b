"""The dashboard in a real browser, on a live cluster; and with lists that no test cluster has."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from fakes.browser import Browser
from fakes.dashboard import (
    DESK,
    INSTANCES,
    choose,
    confirm,
    field,
    instance,
    many,
    node,
    note_incidents,
    record_notes,
    show,
    sign_in,
    submit,
    wait_for_note,
)
from fakes.rapi import USERS, RapiClient, create_instance, wait_job, write_users
from fakes.virtual_cluster import TestCluster
from fakes.waiting import wait_until

from ganeti.protocol.maintenance.stored import Action, Incident, RepairStatus
from ganeti.protocol.rapi.pages import CONSOLE_POLICY, FILES, LIBRARIES, PAGES, POLICY, TOP
from ganeti.rapid import documents

WEB, DB, NEW = "web1.example.com", "db1.example.com", "new1.example.com"
MARKUP = '<img src=x onerror="window.harmed=1"><b>bold</b>'
JOBS = "/2/jobs?bulk=1&limit=100"
PHONE = (390, 844)


# The files.


@pytest.mark.parametrize(
    "route",
    [each for each in PAGES if each.path.count("/") < 3 or each.path.endswith((".mjs", "rfb.js"))],
    ids=lambda route: route.path,
)
def test_files_are_served_as_what_they_are(rapi: RapiClient, route: object) -> None:
    path = str(getattr(route, "path"))  # noqa: B009
    answer = rapi.ask("GET", path, user=None)
    assert answer.status == 200
    name = path.removeprefix(TOP).strip("/") or "index.html"
    assert answer.body == documents.MAKERS[f"ui/{name}"]()
    assert answer.headers["Content-Type"] == getattr(route, "content_type")  # noqa: B009
    policy = CONSOLE_POLICY if name == "console.html" else POLICY
    assert answer.headers["Content-Security-Policy"] == policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    again = rapi.ask("GET", path, user=None, headers={"If-None-Match": answer.headers["ETag"]})
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/ui/../../../etc/passwd",
        "/ui/%2e%2e/server.py",
        "/ui/..%2f..%2frapid%2fserver.py",
        "/ui//etc/passwd",
        "/ui/app.js/..",
        "/ui/app.js%00.html",
        "/ui/none.html",
    ],
)
def test_no_other_file_is_served(rapi: RapiClient, path: str) -> None:
    assert rapi.ask("GET", path, user=None).status == 404


def test_every_file_has_its_row_and_loads_nothing_from_elsewhere() -> None:
    directory = os.path.join(os.path.dirname(documents.__file__), "ui")
    top = Path(directory)
    found = [str(path.relative_to(top)) for path in top.rglob("*") if path.is_file()]
    assert sorted(found) == sorted((*FILES, *LIBRARIES))
    for name in FILES:
        text = documents.MAKERS[f"ui/{name}"]().decode()
        left = text.replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in left, name
        assert "https:" not in left, name
        assert "innerHTML" not in text, name
        assert "insertAdjacentHTML" not in text, name


def test_the_page_of_resources_finds_words_in_any_order(page: Browser) -> None:
    page.go(page.script("return location.origin") + "/2/docs")
    page.type("input", "STARTUP  put instances")
    shown = (
        "return [...document.querySelectorAll('details:not([hidden]) summary')]"
        ".map((each) => each.textContent.toLowerCase())"
    )
    page.wait(lambda: 0 < len(page.script(shown)) < 10, "the resources found")
    found = page.script(shown)
    assert any("/2/instances/{instance}/startup" in each for each in found)
    assert all(word in each for each in found for word in ("startup", "put", "instances"))


def test_a_browser_that_asks_for_nothing_comes_to_the_dashboard(page: Browser) -> None:
    page.go(page.script("return location.origin") + "/")
    page.wait_for("main .card")
    assert page.script("return location.pathname") == "/ui/"


# A live cluster.


def test_a_person_starts_an_instance(rapi: RapiClient, cluster: TestCluster, page: Browser) -> None:
    create_instance(rapi, cluster, WEB, "site:front")
    page.wait_text("main", "node3.example.com")
    page.screenshot("overview")
    assert page.text("#cluster") == cluster.gnt("cluster info").out.split("\n")[0].split(": ")[1]
    assert "master" in page.texts("main .badge")
    page.click("nav a[href='#/instances']")
    page.wait_text("main tbody", WEB)
    assert page.count(".actions button") == 0, "nobody who has not signed in may act"

    sign_in(page, password="wrong")
    page.wait_text("#login-error", "wrong")
    page.screenshot("sign-in")
    page.type("#login-password", "secret")
    page.click("#login-submit")
    page.wait_text("#who", "writer")
    assert page.script("return localStorage.length") == 0
    assert page.script("return document.cookie") == ""

    start = f"button[aria-label='Start {WEB}']"
    page.click(start)
    page.wait_text("#confirm-title", f"Start {WEB}?")
    page.screenshot("confirm")
    assert page.focused() == "confirm-no", "who presses Enter by mistake does nothing"
    page.press("escape")
    page.wait(lambda: page.count("dialog[open]") == 0, "the question goes away")
    jobs_before = len(rapi.ask("GET", "/2/jobs").json)
    record_notes(page)
    confirm(page, start)
    wait_for_note(page, "was submitted")
    wait_for_note(page, f"INSTANCE_STARTUP({WEB}): success")
    page.wait_for(f"button[aria-label='Stop {WEB}']")
    assert len(rapi.ask("GET", "/2/jobs").json) == jobs_before + 1
    assert rapi.ask("GET", f"/2/instances/{WEB}").json["oper_state"] is True
    page.screenshot("instances")

    page.click(f"main a[href='#/instance/{WEB}']")
    page.wait_text("main", "site:front")
    page.wait_text("main", "INSTANCE_STARTUP")
    page.screenshot("instance")
    page.click("main tbody a[href^='#/job/']")
    page.wait_text("main .badge", "success")
    page.screenshot("job")
    assert [line for line in page.log() if "401" not in line] == []


def test_a_job_is_followed_while_it_runs(rapi: RapiClient, page: Browser) -> None:
    sign_in(page)
    page.wait_text("#who", "writer")
    opcodes = [
        {"OP_ID": "OP_TEST_JQUEUE", "log_messages": [MARKUP, "second"]},
        {"OP_ID": "OP_TEST_DELAY", "duration": 0.1, "on_master": True},
    ]
    job_id = rapi.ask("POST", "/2/jobs", {"opcodes": opcodes}).json
    page.go(f"{page.script('return location.origin')}/ui/#/job/{job_id}")
    page.wait_text(".log", "second")
    page.wait_text("main .badge", "success")
    page.wait_text("main", "2 of 2")
    assert MARKUP in page.text(".log"), "shown as it is"
    assert page.count(".log img, .log b") == 0


def instance_now(cluster: TestCluster, name: str) -> tuple[object, object]:
    """Return where an instance is and whether it runs, as LuxiD says."""
    with cluster.client() as client:
        [[pnode, is_up]] = client.query_instances([name], ["pnode", "oper_state"])
        return pnode, is_up


def test_an_instance_is_rebooted_migrated_and_stopped(
    rapi: RapiClient, cluster: TestCluster, page: Browser
) -> None:
    create_instance(rapi, cluster, WEB)
    assert wait_job(rapi, rapi.ask("PUT", f"/2/instances/{WEB}/startup").json) == "success"
    first, second = cluster.nodes[:2]
    assert instance_now(cluster, WEB) == (first, True)
    sign_in(page)
    page.wait_text("#who", "writer")
    page.go(f"{page.script('return location.origin')}/ui/#/instance/{WEB}")
    record_notes(page)

    confirm(page, f"button[aria-label='Reboot {WEB}']")
    wait_for_note(page, f"INSTANCE_REBOOT({WEB}): success")

    page.click(f"button[aria-label='Migrate {WEB}']")
    page.wait_text("#confirm-text", f"from {first} to the chosen node")
    assert page.texts("#confirm-select option") == [second, cluster.nodes[2]]
    page.screenshot("migrate")
    page.click("#confirm-yes")
    wait_for_note(page, f"INSTANCE_MIGRATE({WEB}): success")
    assert instance_now(cluster, WEB) == (second, True)
    page.wait_text("main .facts", second)

    page.click(f"button[aria-label='Stop {WEB}']")
    page.wait_for("#confirm[open]")
    page.press("tab", "enter")  # from "Cancel" to "Stop"
    wait_for_note(page, f"INSTANCE_SHUTDOWN({WEB}): success")
    assert instance_now(cluster, WEB) == (second, False)
    page.wait_for(f"button[aria-label='Start {WEB}']")
    assert page.count(f"button[aria-label='Migrate {WEB}']") == 0
    with cluster.client() as client:
        rows = client.query_jobs([], ["summary", "ops"])
    reasons = [ops[0]["reason"][0][:2] for summary, ops in rows[-3:]]  # type: ignore[index]
    assert reasons == [["gnt:user", "dashboard"]] * 3


def test_a_job_is_canceled(rapi: RapiClient, cluster: TestCluster, page: Browser) -> None:
    hold = {"predicates": [["jobid", [">", "id", 0]]], "action": "PAUSE"}
    rule = rapi.ask("POST", "/2/filters", hold).json
    try:
        delay = {"OP_ID": "OP_TEST_DELAY", "duration": 0.0, "on_master": True}
        job_id = rapi.ask("POST", "/2/jobs", {"opcodes": [delay]}).json
        page.go(f"{page.script('return location.origin')}/ui/#/job/{job_id}")
        page.wait_text("main .hint", "Sign in")
        assert page.count("main button") == 0
        sign_in(page)
        page.wait_text("#who", "writer")
        confirm(page, "main section button")
        page.wait_text("main .badge", "canceled")
        with cluster.client() as client:
            assert client.query_jobs([job_id], ["status"]) == [["canceled"]]
        page.wait(lambda: page.count("main section button") == 0, "nothing is left to cancel")
    finally:
        assert rapi.ask("DELETE", f"/2/filters/{rule}").status == 200


def test_a_right_that_was_taken_away(rapi: RapiClient, cluster: TestCluster, page: Browser) -> None:
    create_instance(rapi, cluster, WEB)

    def status() -> int:
        return rapi.ask("DELETE", "/2/filters/none").status

    sign_in(page)
    page.wait_text("#who", "writer")
    page.go(f"{page.script('return location.origin')}/ui/#/instance/{WEB}")
    record_notes(page)
    page.wait_for(f"button[aria-label='Start {WEB}']")
    try:
        write_users(cluster.paths, USERS.replace(" write,read", " read"))
        wait_until(lambda: status() == 403, "the right is gone")
        confirm(page, f"button[aria-label='Start {WEB}']")
        wait_for_note(page, "User 'writer' may not do this: the right 'write' is needed")
        page.wait_text("#who", "reads only")
        page.wait_text("main .hint", "writer has no right to write")
        assert page.count("main .actions button") == 0
        assert instance_now(cluster, WEB) == (cluster.master, False)
    finally:
        write_users(cluster.paths)
        wait_until(lambda: status() == 404, "the right is back")


def test_who_may_only_read_has_nothing_to_press(
    rapi: RapiClient, cluster: TestCluster, page: Browser
) -> None:
    create_instance(rapi, cluster, DB)
    sign_in(page, "reader")
    page.wait_text("#who", "reads only")
    page.click("nav a[href='#/instances']")
    page.wait_text("main tbody", DB)
    assert page.count(".actions button") == 0
    page.wait_text("main .hint", "change nothing: reader has no right to write")
    page.screenshot("reader")
    page.click("#sign")
    page.wait_text("#sign", "Sign in")
    assert page.script("return sessionStorage.length") == 0


def test_the_keyboard_reaches_everything(page: Browser) -> None:
    page.press("tab")
    assert page.focused() == "skip"
    page.press("enter")
    assert page.focused() == "main"
    page.press("/", "n", "o", "d", "e", "2")
    assert page.focused() == "search"
    page.wait_text("nav a[href='#/nodes'] .count", "1/3")
    page.press("tab", "tab", "enter")
    page.wait_for("#login[open]")
    assert page.focused() == "login-user"
    page.press("escape")
    page.wait(lambda: page.focused() == "sign", "the focus is back where it was")
    page.press("tab", "tab", "tab")
    assert page.focused().startswith("Nodes")
    page.press("enter")
    page.wait_text("h1", "Nodes")
    page.press("tab", "enter")
    page.wait_text("main th[aria-sort='descending']", "Node")
    unnamed = page.script(
        "return [...document.querySelectorAll('button, input, a, svg[role=img]')].filter((each) =>"
        " !(each.ariaLabel || each.innerText?.trim() || each.closest('dialog, label'))).length"
    )
    assert unnamed == 0


def test_an_instance_is_made_changed_and_removed(
    rapi: RapiClient, cluster: TestCluster, page: Browser
) -> None:
    sign_in(page)
    page.wait_text("#who", "writer")
    record_notes(page)
    page.click("nav a[href='#/instances']")
    page.click("main a[href='#/create']")
    form = "main form.operation"
    page.type(field("name", form), NEW)
    page.type(field("memory", form), "16M")
    page.type(field("size", form), "4M")
    page.script("document.querySelector(\"[data-name='os']\").value = ''")
    page.click(field("start", form))
    page.click(f"{form} .buttons button[type=button]")
    page.wait_text(f"{form} .log", "It would be made on")
    text = page.text(f"{form} .log")
    assert f"instance {NEW} goes to" in text
    assert all(node in text for node in cluster.nodes), "and why not to the others"
    page.screenshot("create")
    assert NEW not in cluster.instance_names()
    page.click(f"{form} button[type=submit]")
    page.wait_text("main .badge", "success")
    page.wait_text("main .facts", "writer")

    page.go(f"{page.script('return location.origin')}/ui/#/instance/{NEW}")
    page.wait_text("main .facts", "16 MiB")
    choose(page, "Edit")
    page.type(field("memory"), "20M")
    page.screenshot("edit")
    submit(page, f"INSTANCE_SET_PARAMS({NEW})")
    page.wait_text("main .facts", "20 MiB")
    choose(page, "Grow a disk")
    page.click("#operate button[type=submit]")
    page.wait_text("#operate .wrong", "Larger by is missing")
    page.type(field("amount"), "much")
    page.click("#operate button[type=submit]")
    page.wait_text("#operate .wrong", "is no size")
    page.type(field("amount"), "4M")
    submit(page, f"INSTANCE_GROW_DISK({NEW})")
    page.wait_text("main .facts", "disk 0: 8 MiB")
    choose(page, "Add a disk")
    page.type(field("size"), "4M")
    submit(page, f"INSTANCE_SET_PARAMS({NEW})")
    page.wait_text("main .facts", "disk 1: 4 MiB")
    choose(page, "Add tags")
    page.type(field("tags"), "site:front blue")
    submit(page, "TAGS_SET")
    page.wait_text("main .facts", "site:front")
    answer = rapi.ask("GET", f"/2/instances/{NEW}").json
    assert (answer["disk.sizes"], sorted(answer["tags"])) == ([8, 4], ["blue", "site:front"])
    choose(page, "Remove")
    page.type(field("sure"), "another")
    page.click("#operate button[type=submit]")
    page.wait_text("#operate .wrong", f"this is not {NEW}")
    page.type(field("sure"), NEW)
    submit(page, f"INSTANCE_REMOVE({NEW})")
    page.wait_text("main", "There is no instance of this name")
    assert NEW not in cluster.instance_names()


def test_many_are_started_at_once(rapi: RapiClient, cluster: TestCluster, page: Browser) -> None:
    for name in (WEB, DB):
        create_instance(rapi, cluster, name)
    sign_in(page)
    page.wait_text("#who", "writer")
    page.click("nav a[href='#/instances']")
    for name in (WEB, DB):
        page.click(f"input[aria-label='Choose {name}']")
    page.wait_text("[data-bulk='shutdown']", "Stop 0")
    page.screenshot("bulk")
    confirm(page, "[data-bulk='startup']")
    for name in (WEB, DB):
        page.wait_for(f"button[aria-label='Stop {name}']")
    page.wait(lambda: page.count(".bulk:not([hidden])") == 0, "nothing is chosen any more")


def test_an_evacuation_shows_its_plan_first(
    rapi: RapiClient, cluster: TestCluster, page: Browser
) -> None:
    create_instance(rapi, cluster, WEB)
    sign_in(page)
    page.wait_text("#who", "writer")
    page.go(f"{page.script('return location.origin')}/ui/#/node/{cluster.master}")
    choose(page, "Evacuate")
    page.wait_for("#operate .buttons button:nth-of-type(2):not([hidden])")
    page.click("#operate .buttons button:nth-of-type(2)")
    page.wait_text("#operate .log", "would be submitted.")
    page.screenshot("evacuate")
    assert instance_now(cluster, WEB)[0] == cluster.master


# Lists that were made up: many, and full of markup.


def test_a_thousand_instances(page: Browser) -> None:
    show(page, many(12, 1000), "instances")
    page.wait_text("nav a[href='#/instances'] .count", "1000")
    assert page.count("tbody tr") < 200, "rows are made when they are about to be seen"
    page.wait_text("tbody tr:first-child", "vm0000")
    page.script("scrollTo(0, document.body.scrollHeight)")
    page.wait(lambda: page.count("tbody tr") > 100, "more rows at the end of the page")
    page.script("scrollTo(0, 0)")
    page.type("#search", "vm0777")
    page.wait_text("tbody", "vm0777")
    page.wait(lambda: page.count("tbody tr") == 1, "one row is found")
    page.type("#search", "error")
    page.wait_text("tbody", "ERROR: down")
    page.screenshot("thousand")
    page.click("nav a[href='#/map']")
    page.wait_for("svg .edge")
    assert page.count("svg a.dot") == 12
    page.type("#search", "node7")
    page.wait_text("main tbody", "node7")
    page.wait(lambda: page.count("main tbody tr") == 1, "one node is found")
    page.screenshot("map")


def copied(name: str, *copies: tuple[str | None, float | None]) -> dict[str, object]:
    """Return an instance with these states of its disks' copies."""
    states, percents = [state for state, _ in copies], [percent for _, percent in copies]
    disks = {"disk.sizes": [1024] * len(copies), "disk.names": [None] * len(copies)}
    found = {"disk.copies": states, "disk.copied": percents}
    return instance(name, "node0.example.com", "node1.example.com", **disks, **found)


def test_copies_of_disks_are_shown_with_their_secondary_node(page: Browser) -> None:
    found = [
        copied("a-fine", ("up to date", None), (None, None)),
        copied("b-sync", ("up to date", None), ("syncing", 71.0), ("syncing", 42.25)),
        copied("c-late", ("syncing", 10.0), ("degraded", None)),
        copied("d-gone", ("degraded", None), ("faulty", None)),
        copied("e-mute", ("unknown", None)),
        copied("f-down", ("inactive", None)),
    ]
    show(page, {**many(2, 0), INSTANCES: found}, "instances")
    page.wait_text("main tbody", "f-down")
    rows = page.texts("main tbody tr")
    assert all("node1" in row for row in rows)
    marks = ("syncing", "42.3 %", "copy out of date", "data unusable", "copy not known")
    assert [[mark for mark in marks if mark in row] for row in rows] == [
        [],
        ["syncing", "42.3 %"],
        ["copy out of date"],
        ["data unusable"],
        ["copy not known"],
        [],
    ]
    width = "return document.querySelector('.copy .bar span').style.width"
    assert page.script(width) == "42.3%"
    page.screenshot("copies")
    page.type("#search", "out of date")
    page.wait(lambda: page.count("main tbody tr") == 1, "one row is found")
    page.click("nav a[href='#/overview']")
    page.type("#search", "")
    page.wait_text("main .card.red", "bad copies")
    page.wait_text("main .card.red", "2")
    show(page, {**many(2, 0), INSTANCES: found}, "instance/b-sync")
    page.wait_text("main .facts", "disk 0: 1.0 GiB copy up to date")
    page.wait_text("main .facts", "71.0 %")
    page.wait_text("main .facts", "node1.example.com")
    show(page, {**many(2, 0), INSTANCES: found}, "instance/f-down")
    page.wait_text("main .facts", "copy not active")
    page.screenshot("copies-of-one")


def test_backups_are_shown_with_their_schedule(page: Browser) -> None:
    names = ("a-fine", "b-late", "c-none", "d-free")
    node, now = "node1.example.com", time.time()

    def stands(name: str, policy: str | None, newest: float | None, **more: object) -> object:
        known = {"due": None, "wait": None, "begins_on": None, "is_late": False, **more}
        known |= dict.fromkeys(f"rehearsal_{each}" for each in ("due", "wait", "begins_on"))
        known |= {"rehearsed": None, "rehearsal_problem": None}
        known["of"] = None if policy is None else "cluster"
        where = None if newest is None else node
        return {"instance": name, "policy": policy, "newest": newest, "node": where, **known}

    found = {
        INSTANCES: [instance(name, node, "node0.example.com") for name in names],
        "/2/exports": [[node, "a-fine"], [node, "b-late"], [node, "d-free"], ["node0", None]],
        "/2/backup-schedule": [
            stands("a-fine", "every 1d keep 7", now - 60, due=now + 86_400),
            stands("b-late", "every 1d", now - 300_000, due=now - 9, wait="full", is_late=True),
            stands("c-none", "every 1h", None, due=0, begins_on="node0", is_late=True),
            stands("d-free", None, now - 60),
        ],
    }
    show(page, {**many(2, 0), **found}, "backups")
    page.wait_text("main .table:last-of-type tbody", "c-none")
    rows = page.texts("main .table:last-of-type tbody tr")
    marks = ("every 1d keep 7", "too old", "due: full", "now, on node0")
    assert [[mark for mark in marks if mark in row] for row in rows] == [
        ["every 1d keep 7"],
        ["too old", "due: full"],
        ["too old", "now, on node0"],
        [],
    ]
    assert ["Bring back" in row for row in rows] == [True, True, False, True]
    page.screenshot("backups")


def test_migration_is_offered_where_every_disk_can_be_reached(page: Browser) -> None:
    pair, nodes = "node1.example.com", "node0.example.com"
    made = {
        "pair": (pair, ["drbd", "drbd"]),
        "pair-and-file": (pair, ["drbd", "file"]),
        "pair-and-shared": (pair, ["drbd", "rbd"]),
        "shared": ("", ["rbd", "sharedfile"]),
        "shared-and-plain": ("", ["rbd", "plain"]),
    }
    found = []
    for name, (second, templates) in made.items():
        one = len(set(templates)) == 1
        row = instance(name, nodes, second, disk_template=templates[0] if one else "mixed")
        found.append({**row, "snodes": [second] if second else [], "disk.templates": templates})
    offered = []
    for name in made:
        show(page, {**many(2, 0), INSTANCES: found}, f"instance/{name}")
        page.wait_for(f"button[aria-label='Stop {name}']")
        if page.count(f"button[aria-label='Migrate {name}']"):
            offered.append(name)
    assert offered == ["pair", "pair-and-shared", "shared"]


def made_up_job(number: int, status: str = "success") -> dict[str, object]:
    stamp = [1700000000 + number, 0]
    times = {"received_ts": stamp, "start_ts": stamp, "end_ts": stamp}
    return {
        "id": number,
        "status": status,
        "summary": [f"TEST_DELAY({number})"],
        "ops": [],
        "opstatus": [status],
        **times,
    }


def test_a_long_queue_is_asked_for_in_parts(page: Browser) -> None:
    jobs = {number: made_up_job(number) for number in range(1, 251)}
    late = {**jobs, 60: made_up_job(60, "running")}
    lists = {
        **many(3, 3),
        JOBS: [jobs[number] for number in range(151, 251)],
        f"{JOBS}&before=151": [late[number] for number in range(51, 151)],
        f"{JOBS}&before=61": [late[number] for number in range(1, 61)],
    }
    show(page, lists, "overview")
    page.wait_text("main section > .table:last-child tbody tr:first-child", "TEST_DELAY(250)")
    page.click("nav a[href='#/jobs']")
    page.wait_text("nav a[href='#/jobs'] .count", "100+")
    page.wait_text("main tbody tr:first-child", "TEST_DELAY(250)")
    page.type("#search", "(60)")
    page.wait_text(".older", "Search older jobs too")
    assert page.count("tbody tr") == 0
    page.click(".older")
    page.wait_text("tbody", "TEST_DELAY(60)")
    page.wait_text("tbody .badge", "running")
    page.script(
        "lists[arguments[0]] = arguments[1]; document.dispatchEvent(new Event('visibilitychange'))",
        f"{JOBS}&before=61",
        [jobs[number] for number in range(1, 61)],
    )  # which makes it ask at once
    page.wait_text("tbody .badge", "success")
    page.wait_text("nav a[href='#/jobs'] .count", "1/200+")
    page.screenshot("jobs")


def test_jobs_are_those_about_the_instance_whatever_it_was_called(page: Browser) -> None:
    def job(number: int, user: str = "", **op: object) -> dict[str, object]:
        source = "gnt:library:rlib2:x" if user else "gnt:client:gnt-instance"
        trail = [["gnt:user", MARKUP, 1], [source, f"user {user}" if user else "", 1]]
        ops = [{"OP_ID": "OP_INSTANCE_STARTUP", "reason": trail, **op}]
        return {**made_up_job(number, "error" if number == 3 else "success"), "ops": ops}

    nodes = ("node0.example.com", "node1.example.com")
    jobs = [
        job(1, instance_name="vm1.example.com"),
        job(2, "jim", instance_name="vm1"),
        job(3, instance_name="vm10.example.com"),
        job(4, instance_name="vm1.example.com.other"),
        job(5, OP_ID="OP_TAGS_SET", kind="instance", name="vm1"),
        job(6, OP_ID="OP_TAGS_SET", kind="node", name="vm1"),
    ]
    names = ("vm1.example.com", "vm10.example.com")
    lists = {**many(2, 0), INSTANCES: [instance(name, *nodes) for name in names], JOBS: jobs}
    show(page, lists, "instance/vm1.example.com")
    page.wait_text("main tbody", "TEST_DELAY(5)")
    found = page.texts("main tbody td.title")
    assert [each for each in found if each] == ["5", "2", "1"]
    page.click("nav a[href='#/jobs']")
    page.wait_text("main tbody", "TEST_DELAY(6)")

    def choose_in(css: str, value: str) -> None:
        page.script(
            "const box = document.querySelector(arguments[0]); box.value = arguments[1];"
            " box.dispatchEvent(new Event('change'))",
            css,
            value,
        )

    choose_in("#job-status", "error")
    page.wait(lambda: page.count("tbody tr") == 1, "one job failed")
    choose_in("#job-status", "")
    choose_in("#job-who", "jim")
    page.wait(lambda: page.count("tbody tr") == 1, "one job is jim's")
    choose_in("#job-who", "")
    page.type("#job-object", "vm10")
    page.wait(lambda: page.count("tbody tr") == 1, "one job is about vm10")
    show(page, {**lists, "/2/jobs/2": {**jobs[1], "opresult": [None], "oplog": [[]]}}, "job/2")
    page.wait_text("main .facts", "jim")
    page.wait_text("main .facts", "<b>bold</b>")
    page.click(".ops summary")
    page.wait_text(".ops .facts", "vm1")
    assert page.script("return window.harmed") is None


def test_curves_of_hour_and_day(page: Browser) -> None:
    now = page.script("return Date.now() / 1000")
    fields = ["time", "cpu", "memory", "disk_read", "disk_written", "net_in", "net_out"]
    hour = [[now - 60 * at, 0.5 + at / 100, 900, 2048, 0, 5e6, 10] for at in range(59, -1, -1)]
    day = [[now - 600 * at, 1.5, 700, 0, 0, 0, 0] for at in range(143, -1, -1)]
    path = "/2/nodes/node0.example.com/usage"
    lists = {**many(2, 3), path: {"fields": fields, "hour": hour, "day": day}}
    show(page, lists, "node/node0.example.com")
    page.wait_for(".curve path")
    assert page.count(".curve") == 4
    text = page.text(".curves")
    for word in ("0.50", "900 MiB", "read 2.0 KiB/s", "in 4.8 MiB/s", "all: 16.00"):
        assert word in text, text
    page.screenshot("curves")
    page.click("[data-span='day']")
    page.wait_text(".curves", "1.50")
    show(page, {**lists, path: {"problem": MARKUP}}, "node/node0.example.com")
    page.wait_text(".usage", "<b>bold</b>")
    assert page.count(".curve") == 0


def test_the_addresses_of_a_network(page: Browser) -> None:
    network = {
        "name": "net1",
        "network": "192.0.2.16/29",
        "gateway": "192.0.2.17",
        "tags": [],
        "map": "XXX....X",
        "free_count": 4,
        "reserved_count": 4,
        "group_list": [],
        "network6": None,
        "mac_prefix": None,
        "uuid": "n",
    }
    nics = {"nic.ips": ["192.0.2.18"], "nic.networks.names": ["net1"], "nic.links": ["br0"]}
    macs = {"nic.macs": ["aa:00:00:00:00:01"]}
    one = instance("vm1", "node0.example.com", "node1.example.com", **nics, **macs)
    lists = {**many(2, 0), INSTANCES: [one], "/2/networks/net1": network}
    show(page, lists, "network/net1")
    page.wait_for(".addresses .used")
    script = "return [...document.querySelectorAll('.addresses > *')].map((each) => each.title)"
    assert page.script(script)[:4] == [
        "192.0.2.16: reserved",
        "192.0.2.17: gateway",
        "192.0.2.18: vm1",
        "192.0.2.19: free",
    ]
    page.screenshot("network")
    page.click(".addresses .used")
    page.wait_text("h1", "vm1")


INCIDENT = {
    "uuid": "11111111-1111-4111-8111-111111111111",
    "node": "node1.example.com",
    "action": "evacuate",
    "repair-status": "noted",
    "jobs": [17, 18],
    "tag": "maintd:repairready:11111111-1111-4111-8111-111111111111",
    "original": {"status": "evacuate", "details": MARKUP},
}


def test_maintenance_is_shown_with_the_reason_why_nothing_is_done(page: Browser) -> None:
    page.click("nav a[href='#/maintenance']")
    page.wait_text("#round", "gnt-cluster modify --maintenance-interval=300 switches it on")
    why = "it is the master node: fail the role over first"
    found = {
        "serial": 1,
        "incidents": [{"id": INCIDENT["uuid"], "why": why}],
        "round": {
            "begun": 1.7e9,
            "balancing": {"is-on": True, "why": "no move gains enough"},
            "repairs": {"is-on": False, "why": None},
            "unknown": {"node0.example.com": "no answer"},
        },
    }
    lists = {
        **many(2, 0),
        "/2/maintenance": {"roundDelay": 60, "jobs": [18], "incidents": [INCIDENT]},
        "/2/maintenance/status": found,
    }
    show(page, lists, "maintenance")
    page.wait_text("main tbody tr", why)
    [row] = page.texts("main tbody tr")
    assert all(word in row for word in ("node1", "evacuate", "noted", "17", "18", "<b>bold</b>"))
    page.wait_text("#round", "Balancing")
    text = page.text("#round")
    for word in ("on; no move gains enough", "60 s", "node0.example.com: no answer", "off"):
        assert word in text
    assert page.count("main .actions button") == 1
    assert page.script("return window.harmed") is None
    page.screenshot("maintenance")


def test_events_of_nodes_are_canceled_acknowledged_and_forgotten(
    rapi: RapiClient, cluster: TestCluster, page: Browser
) -> None:
    first, second = cluster.nodes[1:]
    uuids = [f"{number}1111111-1111-4111-8111-111111111111" for number in (1, 2)]
    tag = f"maintd:repairfailed:{uuids[1]}"
    told: Any = {"original": {"status": "evacuate"}, "action": Action.EVACUATE}
    found = [
        Incident(**told, node=first, repair_status=RepairStatus.NOTED, tag="t", uuid=uuids[0]),
        Incident(**told, node=second, repair_status=RepairStatus.FAILED, tag=tag, uuid=uuids[1]),
    ]

    def states() -> list[str]:
        known = rapi.ask("GET", "/2/maintenance").json["incidents"]
        return [each["repair-status"] for each in known]

    sign_in(page)
    page.wait_text("#who", "writer")
    record_notes(page)
    page.click("nav a[href='#/maintenance']")
    page.wait_text("#round", "switches it on")
    try:
        page.click("main .head button")
        page.type(field("maint_round_delay"), "120")
        page.click(field("maint_balance"))
        submit(page, "CLUSTER_SET_PARAMS")
        page.wait_text("#round", "120 s")
        settings = rapi.ask("GET", "/2/maintenance").json
        assert (settings["roundDelay"], settings["balance"]) == (120, True)
        assert settings["autoRepair"] is False
        note_incidents(cluster, found)
        cluster.gnt(f"node add-tags {second} {tag}")
        page.wait_for(f"button[aria-label='Acknowledge: evacuate of {second}']")
        assert page.count("main .actions button") == 3
        page.screenshot("incidents")
        confirm(page, f"button[aria-label='Cancel: evacuate of {first}']")
        page.wait_text("main tbody", "canceled")
        assert states() == ["canceled", "failed"]
        confirm(page, f"button[aria-label='Acknowledge: evacuate of {second}']")
        wait_for_note(page, "TAGS_DEL")
        page.wait(lambda: page.count("[aria-label^='Acknowledge']") == 0, "it has no tag now")
        assert cluster.gnt(f"node list-tags {second}").out.split() == []
        confirm(page, f"button[aria-label='Forget: evacuate of {first}']")
        page.wait(lambda: page.count("main tbody tr") == 1, "one is left")
        assert states() == ["failed"]
    finally:
        cluster.gnt("cluster modify --maintenance-interval=0")


def test_the_page_asks_for_no_more_than_it_shows(rapi: RapiClient, page: Browser) -> None:
    page.wait_text("main", "Latest jobs")
    asked = page.script("return performance.getEntriesByType('resource').map((each) => each.name)")
    about_jobs = [each for each in asked if "/2/jobs?" in each]
    assert about_jobs
    assert all("limit=100" in each for each in about_jobs)


def test_a_page_that_is_left_asks_no_more(page: Browser) -> None:
    page.script(
        "window.signals = []; window.fetch = (path, { signal }) => {"
        " window.signals.push(signal); return new Promise(() => {}); };"
        "location.hash = '#/maintenance'; document.dispatchEvent(new Event('visibilitychange'))"
    )
    page.wait(lambda: page.script("return window.signals.length") > 0, "questions")
    page.script("window.dispatchEvent(new PageTransitionEvent('pagehide', {persisted: true}))")
    assert page.script("return window.signals.every((each) => each.aborted)")


def test_an_answer_from_before_the_sign_in_does_not_pass_for_the_next(page: Browser) -> None:
    first, second = page.script(
        """
        const real = window.fetch, sent = [];
        let answer;
        const made = () => new Response('["web1"]', {headers: {ETag: '"e"'}});
        window.fetch = (path, {headers}) => {
          sent.push(headers["If-None-Match"] ?? null);
          return sent.length > 1 ? Promise.resolve(made())
            : new Promise((done) => { answer = () => done(made()); });
        };
        return import("/ui/api.js").then(async ({Api}) => {
          const api = new Api();
          const poll = api.changed("/2/instances");
          api.sign(null);
          answer();
          await poll;
          await api.changed("/2/instances");
          await api.changed("/2/instances");
          return sent.slice(1);
        }).finally(() => { window.fetch = real; });
        """
    )
    assert first is None, "the list is to come whole"
    assert second == '"e"'


def test_a_job_is_asked_for_again_after_an_error(page: Browser) -> None:
    path, look = "/2/jobs/60", "document.dispatchEvent(new Event('visibilitychange'));"
    running, ended = (made_up_job(60, status) for status in ("running", "error"))
    whole = {"opresult": [["OpExecError", ["it burns"]]], "oplog": [[]]}
    lists = {**many(2, 0), JOBS: [running], path: {**running, **whole, "opresult": [None]}}
    show(page, lists, "job/60")
    page.wait_text("main .badge", "running")
    page.script(
        f"""
        const [jobs, path, ended, whole] = arguments;
        lists[jobs] = [ended];
        lists[path] = {{...ended, ...whole}};
        const before = window.fetch;
        Object.assign(window, {{ isIll: true, listed: 0 }});
        window.fetch = (asked, options) => {{
          window.listed += asked === jobs;
          if (asked !== path || !window.isIll) return before(asked, options);
          return Promise.resolve(new Response("{{}}", {{status: 502}}));
        }};
        {look}
        """,
        JOBS,
        path,
        ended,
        whole,
    )
    page.wait_text("main .empty", "answers with status 502")
    page.script(look)
    page.wait(lambda: page.script("return window.listed") > 1, "the list is taken")
    page.script(f"window.isIll = false; {look}")
    page.wait_text("main .ops", "it burns")
    page.wait_text("main .badge", "error")


def test_a_page_whose_parts_do_not_all_come_is_loaded_again(page: Browser) -> None:
    def tell(command: str, **params: object) -> None:
        page.call("POST", "/goog/cdp/execute", {"cmd": f"Network.{command}", "params": params})

    def main() -> object:
        return page.script("return document.querySelector('#main').innerText")

    tell("enable")
    tell("setCacheDisabled", cacheDisabled=True)
    tell("setBlockedURLs", urls=["*/ui/map.js"])
    page.script("location.reload()")
    page.wait(lambda: "Parts of this page did not come" in str(main()), "it gives up")
    page.script("location.reload()")
    loads = "return sessionStorage.getItem('ganeti-loads')"
    page.wait(lambda: page.script(loads) is not None, "a failed load")
    tell("setBlockedURLs", urls=[])
    page.wait(lambda: page.script("return document.querySelector('main .card') !== null"), "cards")
    page.wait(lambda: page.script(loads) is None, "it is forgotten")
    tell("disable")


def room(count: int, lacking: str | None, weeks: float | None) -> dict[str, object]:
    each = {"memory": 2048, "disk": 10240, "vcpus": 1}
    growth = {**each, "count": count, "lacking": lacking, "per-week": 1.0, "weeks": weeks}
    fits = {**each, "count": count, "lacking": lacking, "disk-template": "drbd"}
    return {**fits, "growth": None if weeks is None else growth}


ROOM_CARD = ".cards .card:last-child"
AVAILABILITY_CARD = ".cards .card:nth-last-child(2)"


@pytest.mark.parametrize(
    ("found", "texts", "is_short"),
    [
        (room(37, "memory", 12.7), ("37", "2.0 GiB", "limited by memory", "12 weeks"), False),
        (room(2, "N+1", 1.2), ("2", "limited by N+1", "for 1 week at"), True),
        (room(1, "disk", 0.5), ("1", "limited by disk", "less than a week"), True),
        (room(10000, None, 80.0), ("10000+", "no limit is near", "80+ weeks"), False),
        (room(0, None, None), ("0", "no node can take any", "does not grow"), True),
    ],
)
def test_room_for_more_instances(
    page: Browser, found: dict[str, object], texts: tuple[str, ...], is_short: bool
) -> None:
    show(page, {**many(3, 3), "/2/capacity": found}, "overview")
    page.wait_text(ROOM_CARD, texts[1])
    text = page.text(ROOM_CARD)
    assert text.startswith("Room")
    for each in texts:
        assert each in text
    assert page.count(f"{ROOM_CARD}.amber") == is_short
    page.screenshot("room")


def availability(**more: object) -> dict[str, object]:
    nodes = [{"name": f"node{number}", "lease": "held"} for number in range(3)]
    paused = {"paused_until": None, "paused_by": "", "paused_why": ""}
    found = {"trouble": "", "holder": "node0", "may_take_over": ["node1"], "warnings": []}
    return {**found, **paused, "nodes": nodes, **more}


DEAD = [{"name": "node1", "lease": "dead"}]


@pytest.mark.parametrize(
    ("found", "texts", "tone"),
    [
        (availability(), ("ready", "node0 leads, 1 may take over"), ""),
        (availability(warnings=["node1 has no agent", MARKUP]), ("look", MARKUP), "amber"),
        (availability(nodes=DEAD, warnings=["node1 is dead"]), ("look", "node1 is dead"), "red"),
        (availability(trouble="no etcd", warnings=["no etcd"]), ("idle", "no etcd"), "red"),
        (
            availability(paused_until=1.8e9, paused_by="joe", paused_why=MARKUP, warnings=["x"]),
            ("paused", f"by joe: {MARKUP}"),
            "amber",
        ),
    ],
)
def test_high_availability_has_a_card(
    page: Browser, found: dict[str, object], texts: tuple[str, ...], tone: str
) -> None:
    show(
        page,
        {**many(3, 3), "/2/capacity": room(1, None, None), "/2/availability": found},
        "overview",
    )
    page.wait_text(ROOM_CARD, "no limit is near")
    page.wait_text(AVAILABILITY_CARD, texts[0])
    text = page.text(AVAILABILITY_CARD)
    assert text.startswith("High availability")
    for each in texts:
        assert each in text
    for other in ("amber", "red"):
        assert page.count(f"{AVAILABILITY_CARD}.{other}") == (other == tone)
    assert page.script("return window.harmed") is None
    page.screenshot("availability")


def test_where_it_is_off_there_is_no_card(page: Browser) -> None:
    show(
        page,
        {**many(3, 3), "/2/capacity": room(1, None, None), "/2/availability": None},
        "overview",
    )
    page.wait_text(ROOM_CARD, "no limit is near")
    assert "High availability" not in page.text(".cards")


def test_the_room_of_a_live_cluster(rapi: RapiClient, page: Browser) -> None:
    """It is asked for once, however often the lists are."""
    count = rapi.ask("GET", "/2/capacity").json["count"]
    page.wait_text(ROOM_CARD, str(count))
    again = "document.dispatchEvent(new Event('visibilitychange'))"
    asked = "return performance.getEntriesByType('resource').map((each) => each.name)"
    before = len(page.script(asked))
    page.script(again)
    page.wait(lambda: len(page.script(asked)) > before, "the lists are asked for again")
    assert sum(each.endswith("/2/capacity") for each in page.script(asked)) == 1


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_telephone(page: Browser, theme: str) -> None:
    page.devtools(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": theme}]},
    )
    page.resize(*PHONE)
    lists = many(12, 300)
    words = {
        "instances": "vm0001",
        "jobs": "of any status",
        "create": "Memory",
        "groups": "default",
    }
    for view in (
        *("overview", "instances", "nodes", "map", "jobs", "create", "groups"),
        "instance/vm0001.example.com",
    ):
        show(page, lists, view)
        page.wait_text("main", words.get(view, "node1"))
        page.screenshot(f"phone-{theme}-{view.partition('/')[0]}")
        script = "const page = document.documentElement; return page.scrollWidth - page.clientWidth"
        assert page.script(script) <= 0, f"{view} is too wide"
    page.resize(*DESK)
    page.screenshot(f"desk-{theme}")
    page.devtools("Emulation.setEmulatedMedia", {"features": []})


def test_markup_from_the_cluster_is_only_text(page: Browser) -> None:
    stamp = [1700000000, 0]
    job = {
        "id": 7,
        "status": "error",
        "summary": [MARKUP],
        "opstatus": ["error"],
        "ops": [],
        "received_ts": stamp,
        "start_ts": stamp,
        "end_ts": stamp,
        "opresult": [["OpExecError", [MARKUP]]],
        "oplog": [[[1, stamp, "message", MARKUP], [2, stamp, MARKUP, {"a": MARKUP}]]],
    }
    lists = {
        "/2/info": {"name": MARKUP},
        "/2/groups?bulk=1": [{"uuid": "g", "name": MARKUP}],
        "/2/nodes?bulk=1": [node(MARKUP, tags=[MARKUP], role=MARKUP)],
        INSTANCES: [instance(MARKUP, MARKUP, MARKUP, os=MARKUP, tags=[MARKUP], status=MARKUP)],
        JOBS: [job],
        "/2/jobs/7": job,
        "/2/user": {"name": MARKUP, "rights": ["write"], "roles": []},
    }
    name = page.script("return encodeURIComponent(arguments[0])", MARKUP)
    for view in ("overview", "instances", f"instance/{name}", f"node/{name}", "job/7", "map"):
        show(page, lists, view)
        page.wait_text("main", "<b>bold</b>" if view != "map" else "onerror")
        page.wait_text("#who", "<b>bold</b>")
        found = page.count("main img, main b, header b, nav b, title b")
        assert found == 0, view
    show(page, lists, "instances")
    page.click(".actions button")
    page.wait_text("#confirm-title", MARKUP)
    page.press("escape")
    assert page.script("return window.harmed ?? null") is None
