from __future__ import annotations

from typing import Any

import pytest

from ganeti.base.errors import JobQueueError, OpPrereqError, ParameterError
from ganeti.base.ids import JobId
from ganeti.jobs.record import QueuedJob, QueuedOp
from ganeti.jobs.scheduler import Hold
from ganeti.luxid.queue.filters import FREE, Effort, JobFilters, Rule, Verdict, limits_of
from ganeti.objects.model import FilterRule

JOB = QueuedJob(
    JobId(20),
    (
        QueuedOp(
            {
                "OP_ID": "OP_INSTANCE_STARTUP",
                "instance_name": "web1.example.com",
                "force": False,
                "reason": [
                    ["gnt:client:gnt-instance", "startup", 5],
                    ["gnt:opcode:x", "job=20", 6],
                ],
            }
        ),
        QueuedOp({"OP_ID": "OP_TEST_DELAY", "duration": 5.0, "on_nodes": ["n1"], "reason": []}),
    ),
)


@pytest.mark.parametrize(
    ("reasons", "limits"),
    [
        (["rate-limit:2:hello"], (Hold("rate-limit:hello", 2),)),
        (["rate-limit:2:a:b"], (Hold("rate-limit:a:b", 2),)),
        (["rate-limit:3:x", "rate-limit:2:x", "rate-limit:4:x"], (Hold("rate-limit:x", 2),)),
        (
            ["rate-limit:1:x", "why not", "rate-limit:2:y"],
            (Hold("rate-limit:x", 1), Hold("rate-limit:y", 2)),
        ),
        (["rate-limit:0:hello"], ()),
        (["rate-limit:-1:hello"], ()),
        (["rate-limit:hello"], ()),
        (["a rate-limit:2:hello"], ()),
    ],
)
def test_a_reason_is_a_limit(reasons: list[str], limits: tuple[Hold, ...]) -> None:
    ops = [
        QueuedOp({"OP_ID": "OP_TEST_DELAY", "reason": [["gnt:user", reason, 5]]})
        for reason in reasons
    ]
    assert limits_of(QueuedJob(JobId(1), tuple(ops))) == limits
    assert limits_of(JOB) == ()


def rule(
    predicates: list[list[Any]],
    action: Any = "REJECT",
    uuid: str = "r",
    priority: int = 0,
    watermark: int = 10,
) -> FilterRule:
    return FilterRule(
        uuid=uuid, priority=priority, watermark=watermark, predicates=predicates, action=action
    )


@pytest.mark.shows("maintd/events/filters")
@pytest.mark.parametrize(
    "predicates",
    [
        [],
        [["jobid", ["=", "id", 20]]],
        [["jobid", [">", "id", "watermark"]]],
        [["jobid", ["|", ["<", "id", 5], [">=", "id", 20]]]],
        [["opcode", ["=", "OP_ID", "OP_TEST_DELAY"]]],
        [["opcode", ["=~", "instance_name", "^web"]]],
        [["opcode", [">", "duration", 4]]],
        [["opcode", ["=[]", "on_nodes", "n1"]]],
        [["opcode", ["!", ["?", "force"]]]],
        [["opcode", ["&", ["=", "OP_ID", "OP_TEST_DELAY"], ["=", "duration", 5]]]],
        [["reason", ["=", "source", "gnt:client:gnt-instance"]]],
        [["reason", ["=~", "reason", "job=20"]]],
        [["jobid", ["=", "id", 20]], ["reason", [">", "timestamp", 5]]],
    ],
)
def test_rules_that_match(predicates: list[list[Any]]) -> None:
    assert Rule(rule(predicates)).matches(JOB, Effort(lambda: 0.0))


@pytest.mark.parametrize(
    "predicates",
    [
        [["jobid", ["<", "id", "watermark"]]],
        [["opcode", ["=", "OP_ID", "OP_NODE_ADD"]]],
        [["opcode", ["&", ["=", "OP_ID", "OP_INSTANCE_STARTUP"], ["=", "duration", 5]]]],
        [["opcode", ["=", "colour", "red"]]],
        [["opcode", [">", "instance_name", 5]]],
        [["reason", ["=", "source", "gnt:watcher"]]],
        [["jobid", ["=", "id", 20]], ["jobid", ["=", "id", 21]]],
    ],
)
def test_rules_that_do_not_match(predicates: list[list[Any]]) -> None:
    assert not Rule(rule(predicates)).matches(JOB, Effort(lambda: 0.0))


