"""Automatic repairs: what is needed, what tags allow, and what becomes of the tags.

The rows of `SCENARIOS` are what harep of 3.0.2 does, by experiment.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.allocation.autorepair import (
    PREFIX,
    Decision,
    Health,
    NodeState,
    Patient,
    Repair,
    TagChange,
    decide,
    jobs_under_way,
    node_states,
    patients_of,
)
from ganeti.allocation.sources.text_data import from_text
from ganeti.jobs.status import Status
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.opcodes.instance import OpInstanceMigrate
from ganeti.opcodes.registry import encode_opcode

GOOD, DRAINED, OFFLINE = NodeState.GOOD, NodeState.DRAINED, NodeState.OFFLINE
NODES = {"n1": GOOD, "n2": GOOD, "n3": OFFLINE, "n4": OFFLINE, "n5": DRAINED}
NOW = 1795000100.0
ID = "813c37a4-276f-4c5e-902f-624ff7380e17"
NEW = "00000000-0000-0000-0000-000000000001"


def pending(kind: str, jobs: str, time: int = 1795000000, uuid: str = ID) -> str:
    return f"pending:{kind}:{uuid}:{time}:{jobs}"


def result(kind: str, word: str, jobs: str, time: int = 1795000000, uuid: str = ID) -> str:
    return f"result:{kind}:{uuid}:{time}:{word}:{jobs}"


def tags(*words: str) -> tuple[str, ...]:
    return tuple(f"{PREFIX}{word}" for word in words)


def one(
    patient: Patient,
    jobs: Mapping[int, Status | None] | None = None,
    cluster: tuple[str, ...] = (),
    now: float = NOW,
    uuid: str = NEW,
) -> Decision:
    [decision] = decide([patient], NODES, cluster, jobs or {}, now, lambda: uuid)
    return decision


def drbd(nodes: str, *words: str, group: tuple[str, ...] = ()) -> Patient:
    return Patient("i", DiskTemplate.DRBD, tuple(nodes.split()), tags(*words), tags(*group))


NEEDS = {
    "n1 n2": None,
    "n1 n3": "fix-storage",
    "n3 n1": "failover",
    "n3 n4": "reinstall",
    "n1 n5": "fix-storage",
    "n5 n1": "migrate",  # 3.0: failover
    "n5 n3": "fix-storage",  # 3.0: reinstall, though the data are there
    "n3 n5": "failover",
    "n1": None,
    "n3": "reinstall",
    "n5": None,
    "n1 n9": "fix-storage",
}


@pytest.mark.parametrize("nodes", NEEDS)
def test_the_repair_follows_from_the_nodes(nodes: str) -> None:
    template = DiskTemplate.DRBD if " " in nodes else DiskTemplate.PLAIN
    patient = Patient("i", template, tuple(nodes.split()), tags("reinstall"))
    decision = one(patient)
    assert (decision.repair and decision.repair.attempt.kind) == NEEDS[nodes]


@pytest.mark.parametrize("template", sorted(set(DiskTemplate) - {"drbd", "plain"}))
def test_other_disks_are_left_alone(template: DiskTemplate) -> None:
    decision = one(Patient("i", template, ("n3",), tags("reinstall")))
    assert decision == Decision("i", Health.HEALTHY, Health.HEALTHY)


def test_opcodes_are_those_of_harep() -> None:
    sent = {
        nodes: [
            {key: value for key, value in encode_opcode(each).items() if key not in COMMON}
            for each in (one(drbd(nodes, "reinstall")).repair or pytest.fail(nodes)).opcodes
        ]
        for nodes in ("n1 n3", "n3 n1", "n3 n4")
    }
    assert [
        (each["OP_ID"], each.get("mode"), each.get("iallocator"))
        for each in (op for ops in sent.values() for op in ops)
    ] == [
        ("OP_INSTANCE_REPLACE_DISKS", "replace_new_secondary", "hail"),
        ("OP_INSTANCE_FAILOVER", None, None),
        ("OP_INSTANCE_RECREATE_DISKS", None, "hail"),
        ("OP_INSTANCE_REINSTALL", None, None),
    ]
    assert not any(each.get("ignore_consistency") for ops in sent.values() for each in ops)
    moved = one(drbd("n5 n1", "migrate")).repair
    assert moved is not None
    assert moved.opcodes == (OpInstanceMigrate(instance_name="i", allow_failover=True),)


COMMON = ("priority", "depends", "comment", "reason", "debug_level", "dry_run")

ALLOWED: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], bool]] = {
    "no tag": ((), (), (), False),
    "instance": (("failover",), (), (), True),
    "stronger": (("reinstall",), (), (), True),
    "weaker": (("fix-storage",), (), (), False),
    "weakest of one object": (("reinstall", "fix-storage"), (), (), False),
    "weakest of cluster": ((), (), ("fix-storage", "reinstall"), False),
    "nearest, weaker": (("fix-storage",), ("reinstall",), (), False),
    "nearest, stronger": (("failover",), ("fix-storage",), ("fix-storage",), True),
    "group": ((), ("failover",), ("fix-storage",), True),
    "cluster": ((), (), ("failover",), True),
    "suspended": (("failover", "suspend"), (), (), False),
    "suspended once": (("failover", "suspend:1000"), (), (), True),
    "suspended still": (("failover", "suspend:1000", "suspend:1795000101"), (), (), False),
    "suspended for good": (("failover", "suspend:1000", "suspend"), (), (), False),
    "suspended until nobody knows": (("failover", "suspend:soon"), (), (), False),
    "group suspended, instance not": (("failover",), ("suspend",), (), True),
    "cluster suspended, group not": ((), ("failover",), ("suspend",), True),
    "instance suspended": (("suspend",), ("failover",), (), False),
    "instance suspended once": (("suspend:1000",), (), ("failover",), True),
    "nonsense": (("failover", "pending:nonsense", "bla", "failover:x"), (), (), True),
    "results of the group": (("failover",), (result("failover", "failure", "5"),), (), True),
}


@pytest.mark.parametrize("case", ALLOWED)
def test_the_nearest_tag_allows(case: str) -> None:
    own, group, cluster, is_allowed = ALLOWED[case]
    decision = one(drbd("n3 n1", *own, group=group), cluster=tags(*cluster))
    assert (decision.repair is not None) == is_allowed
    assert bool(decision.text) != is_allowed
    if not is_allowed:
        assert decision.after in (Health.HEALTHY, Health.NEEDS_REPAIR)


Scenario = tuple[str, tuple[str, ...], dict[int, str], Health, Health]
FAILOVER = ("failover",)
SCENARIOS: dict[str, Scenario] = {
    "running": ("n3 n1", (pending("failover", "50"),), {50: "running"}, Health.PENDING, "P"),
    "done": ("n1 n2", (pending("failover", "50"),), {50: "success"}, Health.PENDING, "H"),
    "done, next": ("n1 n3", (pending("failover", "50"),), {50: "success"}, Health.PENDING, "P"),
    "error": ("n3 n1", (pending("failover", "50"),), {50: "error"}, Health.PENDING, "F"),
    "error, healthy": ("n1 n2", (pending("failover", "50"),), {50: "error"}, Health.PENDING, "F"),
    "canceled": ("n3 n1", (pending("failover", "50"),), {50: "canceled"}, Health.PENDING, "F"),
    "one of two": (
        *("n3 n1", (pending("failover", "50+51"),)),
        *({50: "success", 51: "waiting"}, Health.PENDING, "P"),
    ),
    "same repair": (
        *("n3 n1", (pending("failover", "50"), pending("failover", "50+51", 1795000005))),
        *({50: "success", 51: "running"}, Health.PENDING, "P"),
    ),
    "no jobs": ("n3 n1", (pending("failover", ""),), {}, Health.PENDING, "P"),
    "failure": ("n3 n1", (result("failover", "failure", "5"),), {}, Health.FAILED, "F"),
    "failure, healthy": ("n1 n2", (result("failover", "failure", "5"),), {}, Health.FAILED, "F"),
    "success": ("n3 n1", (result("failover", "success", "5"),), {}, Health.HEALTHY, "P"),
    "success, healthy": ("n1 n2", (result("failover", "success", "5"),), {}, Health.HEALTHY, "H"),
    "enoperm": ("n3 n1", (result("failover", "enoperm", ""),), {}, Health.HEALTHY, "P"),
    "failure of old": (
        *("n3 n1", (result("failover", "failure", "5"), result("migrate", "success", "6", 7))),
        *({}, Health.FAILED, "F"),
    ),
    "failure, then pending": (
        "n3 n1",
        (result("migrate", "failure", "4", 7, "913c"), pending("failover", "50")),
        *({50: "success"}, Health.FAILED, "F"),
    ),
    # Ours: 3.0 ends with an error.
    "gone": ("n3 n1", (pending("failover", "50"),), {}, Health.PENDING, "F"),
    "gone, healthy": ("n1 n2", (pending("failover", "50"),), {}, Health.PENDING, "H"),
}
SHORT = {"P": Health.PENDING, "H": Health.HEALTHY, "F": Health.FAILED}


@pytest.mark.parametrize("case", SCENARIOS)
def test_a_repair_goes_on_as_with_harep(case: str) -> None:
    nodes, words, statuses, before, after = SCENARIOS[case]
    jobs = {job: Status(status) for job, status in statuses.items()}
    decision = one(drbd(nodes, "failover", *words), jobs)
    assert (decision.before, decision.after) == (before, SHORT[after])


def test_an_ended_repair_gets_a_result_and_the_next_one_takes_its_place() -> None:
    patient = drbd("n1 n3", "failover", pending("failover", "50"))
    decision = one(patient, {50: Status.SUCCESS})
    success = tags(result("failover", "success", "50", int(NOW)))
    assert decision.settled == TagChange(success, tags(pending("failover", "50")))
    assert decision.repair is not None
    expected = TagChange(tags(pending("fix-storage", "60", int(NOW), NEW)), success)
    assert decision.repair.pending([60]) == expected


def test_what_is_not_allowed_is_told_once() -> None:
    patient = drbd("n3 n1", "fix-storage")
    decision = one(patient)
    told = tags(result("failover", "enoperm", "", int(NOW), NEW))
    assert decision.refused == TagChange(told, ())
    again = one(Patient("i", patient.template, patient.nodes, (*patient.tags, *told)))
    assert (again.refused, again.after, again.text) == (None, Health.NEEDS_REPAIR, decision.text)


@pytest.mark.parametrize(
    "words",
    [
        (pending("failover", "50"), pending("fix-storage", "51", 1795000005, "913c37a4")),
        (pending("failover", "50"), result("fix-storage", "success", "51", 1795000005, "913c37a4")),
    ],
)
def test_two_repairs_at_once_stop_it(words: tuple[str, ...]) -> None:
    decision = one(drbd("n3 n1", "failover", *words), {50: Status.SUCCESS, 51: Status.SUCCESS})
    assert (decision.after, decision.settled, decision.repair) == (Health.FAILED, None, None)
    assert "of an unfinished repair is" in decision.text


CLUSTER = """default|uuid|preferred|ganeti:watcher:autorepair:reinstall|

