"""Who is let in where, as nodes change their role."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster, make_node, uuid_of

from ganeti.base.errors import GenericError, LockError
from ganeti.base.text import ssh_keys_text
from ganeti.logical_units.node import candidates
from ganeti.system.filelock import FileLock

KEYS = {f"node{n}": f"ssh-rsa K{n}" for n in (1, 2, 3, 4)}


@pytest.fixture
def managed(cluster: FakeCluster) -> FakeCluster:
    """A cluster that manages keys; node 3 is no candidate."""
    cluster.config.cluster["modify_ssh_setup"] = True
    cluster.config.node(3)["master_candidate"] = False
    paths = cluster.context.paths
    os.makedirs(paths.data_dir, exist_ok=True)
    lines = [f"{uuid_of(name)} {KEYS[name]}" for name in ("node1", "node2")]
    Path(paths.ssh_pub_keys).write_text("\n".join(lines) + "\n")
    let_in: dict[str, set[str]] = {name: set() for name in KEYS}

    def authorize(node: Any, add: list[str], remove: list[str]) -> bool:
        short = node.name.partition(".")[0]
        let_in[short] = (let_in[short] | set(add)) - set(remove)
        return True

    cluster.rpc.do_ssh_authorize = authorize  # type: ignore[attr-defined]
    cluster.rpc.do_ssh_root_key = (  # type: ignore[attr-defined]
        lambda node, _kind, _bits: KEYS[node.name.partition(".")[0]]
    )
    cluster.let_in = let_in  # type: ignore[attr-defined]
    return cluster


def let_in(cluster: FakeCluster) -> dict[str, str]:
    """Return who is let in on each node, by the numbers of their keys."""
    found: dict[str, set[str]] = cluster.let_in  # type: ignore[attr-defined]
    return {name: "".join(sorted(key[-1] for key in keys)) for name, keys in found.items()}


def modify(cluster: FakeCluster, **params: Any) -> Any:
    return cluster.execute("OP_NODE_SET_PARAMS", node_name="node3", **params)


def test_a_candidate_is_let_in_and_out_again(managed: FakeCluster) -> None:
    modify(managed, master_candidate=True)
    assert let_in(managed) == {"node1": "3", "node2": "3", "node3": "3", "node4": ""}
    text = Path(managed.context.paths.ssh_pub_keys).read_text()
    assert f"{uuid_of('node3')} ssh-rsa K3\n" in text
    sent = [node for node, args in managed.rpc.called("upload_file") if "pub_keys" in args[0][0]]
    assert {"node2", "node3"} <= set(sent)
    modify(managed, master_candidate=False)
    assert let_in(managed) == {"node1": "", "node2": "", "node3": "3", "node4": ""}


@pytest.mark.parametrize("flag", ["offline", "drained"])
def test_a_demotion_that_was_cut_off_is_ended_by_the_next_one(
    managed: FakeCluster, flag: str
) -> None:
    modify(managed, master_candidate=True)
    managed.config.failing["setCandidateCert"] = GenericError("killed")
    with pytest.raises(GenericError, match="killed"):
        modify(managed, **{flag: True})
    assert uuid_of("node3") not in managed.config.cluster["candidate_certs"]
    assert let_in(managed)["node1"] == "3"
    managed.config.failing.clear()
    assert modify(managed, **{flag: True}) == []
    assert let_in(managed) == {"node1": "", "node2": "", "node3": "3", "node4": ""}


def test_a_demotion_that_was_cut_off_is_ended_when_the_node_is_taken_in_again(
    managed: FakeCluster,
) -> None:
    modify(managed, master_candidate=True)
    managed.config.failing["setCandidateCert"] = GenericError("killed")
    with pytest.raises(GenericError, match="killed"):
        modify(managed, drained=True)
    managed.config.failing.clear()
    managed.config.cluster["candidate_pool_size"] = 2  # no room for it
    readd(managed, "node3")
    assert let_in(managed) == {"node1": "", "node2": "", "node3": "12", "node4": ""}


def test_the_old_key_of_a_promotion_that_was_cut_off_is_let_out_when_the_node_is_taken_in_again(
    managed: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    modify(managed, master_candidate=True)
    before = KEYS["node3"]
    managed.config.node(3)["master_candidate"] = False
    monkeypatch.setitem(KEYS, "node3", "ssh-rsa N3")

    def kill(*_args: object, **_named: object) -> list[str]:
        raise GenericError("killed")

    with monkeypatch.context() as cut:
        cut.setattr(candidates, "change_access", kill)
        with pytest.raises(GenericError, match="killed"):
            modify(managed, master_candidate=True)
    assert before in managed.let_in["node1"]  # type: ignore[attr-defined]
    readd(managed, "node3")
    for name in ("node1", "node2"):
        assert managed.let_in[name] == {"ssh-rsa N3"}, name  # type: ignore[attr-defined]
    text = Path(managed.context.paths.ssh_pub_keys).read_text()
    assert before not in text
    assert f"{uuid_of('node3')} ssh-rsa N3\n" in text


def test_what_3_0_left_is_taken_away_when_it_is_asked_for(managed: FakeCluster) -> None:
    managed.config.cluster["candidate_certs"][uuid_of("node3")] = "D3"
    assert modify(managed, master_candidate=False) == []
    assert uuid_of("node3") not in managed.config.cluster["candidate_certs"]


def test_a_node_that_joins_lets_the_candidates_in(managed: FakeCluster) -> None:
    managed.execute("OP_NODE_ADD", node_name="node4.example.com")
    assert let_in(managed) == {"node1": "4", "node2": "4", "node3": "4", "node4": "124"}


def test_a_node_that_leaves_lets_nobody_in(managed: FakeCluster) -> None:
    for keys in managed.let_in.values():  # type: ignore[attr-defined]
        keys.update({KEYS["node1"], KEYS["node2"]})
    managed.config.node(3)["master_capable"] = False  # or it would take the place
    managed.config.nodes[uuid_of("node4")] = make_node(4)
    managed.execute("OP_NODE_REMOVE", node_name="node2")
    assert let_in(managed) == {"node1": "1", "node2": "2", "node3": "1", "node4": "1"}
    assert uuid_of("node2") not in Path(managed.context.paths.ssh_pub_keys).read_text()
    sent = [node for node, args in managed.rpc.called("upload_file") if "pub_keys" in args[0][0]]
    assert sent == ["node4"]


def test_a_node_that_does_not_take_keys_still_changes_its_role(managed: FakeCluster) -> None:
    managed.rpc.fail("ssh_root_key", "node3", "no room")
    modify(managed, master_candidate=True)
    assert managed.config.node(3)["master_candidate"]
    assert managed.said("node node3.example.com did not tell its SSH key")
    managed.rpc.fail("ssh_authorize", "node2", "no room")
    managed.execute("OP_NODE_ADD", node_name="node4.example.com")
    assert managed.said("node node2.example.com did not change its SSH keys")


def offline(cluster: FakeCluster, name: str, *, offline: bool = True) -> None:
    cluster.execute("OP_NODE_SET_PARAMS", node_name=name, offline=offline)


def come_back(cluster: FakeCluster) -> None:
    offline(cluster, "node2", offline=False)


def readd(cluster: FakeCluster, name: str = "node2") -> None:
    cluster.execute("OP_NODE_ADD", node_name=name, readd=True)


def demote(cluster: FakeCluster) -> None:
    modify(cluster, drained=True)


def remove(cluster: FakeCluster) -> None:
    cluster.execute("OP_NODE_REMOVE", node_name="node3")


@pytest.mark.parametrize("revoke", [demote, remove])
@pytest.mark.parametrize("bring", [come_back, readd])
def test_a_node_that_comes_back_lets_in_the_candidates_alone(
    managed: FakeCluster,
    revoke: Callable[[FakeCluster], None],
    bring: Callable[[FakeCluster], None],
) -> None:
    modify(managed, master_candidate=True)
    offline(managed, "node2")
    revoke(managed)
    assert managed.said("are let in no more: node2.example.com; they are told when they come back")
    assert let_in(managed)["node2"] == "3"
    managed.messages.clear()
    bring(managed)
    assert let_in(managed)["node2"] == "12"
    assert not managed.said("not told")
    assert not Path(managed.context.paths.ssh_revoked_keys).read_text()


def test_a_node_that_was_offline_lets_in_who_is_a_candidate_again(managed: FakeCluster) -> None:
    modify(managed, master_candidate=True)
    offline(managed, "node2")
    demote(managed)
    text = Path(managed.context.paths.ssh_revoked_keys).read_text()
    assert text == f"{uuid_of('node2')} {KEYS['node3']}\n"
    modify(managed, master_candidate=True)
    come_back(managed)
    assert let_in(managed) == {"node1": "23", "node2": "123", "node3": "23", "node4": ""}


def test_nodes_of_a_cluster_that_was_merged_let_in_its_candidates_no_more(
    managed: FakeCluster,
) -> None:
    """The merge has noted the keys of these, one of which is a candidate again."""
    nodes, strange = ("node2", "node3"), ["ssh-rsa K7", KEYS["node2"], "ssh-rsa K8", KEYS["node3"]]
    Path(managed.context.paths.ssh_pub_keys).write_text(f"{uuid_of('node1')} {KEYS['node1']}\n")
    due = {uuid_of(name): strange for name in nodes}
    Path(managed.context.paths.ssh_revoked_keys).write_text(ssh_keys_text(due))
    managed.config.cluster["candidate_pool_size"] = 2
    for name in nodes:
        managed.config.node(int(name[-1]))["master_candidate"] = False
        managed.let_in[name].update(strange)  # type: ignore[attr-defined]
    readd(managed, "node3")
    assert let_in(managed)["node3"] == "13"
    readd(managed)
    assert let_in(managed)["node2"] == "13", "there was no room for this one"
    assert not Path(managed.context.paths.ssh_revoked_keys).read_text()


def test_a_node_that_failed_is_told_at_the_next_change(managed: FakeCluster) -> None:
    modify(managed, master_candidate=True)
    managed.rpc.fail("ssh_authorize", "node2", "no room")
    demote(managed)
    assert managed.said("node node2.example.com did not change its SSH keys")
    assert let_in(managed)["node2"] == "3"
    managed.rpc.failure = lambda *_args: None
    managed.execute("OP_NODE_ADD", node_name="node4.example.com")
    assert let_in(managed)["node2"] == "4"


def test_a_key_of_a_machine_before_it_was_installed_again_is_let_in_no_more(
    managed: FakeCluster,
) -> None:
    modify(managed, master_candidate=True)
    before = KEYS["node3"]
    managed.rpc.do_ssh_root_key = lambda *_: "ssh-rsa N3"  # type: ignore[attr-defined]
    for uuid in ("node1", "node2", "node3"):
        assert before in managed.let_in[uuid]  # type: ignore[attr-defined]
    managed.config.node(3)["master_candidate"] = False
    modify(managed, master_candidate=True)
    for uuid in ("node1", "node2", "node3"):
        assert managed.let_in[uuid] == {"ssh-rsa N3"}  # type: ignore[attr-defined]


@pytest.fixture
def cloned(managed: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Nodes 2 and 3 are clones, with one key; both are candidates."""
    monkeypatch.setitem(KEYS, "node3", f"{KEYS['node2']} root@node3")
    modify(managed, master_candidate=True)
    for keys in managed.let_in.values():  # type: ignore[attr-defined]
        keys.clear()
        keys.update({KEYS["node1"], KEYS["node2"]})
    managed.messages.clear()
    return managed