@pytest.mark.shows("maintd/events/filters")
def test_a_value_of_another_type_hides_nothing_that_comes_after_it() -> None:
    """Whoever submits a job chooses its reasons; the first one is no way around a rule."""
    inputs: list[dict[str, Any]] = [
        {"OP_ID": "OP_TEST_DELAY", "duration": "long", "reason": [["me", 5, 1]]},
        {"OP_ID": "OP_TEST_DELAY", "duration": 5.0, "reason": [["me", "because", 1]]},
    ]
    job = QueuedJob(JobId(20), tuple(map(QueuedOp, inputs)))
    for predicate in (["opcode", [">", "duration", 4]], ["reason", ["=~", "reason", "^bec"]]):
        assert Rule(rule([predicate])).matches(job, Effort(lambda: 0.0))


@pytest.mark.parametrize(
    ("action", "verdict"),
    [
        ("ACCEPT", FREE),
        ("CONTINUE", FREE),
        ("REJECT", Verdict(rejected_by="r")),
        ("PAUSE", Verdict(hold=Hold("r", 0))),
        (["RATE_LIMIT", 3], Verdict(hold=Hold("r", 3))),
    ],
)
def test_what_actions_mean(action: Any, verdict: Verdict) -> None:
    assert JobFilters([rule([], action)]).judge(JOB) == verdict


def test_the_first_that_matches_and_does_not_continue_decides() -> None:
    rules = [
        rule([], "REJECT", "e", 3, 0),
        rule([], "PAUSE", "d", 2, 9),
        rule([], "ACCEPT", "c", 2, 8),
        rule([], "CONTINUE", "b", 1),
        rule([["jobid", ["=", "id", 1]]], "REJECT", "a", 0),
    ]
    assert JobFilters(rules).judge(JOB) == FREE
    assert JobFilters(rules[:2]).judge(JOB) == Verdict(hold=Hold("d", 0))


def test_the_uuid_breaks_ties() -> None:
    rules = [rule([], "REJECT", "b"), rule([], "ACCEPT", "a")]
    assert JobFilters(rules).judge(JOB) == FREE


def test_a_refusal_names_the_rule() -> None:
    with pytest.raises(JobQueueError, match="job filter r;"):
        JobFilters([rule([])]).judge(JOB).check()


@pytest.mark.parametrize(
    ("predicates", "action"),
    [
        ([], "NONSENSE"),
        ([], ["RATE_LIMIT", 0]),
        ([], ["RATE_LIMIT", True]),
        ([["colour", ["=", "id", 1]]], "PAUSE"),
        ([["jobid"]], "PAUSE"),
        ([["jobid", []]], "PAUSE"),
        ([["jobid", ["!", []]]], "PAUSE"),
        ([["jobid", ["=", "colour", 1]]], "PAUSE"),
        ([["opcode", ["=~", "x", "("]]], "PAUSE"),
        ([["opcode", ["=~", "x", "(a+)+$"]]], "PAUSE"),
        ([["reason", "x"]], "PAUSE"),
    ],
)
def test_wrong_rules_are_refused_and_never_fatal(predicates: list[list[Any]], action: Any) -> None:
    with pytest.raises((OpPrereqError, ParameterError)):
        Rule(rule(predicates, action))
    assert JobFilters([rule(predicates, action)]).judge(JOB) == FREE


COSTLY = [["opcode", ["=~", "instance_name", "(a*)(a*)(a*)Z"]]]
LONG = QueuedJob(JobId(21), (QueuedOp({"OP_ID": "OP_X", "instance_name": "a" * 300}),))


def test_nobody_gets_past_a_rule_by_a_long_text() -> None:
    filters = JobFilters([rule(COSTLY, "REJECT", "slow")])
    assert filters.judge(JOB) == FREE
    verdict = filters.judge(LONG)
    assert verdict == Verdict(hold=Hold("slow", 0), is_too_costly=True)
    with pytest.raises(JobQueueError, match="job filter slow takes too long"):
        verdict.check()


def test_all_rules_together_have_so_much_time_for_a_job() -> None:
    used = iter(range(1000))
    filters = JobFilters(
        [
            rule([["opcode", ["==", "OP_ID", "OP_NONE"]]], "REJECT", f"r{number}", priority=number)
            for number in range(5)
        ],
        spent_s=lambda: next(used) * 0.03,
    )
    assert filters.judge(JOB) == Verdict(hold=Hold("r3", 0), is_too_costly=True)
    assert JobFilters().judge(JOB) == FREE
