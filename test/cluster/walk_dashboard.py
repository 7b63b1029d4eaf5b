"""A walk through the dashboard in a real browser, on a live cluster, whose pictures a guide shows.

`make pictures` runs it: it is no test of `make test`, which have it all in smaller pieces.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import lvm_programs
from fakes.browser import Browser, open_browser
from fakes.dashboard import SDB, choose, confirm, field, first_visit, lvm_cluster
from fakes.dashboard import sign_in as fill_in
from fakes.rapi import SALT, RapiClient, rapi_of, write_users
from fakes.shell_scripts import write_script
from fakes.virtual_cluster import TestCluster

from ganeti.protocol.rapi.users import hash_password

PICTURES = Path(__file__).parents[2] / "doc" / "pictures" / "dashboard"
BYTES_MAX = 1_500_000  # of all pictures
FAN = {"status": "evacuate-failover", "details": "fan 2 has stopped"}
ADD = "instance add -H fake --no-install --no-name-check --no-ip-check -o test"
GUESTS = {  # on which node, and how
    "web1": (0, "-B memory=512m -t plain --disk 0:size=4g --tags=site:front"),
    "web2": (1, "-B memory=512m -t plain --disk 0:size=4g --tags=site:front"),
    "db1": (1, "-B memory=2g -t plain --disk 0:size=12g --tags=site:back"),
    "cache1": (2, "-B memory=1g -t diskless --tags=site:front"),
}


USERS = (
    f"anna {hash_password('secret', SALT)} write",
    f"joe {hash_password('secret', SALT)} role:webs",
    f"monitoring {hash_password('secret', SALT)} read",
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    with lvm_cluster(tmp_path_factory.mktemp("lvm"), 3, ("ganeti-rapi",)) as found:
        nodes = found.nodes
        found.gnt("network add --network=192.0.2.0/28 --gateway=192.0.2.1 net1")
        found.gnt("network connect --nic-parameters=mode=bridged,link=br0 net1 default")
        for name, (at, words) in GUESTS.items():
            words = f"{words} -n {nodes[at]} --net 0:network=net1,ip=pool"
            found.gnt(f"{ADD} {words} {name}.example.com")
        found.gnt("instance start web1.example.com web2.example.com db1.example.com")
        yield found


@pytest.fixture(scope="module")
def rapi(cluster: TestCluster) -> Iterator[RapiClient]:
    with rapi_of(cluster) as client:
        write_users(cluster.paths, "".join(f"{line}\n" for line in USERS))
        yield client


@pytest.fixture
def page(rapi: RapiClient) -> Iterator[Browser]:
    with open_browser() as window, first_visit(rapi, window) as found:
        found.resize(1280, 720)
        yield found


def shot(page: Browser, name: str) -> None:
    """Keep a picture, without what has been noted; three quarters of the size do."""
    page.script("document.getElementById('notes').replaceChildren()")
    size = page.script("return [innerWidth, innerHeight, scrollX, scrollY]")
    clip = {"width": size[0], "height": size[1], "x": size[2], "y": size[3], "scale": 0.75}
    found = page.devtools("Page.captureScreenshot", {"format": "png", "clip": clip})
    (PICTURES / f"{name}.png").write_bytes(base64.b64decode(found["data"]))


class Walk:
    """Where the walk is: the page, and the cluster that it shows."""

    def __init__(self, cluster: TestCluster, page: Browser) -> None:
        self.cluster, self.page = cluster, page
        self.top = page.script("return location.origin") + "/ui/#/"

    def to(self, view: str) -> Browser:
        """Go to a page of the menu."""
        self.page.click(f"nav a[href='#/{view}']")
        return self.page

    def visit(self, place: str) -> Browser:
        """Go to the page of a thing."""
        self.page.go(f"{self.top}{place}")
        return self.page


def overview(walk: Walk) -> None:
    page = walk.page
    page.click("#sign")
    page.wait_for("#login[open]")
    page.press("escape")
    fill_in(page, "anna")
    page.wait_text("#who", "anna")
    page.wait_text(".cards", "Room")
    page.wait(lambda: "being counted" not in page.text(".cards"), "the room is counted")
    shot(page, "01-overview")


def instances(walk: Walk) -> None:
    page = walk.to("instances")
    for name in ("web1", "web2"):
        page.click(f"input[aria-label='Choose {name}.example.com']")
    page.wait_text("[data-bulk='shutdown']", "Stop 2")
    shot(page, "02-instances")


def evacuation(walk: Walk) -> None:
    page = walk.visit(f"node/{walk.cluster.nodes[2]}")
    choose(page, "Evacuate")
    page.wait_for("#operate .buttons button:nth-of-type(2):not([hidden])")
    page.click("#operate .buttons button:nth-of-type(2)")
    page.wait_text("#operate .log", "would be submitted.")
    shot(page, "03-evacuation")
    page.click("#operate .buttons .quiet")


def new_instance(walk: Walk) -> None:
    page = walk.to("instances")
    page.click("main a[href='#/create']")
    form = "main form.operation"
    for key, value in (("name", "web3.example.com"), ("memory", "512M"), ("size", "4G")):
        page.type(field(key, form), value)
    page.script("document.querySelector(\"[data-name='os']\").value = ''")
    page.click(field("start", form))
    page.click(f"{form} .buttons button[type=button]")
    page.wait_text(f"{form} .log", "It would be made on")
    page.script("document.querySelector('main .log').scrollIntoView({block: 'end'})")
    shot(page, "04-new-instance")
    page.click(f"{form} button[type=submit]")
    page.wait_text("main .badge", "success")
    page.script("scrollTo(0, 0)")
    shot(page, "05-job")


def instance(walk: Walk) -> None:
    page = walk.visit("instance/web1.example.com")
    page.wait_text("main .facts", "site:front")
    page.click("main .menu .more")
    page.wait_for("main .menu .items:popover-open")
    shot(page, "06-instance")
    page.press("escape")
    choose(page, "Edit")
    page.wait_for("#operate details")
    page.type(field("memory"), "768M")
    shot(page, "07-edit")
    page.click("#operate .buttons .quiet")


def storage(walk: Walk) -> None:
    root = walk.cluster.paths_of(walk.cluster.nodes[1]).root
    lvm_programs.change_physical(root, SDB, attr="a-m")
    page = walk.to("storage")
    page.wait_text("main tbody", "missing")
    shot(page, "08-storage")


def network(walk: Walk) -> None:
    page = walk.visit("network/net1")
    page.wait_for(".addresses .used")
    shot(page, "09-network")


def jobs(walk: Walk) -> None:
    page = walk.to("jobs")
    page.wait_text("main tbody", "INSTANCE_CREATE(web3")
    shot(page, "10-jobs")


def maintenance(walk: Walk) -> None:
    cluster = walk.cluster
    for node in cluster.nodes:
        found = FAN if node == cluster.nodes[1] else {"status": "Ok"}
        place = Path(cluster.paths_of(node).diagnose_commands_dir)
        place.mkdir(parents=True, exist_ok=True)
        write_script(place / "check", f"echo '{json.dumps(found)}'")
    cluster.gnt("cluster modify --data-collector-interval diagnose=1")
    cluster.gnt("cluster modify --diagnose-data-collector-filename check")
    cluster.gnt("cluster modify --maintenance-interval=300")
    page = walk.to("maintenance")
    page.wait_text("main tbody", FAN["details"])
    page.wait(lambda: "not since" not in page.text("#round"), "a round")
    shot(page, "11-maintenance")


def users(walk: Walk) -> None:
    page = walk.to("users")
    page.click("[data-operation='New role']")
    page.type(field("role"), "webs")
    page.click(field("write"))
    page.type(field("names"), "web*")
    page.click("#operate button[type=submit]")
    page.wait_text("main", "of instances web*")
    confirm(page, "main .head:first-child button")
    page.wait_for("#new-token")
    page.wait(lambda: "You have no token" not in page.text("main"), "it is listed")
    shot(page, "12-users")


def telephone(walk: Walk) -> None:
    walk.page.resize(390, 720)
    page = walk.to("instances")
    page.wait_text("main tbody", "web3")
    page.script("scrollTo(0, 0)")
    shot(page, "13-telephone")


STATIONS = (
    *(overview, instances, evacuation, new_instance, instance, storage),
    *(network, jobs, maintenance, users, telephone),
)


def test_the_walk(cluster: TestCluster, page: Browser) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    for old in PICTURES.glob("*.png"):
        old.unlink()
    walk = Walk(cluster, page)
    for station in STATIONS:
        station(walk)
    assert sum(each.stat().st_size for each in PICTURES.glob("*.png")) < BYTES_MAX
