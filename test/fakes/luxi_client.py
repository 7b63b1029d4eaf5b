"""A LuxiD without a socket: jobs go through scripted states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.base.errors import JobLost
from ganeti.base.ids import JobId
from ganeti.protocol.luxi import JobChange, LogEntry


class FakeLuxiClient:
    """Accepts jobs; each ends as its script says.

    A script is (final status, results, messages); the last one is used again and again.
    """

    def __init__(self, *scripts: tuple[str, list[object], list[str]]) -> None:
        self.scripts = list(scripts) or [("success", [None], [])]
        self.submitted: list[list[Mapping[str, Any]]] = []
        self.refused: dict[int, str] = {}
        self.idle_rounds = 0
        self.held_by: dict[int, str] = {}
        self.blocked: set[int] = set()
        self.lost: set[int] = set()
        self.unknown: set[str] = set()
        self.full_names: dict[str, str] = {}

    def _script(self, job_id: int) -> tuple[str, list[object], list[str]]:
        return self.scripts[min(job_id, len(self.scripts)) - 1]

    def submit_job(self, opcodes: Sequence[Mapping[str, Any]]) -> JobId:
        self.submitted.append(list(opcodes))
        return JobId(len(self.submitted))

    def submit_many_jobs(
        self, jobs: Sequence[Sequence[Mapping[str, Any]]]
    ) -> list[tuple[bool, JobId | str]]:
        answers: list[tuple[bool, JobId | str]] = []
        for position, job in enumerate(jobs):
            if position in self.refused:
                answers.append((False, self.refused[position]))
            else:
                answers.append((True, self.submit_job(job)))
        return answers

    def wait_for_job_change(
        self,
        job_id: JobId,
        _fields: Sequence[str],
        previous: Sequence[object] | None,
        previous_log_serial: int | None,
        _timeout_s: float = 0,
    ) -> JobChange | None:
        if job_id in self.lost:
            raise JobLost(f"job {job_id} is gone")
        status, _, messages = self._script(job_id)
        if previous is None:
            rule = self.held_by.get(job_id)
            start = None if job_id in self.blocked else (0, 0)
            return JobChange(["queued" if rule else "waiting", rule, start], [])
        if self.idle_rounds:
            self.idle_rounds -= 1
            return None
        seen = previous_log_serial or 0
        if seen < len(messages):
            entry = LogEntry(seen + 1, (0, 0), "message", messages[seen])
            return JobChange(["running", None, (0, 0)], [entry])
        return JobChange([status, None, (0, 0)], [])

    def query_jobs(
        self, job_ids: Sequence[JobId] | None, fields: Sequence[str]
    ) -> list[list[object]]:
        rows = []
        for job_id in job_ids or []:
            status, results, _ = self._script(job_id)
            values = {"status": status, "opstatus": [status] * len(results), "opresult": results}
            rows.append([values.get(name) for name in fields])
        return rows

    def query_instances(self, names: Sequence[str], _fields: Sequence[str]) -> list[list[object]]:
        return [[self.full_names.get(name, name)] for name in names if name not in self.unknown]

    def close(self) -> None:
        return
