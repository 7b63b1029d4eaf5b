"""Three virtual nodes run an etcd; a member that dies is started again by the watcher."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest
from fakes.virtual_cluster import TestCluster, own_cluster
from fakes.waiting import wait_until
from rig import etcd

from ganeti.base.daemons import FACES, MEMBER
from ganeti.base.errors import TransportError
from ganeti.clients.etcd import EtcdClient, Put
from ganeti.system import certificates, clock, daemon_control

pytestmark = pytest.mark.skipif(not etcd.is_there(), reason="needs etcd")

WITHOUT = tuple(name for name in FACES if name != MEMBER)
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    with own_cluster(3, WITHOUT) as cluster:
        yield cluster


def write(cluster: TestCluster, urls: list[str], value: bytes) -> None:
    """Write a key, once the members have a leader."""

    async def ask() -> None:
        identity = etcd.identity_of(cluster.paths)
        async with EtcdClient(urls, identity, "/x/", 5.0) as client:
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    try:
                        assert await client.change([], Put("a", value))
                    except TransportError:
                        await asyncio.sleep(0.1)
                    else:
                        return

    asyncio.run(ask())


def test_members_on_three_nodes_go_on_without_one_which_the_watcher_starts_again(
    cluster: TestCluster,
) -> None:
    addresses = {name: cluster.layout.address_of(name) for name in cluster.nodes}
    members = {name: etcd.peer_url(address) for name, address in addresses.items()}
    authority = certificates.make_self_signed(now=clock.now())
    urls = [
        etcd.write_member(cluster.paths_of(name), authority, address, name, initial_cluster=members)
        for name, address in addresses.items()
    ]
    for name in cluster.nodes:  # one after the other, as nobody waits for a majority
        daemon_control.start_daemon(cluster.paths_of(name), MEMBER, hostname=name)
    write(cluster, urls, b"1")

    lost, paths = cluster.nodes[2], cluster.paths_of(cluster.nodes[2])
    pid = daemon_control.running_pid(paths, MEMBER)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    write(cluster, urls, b"2")
    wait_until(lambda: daemon_control.running_pid(paths, MEMBER) is None, "the end of its daemon")
    wait_until(lambda: not etcds_of(cluster, lost), "the end of its etcd")
    watched = cluster.run("ganeti-watcher", node=lost)
    assert daemon_control.running_pid(paths, MEMBER) is not None, watched
    write(cluster, urls[2:], b"3")


def etcds_of(cluster: TestCluster, node: str) -> list[int]:
    """Return the processes of etcd on a node."""
    root = cluster.paths_of(node).root
    return [each.pid for each in cluster.processes() if each.root == root and is_etcd(each.pid)]


def is_etcd(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/comm", encoding="ascii") as file:
            return file.read().strip() == "etcd"
    except OSError:
        return False
