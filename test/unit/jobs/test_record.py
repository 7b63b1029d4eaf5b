import json

import pytest

from ganeti.base.errors import JobFileCorrupted
from ganeti.base.ids import JobId
from ganeti.jobs.record import QueuedJob, QueuedOp, decode_job, encode_job
from ganeti.jobs.status import Status

# A job file as Ganeti 3.0 leaves it.
GOLDEN = (
    b'{"id":2,"ops":[{"input":{"node_name":"node2","readd":false,"group":null,"dry_run":null,'
    b'"debug_level":0,"priority":0,"depends":null,"comment":null,"reason":[["gnt:client:gnt-node",'
    b'"add",1795236540085182464],["gnt:opcode:node_add","job=2;index=0",1795236540088384000]],'
    b'"OP_ID":"OP_NODE_ADD"},"status":"success","result":null,"log":[[1,[1795236540,305384],'
    b'"message"," - INFO: Node will be a master candidate"]],"start_timestamp":[1795236540,226724],'
    b'"exec_timestamp":[1795236540,232029],"end_timestamp":[1795236541,60070],"priority":0}],'
    b'"start_timestamp":[1795236540,226724],"end_timestamp":[1795236541,60080],'
    b'"received_timestamp":[1795236540,88384],'
    b'"livelock":"/var/run/ganeti/livelocks/job_000002_1795236540","process_id":17218}'
)


@pytest.mark.shows("backend/opcodes/of-opcodes", "backend/jobs/files", "2.0/queue/of-opcodes")
def test_a_job_file_comes_back_as_it_was() -> None:
    assert encode_job(decode_job(GOLDEN, 2)) == GOLDEN


def test_what_a_record_says() -> None:
    job = decode_job(GOLDEN)
    assert job.status is Status.SUCCESS
    assert job.is_final
    assert job.current_index is None
    assert job.last_log_serial == 1
    assert [entry[3] for entry in job.log_after(0)] == [" - INFO: Node will be a master candidate"]
    assert job.log_after(1) == []
    assert job.ops[0].op_id == "OP_NODE_ADD"


@pytest.mark.shows("backend/jobs/op-priority")
def test_priority_is_that_of_the_first_opcode_not_ended() -> None:
    value = json.loads(GOLDEN)
    op = value["ops"][0]
    waiting = {**op, "status": "queued", "priority": -7}
    later = {**op, "status": "queued", "priority": 3}
    value["ops"] = [{**op, "priority": 10}, waiting, later]
    assert decode_job(json.dumps(value).encode()).priority == -7


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        GOLDEN[:-10],
        GOLDEN.replace(b'"success"', b'"splendid"'),
        GOLDEN.replace(b'"id":2', b'"id":3'),
        b'{"id":2,"ops":[]}',
        b"[" * 100000,
    ],
)
def test_a_corrupt_file_is_told_from_a_job(data: bytes) -> None:
    with pytest.raises(JobFileCorrupted):
        decode_job(data, 2)


def test_a_queued_job_of_3_0_has_no_process() -> None:
    job = decode_job(b'{"id":7,"ops":[{"input":{"OP_ID":"OP_X"},"status":"queued"}]}')
    assert isinstance(job, QueuedJob)
    assert job.livelock is None
    assert job.process_id is None


def test_jobs_that_mend_a_lack_of_candidates() -> None:
    mends = QueuedOp({"OP_ID": "OP_NODE_SET_PARAMS", "offline": True})
    delay = QueuedOp({"OP_ID": "OP_TEST_DELAY"})
    others = QueuedOp({"OP_ID": "OP_NODE_SET_PARAMS", "ndparams": {}})
    assert QueuedJob(JobId(1), (mends,)).mends
    assert not QueuedJob(JobId(1), (mends, delay)).mends
    assert not QueuedJob(JobId(1), (others,)).mends
