"""What the remote API makes of LuxiD's answers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from msgspec import Raw

from ganeti.base.json import dumps, loads
from ganeti.protocol.rapi import answers
from ganeti.protocol.rapi.jobs import Inputs
from ganeti.protocol.rapi.values import problem_body

END = [1_700_000_000, 0]
ENTRY = [1, END, "message", "done"]


def test_clients_of_3_0_know_404_by_its_words() -> None:
    problem = loads(problem_body(404, "There is no instance 'a'"))
    assert problem == {
        "code": 404,
        "message": "Not Found",
        "explain": "Nothing matches the given URI",
        "detail": "There is no instance &#x27;a&#x27;",
    }
    assert loads(problem_body(400, "No"))["message"] == "No"


@pytest.mark.parametrize(
    ("previous", "said", "answer"),
    [
        (None, [["queued", None], []], {"job_info": ["queued"], "log_entries": []}),
        (["queued"], [["running", None], []], {"job_info": ["running"], "log_entries": []}),
        (
            ["running"],
            [["running", None], [ENTRY]],
            {"job_info": ["running"], "log_entries": [ENTRY]},
        ),
        (["running"], [["running", None], []], None),
        (["running"], "nochange", None),
        (["success"], [["success", END], []], {"job_info": ["success"], "log_entries": []}),
        (None, [None, []], None),
    ],
)
def test_a_change_of_a_job_or_its_end(previous: object, said: object, answer: object) -> None:
    body = SimpleNamespace(previous_job_info=previous)
    inputs = Inputs(path={}, query={}, body=body)
    assert loads(answers.job_change(Raw(dumps(said)), inputs)) == answer
