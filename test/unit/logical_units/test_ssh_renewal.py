"""New SSH keys: whoever could log in can do so at any moment, wherever the renewal is cut off."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pytest
from fakes.cuts import CUTS_MAX, Killed, killed_at
from fakes.fake_cluster import FakeCluster, uuid_of

from ganeti.base.errors import LockError, OpExecError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.machine.keys import Keys
from ganeti.system import files, ssh
from ganeti.system.filelock import FileLock

NAMES = ("node1", "node2", "node3")


class Machines:
    """The directories of the nodes, with keys that are numbers."""

    def __init__(self, root: Path) -> None:
        self.contexts = {
            name: NodeContext(Paths(str(root / name)), f"{name}.example.com") for name in NAMES
        }
        for context in self.contexts.values():
            os.makedirs(context.paths.data_dir, exist_ok=True)
            files.write_durable(context.paths.ssh_managed, b"", 0o644)

    def context(self, node: Any) -> NodeContext:
        return self.contexts[node.name.partition(".")[0]]

    def directory(self, name: str) -> Path:
        return Path(ssh.directory_of(self.contexts[name].paths))

    def key(self, name: str, kind: str = "rsa") -> str:
        return (self.directory(name) / f"id_{kind}.pub").read_text().strip()

    def let_in(self, name: str) -> set[str]:
        return set((self.directory(name) / "authorized_keys").read_text().splitlines())


@pytest.fixture
def machines(cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machines:
    """Nodes 1 and 2 are let in everywhere; node 3 has a key and is no candidate."""
    numbers = itertools.count(1)

    def generate(private: str, kind: str, _bits: int, host: str) -> None:
        number = next(numbers)
        Path(private).write_text(f"secret {number}")
        Path(f"{private}.pub").write_text(f"ssh-{kind} K{number} root@{host}\n")

    monkeypatch.setattr(ssh, "_generate", generate)
    made = Machines(tmp_path / "machines")
    cluster.config.cluster["modify_ssh_setup"] = True
    cluster.config.node(3)["master_candidate"] = False
    rpc: Any = cluster.rpc
    for call in ("ssh_root_key", "ssh_next_key", "ssh_take_key", "ssh_authorize"):
        setattr(
            rpc,
            f"do_{call}",
            lambda node, *args, call=call: getattr(Keys(made.context(node)), call)(*args),
        )
    keys = {name: Keys(made.contexts[name]).ssh_root_key("rsa", 2048) for name in NAMES}
    for name in NAMES:
        Keys(made.contexts[name]).ssh_authorize([keys["node1"], keys["node2"]], [])
    os.makedirs(cluster.context.paths.data_dir, exist_ok=True)
    lines = [f"{uuid_of(name)} {keys[name]}\n" for name in NAMES]
    Path(cluster.context.paths.ssh_pub_keys).write_text("".join(lines))
    return made


def renew(cluster: FakeCluster, **params: Any) -> None:
    cluster.execute("OP_CLUSTER_RENEW_CRYPTO", renew_ssh_keys=True, **params)


def check_renewed(cluster: FakeCluster, machines: Machines, old: set[str]) -> None:
    kind = cluster.config.cluster["ssh_key_type"]
    new = {name: machines.key(name, kind) for name in NAMES}
    assert not old & set(new.values())
    assert set(new.values()).isdisjoint(old)
    for name in NAMES:
        assert machines.let_in(name) == {new["node1"], new["node2"]}, name
    recorded = Path(cluster.context.paths.ssh_pub_keys).read_text().splitlines()
    assert sorted(recorded) == sorted(f"{uuid_of(name)} {new[name]}" for name in NAMES)


def present_keys(machines: Machines) -> set[str]:
    return {machines.key(name) for name in NAMES}


def test_every_node_gets_another_key_and_only_candidates_are_let_in(
    cluster: FakeCluster, machines: Machines
) -> None:
    old = present_keys(machines)
    renew(cluster)
    check_renewed(cluster, machines, old)
    sent = [node for node, args in cluster.rpc.called("upload_file") if "pub_keys" in args[0][0]]
    assert set(sent) == {"node2"}
    assert [("node/" + uuid_of(name), "exclusive") for name in NAMES] == sorted(
        lock for lock in cluster.config.lock_history[-1] if lock[0].startswith("node/")
    )


def test_they_may_be_of_another_kind(cluster: FakeCluster, machines: Machines) -> None:
    old = present_keys(machines)
    renew(cluster, ssh_key_type="ecdsa", ssh_key_bits=256)
    assert cluster.config.cluster["ssh_key_type"] == "ecdsa"
    assert cluster.config.cluster["ssh_key_bits"] == 256
    check_renewed(cluster, machines, old)


def test_another_kind_has_its_usual_length_and_no_other_kind_s(
    cluster: FakeCluster, machines: Machines
) -> None:
    with pytest.raises(OpPrereqError, match="cannot have 2048 bits, but 256, 384, 521"):
        renew(cluster, ssh_key_type="ecdsa", ssh_key_bits=2048)
    with pytest.raises(OpPrereqError, match="cannot have 384 bits, but 1024 to 16384"):
        renew(cluster, ssh_key_bits=384)
    renew(cluster, ssh_key_type="ecdsa")
    assert cluster.config.cluster["ssh_key_bits"] == 256


def test_wherever_it_is_cut_off_logging_in_works_and_the_next_one_ends_it(
    cluster: FakeCluster, machines: Machines
) -> None:
    for cut in range(CUTS_MAX):
        old = present_keys(machines)
        with killed_at(cluster, cut):
            try:
                renew(cluster)
            except Killed:
                has_ended = False
            else:
                has_ended = True
        for name in NAMES:
            assert {machines.key("node1"), machines.key("node2")} <= machines.let_in(name), cut
        if has_ended:
            break
        renew(cluster)
        check_renewed(cluster, machines, old)
    assert 15 < cut < CUTS_MAX - 1


@pytest.mark.parametrize("call", ["ssh_next_key", "ssh_authorize"])
def test_a_node_that_cannot_be_told_keeps_all_old_keys_in_use(
    cluster: FakeCluster, machines: Machines, call: str
) -> None:
    old = present_keys(machines)
    cluster.rpc.fail(call, "node3", "disk full")
    with pytest.raises(OpExecError, match=r"old SSH keys are still in use.*node3.*disk full"):
        renew(cluster)
    assert present_keys(machines) == old
    cluster.rpc.failure = lambda *_args: None
    renew(cluster)
    check_renewed(cluster, machines, old)


def test_a_node_that_does_not_take_its_key_is_still_let_in(
    cluster: FakeCluster, machines: Machines
) -> None:
    old = present_keys(machines)
    kept = machines.key("node2")
    cluster.rpc.fail("ssh_take_key", "node2", "disk full")
    with pytest.raises(OpExecError, match=r"no new SSH key on node2.example.com; .* again"):
        renew(cluster)
    assert machines.key("node2") == kept
    for name in NAMES:
        assert {machines.key("node1"), kept} <= machines.let_in(name)
    cluster.rpc.failure = lambda *_args: None
    renew(cluster)
    check_renewed(cluster, machines, old)


def test_a_clone_that_does_not_take_its_key_is_still_let_in(
    cluster: FakeCluster, machines: Machines
) -> None:
    """The other one with that key takes a new one."""
    names = ("node1", "node2")
    lines = [f"{uuid_of(name)} {machines.key('node1')}\n" for name in names]
    Path(cluster.context.paths.ssh_pub_keys).write_text("".join(lines))
    shared = machines.key("node1")
    (machines.directory("node2") / "id_rsa.pub").write_text(shared)
    cluster.rpc.fail("ssh_take_key", "node2", "disk full")
    with pytest.raises(OpExecError, match=r"no new SSH key on node2.example.com"):
        renew(cluster)
    assert all(shared in machines.let_in(name) for name in NAMES)
    cluster.rpc.failure = lambda *_args: None
    renew(cluster)
    assert not any(shared in machines.let_in(name) for name in NAMES)


def test_an_old_key_that_is_still_let_in_is_told_and_let_out_next_time(
    cluster: FakeCluster, machines: Machines
) -> None:
    old = present_keys(machines)
    cluster.rpc.failure = lambda node, call, args: (
        "disk full" if call == "ssh_authorize" and args[1] and node.startswith("node3") else None
    )
    with pytest.raises(OpExecError, match=r"old SSH keys are still let in on node3.example.com"):
        renew(cluster)
    cluster.rpc.failure = lambda *_args: None
    renew(cluster)
    check_renewed(cluster, machines, old)


def test_what_cannot_be_is_refused(cluster: FakeCluster, machines: Machines) -> None:
    with pytest.raises(OpPrereqError, match="renew_ssh_keys is missing"):
        cluster.execute("OP_CLUSTER_RENEW_CRYPTO", node_certificates=True, ssh_key_type="rsa")
    cluster.config.cluster["modify_ssh_setup"] = False
    with pytest.raises(OpPrereqError, match="managed by hand"):
        renew(cluster)
    assert not cluster.rpc.called("ssh_next_key")


def test_other_jobs_are_kept_from_the_keys_all_the_while(
    cluster: FakeCluster, machines: Machines
) -> None:
    path = cluster.context.paths.job_lock("ssh-keys")
    asked = []

    def look(_node: str, call: str, _args: object) -> None:
        if call.startswith("ssh_"):
            asked.append(call)
            with pytest.raises(LockError):
                FileLock(path).acquire()

    cluster.rpc.failure = look
    renew(cluster)
    assert {"ssh_next_key", "ssh_authorize", "ssh_take_key"} == set(asked)
    FileLock(path).acquire()


def test_an_offline_node_is_named(cluster: FakeCluster, machines: Machines) -> None:
    cluster.config.node(3)["offline"] = True
    renew(cluster)
    assert cluster.said("node node3.example.com is offline and keeps its SSH key")
    assert cluster.said("'gnt-node modify --offline=no node3.example.com' tells it the new ones")
    assert machines.key("node1") in machines.let_in("node2")


def test_a_node_that_was_offline_lets_the_old_keys_in_no_more(
    cluster: FakeCluster, machines: Machines
) -> None:
    cluster.config.node(3)["offline"] = True
    old = present_keys(machines)
    renew(cluster)
    assert machines.let_in("node3") < old
    cluster.execute("OP_NODE_SET_PARAMS", node_name="node3", offline=False)
    assert machines.let_in("node3") == present_keys(machines)
