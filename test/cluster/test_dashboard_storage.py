"""The dashboard's page of storage, on a cluster whose nodes have programs of LVM of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fakes import lvm_programs
from fakes.browser import Browser
from fakes.dashboard import SDA, SDB, lvm_cluster, record_notes, sign_in, submit, wait_for_note
from fakes.rapi import RapiClient
from fakes.virtual_cluster import TestCluster

PV = "lvm-pv --no-headers -o node,name,allocatable"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    with lvm_cluster(tmp_path_factory.mktemp("lvm"), 2) as found:
        yield found


def queries(rapi: RapiClient) -> int:
    """Return how many jobs asked for storage units."""
    jobs = rapi.ask("GET", "/2/jobs?bulk=1").json
    return sum(job["summary"][0].startswith("NODE_QUERY_STORAGE") for job in jobs)


def row(page: Browser, *words: str) -> str:
    """Return the text of the row with all of these words; "" if there is none."""
    rows = page.texts("main tbody tr")
    return next((each for each in rows if all(word in each for word in words)), "")


def takes_new_disks(page: Browser, unit: str, node: str) -> str:
    """Return what the row of a physical volume says of new disks."""
    script = (
        "return [...document.querySelectorAll('main tbody tr')]"
        ".filter((row) => [...arguments].every((word) => row.innerText.includes(word)))"
        ".map((row) => row.querySelector('td[data-label=\"New disks\"]').innerText)[0]"
    )
    return str(page.script(script, unit, node))


def menu_of(unit: str, node: str) -> str:
    return f"button[aria-label='What can be done with {unit} of {node}']"


def choose_of(page: Browser, unit: str, node: str, operation: str) -> None:
    """Open the form of an operation from the menu of a unit."""
    menu = menu_of(unit, node)
    page.click(menu)
    page.click(f"{menu} + .items [data-operation='{operation}']")
    page.wait_for("#operate[open] form")


def test_storage_units_are_shown_changed_and_repaired(
    rapi: RapiClient, cluster: TestCluster, page: Browser
) -> None:
    first, second = cluster.nodes
    page.click("nav a[href='#/storage']")
    page.wait_text("main .hint", "Only a job finds out what the nodes have. Sign in")
    assert queries(rapi) == 0
    sign_in(page)
    page.wait_text("#who", "writer")
    page.wait_text("main .hint", "As it was at")
    found = [(name, unit) for name in cluster.nodes for unit in ("xenvg", SDA, SDB, "file-storage")]
    assert page.count("main tbody tr") == len(found)
    for name, unit in found:
        assert row(page, name, unit, "allowed", "ok"), (name, unit, page.text("main tbody"))
    assert all(word in row(page, first, "xenvg") for word in ("volume group", "34.2 GiB"))
    assert page.text("main .wrong") == ""
    assert queries(rapi) == 3, "one job for each kind, whatever the number of nodes"

    page.click("nav a[href='#/nodes']")
    page.click("nav a[href='#/storage']")
    page.wait_text("main tbody", SDA)
    page.type("#search", f"{second} physical")
    page.wait(lambda: page.count("main tbody tr") == 2, "the rows of one kind and node")
    assert queries(rapi) == 3, "what is known is not asked for again"

    record_notes(page)
    choose_of(page, SDA, second, "Put no new disks on it")
    page.wait_text("#operate", "Disks that lie on it stay there")
    submit(page, f"NODE_MODIFY_STORAGE({second})")
    page.wait(lambda: takes_new_disks(page, SDA, second) == "none", "the change is seen")
    listed = cluster.gnt(f"node list-storage -t {PV}").out.splitlines()
    assert [second, SDA, "N"] in [line.split() for line in listed]
    assert [first, SDA, "Y"] in [line.split() for line in listed]
    choose_of(page, SDA, second, "Put new disks on it")
    submit(page, f"NODE_MODIFY_STORAGE({second})")
    page.wait(lambda: takes_new_disks(page, SDA, second) == "allowed", "it was taken back")

    page.click(menu_of(SDB, second))
    asked = queries(rapi)
    cluster.gnt(f"node modify-storage --allocatable=no {second} lvm-pv {SDB}")
    page.wait(lambda: queries(rapi) >= asked + 3, "the page asks again")
    page.wait(lambda: "Asking" not in page.text("main .hint"), "the answers")
    assert takes_new_disks(page, SDB, second) == "allowed", "the row of an open menu stays"
    page.press("escape")
    page.wait(lambda: takes_new_disks(page, SDB, second) == "none", "it is closed")

    lvm_programs.change_physical(cluster.paths_of(second).root, SDB, attr="a-m")
    page.type("#search", "node")
    page.click("main .head button")
    page.wait(lambda: "1 physical volume(s) missing" in row(page, second, "xenvg"), "it is seen")
    assert "missing from volume group" in row(page, second, SDB)
    page.screenshot("storage")
    choose_of(page, "xenvg", second, "Repair")
    page.click("#operate button[type=submit]")
    wait_for_note(page, f"REPAIR_NODE_STORAGE({second}): success")
    page.wait(lambda: "ok" in row(page, second, "xenvg").split(), "it is repaired")
    page.wait(lambda: not row(page, second, SDB), "what was missing is out")
    assert [line for line in page.log() if "401" not in line] == []


def test_what_nodes_cannot_tell_is_said(
    cluster: TestCluster, rapi: RapiClient, page: Browser
) -> None:
    """A node that does not answer, and a user who may do nothing."""
    _, second = cluster.nodes
    sign_in(page, "reader")
    page.wait_text("#who", "reads only")
    before = queries(rapi)
    page.click("nav a[href='#/storage']")
    page.wait_text("main .hint", "reader has no right to write")
    assert queries(rapi) == before
    page.click("#sign")
    page.wait_text("#sign", "Sign in")
    cluster.gnt(f"node modify --offline=yes --force {second}")
    try:
        sign_in(page)
        page.wait_text("main .hint", "As it was at")
        assert second not in page.text("main tbody")
        page.wait_text("main .hint", f"{second} is offline")
    finally:
        cluster.gnt(f"node modify --offline=no {second}")