@pytest.mark.parametrize("revoke", [demote, remove])
def test_a_key_that_another_candidate_has_too_stays_let_in(
    cloned: FakeCluster, revoke: Callable[[FakeCluster], None]
) -> None:
    revoke(cloned)
    assert cloned.said(
        "an SSH key of node node3.example.com stays let in, as it is also that of node2.ex"
    )
    assert not cloned.said("has no key of node")
    assert (let_in(cloned)["node1"], let_in(cloned)["node2"]) == ("12", "12")
    cloned.config.cluster["candidate_pool_size"] = 1
    cloned.execute("OP_NODE_SET_PARAMS", node_name="node2", drained=True)
    assert let_in(cloned)["node1"] == "1", "no candidate has it any more"


def test_a_clone_that_gets_a_key_of_its_own_leaves_the_old_one_to_the_other(
    cloned: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KEYS, "node3", "ssh-rsa N3")
    cloned.config.node(3)["master_candidate"] = False
    modify(cloned, master_candidate=True)
    assert cloned.said("as it is also that of node2.example.com;")
    assert cloned.let_in["node1"] == {  # type: ignore[attr-defined]
        KEYS["node1"],
        KEYS["node2"],
        "ssh-rsa N3",
    }


def test_what_a_node_was_to_be_told_goes_with_it(managed: FakeCluster) -> None:
    modify(managed, master_candidate=True)
    offline(managed, "node2")
    demote(managed)
    managed.execute("OP_NODE_REMOVE", node_name="node2")
    assert not Path(managed.context.paths.ssh_revoked_keys).read_text()


