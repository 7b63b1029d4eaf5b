"""Copies of the job queue."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from ganeti.base.errors import GenericError, LockError
from ganeti.base.json import dumps
from ganeti.base.paths import Paths
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.machine import job_queue
from ganeti.node_ops.machine.job_queue import SharedHold, queue_path
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc import decode_arguments
from ganeti.protocol.node_rpc_values import CompressedText, PackedText
from ganeti.protocol.service import call_of
from ganeti.store import ssconf
from ganeti.system import certificates, clock
from ganeti.system.filelock import FileLock
from ganeti.system.spares import Spares, Turn

QUEUE = "/var/lib/ganeti/queue"


@pytest.mark.parametrize("name", ["serial", "version", "drain", "job-1", "archive/0/job-77"])
def test_queue_files_are_found_below_the_root(name: str) -> None:
    assert queue_path(Paths("/r"), f"{QUEUE}/{name}") == f"/r{QUEUE}/{name}"


@pytest.mark.shows("2.0/queue-rpc/only-queue")
@pytest.mark.parametrize(
    "path",
    [
        f"{QUEUE}/lock",
        f"{QUEUE}/job-",
        f"{QUEUE}/job-1x",
        f"{QUEUE}/archive/job-1",
        f"{QUEUE}/archive/1/2/job-1",
        f"{QUEUE}/job-1/../../config.data",
        f"{QUEUE}",
        "/var/lib/ganeti/queuejob-1",
        "/etc/passwd",
        "serial",
        f"{QUEUE}/job-1\n",
    ],
)
def test_nothing_else_is_a_queue_file(path: str) -> None:
    with pytest.raises(GenericError):
        queue_path(Paths("/r"), path)


@pytest.mark.shows(
    "2.0/queue-storage/copied",
    "2.0/queue-rpc/update",
    "2.0/queue-rpc/purge",
    "2.0/queue-rpc/rename",
)
def test_a_job_is_written_archived_and_purged(context: NodeContext) -> None:
    paths = context.paths
    job_queue.JobQueue(context).jobqueue_update(f"{QUEUE}/job-12", CompressedText("{}"))
    job_queue.JobQueue(context).jobqueue_update(f"{QUEUE}/serial", CompressedText("12\n"))
    assert os.stat(paths.job_file(12)).st_mode & 0o777 == 0o640
    pair = (f"{QUEUE}/job-12", f"{QUEUE}/archive/0/job-12")
    assert job_queue.JobQueue(context).jobqueue_rename([pair, pair]) == [None, None]
    assert os.path.exists(paths.archived_job_file(12))
    job_queue.JobQueue(context).jobqueue_purge()
    assert os.listdir(paths.queue_dir) == ["lock"]


@pytest.mark.parametrize(
    ("peer_name", "is_refused"),
    [
        ("node1.example.com", False),  # the master
        ("node2.example.com", True),  # was it before, or believes so
        ("ganeti.example.com", False),  # a certificate that all nodes share tells nothing
        ("", False),
    ],
)
def test_who_is_not_the_master_writes_nothing(
    context: NodeContext, peer_name: str, is_refused: bool
) -> None:
    known = {
        "master_node": "node1.example.com",
        "node_list": "node1.example.com\nnode2.example.com",
    }
    ssconf.write_values(context.paths, known)
    asked = replace(context, peer_name=peer_name)
    job = f"{QUEUE}/job-12"
    calls = [
        lambda: job_queue.JobQueue(asked).jobqueue_update(job, CompressedText("{}")),
        lambda: job_queue.JobQueue(asked).jobqueue_rename([(job, f"{QUEUE}/archive/0/job-12")]),
        lambda: job_queue.JobQueue(asked).jobqueue_purge(),
    ]
    for call in calls:
        if is_refused:
            with pytest.raises(GenericError, match=r"node2.* is not the master.* is node1"):
                call()
        else:
            call()


def test_long_names_are_known_by_the_part_that_is_in_a_certificate(context: NodeContext) -> None:
    first, second = (f"n{number}.{'rack.' * 15}example.com" for number in (1, 2))
    ssconf.write_values(context.paths, {"master_node": first, "node_list": f"{first}\n{second}"})

    def write(node_name: str) -> None:
        pem = certificates.make_self_signed(node_name, now=clock.now())
        name = certificates.facts(pem, "its certificate").common_name
        asked = job_queue.JobQueue(replace(context, peer_name=name))
        asked.jobqueue_update(f"{QUEUE}/job-12", CompressedText(b"{}"))

    write(first)
    with pytest.raises(GenericError, match=r"n2.* is not the master.* is n1"):
        write(second)


def test_a_record_under_way_counts_only_if_the_master_is_the_same_at_its_end(
    context: NodeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = {"node_list": "node1.example.com\nnode2.example.com"}
    ssconf.write_values(context.paths, {**nodes, "master_node": "node1.example.com"})
    write = job_queue._replace

    def overtaken(paths: Paths, name: str, data: bytes, touched: set[str], turn: Turn) -> None:
        ssconf.write_values(context.paths, {**nodes, "master_node": "node2.example.com"})
        write(paths, name, data, touched, turn)

    monkeypatch.setattr(job_queue, "_replace", overtaken)
    asked = job_queue.JobQueue(replace(context, peer_name="node1.example.com"))
    with pytest.raises(GenericError, match=r"node1.* is not the master.* is node2"):
        asked.jobqueue_update(f"{QUEUE}/job-12", CompressedText("{}"))


def test_purging_an_empty_node_is_fine(context: NodeContext) -> None:
    job_queue.JobQueue(context).jobqueue_purge()
    job_queue.JobQueue(context).jobqueue_set_drain_flag(False)


def test_versions_that_were_replaced_are_written_anew(
    context: NodeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_queue, "SPARES", Spares(2))
    queue, path = job_queue.JobQueue(context), context.paths.job_file(1)
    inodes, texts = [], ["{}", '{"id": 1}', "[]", "[1]"]
    for text in texts:
        queue.jobqueue_update(f"{QUEUE}/job-1", CompressedText(text))
        assert Path(path).read_text() == text
        inodes.append(os.stat(path).st_ino)
    assert inodes == [*inodes[:2], *inodes[:2]]
    queue.jobqueue_purge()
    assert os.listdir(context.paths.queue_dir) == ["lock"]
    queue.jobqueue_update(f"{QUEUE}/job-1", CompressedText("{}"))
    assert Path(path).read_text() == "{}"


@pytest.mark.shows("backend/locks/queue-lock")
def test_calls_share_the_lock_and_the_last_lets_go(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    hold = SharedHold()
    with hold.held(path, 0):
        with hold.held(path, 0):
            pass
        with pytest.raises(LockError):
            FileLock(path).acquire()
    with FileLock(path), pytest.raises(LockError, match="in use"), hold.held(path, 0.05):
        pytest.fail("held twice")
    with hold.held(path, 0):
        assert os.path.exists(path)


def test_several_files_are_written_and_each_failure_is_told(context: NodeContext) -> None:
    paths = context.paths
    os.makedirs(paths.job_file(2))
    errors = job_queue.JobQueue(context).jobqueue_write(
        [
            (f"{QUEUE}/job-1", PackedText([0, "{}"])),
            (f"{QUEUE}/job-2", PackedText([0, "{}"])),
            ("/etc/passwd", PackedText([0, "x"])),
            (f"{QUEUE}/serial", PackedText([0, "3\n"])),
        ]
    )
    assert errors[0] is None
    assert errors[3] is None
    assert "job-2" in (errors[1] or "")
    assert "/etc/passwd" in (errors[2] or "")
    assert Path(paths.job_file(1)).read_text() == "{}"
    assert Path(paths.queue_serial).read_text() == "3\n"


@pytest.mark.parametrize("broken", [[1, "AAAA"], [1, "?"], [9, "x"], "x", None, [0, 5]])
def test_a_broken_text_spoils_no_other_file(context: NodeContext, broken: object) -> None:
    call = call_of(NodeCalls.jobqueue_write)
    sent = [[[f"{QUEUE}/job-1", broken], [f"{QUEUE}/job-2", [0, "{}"]]]]
    (files,) = call.read(decode_arguments(call, dumps(sent)))
    errors = job_queue.JobQueue(context).jobqueue_write(files)
    assert errors[0], "the reason"
    assert errors[1] is None
    assert os.listdir(context.paths.queue_dir).count("job-1") == 0
    assert Path(context.paths.job_file(2)).read_text() == "{}"
