"""Instances ask the node that they run on about themselves: from the command to the answer.

Their network has addresses of this machine, so that the test can ask as they would.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from fakes.virtual_cluster import TestCluster
from fakes.waiting import wait_until

from ganeti.metad.main import VIRTUAL_PORT
from ganeti.system import daemon_control, environment

NAME = "talks.example.com"
NETWORK = "talk"
ADD = (
    "instance add --no-name-check --no-ip-check -t diskless -H fake -B memory=32"
    " --communication=yes"
)
DEADLINE_S = 30.0


@pytest.fixture
def talking(cluster: TestCluster) -> Iterator[TestCluster]:
    """The cluster with a network for communication."""
    cluster.gnt(f"network add --network=127.77.0.0/24 {NETWORK}")
    cluster.gnt(f"network connect --nic-parameters=mode=routed,link=communication_rt {NETWORK}")
    said = cluster.gnt(f"cluster modify --instance-communication-network={NETWORK}")
    assert "for instances 169.254.0.0/16 is usual" in said.out + said.err
    try:
        yield cluster
    finally:
        cluster.tidy_up()
        cluster.gnt("cluster modify --instance-communication-network=")
        wait_until(lambda: not daemons(cluster), "the end of the metadata daemons")
        wait_until(
            lambda: not cluster.run("gnt-network list --no-headers -o group_list").out.strip(),
            "the network to be disconnected",
        )
        cluster.gnt(f"network remove {NETWORK}")


def daemons(cluster: TestCluster) -> list[str]:
    """Return the nodes with a metadata daemon."""
    return [
        node
        for node in cluster.nodes
        if daemon_control.running_pid(cluster.paths_of(node), "ganeti-metad")
    ]


def ask(cluster: TestCluster, node: str, source: str, path: str) -> tuple[int, Any]:
    """Ask a node as a guest with that address would."""
    paths = cluster.paths_of(node)
    address = environment.resolve(node, paths)[1]
    connection = http.client.HTTPConnection(
        address, VIRTUAL_PORT, timeout=DEADLINE_S, source_address=(source, 0)
    )
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        return answer.status, json.loads(body) if answer.status == 200 else body


def test_from_the_command_to_the_answer(talking: TestCluster) -> None:
    cluster, (one, _two, _three) = talking, talking.nodes
    assert not daemons(cluster)
    cluster.gnt(f"{ADD} --os-type=bootsector+default -n {one} {NAME}")
    assert daemons(cluster) == [one]
    fields = "nic.name/1,nic.ip/1,nic.mac/0,nic.mac/1"
    nic, address, *macs = cluster.instance_field(NAME, fields).split("|")
    assert nic == f"ganeti:communication:{NAME}"
    page = "/ganeti/latest/meta_data.json"
    _status, found = ask(cluster, one, address, page)
    assert (found["name"], found["os"], found["memory"]) == (NAME, "bootsector+default", 32)
    assert [each["mac"] for each in found["nics"]] == macs
    assert ask(cluster, one, "127.77.0.99", page)[0] == 404
    said = cluster.run("gnt-debug metad listinstances", node=one)
    assert said.lines == [f"{NAME}: {address}"]
    assert cluster.run("gnt-debug metad echo a b", node=one).lines == ["a b"]

    # It comes again with the others, and knows what it knew.
    pid = daemon_control.running_pid(cluster.paths_of(one), "ganeti-metad")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not daemons(cluster), "the end of the daemon")
    daemon_control.start_daemon(cluster.paths_of(one), "ganeti-metad", hostname=one)
    assert ask(cluster, one, address, page)[1]["name"] == NAME

    # A change is told at once; a guest that is not there any more is forgotten.
    cluster.gnt(f"instance modify -B minmem=48,maxmem=64 {NAME}")
    assert ask(cluster, one, address, page)[1]["memory"] == 64
    cluster.gnt(f"instance shutdown --timeout=1 {NAME}")
    assert ask(cluster, one, address, page)[0] == 404
    cluster.gnt(f"instance startup {NAME}")
    assert ask(cluster, one, address, page)[1]["name"] == NAME
    cluster.gnt(f"instance modify --communication=no --hotplug-if-possible {NAME}")
    assert cluster.instance_field(NAME, "nic.count") == "1"
    cluster.gnt(f"instance shutdown --timeout=1 {NAME}")
    cluster.gnt(f"instance modify --communication=yes {NAME}")
    assert cluster.instance_field(NAME, "nic.count") == "2"
