"""What tests of the dashboard share: the page as it is found, its forms, and lists made up."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from fakes import lvm_programs
from fakes.browser import Browser
from fakes.rapi import RapiClient
from fakes.virtual_cluster import TestCluster, own_cluster

from ganeti.base.daemons import FACES
from ganeti.clients.wconfd import WConfClient
from ganeti.protocol.maintenance.stored import Incident
from ganeti.protocol.wconfd import ClientId
from ganeti.system.filelock import LiveLock

INSTANCES = "/2/instances?bulk=1&copies=1"
DESK = (1280, 900)
SDA, SDB = "/dev/none/sda1", "/dev/none/sdb1"


@contextmanager
def lvm_cluster(
    programs: Path, nodes: int, without: tuple[str, ...] = FACES
) -> Iterator[TestCluster]:
    """Run a cluster whose nodes have a volume group; the programs are put where it is told."""
    lvm_programs.install(programs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        with own_cluster(nodes, without) as found:
            for node in found.nodes:
                root = found.paths_of(node).root
                lvm_programs.make_group(root, "xenvg", {SDA: 20000, SDB: 15000})
            found.gnt("cluster modify --vg-name=xenvg")
            found.gnt(
                "cluster modify --enabled-disk-templates=plain,file,diskless"
                " --ipolicy-disk-templates=plain,file,diskless"
            )
            yield found


def note_incidents(cluster: TestCluster, incidents: Sequence[Incident]) -> None:
    """Write them into the configuration, as the maintenance daemon does."""
    livelock = LiveLock.create(f"{cluster.paths.livelock_dir}/noting")
    try:
        owner = ClientId("noting", livelock.path, os.getpid())
        with WConfClient(cluster.paths, owner) as client:
            for each in incidents:
                client.update_maintd_incident(each)
    finally:
        livelock.release()


@contextmanager
def first_visit(rapi: RapiClient, window: Browser) -> Iterator[Browser]:
    """The dashboard as somebody sees it who comes for the first time."""
    window.resize(*DESK)
    address = f"[{rapi.address}]" if ":" in rapi.address else rapi.address
    top = f"https://{address}:{rapi.port}/ui/"
    window.go(top)
    window.script("sessionStorage.clear()")
    window.go("about:blank")
    window.go(top)
    window.wait_for("main .card")
    window.log()  # what earlier pages left in it, such as a question for an icon
    yield window
    window.go("about:blank")


def sign_in(page: Browser, user: str = "writer", password: str = "secret") -> None:
    page.click("#sign")
    page.type("#login-user", user)
    page.type("#login-password", password)
    page.click("#login-submit")


def record_notes(page: Browser) -> None:
    """Keep what the page notes from now on: most notes go away by themselves."""
    page.script(
        "window.noted = []; new MutationObserver((changes) => changes.forEach((change) =>"
        " change.addedNodes.forEach((each) => window.noted.push(each.textContent))))"
        ".observe(document.getElementById('notes'), {childList: true})"
    )


def wait_for_note(page: Browser, text: str) -> None:
    def noted() -> list[str]:
        found: list[str] = page.script("return window.noted")
        return found

    page.wait(lambda: any(text in each for each in noted()), f"the note {text!r}")


def confirm(page: Browser, button: str) -> None:
    """Press a button and say yes."""
    page.click(button)
    page.wait_for("#confirm[open]")
    page.click("#confirm-yes")


def choose(page: Browser, operation: str) -> None:
    """Open the form of an operation, from the menu."""
    page.click("main .menu .more")
    page.click(f"main [data-operation='{operation}']")
    page.wait_for("#operate[open] form")


def field(name: str, where: str = "#operate") -> str:
    return f"{where} [data-name='{name}']"


def submit(page: Browser, told: str) -> None:
    page.click("#operate button[type=submit]")
    wait_for_note(page, f"{told}: success")


# Lists that were made up: many, and full of markup.


def node(name: str, **more: object) -> dict[str, object]:
    values = {"name": name, "role": "R", "offline": False, "drained": False, "pip": "192.0.2.1"}
    sizes = {"mtotal": 65536, "mfree": 20000, "dtotal": 900000, "dfree": 500000, "ctotal": 16}
    counts = {"pinst_cnt": 100, "sinst_cnt": 100}
    return {**values, **sizes, **counts, "sip": "192.0.2.1", "tags": [], "group.uuid": "g", **more}


def instance(name: str, pnode: str, snode: str, **more: object) -> dict[str, object]:
    lists = {each: [] for each in ("nic.macs", "nic.ips", "nic.networks.names", "nic.links")}
    disks = {"disk.sizes": [10240], "disk.names": [None], "disk_template": "drbd"}
    values = {"name": name, "pnode": pnode, "snodes": [snode], "status": "running", "os": "debian"}
    beparams = {"maxmem": 2048, "minmem": 2048, "vcpus": 2}
    rest = {"oper_state": True, "admin_state": "up", "beparams": beparams, "tags": [], "uuid": "u"}
    return {**lists, **disks, **values, **rest, **more}


def show(page: Browser, lists: Mapping[str, object], where: str) -> None:
    """Load the page with these answers in place of the server's."""
    source = (
        f"const lists = {json.dumps(lists)}; const real = window.fetch; window.fetch ="
        " (path, options) => path in lists ? Promise.resolve(new Response("
        "JSON.stringify(lists[path]), {headers: {ETag: 'x'}})) : real(path, options);"
    )
    command = "Page.addScriptToEvaluateOnNewDocument"
    made = page.devtools(command, {"source": source})
    origin = page.script("return location.origin")
    page.go("about:blank")
    page.go(f"{origin}/ui/#/{where}")
    page.wait_for("main h1")
    page.devtools("Page.removeScriptToEvaluateOnNewDocument", made)


def many(nodes: int, instances: int) -> dict[str, object]:
    names = [f"node{index}.example.com" for index in range(nodes)]
    states = ("running", "running", "running", "ADMIN_down", "ERROR_down")
    found = []
    for index in range(instances):
        digest = hashlib.sha256(str(index).encode()).digest()
        status = states[digest[1] % len(states)]
        primary, secondary = (
            names[digest[0] % nodes],
            names[(digest[0] + 1 + digest[2] % 2) % nodes],
        )
        is_up = status == "running"
        name = f"vm{index:04d}.example.com"
        found.append(instance(name, primary, secondary, status=status, oper_state=is_up))
    return {
        "/2/nodes?bulk=1": [node(name, role="MCRRDO"[at % 6]) for at, name in enumerate(names)],
        INSTANCES: found,
        "/2/user": {"name": "jim", "rights": ["read", "write"], "roles": []},
    }
