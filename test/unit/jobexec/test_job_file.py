from __future__ import annotations

import errno
import functools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Raw

from ganeti.base.errors import GenericError, OpExecError
from ganeti.base.ids import JobId
from ganeti.base.json import loads
from ganeti.base.paths import Paths
from ganeti.copies.quorum import Tally
from ganeti.jobexec.job_file import (
    FILE_BYTES_MAX,
    LOG_BYTES_MAX,
    LOG_LINES_MAX,
    Answer,
    JobFile,
    Output,
    checked_error,
    checked_result,
)
from ganeti.jobs import changes
from ganeti.jobs.record import (
    QueuedJob,
    QueuedOp,
    decode_job,
    decode_log_lines,
    encode_job,
    encode_log_line,
)
from ganeti.jobs.status import Status
from ganeti.store.job_files import JobFiles, running_log


class Candidates:
    """Two other candidates, of which `reachable` take what they are sent."""

    def __init__(self) -> None:
        self.reachable = {"n2", "n3"}
        self.fails = False
        self.waits: list[float] = []
        self.back_after = 0
        self.sent: list[bytes] = []
        self.spread: list[bytes] = []
        self.on_disk: list[bytes | None] = []
        self.files: JobFiles | None = None

    def __call__(self, data: bytes, wait_s: float) -> Answer:
        self.waits.append(wait_s)
        return functools.partial(self._take, data)

    def _take(self, data: bytes) -> Tally:
        assert self.files is not None
        if self.back_after and len(self.waits) > self.back_after:
            self.reachable, self.fails = {"n3"}, False
        self.sent.append(data)
        self.on_disk.append(self.files.read(JobId(5)))
        if self.fails:
            raise GenericError("no certificate")
        return Tally(["n2", "n3"], self.reachable)


@pytest.fixture
def candidates() -> Candidates:
    return Candidates()


@pytest.fixture
def sleeps() -> list[float]:
    return []


@pytest.fixture
def file(tmp_path: object, candidates: Candidates, sleeps: list[float]) -> JobFile:
    paths = Paths(str(tmp_path))
    candidates.files = JobFiles(paths)
    candidates.files.prepare()
    job = QueuedJob(JobId(5), (QueuedOp({"OP_ID": "OP_X"}),))
    job = changes.handed_over(job, livelock="/l", process_id=1, now=(1, 1))
    made = JobFile(
        paths, job, send=candidates, spread=candidates.spread.append, sleep=sleeps.append
    )
    made.update(job)
    return made


def on_disk(candidates: Candidates) -> QueuedJob:
    assert candidates.files is not None
    data = candidates.files.read(JobId(5))
    assert data is not None
    return decode_job(data)


def test_what_happens_meanwhile_is_written_here_only(file: JobFile, candidates: Candidates) -> None:
    file.update(changes.op_running(file.job, 0, (2, 2)))
    assert on_disk(candidates).status is Status.RUNNING
    assert candidates.sent == []


@pytest.mark.shows("2.12/further/own-copies", "2.0/queue-structure/every-change")
def test_the_end_is_on_candidates_before_it_is_read_here(
    file: JobFile, candidates: Candidates
) -> None:
    before = on_disk(candidates)
    ended = changes.failed(file.job, GenericError("x"), (3, 3))
    file.finish(ended)
    assert [decode_job(data) for data in candidates.sent] == [ended]
    assert [decode_job(data or b"") for data in candidates.on_disk] == [before]
    assert on_disk(candidates) == ended


def test_one_of_two_others_is_enough(
    file: JobFile, candidates: Candidates, sleeps: list[float]
) -> None:
    candidates.reachable = {"n3"}
    file.finish(changes.failed(file.job, GenericError("x"), (3, 3)))
    assert len(candidates.sent) == 1
    assert sleeps == []


