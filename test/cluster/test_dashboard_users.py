"""The dashboard's page of users, on a live cluster: tokens, and for administrators all rights."""

from __future__ import annotations

from fakes.browser import Browser
from fakes.dashboard import confirm, field, many, record_notes, show, sign_in, submit, wait_for_note
from fakes.rapi import RapiClient
from fakes.virtual_cluster import TestCluster
from fakes.waiting import wait_until


def test_a_token_signs_in(rapi: RapiClient, cluster: TestCluster, page: Browser) -> None:
    outcome = cluster.run(["gnt-rapi", "add-token", "--local", "--days=1", "tokens"])
    assert outcome.status == 0, outcome
    token = outcome.out.strip()
    header = {"Authorization": f"Bearer {token}"}
    wait_until(
        lambda: rapi.ask("GET", "/2/user", user=None, headers=header).status == 200,
        "the token is known",
    )
    page.click("#sign")
    page.click("#login summary")
    page.type("#login-token", f"{token}x")
    page.click("#login-submit")
    page.wait_text("#login-error", "wrong")
    page.type("#login-token", token)
    page.press("enter")
    page.wait_text("#who", "tokens")
    assert "reads only" not in page.text("#who")
    assert token in str(page.script("return sessionStorage.getItem('ganeti-authorization')"))
    page.click("#sign")
    page.wait_text("#sign", "Sign in")
    assert page.script("return sessionStorage.length") == 0


def test_tokens_are_made_and_removed(rapi: RapiClient, page: Browser) -> None:
    def name_of(token: str) -> str | None:
        headers = {"Authorization": f"Bearer {token}"}
        answer = rapi.ask("GET", "/2/user", user=None, headers=headers)
        return str(answer.json["name"]) if answer.status == 200 else None

    def new_token(seen: str = "") -> str:
        page.click("main .head:first-child button")
        page.wait_text("#confirm-text", "with all rights of")
        page.click("#confirm-yes")
        page.wait(lambda: page.text("#new-token") not in ("", seen), "the new token")
        return page.text("#new-token")

    page.click("nav a[href='#/users']")
    page.wait_text("main .hint", "Sign in to see your tokens")
    sign_in(page, "reader")
    page.wait_text("#who", "reads only")
    page.wait_text("main", "You have no token.")
    assert "All users" not in page.text("main")
    theirs = new_token()
    assert name_of(theirs) == "reader"
    page.wait(lambda: page.count("main tbody tr") == 1, "it is listed")
    second = new_token(theirs)
    page.wait(lambda: page.count("main tbody tr") == 2, "both are")
    confirm(page, f"button[aria-label='Remove the token {second.partition('.')[0]}']")
    page.wait(lambda: page.count("main tbody tr") == 1, "one is")
    assert (name_of(second), name_of(theirs)) == (None, "reader")

    page.click("#sign")
    page.wait_text("#sign", "Sign in")
    assert theirs.partition(".")[2] not in page.script("return document.body.innerHTML")
    sign_in(page)
    page.wait_text("#who", "writer")
    page.wait_text("main", "All users")
    page.wait_text("main", theirs.partition(".")[0])
    rows = page.texts("main tbody tr")
    for words in (
        ("writer", "read", "write", "cleartext"),
        ("hashed", "scrypt"),
        ("limited", "webs"),
    ):
        assert any(all(word in row for word in words) for row in rows), words
    page.screenshot("users")
    confirm(page, f"button[aria-label='Remove the token {theirs.partition('.')[0]}']")
    page.wait(lambda: theirs.partition(".")[0] not in page.text("main"), "it is not listed")
    assert name_of(theirs) is None
    assert [line for line in page.log() if "401" not in line] == []


def test_users_and_roles_are_made_changed_and_removed(rapi: RapiClient, page: Browser) -> None:
    def known() -> dict[str, list[str]]:
        found = rapi.ask("GET", "/2/users").json
        return {user["name"]: user["rights"] + user["roles"] for user in found["users"]}

    told = "CLUSTER_REDIST_CONF"  # the job that tells the other nodes
    sign_in(page)
    page.click("nav a[href='#/users']")
    page.wait_text("main", "All users")
    record_notes(page)
    page.click("[data-operation='New role']")
    page.type(field("role"), "dbs")
    page.type(field("names"), "db*")
    submit(page, told)
    page.wait_text("main", "of instances db*")
    page.click("[data-operation='New user']")
    page.type(field("user"), "ann")
    page.type(field("password"), "secret")
    page.type(field("roles"), "nothing")
    page.click("#operate .main")
    page.wait_text("#operate .wrong", "no role 'nothing'")
    page.type(field("roles"), "dbs")
    submit(page, told)
    page.wait_for("[aria-label='Change the user ann']")
    assert known()["ann"] == ["read", "dbs"]
    page.click("[aria-label='Change the user ann']")
    page.click(field("write"))
    submit(page, told)
    page.wait(lambda: known()["ann"] == ["read", "write", "dbs"], "ann may write")
    page.click("[aria-label='Change the user writer']")
    assert page.count(field("password")) == 1
    assert page.count(field("write")) == 0
    page.click("#operate .quiet")
    confirm(page, "[aria-label='Remove the role dbs']")
    wait_for_note(page, "role 'dbs' is that of ann")
    confirm(page, "[aria-label='Remove the user ann']")
    # What is below moves up then: a click on its way would miss.
    page.wait(lambda: page.count("[aria-label='Remove the user ann']") == 0, "the user is gone")
    assert "ann" not in known()
    confirm(page, "[aria-label='Remove the role dbs']")
    page.wait(lambda: "of instances db*" not in page.text("main"), "the role is gone")


def test_who_came_with_a_token_makes_none(rapi: RapiClient, page: Browser) -> None:
    token = rapi.ask("POST", "/2/user/tokens", {"days": 1}).json["token"]
    page.script("sessionStorage.setItem('ganeti-authorization', arguments[0])", f"Bearer {token}")
    origin = page.script("return location.origin")
    page.go("about:blank")
    page.go(f"{origin}/ui/#/users")
    page.wait_text("main .hint", "You signed in with a token")
    page.wait_text("main", token.partition(".")[0])
    assert page.count("main .head button") == 0
    assert page.count("[aria-label^='Change the ']") == 0
    assert rapi.ask("DELETE", f"/2/user/tokens/{token.partition('.')[0]}").status == 200


def test_a_change_that_no_job_tells_the_others_is_a_warning(page: Browser) -> None:
    ann = {"name": "ann", "rights": [], "roles": [], "password": "none", "tokens": []}
    role = {"name": "dbs", "grants": []}
    users = {"users": [ann], "roles": [role]}
    show(
        page, {**many(2, 0), "/2/users": users, "/2/users/ann": None, "/2/roles/dbs": None}, "users"
    )
    record_notes(page)
    for what in ("user ann", "role dbs"):
        confirm(page, f"[aria-label='Remove the {what}']")
        wait_for_note(page, f"Remove the {what}: done, but no job could be submitted")
    assert page.count("#notes .green") == 0
