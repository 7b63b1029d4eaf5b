"""Tests of ganeti/jobexec/runner.py: the opcodes of jobs that a job submits."""

from __future__ import annotations

from ganeti.jobexec.runner import as_child
from ganeti.opcodes.instance import OpInstanceStartup
from ganeti.opcodes.node import OpNodeEvacuate
from ganeti.opcodes.opcode import SubmitPriority

REASON = [["gnt:user", "rate-limit:2:hello", 1]]
OP = OpInstanceStartup(instance_name="web1")


def parent(priority: SubmitPriority = SubmitPriority.HIGH) -> OpNodeEvacuate:
    return OpNodeEvacuate(node_name="n1", mode="all", priority=priority, reason=REASON)


def test_what_a_job_submits_is_as_urgent_and_for_the_same_reason() -> None:
    child = as_child(OP, parent())
    assert (child.priority, child.reason) == (SubmitPriority.HIGH, REASON)
    assert child.instance_name == "web1"  # type: ignore[attr-defined]


def test_what_an_opcode_says_itself_stays() -> None:
    own = OpInstanceStartup(
        instance_name="web1", priority=SubmitPriority.LOW, reason=[["gnt:user", "other", 2]]
    )
    assert as_child(own, parent()) == own
    assert as_child(OP, parent(SubmitPriority.NORMAL)).priority == SubmitPriority.NORMAL