@pytest.mark.parametrize("fails", [False, True])
def test_without_candidates_it_tries_again_and_then_records_a_failure_here(
    file: JobFile, candidates: Candidates, fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    candidates.reachable = set()
    candidates.fails = fails
    ended = changes.failed(file.job, GenericError("x"), (3, 3))
    file.finish(ended)
    assert len(candidates.sent) == 3
    assert candidates.waits == [0.0, 0.5, 2.0]
    assert on_disk(candidates) == ended
    assert ("no certificate" if fails else "n2, n3") in caplog.text


@pytest.mark.parametrize("fails", [False, True])
def test_success_waits_for_candidates_and_says_for_whom(
    file: JobFile, candidates: Candidates, fails: bool
) -> None:
    candidates.reachable = set()
    candidates.fails = fails
    candidates.back_after = 7
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        file.update(changes.with_log_entry(file.job, 0, "message", text, (3, 3)))

    file.update(changes.op_running(file.job, 0, (2, 2)))
    file.finish_well(lambda job: changes.op_succeeded(job, 0, None, (4, 4)), tell)
    assert candidates.waits == [0.0, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0]
    assert len(told) == 1
    assert ("no certificate" if fails else "--offline=yes n2") in told[0]
    before = [decode_job(data or b"") for data in candidates.on_disk]
    assert {job.status for job in before} == {Status.RUNNING}
    ended = on_disk(candidates)
    assert ended.status is Status.SUCCESS
    assert [entry[3] for entry in ended.ops[0].log] == told
    assert encode_job(ended) == candidates.sent[-1]


def test_the_log_does_not_tell_of_every_candidate_that_comes_and_goes(
    file: JobFile, candidates: Candidates
) -> None:
    candidates.reachable = set()
    candidates.back_after = 200
    told: list[str] = []
    number = iter(range(1000))
    file._finish_if_safe = lambda _ended, _wait_s: (  # type: ignore[method-assign]
        f"try {n}" if (n := next(number)) < 100 else ""
    )
    file.update(changes.op_running(file.job, 0, (2, 2)))
    file.finish_well(lambda job: changes.op_succeeded(job, 0, None, (4, 4)), told.append)
    assert len(told) == 20


def test_a_result_that_is_no_json_changes_nothing(file: JobFile, candidates: Candidates) -> None:
    running = changes.op_running(file.job, 0, (2, 2))
    file.update(running)
    with pytest.raises(TypeError):
        file.finish(changes.op_succeeded(running, 0, object(), (3, 3)))
    assert file.job == running
    assert on_disk(candidates) == running


class FullDisk:
    """Files of the queue on a disk that has no room for the next few writes."""

    def __init__(self, files: JobFiles, failures: int) -> None:
        self._files = files
        self._failures = failures

    def write_atomic(self, job_id: JobId, data: bytes) -> None:
        self._fail()
        self._files.write_atomic(job_id, data)

    def write_durable(
        self, job_id: JobId, data: bytes, *, ready: Callable[[int], None] | None = None
    ) -> None:
        self._fail()
        self._files.write_durable(job_id, data, ready=ready)

    def _fail(self) -> None:
        if self._failures:
            self._failures -= 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fill_disk(file: JobFile, failures: int) -> None:
    file._files = FullDisk(file._files, failures)  # type: ignore[assignment]


def test_what_cannot_be_written_now_travels_with_the_next_write(
    file: JobFile, candidates: Candidates, caplog: pytest.LogCaptureFixture
) -> None:
    fill_disk(file, failures=1)
    file.update(changes.with_log_entry(file.job, 0, "message", "one", (2, 2)))
    assert on_disk(candidates).ops[0].log == ()
    assert "No space left" in caplog.text
    file.update(changes.with_log_entry(file.job, 0, "message", "two", (2, 3)))
    assert [entry[3] for entry in on_disk(candidates).ops[0].log] == ["one", "two"]


def test_the_end_waits_for_room(file: JobFile, candidates: Candidates, sleeps: list[float]) -> None:
    fill_disk(file, failures=2)
    ended = changes.failed(file.job, GenericError("x"), (3, 3))
    file.finish(ended)
    assert on_disk(candidates) == ended
    assert sleeps == [2.0, 2.0]


def test_an_end_that_cannot_be_written_is_not_pretended(
    file: JobFile, candidates: Candidates
) -> None:
    before = on_disk(candidates)
    fill_disk(file, failures=10**6)
    with pytest.raises(OSError, match="No space left"):
        file.finish(changes.failed(file.job, GenericError("x"), (3, 3)))
    assert on_disk(candidates) == file.job == before


def test_an_end_does_not_wait_long_for_a_queue_that_is_gone(
    file: JobFile, sleeps: list[float], tmp_path: Path
) -> None:
    shutil.rmtree(Paths(str(tmp_path)).queue_dir)
    with pytest.raises(FileNotFoundError):
        file.finish(changes.failed(file.job, GenericError("x"), (3, 3)))
    assert sum(sleeps) == 60.0


def log_line(file: JobFile, text: str) -> None:
    file.update_log(changes.with_log_entry(file.job, 0, "message", text, (3, 3)), 0)


def test_log_lines_are_appended_and_go_along_with_the_next_status(
    file: JobFile, candidates: Candidates, tmp_path: Path
) -> None:
    place = Path(running_log(Paths(str(tmp_path)), JobId(5)))
    place.parent.mkdir(parents=True)
    before = on_disk(candidates)
    for number in range(3):
        log_line(file, f"line\n{number}")
    assert on_disk(candidates) == before
    read = changes.with_log_lines(before, decode_log_lines(place.read_bytes()))
    assert read == file.job
    file.update(changes.op_running(file.job, 0, (4, 4)))
    assert on_disk(candidates) == file.job
    log_line(file, "last words")
    read = changes.with_log_lines(on_disk(candidates), decode_log_lines(place.read_bytes()))
    assert read == file.job  # each line once
    file.finish(changes.canceled(file.job, "enough", (4, 4)))
    assert len(on_disk(candidates).ops[0].log) == 4
    assert not place.exists()


def test_another_line_costs_as_much_as_it_says(file: JobFile, tmp_path: Path) -> None:
    place = Path(running_log(Paths(str(tmp_path)), JobId(5)))
    place.parent.mkdir(parents=True)
    running = changes.op_running(file.job, 0, (2, 2))
    file.update(changes.op_succeeded(running, 0, Raw(b'"' + b"x" * 1_000_000 + b'"'), (3, 3)))
    for _ in range(1000):
        log_line(file, "y" * 10)
    assert place.stat().st_size < 100_000


def test_lines_that_cannot_be_written_come_with_the_next_status(
    file: JobFile, candidates: Candidates, caplog: pytest.LogCaptureFixture
) -> None:
    log_line(file, "there is no such directory")
    assert "No such file" in caplog.text
    file.update(changes.op_running(file.job, 0, (4, 4)))
    assert len(on_disk(candidates).ops[0].log) == 1


def test_a_line_that_was_cut_off_is_left_out() -> None:
    line = (0, (1, (2, 3), "message", "text"))
    data = encode_log_line(line)
    assert decode_log_lines(data + data[:-9] + b"\n" + data) == [line, line]


def test_a_small_result_stays_as_it_is() -> None:
    result = {"a": [1]}
    assert checked_result(result, "OP_X", FILE_BYTES_MAX) is result


def test_a_large_result_is_kept_encoded_and_reads_the_same(file: JobFile) -> None:
    result = ["x" * 1000] * 2000
    kept = checked_result(result, "OP_X", 0)
    assert isinstance(kept, Raw)
    running = changes.op_running(file.job, 0, (2, 2))
    job = changes.op_succeeded(running, 0, kept, (3, 3))
    read = decode_job(encode_job(job))
    assert read == job
    assert isinstance(read.ops[0].result, Raw)
    assert loads(encode_job(read)) == loads(
        encode_job(changes.op_succeeded(running, 0, result, (3, 3)))
    )


def test_a_result_without_room_says_how_to_get_the_same() -> None:
    with pytest.raises(OpExecError) as caught:
        checked_result("x" * (5 << 20), "OP_INSTANCE_QUERY_DATA", FILE_BYTES_MAX - (4 << 20))
    text = str(caught.value)
    assert "OP_INSTANCE_QUERY_DATA has 5.0 MiB" in text
    assert "52.0 MiB already; 56.0 MiB are possible" in text
    assert "'gnt-instance info' with the names of fewer instances" in text


def test_many_small_results_do_not_make_a_file_that_nobody_can_read() -> None:
    result = "x" * 60_000
    assert checked_result(result, "OP_X", FILE_BYTES_MAX - (1 << 20)) is result
    with pytest.raises(OpExecError, match="are possible"):
        checked_result(result, "OP_X", FILE_BYTES_MAX)


def test_a_write_that_failed_is_told(file: JobFile) -> None:
    fill_disk(file, 1)
    back = changes.stepped_back(file.job)
    assert not file.update(back)
    assert file.update(back)


def test_log_lines_beyond_a_number_are_counted() -> None:
    output = Output(QueuedJob(JobId(5), (QueuedOp({"OP_ID": "OP_X"}),)))
    kept = [text for n in range(LOG_LINES_MAX + 7) if (text := output.line(f"line {n}"))]
    assert len(kept) == LOG_LINES_MAX
    assert output.end_opcode().startswith("7 more messages are not kept")
    assert output.line("of the next opcode") == "of the next opcode"
    assert output.end_opcode() == ""


def test_lines_of_earlier_processes_of_the_job_count() -> None:
    line = "z" * 1000
    ended = QueuedOp({"OP_ID": "OP_X"}, log=((1, (1, 1), "message", line),), status=Status.SUCCESS)
    log = tuple((n + 2, (1, 1), "message", line) for n in range(LOG_LINES_MAX - 1))
    job = QueuedJob(JobId(5), (ended, QueuedOp({"OP_ID": "OP_X"}, log=log)))
    output = Output(job)
    assert output.line(line) is None, "the lines take more than the job may write"
    short = QueuedOp({"OP_ID": "OP_X"}, log=tuple((*entry[:3], "") for entry in log))
    output = Output(QueuedJob(JobId(5), (ended, short)))
    assert [output.line("last"), output.line("over")] == ["last", None]


def test_long_lines_are_cut_and_all_together_are_bounded() -> None:
    output = Output(QueuedJob(JobId(5), (QueuedOp({"OP_ID": "OP_X"}),)))
    line = output.line("y" * 1_000_000)
    assert isinstance(line, str)
    assert line.endswith("yyy... (1000000 characters in all)")
    kept = sum(len(str(text)) for _ in range(1000) if (text := output.line("z" * 60_000)))
    assert kept < LOG_BYTES_MAX
    assert "93" in output.end_opcode()
    assert output.line("w" * 60_000) is None


def test_short_lines_of_many_opcodes_are_bounded_too() -> None:
    output = Output(QueuedJob(JobId(5), (QueuedOp({"OP_ID": "OP_X"}),)))
    size_bytes = 0
    for serial in range(100 * LOG_LINES_MAX):
        if serial % LOG_LINES_MAX == 0:
            output.end_opcode()
        if output.line("") is not None:
            size_bytes += len(
                encode_log_line((99, (serial, (1_700_000_000, 999_999), "message", "")))
            )
    assert LOG_BYTES_MAX / 2 < size_bytes < LOG_BYTES_MAX * 1.1


def test_an_error_that_says_too_much_is_cut() -> None:
    short = OpExecError("no")
    assert checked_error(short) is short
    assert str(checked_error(OpExecError("n" * 2_000_000))).endswith(
        "n... (2000000 characters in all)"
    )


def test_the_end_of_an_opcode_is_spread_and_not_waited_for(
    file: JobFile, candidates: Candidates
) -> None:
    file.update_opcode(changes.op_running(file.job, 0, (2, 2)))
    assert [decode_job(data) for data in candidates.spread] == [on_disk(candidates)]
    assert candidates.sent == []
