"""Virtual clusters themselves: made, stopped, started, side by side, gone; and the demo."""

from __future__ import annotations

import os
import re
import socket
import sys
import tempfile
from collections.abc import Iterator

import pytest
from fakes.terminal import Terminal
from fakes.virtual_cluster import TestCluster
from fakes.waiting import wait_until

from ganeti.base.daemons import FACES, Place
from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.bootstrap import cluster_files
from ganeti.bootstrap.virtual import lifecycle
from ganeti.system import daemon_control, process

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NODE = frozenset({Place.NODE})
OTHER_FACES = [name for name in FACES if name != "ganeti-confd"]  # one shows what holds for all
VCLUSTER = os.path.join(ROOT, "tools", "vcluster")


def vcluster(*words: str, timeout_s: float = 400.0) -> process.CommandResult:
    return process.run([sys.executable, VCLUSTER, *words], timeout_s=timeout_s)


@pytest.fixture
def base() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="gnt-") as directory:
        found = os.path.join(directory, "vc")
        yield found
        if os.path.exists(found):
            vcluster("destroy", found)
        assert lifecycle.find_processes(found) == []


def listeners(network: str) -> list[str]:
    """Return the addresses of a network at which something listens."""
    found = []
    with open("/proc/net/tcp", encoding="ascii") as file:
        for line in file.readlines()[1:]:
            _, local, _, state, *_ = line.split()
            address = socket.inet_ntoa(bytes.fromhex(local[:8])[::-1])
            if state == "0A" and address.startswith(network + "."):
                found.append(address)
    return found


def look_into_a_shell(cluster: TestCluster) -> None:
    """A shell on a node: prompt, completion, manual pages, and nobody else's programs."""
    host = os.path.join(cluster.layout.base, "host")  # another installation on this machine
    os.mkdir(host)
    for name in ("ganeti-listrunner", "gnt-node"):
        with open(os.path.join(host, name), "w", encoding="ascii") as file:
            os.fchmod(file.fileno(), 0o755)
            file.write("#!/bin/sh\necho of the host\n")
    environment = {**os.environ, "TERM": "dumb", "HOME": "/nonexistent"}
    environment["PATH"] = f"{host}:{os.environ['PATH']}"
    argv = [sys.executable, VCLUSTER, "shell", cluster.layout.base]
    with Terminal([*argv, "node2"], environment) as terminal:
        terminal.until("[node2] ")
        terminal.type("ganeti-listrunner\n")
        assert "ganeti-listrunner: this version does not have that program" in terminal.until(
            "[node2] "
        )
        terminal.type("basename $(dirname $(command -v gnt-node)); ls ${MANPATH%%:*}/man8\n")
        seen = terminal.until("[node2] ")
        assert "\nhost" not in seen
        assert "gnt-node.8" in seen
    with Terminal(argv, environment) as terminal:
        terminal.until("[node1] ")  # the master
        terminal.type("gnt-instance list -o status he\t\n")
        assert "gnt-instance list -o status here.example.com" in terminal.until("running")


def test_life_of_a_virtual_cluster(base: str) -> None:
    left_out = ",".join(OTHER_FACES)
    created = vcluster("create", base, "--nodes", "2", "--hypervisor=fake", f"--without={left_out}")
    assert created.status == 0, created.output
    assert "Enter it:" in created.output
    again = vcluster("create", base)
    assert again.status == 1
    assert "already" in again.output

    cluster = TestCluster(lifecycle.load(base))
    cluster.gnt(
        "instance add --no-name-check --no-ip-check -t file -s 8 -o bootsector+default"
        " -n node2 here.example.com"
    )
    status = vcluster("status", base)
    assert status.status == 0
    assert status.output.count("running") == status.output.count("ganeti-")
    expected = daemon_control.wanted(cluster.paths), daemon_control.wanted(cluster.paths, NODE)
    assert status.output.count("running") == sum(map(len, expected))

    outcome = vcluster("run", base, "node2", "--", "sh", "-c", "echo $GANETI_HOSTNAME; exit 7")
    assert (outcome.status, outcome.stdout) == (7, b"node2.example.com\n")
    assert vcluster("run", base, "node9", "true").status == 1
    look_into_a_shell(cluster)

    assert vcluster("stop", base).status == 0
    assert lifecycle.find_processes(base) == []
    assert listeners(cluster.layout.network) == []
    assert vcluster("status", base).status == 1

    assert vcluster("start", base).status == 0
    assert vcluster("status", base).output.count("running") == sum(map(len, expected))
    assert cluster.instance_names() == ["here.example.com"]
    assert vcluster("start", base).status == 0  # nothing to do

    assert vcluster("destroy", base).status == 0
    assert not os.path.exists(base)
    assert lifecycle.find_processes(base) == []
    assert vcluster("destroy", base).status == 0
    assert vcluster("status", base).status == 1


