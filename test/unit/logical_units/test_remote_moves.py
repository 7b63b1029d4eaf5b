"""The two halves of a move to another cluster: what is sent, what is received, what is refused."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path
from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster

from ganeti.base.errors import GenericError, JobCanceled, OpExecError, OpPrereqError
from ganeti.logical_units.instance.creation.building import RECORD_S_MAX
from ganeti.logical_units.instance.storage.copying import NO_ANSWER_S_MAX
from ganeti.protocol import remote_move
from ganeti.protocol.node_rpc_values import StreamForm
from ganeti.protocol.remote_move import AwaitedDisk, Secret
from ganeti.system import certificates

NAME = "web1.example.com"
SECRET = Secret(b"0123456789abcdef")
NOW = 1000.0  # the clock of the fake cluster
PEM = certificates.certificate_only(certificates.make_self_signed(now=NOW, days=1), "x").decode()
PORT = 40000
KEY = "x509-1"


@pytest.fixture
def ours(cluster: FakeCluster) -> FakeCluster:
    path = Path(cluster.context.paths.cluster_domain_secret)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("0123456789abcdef\n")
    cluster.rpc.answers["x509_cert_create"] = [KEY, PEM]
    return cluster


def certificate(secret: Secret = SECRET, pem: str = PEM) -> str:
    return remote_move.signed_certificate(secret, "salt", pem)


# Sending.


@pytest.fixture
def running(ours: FakeCluster) -> FakeCluster:
    ours.add_instance()
    ours.rpc.transfers[f"import-{PORT}"] = (ours.rpc.node("elsewhere"), "/their/disk")
    return ours


def export(cluster: FakeCluster, form: StreamForm = StreamForm.FRAMES, **params: Any) -> Any:
    disk = AwaitedDisk("198.51.100.7", PORT, "the-word")
    values: dict[str, Any] = {
        "instance_name": "web1",
        "mode": "remote",
        "target_node": [remote_move.signed_disk(SECRET, "salt", 0, disk, form)],
        "x509_key_name": remote_move.signed_key_name(SECRET, "salt", KEY),
        "destination_x509_ca": certificate(),
    }
    return cluster.execute("OP_BACKUP_EXPORT", **{**values, **params})


@pytest.mark.shows("backend/certificates/domain-secret")
def test_what_is_prepared_is_signed(running: FakeCluster) -> None:
    found = running.execute("OP_BACKUP_PREPARE", instance_name="web1", mode="remote")
    assert found["instance"] == NAME
    remote_move.check_handshake(SECRET, found["handshake"])
    assert remote_move.read_key_name(SECRET, found["x509_key_name"]) == KEY
    assert remote_move.read_certificate(SECRET, found["x509_ca"], "it") == PEM
    assert running.rpc.called("x509_cert_create") == [("node1", [86400])]
    assert running.rpc.node("node1").running
    assert running.execute("OP_BACKUP_PREPARE", instance_name="web1", mode="local") is None


def test_disks_are_sent_to_where_they_are_waited_for(running: FakeCluster) -> None:
    assert export(running, shutdown_timeout=7, compress="gzip") == (True, [True])
    [(node, args)] = running.rpc.called("export_start")
    options, host, port, _instance, component, (kind, _) = args
    assert (node, host, port, component, kind) == ("node1", "198.51.100.7", PORT, "disk0", "script")
    assert (options["key_name"], options["ca_pem"], options["magic"]) == (KEY, PEM, "the-word")
    names = running.rpc.names()
    order = ("instance_shutdown", "export_start", "impexp_cleanup", "x509_cert_remove")
    assert [names.index(name) for name in order] == sorted(names.index(name) for name in order)
    assert running.rpc.node("node1").running, "it was stopped only for that"
    assert running.rpc.called("x509_cert_remove") == [("node1", [KEY])]


def test_the_receiver_chooses_the_form(running: FakeCluster) -> None:
    for form in StreamForm:
        export(running, form)
    assert [args[0]["form"] for _, args in running.rpc.called("export_start")] == [*StreamForm]


def test_a_source_with_snapshots_is_not_removed(kept: FakeCluster) -> None:
    with pytest.raises(OpPrereqError, match=r"cannot remove .*its snapshots \(a\) would be lost"):
        export(kept, remove_instance=True)
    export(kept)
    assert kept.config.instance(NAME)


def test_the_source_is_removed_only_after_everything_was_sent(running: FakeCluster) -> None:
    running.rpc.transfer_error = "the receiving node could not write everything"
    with pytest.raises(OpExecError, match=r"disk 0: node 'node1\S*': the receiving node could not"):
        export(running, remove_instance=True)
    assert running.config.instance(NAME)
    assert running.rpc.node("node1").running
    assert running.rpc.called("x509_cert_remove") == [("node1", [KEY])]
    running.rpc.transfer_error = None
    export(running, remove_instance=True)
    assert not running.config.instances


def test_sending_can_be_canceled_wherever_it_waits(running: FakeCluster) -> None:
    for checks in range(50):
        running.cancel_after = checks
        try:
            export(running)
        except JobCanceled:
            assert running.rpc.node("node1").running
            assert set(running.rpc.transfers) == {f"import-{PORT}"}
        else:
            assert checks > 2
            return
    pytest.fail("it never ends")


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"target_node": "node3"}, "the target is a node, not a list of disks"),
        ({"target_node": []}, r"waits for 0 disk\(s\), the instance has 1"),
        ({"x509_key_name": None}, "name of the key is missing"),
        ({"destination_x509_ca": PEM}, "certificate of the receiving cluster is missing"),
        ({"destination_x509_ca": certificate(Secret(b"other"))}, "not signed with this cluster's"),
        ({"shutdown": False}, "runs: its disks cannot be sent while it writes"),
        ({"compress": "lzop"}, "compression 'lzop' is not supported"),
        ({"zero_free_space": True}, "hypervisor 'fake' starts no machine from a disk"),
    ],
)
def test_what_cannot_be_sent(running: FakeCluster, params: dict[str, Any], text: str) -> None:
    with pytest.raises(GenericError, match=text):
        export(running, **params)
    assert running.rpc.node("node1").running
    assert "export_start" not in running.rpc.names()


def test_nothing_is_prepared_without_a_secret(running: FakeCluster) -> None:
    path = Path(running.context.paths.cluster_domain_secret)
    path.write_text("\n")
    with pytest.raises(OpPrereqError, match="is empty"):
        running.execute("OP_BACKUP_PREPARE", instance_name="web1", mode="remote")
    path.unlink()
    with pytest.raises(OpPrereqError, match="--new-cluster-domain-secret"):
        running.execute("OP_BACKUP_PREPARE", instance_name="web1", mode="remote")


# Receiving.


def receive(cluster: FakeCluster, **params: Any) -> Any:
    values: dict[str, Any] = {
        "instance_name": NAME,
        "mode": "remote-import",
        "disk_template": "sharedfile",
        "disks": [{"size": 1024}, {"size": 512}],
        "nics": [{}],
        "os_type": "debian",
        "pnode": "node2",
        "name_check": False,
        "ip_check": False,
        "source_instance_name": NAME,
        "source_handshake": remote_move.handshake(SECRET, "salt"),
        "source_x509_ca": certificate(),
    }
    return cluster.execute("OP_INSTANCE_CREATE", **{**values, **params})


def test_disks_are_waited_for_where_the_log_says(ours: FakeCluster) -> None:
    said: list[Any] = []
    other = ours.rpc.transfers["import-0"] = (ours.rpc.node("elsewhere"), "/their/disk")
    ours.context.feedback = lambda message, kind="message": said.append((kind, message))
    assert receive(ours) == ["node2.example.com"]
    [announced] = [message for kind, message in said if kind == "remote-import"]
    disks = remote_move.read_disks(SECRET, announced["disks"], 2)
    assert remote_move.read_certificate(SECRET, announced["x509_ca"], "it") == PEM
    started = [args[0] for _, args in ours.rpc.called("import_start")]
    assert [disk.magic for disk, _ in disks] == [options["magic"] for options in started]
    assert [disk.port for disk, _ in disks] == [1, 2], "those that the node has told"
    assert {form for _, form in disks} == {options["form"] for options in started} == {"frames"}
    assert {(options["key_name"], options["ca_pem"]) for options in started} == {(KEY, PEM)}
    assert ours.rpc.transfers == {"import-0": other}
    assert ours.rpc.called("x509_cert_remove") == [("node2", [KEY])]
    assert "instance_os_add" not in ours.rpc.names()
    assert "instance_run_rename" not in ours.rpc.names()
    assert ours.rpc.node("node2").running
    assert not ours.config.instance(NAME).get("forthcoming")


def test_from_3_0_plain_bytes_are_waited_for(ours: FakeCluster) -> None:
    said: list[Any] = []
    ours.rpc.transfers["import-0"] = (ours.rpc.node("elsewhere"), "/their/disk")
    ours.context.feedback = lambda message, kind="message": said.append((kind, message))
    handshake = [0, SECRET.sign_text("salt", "0:Hi, I'm Ganeti"), "salt"]
    named_none = [{"size": 1024, "name": "None"}, {"size": 512, "name": "None"}]
    receive(ours, source_handshake=handshake, disks=named_none)
    [announced] = [message for kind, message in said if kind == "remote-import"]
    forms = [form for _, form in remote_move.read_disks(SECRET, announced["disks"], 2)]
    assert forms == [args[0]["form"] for _, args in ours.rpc.called("import_start")]
    assert forms == ["plain"] * 2
    assert [disk.get("name") for disk in ours.config.disks.values()] == [None, None]


def test_what_was_received_stays_when_it_cannot_be_started(ours: FakeCluster) -> None:
    ours.rpc.fail("instance_start", "node2", "no memory")
    with pytest.raises(OpExecError, match="no memory"):
        receive(ours)
    assert not ours.config.instance(NAME).get("forthcoming")
    assert "blockdev_remove" not in ours.rpc.names()


@pytest.mark.parametrize("seconds", [60.0, 3600.0])
def test_what_was_received_stays_when_that_cannot_be_recorded(
    ours: FakeCluster, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    until_s = ours.clock + seconds
    invoke = ours.config.invoke

    def full(call: Any, args: Any) -> Any:
        if call.name == "modifyObjects" and ours.clock < until_s:
            raise OpExecError("no space left on device")
        return invoke(call, args)

    monkeypatch.setattr(ours.config, "invoke", full)
    is_over = seconds > RECORD_S_MAX
    with pytest.raises(OpExecError, match="no space left") if is_over else contextlib.nullcontext():
        receive(ours)
    assert bool(ours.config.instance(NAME).get("forthcoming")) is is_over
    assert ours.said("received completely, but that cannot be recorded: no space left on device")
    assert "blockdev_remove" not in ours.rpc.names()
    assert len(ours.rpc.shared) == 2
    assert ours.rpc.called("x509_cert_remove") == [("node2", [KEY])]


@pytest.mark.parametrize("is_answered", [False, True])
def test_what_was_received_stays_when_the_job_is_canceled_in_a_script(
    ours: FakeCluster, *, is_answered: bool
) -> None:
    def cancel(_node: str, call: str, _args: Any) -> str | None:
        if call == "instance_run_rename":
            ours.cancel_after = 0
            return None if is_answered else "the connection was closed"
        if call == "instance_shutdown":
            ours.cancel_after = None
        return None

    ours.rpc.failure = cancel
    assert receive(ours, source_instance_name="old.example.com") == ["node2.example.com"]
    assert ours.said("it stays, although its operating system was not told of its new name")
    assert not ours.config.instance(NAME).get("forthcoming")
    assert "blockdev_remove" not in ours.rpc.names()


def silence(cluster: FakeCluster, seconds: float) -> None:
    """Let nobody reach the receiving node for a while, from the second look at its transfers on."""
    looks, until_s = 0, 0.0

    def failure(node: str, call: str, _args: Any) -> str | None:
        nonlocal looks, until_s
        looks += call == "impexp_status"
        if looks == 2 and not until_s:
            until_s = cluster.clock + seconds
        return "the connection timed out" if cluster.clock < until_s else None

    cluster.rpc.failure = failure


def test_what_was_received_stays_when_that_is_known_only_later(ours: FakeCluster) -> None:
    silence(ours, NO_ANSWER_S_MAX + 10.0)
    assert receive(ours) == ["node2.example.com"]
    assert ours.said("timed out, but all disks of instance 'web1.example.com' have been received")
    assert not ours.config.instance(NAME).get("forthcoming")
    assert "blockdev_remove" not in ours.rpc.names()
    assert len(ours.rpc.shared) == 2


@pytest.mark.parametrize("kind", ["silent", "silent and canceled", "forgotten"])
def test_what_may_have_been_received_stays(
    ours: FakeCluster, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind == "forgotten":  # the node was started anew
        known = ours.rpc.do_impexp_status
        answers = itertools.chain(
            [known], itertools.repeat(lambda _node, names: [None] * len(names))
        )
        monkeypatch.setattr(ours.rpc, "do_impexp_status", lambda *args: next(answers)(*args))
    else:
        silence(ours, 2 * NO_ANSWER_S_MAX + 5.0)
    if kind == "silent and canceled":
        known_failure = ours.rpc.failure

        def cancel_then(node: str, call: str, args: Any) -> str | None:
            failure = known_failure(node, call, args)
            if failure:
                ours.cancel_after = 0
            return failure

        ours.rpc.failure = cancel_then
    with pytest.raises(OpExecError, match="may have been received completely") as found:
        receive(ours)
    assert "use 'gnt-instance remove web1.example.com' here" in found.value.message
    assert ours.config.instance(NAME).get("forthcoming")
    assert "blockdev_remove" not in ours.rpc.names()
    assert len(ours.rpc.shared) == 2


@pytest.mark.parametrize("kind", ["failure", "lost_answer", "cancel"])
def test_what_was_received_stays_whatever_happens_then(ours: FakeCluster, kind: str) -> None:
    kept = set()
    for number in range(100):
        seen = iter(range(10**6))

        def failure(_node: str, _call: str, _args: Any, n: int = number, seen: Any = seen) -> Any:
            return "it broke" if next(seen) == n else None

        if kind == "cancel":
            ours.cancel_after = number
        else:
            setattr(ours.rpc, kind, failure)
        ours.messages.clear()
        ours.rpc.transfers.clear()
        with contextlib.suppress(GenericError):
            receive(ours, source_instance_name="old.example.com")
        ours.cancel_after = None
        setattr(ours.rpc, "failure" if kind == "cancel" else kind, lambda *_args: None)
        is_complete = ours.said("* disk 1 received") or ours.said("all disks of instance")
        kept.add(is_complete)
        assert len(ours.rpc.shared) == (2 if is_complete else 0)
        assert bool(ours.config.instances) is is_complete
        if is_complete:
            assert not ours.config.instance(NAME).get("forthcoming")
            ours.execute("OP_INSTANCE_REMOVE", instance_name=NAME)
    assert kept == {False, True}


def test_a_new_name_is_told_to_the_operating_system(ours: FakeCluster) -> None:
    receive(ours, source_instance_name="old.example.com")
    [(node, args)] = ours.rpc.called("instance_run_rename")
    assert (node, args[1]) == ("node2", "old.example.com")


def test_nothing_is_left_of_what_was_cut_short(ours: FakeCluster) -> None:
    ours.rpc.transfer_error = "the stream ended early"
    with pytest.raises(OpExecError, match="the stream ended early"):
        receive(ours)
    assert not ours.config.instances
    assert not ours.leftovers()
    assert not ours.rpc.transfers
    assert "instance_start" not in ours.rpc.names()
    assert ours.rpc.called("x509_cert_remove") == [("node2", [KEY])]


def test_receiving_can_be_canceled_wherever_it_waits(ours: FakeCluster) -> None:
    for checks in range(50):
        ours.cancel_after = checks
        try:
            receive(ours)
        except JobCanceled:
            assert not ours.config.instances
            assert not ours.leftovers()
            assert not ours.rpc.transfers
        else:
            assert checks > 4
            return
    pytest.fail("it never ends")


LONG = certificates.certificate_only(certificates.make_self_signed(now=NOW), "x").decode()
DAMAGED = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
OLD = certificates.certificate_only(
    certificates.make_self_signed(now=NOW - 5 * 86400, days=1), "x"
).decode()


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"source_handshake": None}, "handshake is missing"),
        ({"source_handshake": remote_move.handshake(Secret(b"other"), "salt")}, "give both"),
        ({"source_handshake": [1, "digest", "salt"]}, "speaks version 1"),
        ({"source_x509_ca": None}, "certificate of the sending cluster is missing"),
        ({"source_x509_ca": certificate(pem=LONG)}, "valid for more than two days"),
        ({"source_x509_ca": certificate(pem=OLD)}, "has expired, or is not valid yet"),
        ({"source_x509_ca": certificate(pem=DAMAGED)}, "no readable certificate"),
        ({"source_instance_name": None}, "source_instance_name is missing"),
        ({"disks": [], "disk_template": "diskless"}, "has no disks"),
        ({"compress": "lzop"}, "compression 'lzop' is not supported"),
    ],
)
def test_what_is_not_received(ours: FakeCluster, params: dict[str, Any], text: str) -> None:
    with pytest.raises(OpPrereqError, match=text):
        receive(ours, **params)
    assert not ours.config.instances
    assert "blockdev_create" not in ours.rpc.names()


def test_a_rehearsal_begins_nothing(ours: FakeCluster) -> None:
    receive(ours, dry_run=True)
    assert not ours.config.instances
    assert {"blockdev_create", "x509_cert_create", "import_start"}.isdisjoint(ours.rpc.names())
