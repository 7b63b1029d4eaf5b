"""The dashboard's page of backups, on a live cluster: policies, and rehearsals."""

from __future__ import annotations

from fakes.browser import Browser
from fakes.dashboard import choose, field, record_notes, sign_in, submit, wait_for_note
from fakes.rapi import RapiClient
from fakes.virtual_cluster import TestCluster

NAME, BAD = "web1.example.com", "10m"
ADD = "instance add -H fake --no-name-check --no-ip-check --no-install --no-start"
GROUP = "default"


def open_menu(page: Browser, label: str, operation: str) -> None:
    menu = f"button[aria-label='{label}']"
    page.click(menu)
    page.click(f"{menu} + .items [data-operation='{operation}']")
    page.wait_for("#operate[open] form")


def change(page: Browser, told: str) -> None:
    page.script("window.noted.length = 0")
    submit(page, told)


def send(page: Browser) -> None:
    page.click("#operate button[type=submit]")


def tags(cluster: TestCluster, words: str) -> list[str]:
    return cluster.gnt(f"{words.split()[0]} list-tags {' '.join(words.split()[1:])}").lines


def test_policies_are_set_checked_and_removed_and_a_backup_is_rehearsed(
    rapi: RapiClient, cluster: TestCluster, page: Browser
) -> None:
    _, second, third = cluster.nodes
    cluster.gnt(f"{ADD} -t file --disk 0:size=2 -n {second} {NAME}")
    cluster.gnt(f"backup export -n {third} {NAME}")
    try:
        _policies(cluster, page)
        _rehearsal(cluster, page)
        assert [line for line in page.log() if "401" not in line] == []
    finally:
        cluster.gnt("backup remove-policy --cluster")
        cluster.gnt(f"backup remove-policy --node-group={GROUP}")
        cluster.gnt(f"backup remove {NAME}")


def _policies(cluster: TestCluster, page: Browser) -> None:
    third = cluster.nodes[2]
    page.click("nav a[href='#/backups']")
    page.wait_text("main", NAME)
    page.wait_text("main", "node group default")
    assert page.count("main .menu") == 0, "who has not signed in may do nothing"
    sign_in(page)
    page.wait_text("#who", "writer")
    record_notes(page)
    page.wait_for("button[aria-label='Policy of default']")
    _open_menu_stays_open(page)

    # What is wrong is told at its field, and nothing is submitted.
    name = cluster.gnt("cluster info").lines[0].split(": ")[1]
    open_menu(page, f"Policy of {name}", "Backup policy")
    for key, bad, text in (
        ("every", BAD, "every 15 minutes at most"),
        ("at", "22-22", "no hours of a day"),
        ("to", "node9", 'no node "node9" is known'),
        ("keep", "0", "no number of points"),
        ("late", "soon", "is no time"),
        ("rehearse", "10h", "once a day at most"),
    ):
        good = page.script(f'return document.querySelector("{field(key)}").value')
        page.type(field(key), bad)
        send(page)
        page.wait_text("#operate .wrong", text)
        assert page.count(f"{field(key)}[aria-invalid]") == 1
        page.type(field(key), good)
    page.type(field("late"), "2h")
    send(page)
    page.wait_text("#operate .wrong", "too old before the next one is due")
    page.type(field("late"), "3d")
    page.type(field("every"), "1w")
    page.type(field("rehearse"), "2d")
    send(page)
    page.wait_text("#operate .wrong", "Too old after")
    page.type(field("late"), "")
    send(page)
    page.wait_text("#operate .wrong", "Rehearse every: there would be no new export")
    values = {"every": "1d", "late": "3d", "at": "22-6", "keep": "7", "to": "node3"}
    for key, value in {**values, "rehearse": "30d"}.items():
        page.type(field(key), value)
    page.screenshot("backup-policy")
    change(page, "TAGS_SET")
    tag = f"ganeti:backup:every:1d:to:{third}:at:22-6:keep:7:late:3d:rehearse:30d"
    assert tags(cluster, "cluster") == [tag]
    words = f"every 1d to {third} at 22-6 keep 7 late 3d rehearse 30d"
    page.wait_text("main tbody", words)
    page.wait_text("main", "of the cluster")

    # The nearest one decides; a new one takes the place of the old one.
    open_menu(page, "Policy of default", "Backup policy")
    page.click(field("none"))
    change(page, "TAGS_SET")
    page.wait_text("main", "of its node group")
    page.click(f"main a[href='#/instance/{NAME}']")
    page.wait_text("main .facts", "none (policy of node group default)")
    choose(page, "Backup policy")
    page.type(field("every"), "1w")
    page.click(field("stop"))
    change(page, "TAGS_SET")
    page.wait_text("main .facts", "every 1w stop (its own policy)")
    choose(page, "Backup policy")
    assert page.script(f'return document.querySelector("{field("every")}").value') == "1w"
    page.type(field("every"), "2w")
    change(page, "TAGS_DEL")
    page.wait_text("main .facts", "every 2w stop (its own policy)")
    assert tags(cluster, f"instance {NAME}") == ["ganeti:backup:every:2w:stop"]
    choose(page, "Remove the policy")
    page.wait_text("#operate", "node group, or else of the cluster, is in force then")
    change(page, "TAGS_DEL")
    page.wait_text("main .facts", "none (policy of node group default)")
    assert tags(cluster, f"instance {NAME}") == []


def _open_menu_stays_open(page: Browser) -> None:
    """Rows are made again with each look at the cluster, but for the one whose menu is open."""
    page.click("button[aria-label='Policy of default']")
    page.script(
        "document.querySelectorAll('main tbody tr').forEach((row) => (row.dataset.old = 'yes'));"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    page.wait_for("main tbody tr:not([data-old])")
    assert page.count("main tr[data-old] .items:popover-open") == 1
    page.script("document.querySelector('main .items:popover-open').hidePopover()")


def _rehearsal(cluster: TestCluster, page: Browser) -> None:
    second = cluster.nodes[1]
    cluster.gnt(f"backup set-policy --every=1w --rehearse=30d {NAME}")
    page.click("nav a[href='#/backups']")
    page.wait_text("main", "never")
    page.wait_for(f"button[aria-label='What can be done with {NAME}']")
    open_menu(page, f"What can be done with {NAME}", "Rehearse")
    page.script(f'document.querySelector("{field("pnode")}").value = arguments[0]', second)
    page.type(field("seconds"), "0")
    send(page)
    page.wait_text("main .badge", "success")
    page.wait_text("main .log", f"{NAME} comes back from its export")
    page.screenshot("rehearsal")
    wait_for_note(page, f"BACKUP_REHEARSE({NAME}): success")
    assert cluster.instance_names() == [NAME]
    page.click("nav a[href='#/backups']")
    page.wait_text("main tbody .badge.green", "ok")
    page.screenshot("rehearsed")
