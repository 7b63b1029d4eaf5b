"""What LuxiD does with too much, and with nonsense: one clear error each, and it goes on."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterator

import pytest
from fakes.held_jobs import HELD
from fakes.luxid_node import LuxidNode, delay, is_final, wait_status

from ganeti.base.errors import GenericError, JobQueueFull, OpPrereqError, ParameterError
from ganeti.base.ids import JobId
from ganeti.clients.luxi import LuxiClient
from ganeti.jobs import changes
from ganeti.jobs.record import encode_job
from ganeti.jobs.submission import QUEUE_LENGTH_MAX, make_job
from ganeti.system import files

ETX = b"\x03"


ENDED = range(1, 21)
RUNS = ENDED.stop
BLOCKED = range(RUNS + 1, QUEUE_LENGTH_MAX - 1)
AFTER_IT = [[RUNS, []]]


@pytest.fixture(scope="module")
def node() -> Iterator[LuxidNode]:
    """A node with as many jobs as the queue can hold, but two; most wait for one that runs."""
    with LuxidNode() as made:
        jobs = [
            *(changes.canceled(make_job(JobId(n), [delay()], (1, 1)), "x", (2, 2)) for n in ENDED),
            make_job(JobId(RUNS), [HELD], (1, 1)),
            *(make_job(JobId(n), [delay(depends=AFTER_IT)], (1, 1)) for n in BLOCKED),
        ]
        for job in jobs:
            files.write_atomic(made.paths.job_file(job.id), encode_job(job))
        made.start()
        yield made
        assert made.stop() == 0, made.log()


@pytest.fixture
def client(node: LuxidNode) -> Iterator[LuxiClient]:
    with node.client() as connected:
        yield connected


def raw(node: LuxidNode, data: bytes) -> dict[str, object]:
    """Send bytes, return the one answer."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(60)
        sock.connect(node.paths.query_socket)
        sock.sendall(data)
        answer = b""
        while not answer.endswith(ETX):
            chunk = sock.recv(65536)
            assert chunk, "no answer"
            answer += chunk
    decoded: dict[str, object] = json.loads(answer.rstrip(ETX))
    return decoded


def test_only_jobs_that_have_not_ended_fill_the_queue(client: LuxiClient) -> None:
    started = time.monotonic()
    answers = client.submit_many_jobs([[delay()]] * 10_000)
    assert time.monotonic() - started < 60
    fitting = 2 + len(ENDED)
    assert [good for good, _ in answers] == [True] * fitting + [False] * (10_000 - fitting)
    assert "jobs that have not ended" in str(answers[-1][1])
    accepted = [int(str(value)) for good, value in answers if good]
    assert [wait_status(client, job_id, is_final) for job_id in accepted] == ["success"] * fitting
    waiting = [client.submit_job([delay(depends=AFTER_IT)]) for _ in accepted]
    with pytest.raises(JobQueueFull):
        client.submit_job([delay()])
    assert client.auto_archive_jobs(-1, 60) == (0, 0)
    client.cancel_job(waiting[0])
    job_id = client.submit_job([delay(depends=[[waiting[0], ["canceled"]]])])
    assert wait_status(client, job_id, is_final) == "success"
    archived = client.query("job", ["id"], ["?", "archived"]).rows()
    assert archived == [[each] for each in (*ENDED, *accepted, waiting[0])]
    assert len(client.query("job", ["id"]).rows()) == QUEUE_LENGTH_MAX


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe\xfd",
        b'{"method": "\xff", "args": []}',
        b'{"method": 5, "args": []}',
        b'{"method": "QueryJobs"}',
        b'{"method": "QueryJobs", "args": {}}',
        b'{"method": "QueryJobs", "args": [null, ["id"]], "x":' + b"[" * 100_000,
    ],
)
def test_what_is_no_request_gets_a_plain_text(
    node: LuxidNode, client: LuxiClient, message: bytes
) -> None:
    answer = raw(node, message + ETX)
    assert answer["success"] is False
    assert isinstance(answer["result"], str)
    assert answer["result"]
    assert client.query_config_values(["drain_flag"]) == [False]


def test_a_job_with_too_much_in_it(client: LuxiClient) -> None:
    with pytest.raises(OpPrereqError, match="too long"):
        client.submit_job([delay()] * 5001)
    with pytest.raises(OpPrereqError, match="too large"):
        client.submit_job([delay(comment="x" * (17 << 20))])


def test_a_regular_expression_that_explodes_is_refused(client: LuxiClient) -> None:
    with pytest.raises(ParameterError):
        client.query("node", ["name"], ["=~", "name", "(a+)+$"])


@pytest.mark.parametrize("count", [4, 5, 200_000])
def test_fields_that_are_repeated(client: LuxiClient, count: int) -> None:
    """A few repeats are answered, as by 3.0; many would make an answer that fills the memory."""
    job_id = JobId(1)
    fields = ["id"] * count
    questions: list[Callable[[], object]] = [
        lambda: client.query("job", fields, ["=", "id", job_id]),
        lambda: client.query_jobs([job_id], fields),
        lambda: client.query_fields("job", fields),
        lambda: client.wait_for_job_change(job_id, fields, None, None),
        lambda: client.query_instances([], ["name"] * count),
        lambda: client.query_config_values(["drain_flag"] * count),
    ]
    for ask in questions:
        with pytest.raises(OpPrereqError) if count > 4 else contextlib.nullcontext():
            ask()


@pytest.mark.parametrize("number", [-1, 2**63, 10**30])
def test_impossible_ids(client: LuxiClient, number: int) -> None:
    with pytest.raises(GenericError, match="argument job"):
        client.archive_job(JobId(number))


@pytest.mark.shows(
    "2.0/scalability/two-people", "2.0/masterd/others-served", "2.0/queue-locking/safe"
)
def test_clients_that_hang_hurt_nobody(node: LuxidNode, client: LuxiClient) -> None:
    hanging = []
    try:
        for _ in range(500):
            sock = socket.socket(socket.AF_UNIX)
            sock.connect(node.paths.query_socket)
            sock.sendall(b'{"method": "Query')
            hanging.append(sock)
        job_id = client.submit_job([delay()])
        assert wait_status(client, job_id, is_final) == "success"
    finally:
        for sock in hanging:
            sock.close()
