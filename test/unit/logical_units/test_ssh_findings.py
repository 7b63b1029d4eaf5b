"""What a verification tells of SSH keys, and that it tells nothing of what other jobs do to them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster, uuid_of

from ganeti.system import certificates, files
from ganeti.system.filelock import FileLock

PROBLEM = "root of node3.example.com is let in"


@pytest.fixture
def managed(cluster: FakeCluster) -> FakeCluster:
    """A sound cluster that manages SSH keys; node 3 is no candidate."""
    cluster.config.cluster["modify_ssh_setup"] = True
    cluster.config.cluster["candidate_pool_size"] = 2
    cluster.config.node(3)["master_candidate"] = False
    cluster.config.cluster["candidate_certs"] = {uuid_of(f"node{n}"): f"D{n}" for n in (1, 2)}
    os.makedirs(cluster.context.paths.data_dir, exist_ok=True)
    pem = certificates.make_self_signed(now=1000.0)
    files.write_durable(cluster.context.paths.server_pem, pem, 0o400)
    cluster.answers = []  # type: ignore[attr-defined]
    verify = cluster.rpc.do_node_verify

    def answer(node: Any, checks: Any, *args: Any) -> Any:
        found = {} if node.name != "node2.example.com" else {"ssh-setup": ssh(cluster, checks)}
        return {**verify(node, checks, *args), **found}

    cluster.rpc.do_node_verify = answer  # type: ignore[method-assign]
    return cluster


def ssh(cluster: FakeCluster, checks: Any) -> list[str]:
    """Node 2 answers that node 3 is let in, unless it is said to be a candidate."""
    if "ssh-setup" not in checks:
        return [PROBLEM]
    rows, _kind = checks["ssh-setup"]
    cluster.answers.append(rows)  # type: ignore[attr-defined]
    is_let_in = getattr(cluster, "is_let_in", True)
    return [PROBLEM] if is_let_in and not rows[2][2] else []


def verify(cluster: FakeCluster) -> list[str]:
    """Verify the group; returns what is told."""
    is_well = cluster.execute(
        "OP_CLUSTER_VERIFY_GROUP",
        group_name="default",
        error_codes=True,
        ignore_errors=["ENODEFILECHECK"],
    )
    found = [message.strip() for message in cluster.messages if "ENODESSH" in message]
    assert is_well is not bool(found), cluster.messages
    return found


def owe(cluster: FakeCluster, *names: str) -> None:
    """Nodes may still let a key in."""
    lines = [f"{uuid_of(name)} ssh-rsa K9\n" for name in names]
    Path(cluster.context.paths.ssh_revoked_keys).write_text("".join(lines))


def test_a_node_that_is_let_in_without_being_a_candidate_is_told(managed: FakeCluster) -> None:
    assert verify(managed) == [f"- ERROR:ENODESSH:node:node2.example.com:{PROBLEM}"]


def test_a_node_that_has_become_a_candidate_meanwhile_is_not(managed: FakeCluster) -> None:
    def promote(_node: str, call: str, _args: object) -> None:
        if call == "node_verify" and managed.answers:  # type: ignore[attr-defined]
            managed.config.node(3)["master_candidate"] = True

    managed.rpc.failure = promote
    assert verify(managed) == []
    assert len(managed.answers) == 2  # type: ignore[attr-defined]


def test_a_node_that_ceases_to_be_one_just_then_is_not(
    managed: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    acquire = FileLock.acquire

    def wait(lock: FileLock, *args: Any, **named: Any) -> None:
        managed.is_let_in = False  # type: ignore[attr-defined]  # the other job has ended
        acquire(lock, *args, **named)

    monkeypatch.setattr(FileLock, "acquire", wait)
    owe(managed)
    assert verify(managed) == []


def test_nodes_that_may_let_old_keys_in_are_told_unless_they_are_offline(
    managed: FakeCluster,
) -> None:
    managed.is_let_in = False  # type: ignore[attr-defined]
    managed.config.node(3)["offline"] = True
    owe(managed, "node1", "node2", "node3")
    head, text = "- ERROR:ENODESSH:node", "may still let in SSH keys that were taken back"
    assert verify(managed) == [
        f"{head}:node1.example.com:{text}; 'gnt-cluster renew-crypto --new-ssh-keys' ends that",
        f"{head}:node2.example.com:{text}; 'gnt-node add --readd node2.example.com' ends that",
    ]


def test_a_sound_cluster_is_asked_once(managed: FakeCluster) -> None:
    managed.is_let_in = False  # type: ignore[attr-defined]
    owe(managed, "node9")
    assert verify(managed) == []
    assert len(managed.answers) == 1  # type: ignore[attr-defined]


def test_keys_that_another_job_keeps_are_not_verified(
    managed: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ganeti.logical_units.context._ALONE_S_MAX", 0.0)
    with FileLock(managed.context.paths.job_lock("ssh-keys")):
        assert verify(managed) == []
    assert managed.said("SSH keys are not verified: ")


def test_keys_that_the_cluster_does_not_manage_are_none_of_its_business(
    managed: FakeCluster,
) -> None:
    managed.config.cluster["modify_ssh_setup"] = False
    owe(managed, "node1")
    assert verify(managed) == []