def test_two_clusters_live_side_by_side(base: str) -> None:
    second = base + "2"
    made = []
    for directory in (base, second):
        layout = lifecycle.plan(directory, 1, "fake", without=FACES)
        lifecycle.create(layout)
        made.append(TestCluster(layout))
    try:
        assert made[0].layout.network != made[1].layout.network
        words = (
            "instance add --no-name-check --no-ip-check -t diskless --no-install -o test -n node1"
        )
        made[0].gnt(f"{words} one.example.com")
        assert made[0].instance_names() == ["one.example.com"]
        assert made[1].instance_names() == []
        lifecycle.stop(made[0].layout, lambda _text: None)
        made[1].gnt("cluster master-ping")
    finally:
        lifecycle.destroy(made[1].layout)


def test_taken_addresses_are_passed_over(base: str) -> None:
    first = lifecycle.plan(base, 1, "fake")
    with socket.create_server((first.address_of(first.first_node), lifecycle.PROBED_PORT)):
        assert lifecycle.plan(base, 1, "fake").network != first.network


def test_base_that_is_too_long_is_refused_at_once(base: str) -> None:
    long = os.path.join(base, "b" * 60)
    outcome = vcluster("create", long)
    assert outcome.status == 1
    assert re.search(r"\(\d+ bytes\) is \d+ too many", outcome.output)
    assert not os.path.exists(base)


@pytest.mark.parametrize(
    "words", [["--nodes=0"], ["--without=ganeti-noded"], ["--nodes=x"], ["--hypervisor=xen"]]
)
def test_wrong_wishes_are_refused(base: str, words: list[str]) -> None:
    outcome = vcluster("create", base, *words)
    assert outcome.status in (1, 2)
    assert b"Traceback" not in outcome.stderr
    assert not os.path.exists(base)


def test_directory_of_somebody_else_is_left_alone(base: str) -> None:
    os.mkdir(base)
    with open(os.path.join(base, "precious"), "w", encoding="ascii"):
        pass
    assert vcluster("create", base).status == 1
    assert vcluster("destroy", base).status == 1
    assert os.listdir(base) == ["precious"]
    os.unlink(os.path.join(base, "precious"))
    os.rmdir(base)


def test_failed_creation_leaves_nothing(base: str) -> None:
    outcome = vcluster("create", base, "--init-option=--enabled-disk-templates=drbd")
    assert outcome.status == 1
    assert "drbd" in outcome.output
    assert not os.path.exists(base)
    assert lifecycle.find_processes(base) == []


@pytest.mark.shows("backend/iallocator/directory")
def test_every_node_has_the_allocator_that_comes_along(base: str) -> None:
    layout = lifecycle.plan(base, 2, "fake")
    lifecycle.prepare(layout, [])
    for name in layout.node_names:
        directory = layout.paths_of(name).iallocator_search_path[-1]
        said = process.run([f"{directory}/hail", "--version"], timeout_s=60).check()
        assert said.output.startswith("hail (ganeti) ")


