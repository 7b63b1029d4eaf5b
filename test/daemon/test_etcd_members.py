"""The daemon that runs a member of etcd: it grows, shrinks, loses its data, and says why it ends."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from fakes.noded_node import free_address, short_directory
from fakes.waiting import wait_until
from rig import etcd

from ganeti.base.daemons import MEMBER
from ganeti.base.errors import CommandError, ProtocolError, TransportError
from ganeti.base.paths import Paths
from ganeti.clients.etcd import EtcdClient, Put
from ganeti.etcd.main import reason
from ganeti.system import certificates, clock, daemon_control, process

pytestmark = pytest.mark.skipif(not etcd.is_there(), reason="needs etcd")

T = TypeVar("T")
DEADLINE_S = 60.0


@dataclass
class Nodes:
    """Nodes that may be members."""

    base: Path
    pem: bytes = field(default_factory=lambda: certificates.make_self_signed(now=clock.now()))
    paths: dict[str, Paths] = field(default_factory=dict)
    urls: dict[str, str] = field(default_factory=dict)
    peers: dict[str, str] = field(default_factory=dict)

    def configure(self, name: str, **more: Any) -> Paths:
        """Make a node a member."""
        paths = self.paths.setdefault(name, Paths(f"{self.base}/{name}"))
        for directory in (paths.data_dir, paths.lock_dir):
            os.makedirs(directory, exist_ok=True)
        if name not in self.peers:
            self.peers[name] = etcd.peer_url(free_address())
        address = self.peers[name].split("/")[2].split(":")[0]
        self.urls[name] = etcd.write_member(paths, self.pem, address, name, **more)
        return paths

    def start(self, name: str) -> None:
        daemon_control.start_daemon(self.paths[name], MEMBER, hostname=name)

    def ask(self, question: Callable[[EtcdClient], Awaitable[T]], *names: str) -> T:
        """Ask some members until one answers that has a leader."""
        first = next(iter(self.paths.values()))

        async def ask() -> T:
            urls = [self.urls[name] for name in names or self.urls]
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    try:
                        identity = etcd.identity_of(first)
                        async with EtcdClient(urls, identity, "/x/", 5.0) as client:
                            return await question(client)
                    except (TransportError, ProtocolError) as err:
                        # Members meet for five seconds before others may be added.
                        if isinstance(err, ProtocolError) and "sync with leader" not in err.message:
                            raise
                        await asyncio.sleep(0.1)

        return asyncio.run(ask())

    def log(self, name: str) -> str:
        return Path(self.paths[name].log_file(MEMBER)).read_text()


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    with short_directory() as base:
        nodes = Nodes(base)
        yield nodes
        for paths in nodes.paths.values():
            daemon_control.stop_daemon(paths, MEMBER)


def test_an_etcd_grows_from_one_member_to_three_and_shrinks_again(nodes: Nodes) -> None:
    nodes.configure("n1")
    nodes.start("n1")
    nodes.ask(lambda client: client.change([], Put("a", b"1")))
    for name in ("n2", "n3"):
        nodes.peers[name] = peer = etcd.peer_url(free_address())
        added = nodes.ask(lambda client, peer=peer: client.add_member(peer, as_learner=True), "n1")
        again = nodes.ask(lambda client, peer=peer: client.add_member(peer), "n1")
        assert again == added  # asked twice, it is one
        nodes.configure(name, initial_cluster=nodes.peers, state="existing", id=str(added))
        nodes.start(name)
        nodes.ask(lambda client, added=added: client.promote_member(added), "n1")
    found = {member.name: member for member in nodes.ask(lambda client: client.members())}
    assert found.keys() == {"n1", "n2", "n3"}
    assert found["n3"].peer_urls == (nodes.peers["n3"],)
    assert found["n3"].client_urls == (nodes.urls["n3"],)
    assert not any(member.is_learner for member in found.values())
    daemon_control.stop_daemon(nodes.paths["n1"], MEMBER)  # two of three go on
    assert nodes.ask(lambda client: client.change([], Put("a", b"2")), "n2", "n3")
    nodes.start("n1")

    nodes.ask(lambda client: client.remove_member(found["n3"].ID), "n1", "n2")
    nodes.ask(lambda client: client.remove_member(found["n3"].ID), "n1", "n2")  # it is none
    wait_until(lambda: daemon_control.running_pid(nodes.paths["n3"], MEMBER) is None, "its end")
    wait_until(lambda: "Cannot go on: etcd ended: " in nodes.log("n3"), "the reason")
    assert "etcd ended: this node is no member any more" in nodes.log("n3"), nodes.log("n3")[-3000:]
    nodes.ask(lambda client: client.remove_member(found["n2"].ID), "n1")
    [left] = nodes.ask(lambda client: client.members(), "n1")
    assert left.name == "n1"
    assert nodes.ask(lambda client: client.read(), "n1").entries["a"].value == b"2"

    # A node that was a member once becomes another one; what it had is gone.
    peer = nodes.peers["n3"]
    added = nodes.ask(lambda client: client.add_member(peer, as_learner=True), "n1")
    cluster = {name: nodes.peers[name] for name in ("n1", "n3")}
    nodes.configure("n3", initial_cluster=cluster, state="existing", id=str(added))
    nodes.start("n3")
    nodes.ask(lambda client: client.promote_member(added), "n1")


def test_etcd_ends_with_its_daemon_and_the_daemon_with_etcd(nodes: Nodes) -> None:
    paths = nodes.configure("n1")
    nodes.start("n1")
    assert os.stat(paths.etcd_dir).st_mode & 0o777 == 0o700

    def children() -> list[str]:
        pid = daemon_control.running_pid(paths, MEMBER)
        assert pid is not None
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()

    def is_gone(pid: str) -> bool:
        return not os.path.exists(f"/proc/{pid}") or "State:\tZ" in status_of(pid)

    [child] = children()
    daemon = daemon_control.running_pid(paths, MEMBER)
    assert daemon is not None
    os.kill(daemon, 9)
    wait_until(lambda: is_gone(child), "the end of etcd")
    nodes.start("n1")
    [child] = children()
    os.kill(int(child), 9)
    wait_until(lambda: daemon_control.running_pid(paths, MEMBER) is None, "the end of the daemon")
    wait_until(lambda: "Cannot go on: etcd ended" in nodes.log("n1"), "the reason")
    nodes.start("n1")
    [child] = children()
    assert daemon_control.stop_daemon(paths, MEMBER)
    assert is_gone(child)
    assert nodes.log("n1").rstrip().endswith("Stopped")


def status_of(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return "State:\tZ"


def test_a_member_without_its_data_does_not_begin_anew(nodes: Nodes) -> None:
    paths = nodes.configure("n1")
    nodes.start("n1")
    daemon_control.stop_daemon(paths, MEMBER)
    shutil.rmtree(f"{paths.etcd_dir}/member")
    with pytest.raises(CommandError, match="are lost; it cannot begin anew"):
        nodes.start("n1")
    shutil.rmtree(paths.etcd_dir)
    with pytest.raises(CommandError, match="are lost; it cannot begin anew"):
        nodes.start("n1")
    nodes.configure("n1", token="two")  # another etcd
    nodes.start("n1")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_a_full_disk_is_named(nodes: Nodes) -> None:
    paths = nodes.configure("n1")
    os.makedirs(paths.etcd_dir)
    mounted = process.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", paths.data_dir], timeout_s=30.0
    )
    if mounted.status != 0:
        pytest.skip("cannot mount here")
    try:
        nodes.configure("n1")
        with pytest.raises(CommandError, match=f"the disk with {paths.etcd_dir} is full"):
            nodes.start("n1")
    finally:
        process.run(["umount", paths.data_dir], timeout_s=30.0).check()


def test_settings_that_cannot_work_are_refused(nodes: Nodes) -> None:
    for more, text in (
        ({"initial_cluster": {"n1": "https://192.0.2.1:1"}}, "is not the URL of n1"),
        ({"client_url": "http://192.0.2.1:2379"}, "is not https://ADDRESS:PORT"),
        ({"authority": "/var/lib/ganeti/etcd.pem"}, "certificates without keys only"),
        ({"certificate": "/var/lib/ganeti/none.pem"}, "cannot read the certificates of etcd"),
        ({"state": "old"}, "high-availability-member: "),
    ):
        fine = nodes.configure("n1")
        if "state" in more:
            text_of = Path(fine.ha_member).read_text().replace('"new"', '"old"')
            Path(fine.ha_member).write_text(text_of)
        else:
            nodes.configure("n1", **more)
        with pytest.raises(CommandError, match=text):
            nodes.start("n1")
    os.unlink(nodes.paths["n1"].ha_member)
    with pytest.raises(CommandError, match="this node is no member of etcd"):
        nodes.start("n1")


def test_the_reason_of_an_end_is_what_etcd_said_last() -> None:
    paths = Paths("")
    assert reason(paths, deque()) == "etcd ended: it said nothing"
    assert reason(paths, deque(["a", "b"])) == "etcd ended: a; b"