n1|16000|0|15000|100000|90000|8|N|uuid|1
n2|16000|0|15000|100000|90000|8|Y|uuid|1

i1|512|1024|1|running|Y|n1|n2|drbd|x|1
i2|512|1024|1|running|Y|n2||plain||1
i3|512|1024|1|running|Y|n2||plain||1|-|Y


|128,1,1024,1,1,1|1,1,0,0,0,1;32768,8,1048576,16,8,12|drbd|4.0|32.0
"""


def test_a_snapshot_tells_patients_and_nodes() -> None:
    snapshot = from_text(CLUSTER)
    found = patients_of(snapshot)
    assert [(each.name, each.nodes, each.tags, each.group_tags) for each in found] == [
        ("i1", ("n1", "n2"), ("x",), tags("reinstall")),
        ("i2", ("n2",), (), tags("reinstall")),
    ]
    assert node_states(snapshot) == {"n1": GOOD, "n2": OFFLINE}


# Laws.

STATES = st.sampled_from(list(NodeState))
KINDS = list(Repair)


def changed(patient: Patient, change: TagChange | None) -> Patient:
    if change is None:
        return patient
    kept = [tag for tag in patient.tags if tag not in change.remove]
    return Patient(patient.name, patient.template, patient.nodes, (*kept, *change.add))


def cured(patient: Patient, kind: Repair, nodes: Mapping[str, NodeState]) -> Patient:
    """Return the instance after a successful repair."""
    good = [name for name, state in nodes.items() if state is GOOD]
    where = patient.nodes
    if kind in (Repair.MIGRATE, Repair.FAILOVER):
        where = where[::-1]
    elif kind is Repair.FIX_STORAGE:
        where = (where[0], next(name for name in good if name != where[0]))
    else:
        where = tuple(good[: len(where)])
    return Patient(patient.name, patient.template, where, patient.tags)


@given(
    st.lists(STATES, min_size=2, max_size=5),
    st.sampled_from([DiskTemplate.DRBD, DiskTemplate.PLAIN]),
    st.sampled_from(KINDS),
    st.lists(st.booleans(), min_size=8, max_size=8),
)
def test_repairs_lead_to_health_or_to_a_tag_that_says_why_not(
    states: list[NodeState], template: DiskTemplate, allowed: Repair, luck: list[bool]
) -> None:
    nodes = {f"n{place}": state for place, state in enumerate(states)}
    nodes |= {"good1": GOOD, "good2": GOOD, "good3": GOOD}
    where = ("n0", "n1") if template is DiskTemplate.DRBD else ("n0",)
    patient = Patient("i", template, where, tags(allowed))
    uuids, jobs = count(), dict[int, Status | None]()
    for step, is_lucky in enumerate(luck):
        now = 1000 + step
        [decision] = decide([patient], nodes, (), jobs, now, lambda: f"id-{next(uuids)}")
        patient = changed(changed(patient, decision.settled), decision.refused)
        if decision.repair is None:
            break
        kind = decision.repair.attempt.kind
        assert KINDS.index(kind) <= KINDS.index(allowed)
        if kind is Repair.REINSTALL:
            assert all(nodes[name] is OFFLINE for name in patient.nodes), "data were still there"
        patient = changed(patient, decision.repair.pending([step]))
        assert jobs_under_way([patient]) == [step]
        [waiting] = decide([patient], nodes, (), {step: Status.RUNNING}, now, lambda: "")
        assert (waiting.settled, waiting.repair, waiting.after) == (None, None, Health.PENDING)
        jobs[step] = Status.SUCCESS if is_lucky else Status.ERROR
        if is_lucky:
            patient = cured(patient, kind, nodes)
    else:
        pytest.fail("it is never done")
    assert not jobs_under_way([patient])
    assert decision.after is not Health.PENDING
    is_well = all(nodes[name] is GOOD for name in patient.nodes)
    if decision.after is Health.HEALTHY and template is DiskTemplate.DRBD:
        assert is_well
    if decision.after is Health.NEEDS_REPAIR:
        assert any(":enoperm:" in tag for tag in patient.tags)
    if decision.after is Health.FAILED:
        assert any(":failure:" in tag for tag in patient.tags)
        assert False in luck
    assert sum(":result:" in tag for tag in patient.tags) <= 1


@given(st.text(max_size=60), st.sampled_from(["", "pending:", "result:", "suspend:"]))
def test_any_tag_can_be_read(text: str, kind: str) -> None:
    decision = one(drbd("n3 n1", f"{kind}{text}", "failover"))
    assert decision.instance == "i"
