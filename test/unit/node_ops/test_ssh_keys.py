"""Keys of a node, and logging in to others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.machine.keys import Keys
from ganeti.node_ops.verify import network as verify_ssh
from ganeti.system import files, ssh

NAME = "node2.example.com"
KEY = "ssh-rsa AAAA root@node1"


@pytest.fixture
def context(tmp_path: Path) -> NodeContext:
    paths = Paths(str(tmp_path))
    os.makedirs(paths.data_dir)
    return NodeContext(paths, NAME)


def manage(context: NodeContext) -> Path:
    """Let the keys be managed; returns the file of those that may log in."""
    files.write_durable(context.paths.ssh_managed, b"", 0o644)
    return Path(ssh.directory_of(context.paths)) / "authorized_keys"


def test_a_node_that_was_not_set_up_so_keeps_its_keys(context: NodeContext) -> None:
    for call in (
        lambda: Keys(context).ssh_authorize([KEY], []),
        lambda: Keys(context).ssh_root_key("rsa", 9),
        lambda: Keys(context).ssh_next_key("rsa", 9),
        lambda: Keys(context).ssh_take_key("rsa", KEY),
    ):
        with pytest.raises(GenericError, match=r"gnt-node add --readd"):
            call()
    assert not os.path.exists(ssh.directory_of(context.paths))


def test_keys_come_and_go(context: NodeContext) -> None:
    authorized = manage(context)
    assert Keys(context).ssh_authorize([KEY], []) is True
    assert Keys(context).ssh_authorize([KEY], []) is False
    assert authorized.read_text() == f"{KEY}\n"
    assert Keys(context).ssh_authorize([], [KEY]) is True
    assert authorized.read_text() == ""


@pytest.mark.parametrize("line", ["nonsense", f"{KEY}\n{KEY}", "", f"# {KEY}"])
def test_what_is_no_key_is_refused(context: NodeContext, line: str) -> None:
    manage(context)
    with pytest.raises(GenericError, match="not a public SSH key"):
        Keys(context).ssh_authorize([line], [])


@pytest.mark.parametrize(
    "left",
    [
        {"id_rsa.ganeti-next": "new"},  # cut off while it was made
        {"id_rsa.ganeti-next": "new", "id_rsa.ganeti-next.pub": "ssh-rsa NEXT"},
        {"id_rsa": "new", "id_rsa.ganeti-next.pub": "ssh-rsa NEXT"},  # while it was taken
        {},
    ],
)
def test_a_key_that_is_made_and_taken_may_be_cut_off_anywhere(
    context: NodeContext, monkeypatch: pytest.MonkeyPatch, left: dict[str, str]
) -> None:
    directory = manage(context).parent
    directory.mkdir(parents=True)
    for name, text in {"id_rsa": "old", "id_rsa.pub": "ssh-rsa OLD", **left}.items():
        (directory / name).write_text(text)

    def generate(private: str, _kind: str, _bits: int, _host: str) -> None:
        assert not os.path.exists(private), "ssh-keygen would ask whether to overwrite it"
        Path(private).write_text("made")
        Path(f"{private}.pub").write_text("ssh-rsa MADE root@node2\n")

    monkeypatch.setattr(ssh, "_generate", generate)
    key = Keys(context).ssh_next_key("rsa", 2048)
    assert Keys(context).ssh_next_key("rsa", 2048) == key
    for _ in range(2):
        Keys(context).ssh_take_key("rsa", key)
        private, public = (directory / "id_rsa").read_text(), (directory / "id_rsa.pub").read_text()
        assert (private, public.split()[1]) in {("new", "NEXT"), ("made", "MADE")}
    assert sorted(os.listdir(directory)) == ["id_rsa", "id_rsa.pub"]
    with pytest.raises(GenericError, match="make another"):
        Keys(context).ssh_take_key("rsa", "ssh-rsa OTHER")


def test_an_unknown_kind_of_key_is_refused(context: NodeContext) -> None:
    manage(context)
    with pytest.raises(GenericError, match="no kind"):
        Keys(context).ssh_root_key("../x", 2048)


def test_a_login_that_ends_elsewhere_is_told() -> None:
    answer = verify_ssh.problem_with_answer
    assert answer(NAME, f"Welcome!\nis-host={NAME}\n") is None
    assert answer(NAME, "is-host=node2\n") is None
    assert answer(NAME, "is-host=node3\n") == "the machine calls itself 'node3'"
    assert "did not tell its name" in str(answer(NAME, "Welcome!"))


def test_virtual_nodes_do_not_log_in(context: NodeContext) -> None:
    assert verify_ssh.log_in(context, [NAME], {}, [NAME]) == {}


def test_only_candidates_log_in_and_failures_are_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real node's paths, with a program in the place of ssh and of what it reads."""
    program = tmp_path / "ssh"
    program.write_text(
        "#!/bin/sh\ncase $* in *node3*) echo refused >&2; exit 255 ;; esac\n"
        f"case $* in *Port=2222*root@{NAME}*) echo is-host={NAME} ;; esac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(verify_ssh.ssconf, "cluster_name", lambda _paths: "cluster")
    monkeypatch.setattr(
        verify_ssh.ssconf, "read_key_or_none", lambda _paths, _key: f"{NAME}=2222\nodd"
    )
    names = [NAME, "node3.example.com"]
    real = NodeContext(Paths(), NAME)
    assert verify_ssh.log_in(real, names, {}, []) == {}
    found = verify_ssh.log_in(real, names, {}, [NAME])
    assert list(found) == ["node3.example.com"]
    assert "refused" in found["node3.example.com"]


def info(number: int, *, candidate: bool = True) -> verify_ssh.NodeInfo:
    return verify_ssh.NodeInfo(f"u{number}", f"node{number}.example.com", candidate, True, True)


def test_the_set_up_of_keys_is_looked_at(context: NodeContext) -> None:
    authorized = manage(context)
    authorized.parent.mkdir(parents=True)
    nodes = [info(1), info(2), info(3, candidate=False)]
    directory = str(authorized.parent)
    assert verify_ssh.set_up(context, nodes, "rsa") == [
        f"root has no public key {directory}/id_rsa.pub",
        f"{context.paths.ssh_pub_keys} has no key of candidate node1.example.com",
        f"{context.paths.ssh_pub_keys} has no key of candidate node2.example.com",
    ]
    (authorized.parent / "id_rsa.pub").write_text("ssh-rsa K2 root@node2\n")
    Path(context.paths.ssh_pub_keys).write_text("u1 ssh-rsa K1\nu2 ssh-rsa old\n")
    authorized.write_text("ssh-rsa old\n")
    assert verify_ssh.set_up(context, nodes, "rsa") == [
        "root of candidate node1.example.com is not let in",
        f"root's key is not the one in {context.paths.ssh_pub_keys}",
    ]
    Path(context.paths.ssh_pub_keys).write_text("u1 ssh-rsa K1\nu2 ssh-rsa K2\n")
    authorized.write_text("ssh-rsa K1 x\nssh-rsa K2\n")
    assert verify_ssh.set_up(context, nodes, "rsa") == []
    assert verify_ssh.set_up(context, [info(2, candidate=False)], "rsa") == []
    assert verify_ssh.set_up(context, [info(1)], "rsa") == ["this node is not in the list of nodes"]


def test_keys_that_should_not_be_let_in_are_told(context: NodeContext) -> None:
    authorized = manage(context)
    authorized.parent.mkdir(parents=True)
    (authorized.parent / "id_rsa.pub").write_text("ssh-rsa K2\n")
    known = Path(context.paths.ssh_pub_keys)
    known.write_text("u1 ssh-rsa K1\nu2 ssh-rsa OLD\nu2 ssh-rsa K2\nu3 ssh-rsa K3\n")
    nodes = [info(1), info(2), info(3, candidate=False)]
    authorized.write_text("ssh-rsa K1\nssh-rsa K2\nssh-rsa OTHER of an administrator\n")
    assert verify_ssh.set_up(context, nodes, "rsa") == []
    authorized.write_text("ssh-rsa K1\nssh-rsa K2\nssh-rsa OLD\nssh-rsa K3 root@node3\n")
    old, foreign = verify_ssh.set_up(context, nodes, "rsa")
    assert old.startswith("root of candidate node2.example.com is let in by an old key, too; ")
    assert foreign == (
        "root of node3.example.com is let in, which is no candidate; 'gnt-node modify"
        " --master-candidate=no node3.example.com' ends that"
    )
    known.write_text("u1 ssh-rsa K1 root@node1\nu2 ssh-rsa K2\nu3 ssh-rsa K1 root@node3\n")
    authorized.write_text("ssh-rsa K1\nssh-rsa K2\n")
    assert verify_ssh.set_up(context, nodes, "rsa") == [], "nodes 1 and 3 are clones"


def test_old_keys_are_clutter(context: NodeContext) -> None:
    authorized = manage(context)
    assert verify_ssh.clutter(context) == []
    authorized.parent.mkdir(parents=True)
    lines = ["# ssh-rsa D root@b", "ssh-rsa A root@a", "ssh-rsa B root@a", "ssh-rsa C root@b"]
    authorized.write_text("\n".join(lines))
    assert verify_ssh.clutter(context) == [
        "root@a is let in by 2 keys; remove the old ones from authorized_keys"
    ]
