"""Setting a node up: over a fake SSH, in the place of a virtual node, and what goes wrong."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from ganeti.base.daemons import AGENT, MEMBER, Place, daemon_of
from ganeti.base.errors import GenericError, LockError, OpExecError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.bootstrap import cluster_files, keys, node_setup
from ganeti.bootstrap.init import destroy_here
from ganeti.bootstrap.node_setup import NodeSetup
from ganeti.bootstrap.node_transport import SshTransport, VirtualTransport
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.machine.node import Node
from ganeti.store import ssconf
from ganeti.system import certificates, clock, daemon_control
from ganeti.system.filelock import FileLock

NAME = "node2.example.com"


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> Iterator[Paths]:
    with tempfile.TemporaryDirectory(prefix="gnt-") as base:  # short, for the sake of sockets
        found = Paths(os.path.join(base, NAME))
        cluster_files.ensure_directories(found)
        monkeypatch.setenv("GANETI_ROOTDIR", found.root)
        monkeypatch.setenv("GANETI_HOSTNAME", NAME)
        yield found


def make_setup(**changes: object) -> NodeSetup:
    setup = NodeSetup(
        node_name=NAME,
        cluster_name="cluster.example.com",
        node_daemon_certificate=certificates.make_self_signed(now=clock.now()).decode(),
        ssconf={"cluster_name": "cluster.example.com", "master_node": "node1.example.com"},
        start_node_daemon=False,
    )
    return msgspec.structs.replace(setup, **changes)


def test_virtual_node_is_set_up_in_its_place(paths: Paths) -> None:
    setup = make_setup()
    node_setup.set_up_remotely(VirtualTransport(NAME, paths), setup)
    assert Path(paths.server_pem).read_text() == setup.node_daemon_certificate
    assert stat.S_IMODE(os.stat(paths.server_pem).st_mode) == 0o440
    assert ssconf.master_node(paths) == "node1.example.com"


def test_a_candidate_gets_its_certificate_with_that_of_the_cluster(paths: Paths) -> None:
    server = keys.make_certificate()
    client = keys.make_client_certificate(NAME, server)
    setup = make_setup(node_daemon_certificate=server.decode(), client_certificate=client.decode())
    node_setup.set_up_remotely(VirtualTransport(NAME, paths), setup)
    assert Path(paths.client_pem).read_bytes() == client
    assert stat.S_IMODE(os.stat(paths.client_pem).st_mode) == 0o440


@pytest.mark.shows("backend/certificates/new-nodes")
def test_set_up_by_ssh_sends_the_data_to_the_program(paths: Paths, tmp_path: Path) -> None:
    fake = tmp_path / "ssh"
    log = tmp_path / "ssh.log"
    fake.write_text(
        f"#!{sys.executable}\n"
        "import os, sys\n"
        f"open({str(log)!r}, 'w').write(repr(sys.argv[1:]))\n"
        "os.execv('/bin/sh', ['sh', '-c', sys.argv[-1]])\n"
    )
    fake.chmod(0o755)
    transport = SshTransport(NAME, paths.known_hosts, "cluster.example.com", ssh=str(fake))
    node_setup.set_up_remotely(transport, make_setup())
    assert ssconf.cluster_name(paths) == "cluster.example.com"
    assert f"root@{NAME}" in log.read_text()


def test_machine_that_is_not_reached_is_named(paths: Paths, tmp_path: Path) -> None:
    fake = tmp_path / "ssh"
    fake.write_text("#!/bin/sh\necho 'ssh: connect to host x: No route to host' >&2\nexit 255\n")
    fake.chmod(0o755)
    transport = SshTransport(NAME, paths.known_hosts, "cluster", ssh=str(fake))
    with pytest.raises(OpExecError, match="No route to host") as raised:
        node_setup.set_up_remotely(transport, make_setup())
    assert NAME in raised.value.message
    assert "SSH as root" in raised.value.message


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"node_name": "node9.example.com"}, "came to 'node2.example.com'"),
        ({"ssconf": {"nonsense": "1"}}, "nonsense"),
        ({"node_daemon_certificate": "no certificate"}, "certificate"),
        ({"client_certificate": "no certificate"}, "client certificate"),
    ],
)
def test_wrong_data_changes_nothing(paths: Paths, changes: dict[str, object], text: str) -> None:
    with pytest.raises(OpExecError, match=text):
        node_setup.set_up_remotely(VirtualTransport(NAME, paths), make_setup(**changes))
    assert cluster_files.cluster_files(paths) == []


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"node_name": 5}', b"\xff\xfe"])
def test_nonsense_on_the_standard_input_is_refused(data: bytes) -> None:
    with pytest.raises(OpPrereqError, match="cannot be understood"):
        node_setup.decode_setup(data)


def test_node_of_another_cluster_is_taken_only_by_force(paths: Paths) -> None:
    Path(paths.rapi_users).write_text("joe secret write")
    node_setup.set_up_here(paths, make_setup())
    assert not os.path.exists(paths.rapi_users), "of some cluster before"
    Path(paths.rapi_users).write_text("joe secret write")
    node_setup.set_up_here(paths, make_setup())
    assert os.path.exists(paths.rapi_users), "of this very cluster"
    foreign = make_setup(cluster_name="other", ssconf={"cluster_name": "other"})
    with pytest.raises(OpPrereqError, match=r"belongs to cluster 'cluster\.example\.com'"):
        node_setup.set_up_here(paths, foreign)
    assert ssconf.cluster_name(paths) == "cluster.example.com"
    Path(paths.client_pem).write_text("issued by the old cluster")
    node_setup.set_up_here(paths, msgspec.structs.replace(foreign, force_join=True))
    assert ssconf.cluster_name(paths) == "other"
    assert not os.path.exists(paths.client_pem)
    assert not os.path.exists(paths.rapi_users)


def test_clean_up_leaves_nothing_and_can_keep_a_copy(paths: Paths) -> None:
    node_setup.set_up_here(paths, make_setup())
    for path in (paths.rapi_users, paths.rapi_roles, paths.rapi_tokens):
        Path(path).write_text("joe secret write")
    archived = Path(paths.archived_job_file(7))
    archived.parent.mkdir(parents=True)
    archived.write_text("the end of job 7")
    removed = node_setup.clean_up_here(paths, backup=True)
    assert paths.server_pem in removed
    assert cluster_files.cluster_files(paths) == []
    assert os.listdir(paths.rapi_dir) == []
    [backup] = os.scandir(paths.backup_dir)
    assert os.path.exists(os.path.join(backup.path, "var/lib/ganeti/server.pem"))
    copy = Path(backup.path + str(archived).removeprefix(paths.root))
    assert copy.read_text() == "the end of job 7"
    assert not archived.exists()


@pytest.mark.parametrize("backup", [True, False])
def test_the_remains_of_a_process_that_was_killed_are_in_no_way(paths: Paths, backup: bool) -> None:
    node_setup.set_up_here(paths, make_setup())
    os.makedirs(f"{paths.luxid_message_dir}/rehearsal-4711/var/lib")
    node_setup.clean_up_here(paths, backup=backup)
    assert cluster_files.cluster_files(paths) == os.listdir(paths.luxid_message_dir) == []


def test_clean_up_leaves_nothing_that_an_earlier_role_left(paths: Paths) -> None:
    node_setup.set_up_here(paths, make_setup())
    Path(paths.config_data).write_text("{}")
    Node(NodeContext(paths, NAME)).node_demote_from_mc()
    left = [paths.instance_communication, paths.volume_group_health, paths.watcher_pause]
    left += [paths.watcher_nodes_data, paths.watcher_data("some-group")]
    for path in left:
        Path(path).write_text("{}")
    node_setup.clean_up_here(paths, backup=True)
    assert [each.name for each in os.scandir(paths.data_dir) if each.is_file()] == []
    [backup] = os.scandir(paths.backup_dir)
    assert Path(f"{backup.path}/var/lib/ganeti/config.data.demoted").read_text() == "{}"


CHANGES: dict[str, Callable[[Paths], object]] = {
    "set up": lambda paths: node_setup.set_up_here(paths, make_setup()),
    "clean up": lambda paths: node_setup.clean_up_here(paths, backup=False),
    "destroy": lambda paths: destroy_here(paths, lambda: None, lambda _text: None),
}


@pytest.mark.parametrize("change", CHANGES)
def test_no_watcher_starts_what_is_being_stopped(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """A node daemon would stay whose files are gone, or go on with the keys of before."""
    node_setup.set_up_here(paths, make_setup())
    stopped = []

    def stop(*_what: object) -> None:
        with pytest.raises(LockError):
            FileLock(paths.watcher_lock).acquire()
        stopped.append(change)

    monkeypatch.setattr(daemon_control, "stop_all", stop)
    CHANGES[change](paths)
    assert stopped == [change]
    with FileLock(paths.watcher_lock):
        """It may run again."""


def test_a_watcher_that_does_not_end_keeps_a_node_in_its_cluster(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    node_setup.set_up_here(paths, make_setup())
    monkeypatch.setattr(node_setup, "_WATCHER_ON_NODE_S", 0.0)
    with (
        FileLock(paths.watcher_lock),
        pytest.raises(
            GenericError, match=r"ganeti-watcher has been at work .* nothing was changed"
        ),
    ):
        node_setup.clean_up_here(paths, backup=True)
    assert os.path.exists(paths.server_pem)
    assert not os.path.exists(paths.backup_dir)


LEFT = (
    *("high_availability", "ha_member", "ha_member_certificate", "ha_member_authority"),
    *("ha_certificate", "ha_authority", "ha_authority_key", "ha_state", "etcd_member"),
)


def leave_availability(paths: Paths) -> None:
    """Leave what an agent and a member of etcd need."""
    for name in LEFT:
        Path(getattr(paths, name)).write_text("{}")
    os.makedirs(f"{paths.etcd_dir}/member/wal")


def left(paths: Paths) -> list[str]:
    return [name for name in (*LEFT, "etcd_dir") if os.path.exists(getattr(paths, name))]


def daemons_of_availability(paths: Paths) -> list[str]:
    return [name for name in (MEMBER, AGENT) if daemon_control.has_settings(paths, daemon_of(name))]


def test_clean_up_takes_high_availability_away_and_its_daemons_do_not_start_again(
    paths: Paths,
) -> None:
    node_setup.set_up_here(paths, make_setup())
    leave_availability(paths)
    assert daemons_of_availability(paths) == [MEMBER, AGENT]
    assert paths.ha_authority_key in node_setup.clean_up_here(paths, backup=False)
    assert left(paths) == []
    assert daemons_of_availability(paths) == []


def test_clean_up_forgets_a_renewal_and_a_merge_that_were_cut_off(paths: Paths) -> None:
    node_setup.set_up_here(paths, make_setup())
    notes = [paths.renewal_note, *(f"{paths.merge_note}{end}" for end in ("", ".key"))]
    for path in notes:
        Path(path).write_text("")
    assert set(node_setup.clean_up_here(paths, backup=False)) >= set(notes)
    assert not any(map(os.path.exists, notes))


def test_high_availability_of_another_cluster_ends_with_it(paths: Paths) -> None:
    setup = make_setup()
    node_setup.set_up_here(paths, setup)
    leave_availability(paths)
    node_setup.set_up_here(paths, setup)
    assert left(paths) == [*LEFT, "etcd_dir"], "it is that of the cluster"
    foreign = make_setup(cluster_name="other", ssconf={"cluster_name": "other"}, force_join=True)
    node_setup.set_up_here(paths, foreign)
    assert set(left(paths)) <= {"etcd_dir"}
    assert not os.path.exists(f"{paths.etcd_dir}/member")


@pytest.mark.parametrize("is_master", [True, False])
def test_a_former_master_loses_its_remote_api(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, is_master: bool
) -> None:
    running = {"ganeti-wconfd"} if is_master else set()
    monkeypatch.setattr(
        daemon_control, "running_pid", lambda _paths, name: 1 if name in running else None
    )
    stopped: list[frozenset[Place]] = []
    monkeypatch.setattr(
        daemon_control, "stop_all", lambda _paths, places, _report: stopped.append(places)
    )
    master = NAME if is_master else "node1.example.com"
    names = {"cluster_name": "cluster.example.com", "master_node": master}
    node_setup.set_up_here(paths, make_setup(ssconf=names))
    assert stopped == [frozenset({Place.NODE}) if is_master else frozenset(Place)]


def test_a_master_does_not_follow_another_node(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That may be the master of before, which has not heard of this one."""
    node_setup.set_up_here(paths, make_setup(ssconf={"master_node": NAME, "cluster_name": "c"}))
    before = Path(paths.server_pem).read_bytes()
    monkeypatch.setattr(daemon_control, "running_pid", lambda _paths, _name: 1)
    with pytest.raises(OpPrereqError, match=r"which is a master,.*names 'node1\.example\.com'"):
        node_setup.set_up_here(paths, make_setup(cluster_name="c"))
    foreign = make_setup(cluster_name="other", force_join=True)
    with pytest.raises(OpPrereqError, match=r"which is a master,.*names 'node1\.example\.com'"):
        node_setup.set_up_here(paths, foreign)
    assert Path(paths.server_pem).read_bytes() == before
    assert ssconf.master_node(paths) == NAME


def test_nodes_name_their_masters_by_their_files(paths: Paths) -> None:
    peers = [
        node_setup.Peer(NAME, VirtualTransport(NAME, paths)),
        node_setup.Peer("node9", VirtualTransport("node9", Paths(f"{paths.root}-gone"))),
    ]
    node_setup.set_up_here(paths, make_setup())
    named, silent = node_setup.ask_masters(peers)
    assert named == {NAME: "node1.example.com"}
    assert "ssconf_master_node: No such file" in silent["node9"]