def test_failed_init_leaves_the_machine_as_it_was(base: str) -> None:
    layout = lifecycle.plan(base, 1, "fake")
    lifecycle.prepare(layout, [])
    paths = layout.paths_of(layout.first_node)
    init = ["gnt-cluster", "init", "--no-ssh-init", "--no-etc-hosts", "cluster"]
    for address, text in (
        (layout.cluster_address, "is in use"),
        (layout.address_of(layout.first_node), "ganeti-noded did not start"),
    ):
        with (
            socket.create_server((address, lifecycle.PROBED_PORT)),
            pytest.raises(GenericError, match=text),
        ):
            lifecycle.run_checked(layout, layout.first_node, init)
        assert cluster_files.cluster_files(paths) == []
        # A daemon that could not start says so, and is gone a moment later.
        wait_until(lambda: lifecycle.find_processes(base) == [], "the last process", timeout_s=60)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("--enabled-hypervisors=nonsense cluster", "nonsense"),
        (
            "--enabled-hypervisors=fake --vg-name=a/b cluster",
            "cannot be the name of a volume group",
        ),
        ("--mac-prefix=zz cluster", "not a MAC prefix"),
        ("nosuchname", "must resolve"),
        ("node1", "a name of its own"),
        ("-s 192.0.2.77 cluster", "not an address of this machine"),
        ("--uid-pool=5-1 cluster", "upside down"),
        ("--master-netmask=x cluster", "netmask"),
    ],
)
def test_wrong_init_is_refused_before_anything_is_made(base: str, words: str, text: str) -> None:
    layout = lifecycle.plan(base, 1, "fake")
    lifecycle.prepare(layout, [])
    with pytest.raises(GenericError, match=text):
        lifecycle.run_checked(layout, layout.first_node, ["gnt-cluster", "init", *words.split()])
    assert cluster_files.cluster_files(layout.paths_of(layout.first_node)) == []


@pytest.mark.shows("backend/overview/nodes", "backend/cluster-node/empty-nodes")
def test_nodes_leave_come_back_and_the_cluster_is_destroyed(base: str) -> None:
    layout = lifecycle.plan(base, 2, "fake", without=OTHER_FACES)
    lifecycle.create(layout)
    cluster = TestCluster(layout)
    node2 = layout.paths_of("node2.example.com")

    cluster.refused("cluster destroy --yes-do-it", "node2.example.com")
    cluster.gnt("node remove node2")
    assert cluster_files.cluster_files(node2) == []
    wait_until(
        lambda: node2.root not in [found.root for found in lifecycle.find_processes(base)],
        "the daemons of the node that left",
    )
    cluster.gnt("node add node2.example.com")
    cluster.gnt("node add --readd node2.example.com")
    assert len(cluster.gnt("node list --no-headers").lines) == 2
    cluster.gnt("node remove node2")

    cluster.refused("cluster destroy", "--yes-do-it")
    cluster.gnt("cluster destroy --yes-do-it")
    wait_until(lambda: lifecycle.find_processes(base) == [], "the last process")
    assert cluster_files.cluster_files(Paths(layout.paths_of(layout.first_node).root)) == []
    outcome = cluster.run("gnt-node list")
    assert outcome.status == 5
    assert "gnt-cluster init" in outcome.err
    assert cluster.run("gnt-cluster getmaster").status == 5

    lifecycle.run_checked(
        layout, layout.first_node, ["gnt-cluster", *lifecycle.init_arguments(layout)]
    )
    cluster.gnt("cluster master-ping")


def test_demo_shows_everything_and_leaves_the_cluster_running(base: str) -> None:
    environment = dict(os.environ, DEMO_BASE=base, NODES="3")
    outcome = process.run(
        [sys.executable, os.path.join(ROOT, "tools", "demo")], timeout_s=500, env=environment
    )
    assert outcome.status == 0, outcome.output
    text = outcome.stdout.decode()
    for command in (
        "$ gnt-cluster init ",
        "$ gnt-node add node2.example.com",
        "$ gnt-instance add ",
        "$ gnt-instance list",
        "$ gnt-instance info ",
        "$ gnt-instance migrate ",
        "$ gnt-job watch ",
        "$ gnt-instance remove ",
    ):
        assert command in text
    assert "hypervisor: " in text
    assert "tools/vcluster shell" in text
    listed = vcluster("run", base, "node1.example.com", "--", "gnt-instance", "list")
    assert listed.status == 0
    assert b"web1.example.com" in listed.stdout
    assert vcluster("destroy", base).status == 0


def test_unknown_record_is_not_obeyed(base: str) -> None:
    os.mkdir(base)
    with open(os.path.join(base, "vcluster.json"), "w", encoding="ascii") as file:
        file.write('{"base": "/"}')
    with pytest.raises(OpPrereqError, match="cannot be understood"):
        lifecycle.load(base)
    os.unlink(os.path.join(base, "vcluster.json"))
    os.rmdir(base)