def test_a_candidate_whose_key_is_not_known_is_told_when_it_goes(managed: FakeCluster) -> None:
    Path(managed.context.paths.ssh_pub_keys).write_text("")
    managed.execute("OP_NODE_REMOVE", node_name="node3")
    assert not managed.said("has no key of node")
    managed.execute("OP_NODE_REMOVE", node_name="node2")
    assert managed.said("ganeti_pub_keys has no key of node node2.example.com: whoever lets it in")


def lock_of(cluster: FakeCluster) -> FileLock:
    return FileLock(cluster.context.paths.job_lock("ssh-keys"))


def test_two_jobs_do_not_change_keys_at_the_same_time(
    managed: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ganeti.logical_units.context._ALONE_S_MAX", 0.0)
    waiting = "another job changes SSH keys; waiting for its end"
    with lock_of(managed):
        modify(managed, master_candidate=True)
        assert managed.said(waiting)
        assert managed.said("node node3.example.com is not let in by the others: ")
        managed.execute("OP_NODE_ADD", node_name="node4.example.com")
        assert managed.said("node node4.example.com did not change whom it lets in: ")
        with pytest.raises(LockError, match=r"ssh-keys.lock is locked by another process"):
            managed.execute("OP_NODE_REMOVE", node_name="node2")
    assert uuid_of("node2") in managed.config.nodes
    assert not managed.rpc.called("ssh_authorize")
    managed.messages.clear()
    readd(managed)
    assert not managed.said(waiting)


def test_nobody_writes_keys_between_a_question_and_its_answer(managed: FakeCluster) -> None:
    asked = []

    def tell(node: Any, *_: object) -> str:
        asked.append(node.name)
        with pytest.raises(LockError):
            lock_of(managed).acquire()
        return KEYS[node.name.partition(".")[0]]

    managed.rpc.do_ssh_root_key = tell  # type: ignore[attr-defined]
    modify(managed, master_candidate=True)
    assert asked == ["node3.example.com"]


def test_without_management_no_node_is_asked(managed: FakeCluster) -> None:
    managed.config.cluster["modify_ssh_setup"] = False
    modify(managed, master_candidate=True)
    modify(managed, master_candidate=False)
    managed.execute("OP_NODE_ADD", node_name="node4.example.com")
    managed.execute("OP_NODE_REMOVE", node_name="node4.example.com")
    assert not [name for name in managed.rpc.names() if name.startswith("ssh_")]
