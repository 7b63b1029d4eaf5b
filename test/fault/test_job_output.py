"""Jobs that tell a lot: their files stay such as everybody can read, and LuxiD stays small."""

from __future__ import annotations

import os
from collections.abc import Iterator

import psutil
import pytest
from fakes.held_jobs import HELD, wait_held
from fakes.luxid_node import LuxidNode, is_final, kill_and_wait, messages, wait_status
from fakes.waiting import wait_until

from ganeti.jobexec.job_file import LOG_LINES_MAX
from ganeti.store.job_files import JOB_BYTES_MAX, running_log

MIB = 1 << 20
WORDS = {f"parameter{number}": "x" * 100 for number in range(42_000)}  # 5 MB
QUERY = {"OP_ID": "OP_CLUSTER_QUERY", "reason": []}


@pytest.fixture(scope="module")
def node() -> Iterator[LuxidNode]:
    with LuxidNode(osparams={"debian": WORDS}) as made:
        made.start()
        yield made
        assert made.stop() == 0, made.log()


def memory(node: LuxidNode) -> int:
    assert node.process is not None
    return int(psutil.Process(node.process.pid).memory_full_info().uss)


def test_a_job_whose_results_have_no_room_ends_and_says_so(node: LuxidNode) -> None:
    with node.client() as client:
        before = memory(node)
        job_id = client.submit_job([QUERY] * 14)
        assert wait_status(client, job_id, is_final) == "error"
        assert os.path.getsize(node.paths.job_file(job_id)) < JOB_BYTES_MAX
        [[statuses, results]] = client.query_jobs([job_id], ["opstatus", "opresult"])
        failed = statuses.index("error")
        assert statuses == ["success"] * failed + ["error"] * (14 - failed)
        assert failed >= 10
        assert len(results[0]["osparams"]["debian"]) == len(WORDS)
        assert "the result of OP_CLUSTER_QUERY has 4.8 MiB" in str(results[failed])
        assert memory(node) - before < 400 * MIB
        assert client.archive_job(job_id)


def test_what_lies_there_is_read_at_the_next_start(node: LuxidNode) -> None:
    with node.client() as client:
        job_id = client.submit_job([QUERY] * 8)
        assert wait_status(client, job_id, is_final) == "success"
    assert node.stop() == 0
    with node.start() as client:
        assert client.query_jobs([job_id], ["status"]) == [["success"]]
        assert memory(node) < 300 * MIB
        [[results]] = client.query_jobs([job_id], ["opresult"])
        assert [len(result["osparams"]["debian"]) for result in results] == [len(WORDS)] * 8


def test_log_lines_beyond_a_number_are_counted(node: LuxidNode) -> None:
    with node.client() as client:
        texts = [f"line {number}" for number in range(LOG_LINES_MAX + 500)]
        job_id = client.submit_job([messages(*texts), messages("of the next one")])
        assert wait_status(client, job_id, is_final) == "success"
        [[logs]] = client.query_jobs([job_id], ["oplog"])
        assert len(logs[0]) == LOG_LINES_MAX + 1
        assert logs[0][-1][3].startswith("500 more messages are not kept")
        assert [entry[3][-15:] for entry in logs[1]] == ["of the next one"]


def test_lines_of_a_job_that_is_killed_are_kept_and_seen_by_the_next_luxid(node: LuxidNode) -> None:
    with node.client() as client:
        job_id = client.submit_job([messages("first"), HELD])
        wait_held(client, job_id)
        [[logs, pid]] = [
            [*row, node.job(job_id).process_id] for row in client.query_jobs([job_id], ["oplog"])
        ]
        assert [entry[3][-5:] for entry in logs[0]] == ["first"]
        assert len(logs[1]) == 1, "it told where it is held"
    assert node.stop() == 0
    with node.start() as client:
        [[after]] = client.query_jobs([job_id], ["oplog"])
        assert after == logs
        kill_and_wait(pid)
        assert wait_status(client, job_id, is_final) == "error"
        [[after]] = client.query_jobs([job_id], ["oplog"])
        assert after == logs
        assert len(node.job(job_id).ops[1].log) == 1
        place = running_log(node.paths, job_id)
        wait_until(lambda: not os.path.exists(place), "the log is removed")
