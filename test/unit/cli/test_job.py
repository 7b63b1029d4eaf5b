"""`gnt-job` with several jobs: one that cannot be changed now keeps nobody from the others."""

from __future__ import annotations

import io
from typing import Any

import pytest

from ganeti.base.errors import JobLost, JobQueueError
from ganeti.cli import job
from ganeti.cli.declaration.parser import Options
from ganeti.cli.declaration.program import Command
from ganeti.cli.run.context import Context, Terminal


class Client:
    """A LuxiD whose job 1 is just being started, and which has no job 2."""

    def cancel_job(self, job_id: int, *, kill: bool) -> tuple[bool, str]:
        return self.change_job_priority(job_id, int(kill))

    def change_job_priority(self, job_id: int, _priority: int) -> tuple[bool, str]:
        if job_id == 1:
            raise JobQueueError("job 1 cannot be changed now")
        if job_id == 2:
            raise JobLost("Job 2 not found")
        return True, f"job {job_id} changed"


@pytest.mark.parametrize("change", [job.cancel, job.change_priority])
def test_the_other_jobs_are_changed_where_one_cannot_be(change: Any) -> None:
    out, err = io.StringIO(), io.StringIO()
    options = Options({"kill": False, "priority": -10, "status_filter": None})
    terminal = Terminal(out, err, io.StringIO())
    context = Context("gnt-job", Command("cancel", "end"), options, terminal)
    client: Any = Client()
    context._client = client
    assert change(context, options, ["1", "2", "3"]) == 1
    assert out.getvalue() == "job 3 changed\n"
    assert err.getvalue() == "job 1 cannot be changed now\nJob 2 not found\n"
