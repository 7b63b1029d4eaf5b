"""Tests of ganeti/availability/disk.py, and of what agents and the master make of a lease disk."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.availability.disk import (
    BLOCK_BYTES,
    SLOTS_MIN,
    VERSION,
    Header,
    Slot,
    Verdict,
    decode,
    encode,
    place_nodes,
    read_header,
    read_slots,
    slots_for,
)
from ganeti.availability.keeper import Keeper
from ganeti.availability.proof import DiskView, Judge, NodeView, View
from ganeti.availability.records import Guard, Loss, Proof
from ganeti.availability.timing import Timing
from ganeti.base.errors import ProtocolError

TIMING = Timing()
NODES = ("a", "b", "c", "d", "e")
LOSS = Loss(uuid="boot@5", node="e", boot_id="boot")
GUARD = Guard(boot_id="boot", watchdog_s=5.0, disk="lease")
VERDICT = Verdict(boot_id="boot", loss="boot@5")
HEADER = Header(version=VERSION, cluster="c", lease="lease", slots=2)


def slot(node: str, **more: object) -> Slot:
    return Slot(lease="lease", node=node, boot_id="boot", **more)  # type: ignore[arg-type]


# --- blocks


@given(block=st.binary(max_size=60), at=st.integers(0, BLOCK_BYTES - 1), flip=st.integers(1, 255))
def test_what_is_not_a_whole_block_of_ours_is_refused(block: bytes, at: int, flip: int) -> None:
    garbage = block.ljust(BLOCK_BYTES, b"\0")
    if any(garbage):
        with pytest.raises(ProtocolError):
            decode(garbage, Slot)
    good = bytearray(encode(slot("a", verdicts={"b": VERDICT})))
    length = len(good.rstrip(b"\0"))
    if at < length:  # what follows the text means nothing
        good[at] ^= flip
        with pytest.raises(ProtocolError):
            decode(bytes(good), Slot)


def test_a_header_of_another_disk_is_refused_with_the_reason() -> None:
    block = encode(HEADER)
    assert read_header(block, "c", "lease") == HEADER
    for data, words, why in (
        (bytes(BLOCK_BYTES), ("c", "lease"), "never prepared"),
        (block, ("other", ""), "another cluster, c"),
        (block, ("c", "before"), "not the one in use"),
        (b"XFSB".ljust(BLOCK_BYTES, b"\0"), ("c", ""), "something else"),
        (encode(Header(version=2, cluster="c", lease="lease", slots=2)), ("c", ""), "version 2"),
    ):
        with pytest.raises(ProtocolError, match=why):
            read_header(data, *words)


def test_slots_are_read_unless_one_is_garbage() -> None:
    empty, own = bytes(BLOCK_BYTES), encode(slot("a", count=3))
    old = encode(Slot(lease="before", node="b", boot_id="x"))
    moved = encode(slot("a", count=2, verdicts={"b": VERDICT}))
    assert read_slots(empty + own + old + moved, "lease") == {"a": slot("a", count=3)}
    with pytest.raises(ProtocolError, match="slot 1: its checksum"):
        read_slots(empty + own[:100].ljust(BLOCK_BYTES, b"\0").replace(b"3", b"4"), "lease")


def test_of_many_verdicts_as_many_are_written_as_fit_and_the_first_ones_stay() -> None:
    name = "node{}.a-long-name.example.com"
    uuid = "0f6ae5ae-5a3f-4b57-93b5-8d6e6f6f0001"
    many = {name.format(n): Verdict(boot_id=uuid, loss=f"{uuid}@{n}") for n in range(100)}
    block = encode(slot("a", verdicts=many))
    assert len(block) == BLOCK_BYTES
    found = decode(block, Slot)
    assert found is not None
    assert len(found.verdicts) >= 20
    assert list(found.verdicts.items()) == list(many.items())[: len(found.verdicts)]


@given(
    known=st.dictionaries(st.sampled_from(NODES), st.integers(0, 6)),
    nodes=st.sets(st.sampled_from(NODES)),
    slots=st.integers(1, 6),
)
def test_no_two_nodes_share_a_slot(known: dict[str, int], nodes: set[str], slots: int) -> None:
    known = {name: number for number, name in {n: m for m, n in known.items()}.items()}
    found = place_nodes(known, sorted(nodes), slots)
    assert len({*found.values()}) == len(found) == min(len(nodes), slots)
    assert all(0 <= number < slots for number in found.values())
    for name in found:
        if known.get(name, slots) < slots:
            assert found[name] == known[name]
    assert slots_for(3) == SLOTS_MIN
    assert slots_for(100) == 200


# --- the agent


def keeper() -> Keeper:
    made = Keeper(TIMING, "e", "boot", 0.0)
    made.uses_disk = True
    return made


def test_the_disk_counts_from_the_begin_of_the_reading_and_only_while_etcd_knows() -> None:
    agent = keeper()
    agent.read_disk(10.0, [])
    assert agent.may_feed(10.0 + TIMING.lease_s - 0.1)
    assert not agent.may_feed(10.0 + TIMING.lease_s)
    assert agent.needs_friends(11.0)  # etcd is as silent as before
    agent.uses_disk = False
    assert not agent.may_feed(11.0)
    assert agent.holds_disk(11.0)


def test_a_verdict_ends_it_at_once_and_without_another_answer_for_good() -> None:
    agent = keeper()
    agent.renewed(10.0)
    agent.read_disk(11.0, [])
    agent.read_disk(12.0, [VERDICT, Verdict(boot_id="old boot", loss="x")])
    assert agent.sentence == "boot@5"
    assert agent.may_feed(13.9)  # etcd has renewed its lease
    assert not agent.gives_up(13.9)
    assert agent.gives_up(14.0)
    assert not agent.gives_up(14.1)  # that is said once
    assert agent.gave_up == "boot@5"
    agent.renewed(15.0)
    agent.read_disk(15.0, [])
    assert not agent.may_feed(15.0)


def test_a_verdict_is_void_once_etcd_does_not_have_its_loss() -> None:
    agent = keeper()
    agent.read_disk(12.0, [VERDICT])
    agent.reprieve("", None)  # asked before it was read
    agent.reprieve("boot@5", LOSS)
    assert agent.sentence
    agent.reprieve("boot@5", Loss(uuid="boot@9", node="e", boot_id="boot"))
    assert not agent.sentence
    agent.read_disk(13.0, [VERDICT])
    assert agent.holds_disk(13.0)
    agent.read_disk(14.0, [VERDICT, Verdict(boot_id="boot", loss="boot@9")])
    assert not agent.holds_disk(14.0)


def test_who_does_not_live_by_the_disk_does_not_die_by_it() -> None:
    agent = keeper()
    agent.uses_disk = False
    agent.read_disk(12.0, [VERDICT])
    assert not agent.gives_up(100.0)


# --- the master


def seen(disk: DiskView | None, now_s: float, guard: Guard = GUARD) -> View:
    nodes = {name: NodeView(is_present=True) for name in NODES}
    nodes["e"] = NodeView(guard=guard, loss=LOSS, revision=7, disk=disk)
    return View(now_s, "a", nodes)


def on_disk(**more: str) -> DiskView:
    return DiskView("lease", **{"boot_id": "boot", **more})


def proof(judge: Judge, view: View) -> Proof | None:
    return next((order.proof for order in judge.look(view) if order.proof), None)


def condemned(judge: Judge, now_s: float) -> None:
    for name in ("a", "b", "c"):
        judge.condemned("e", 7, name, told_s=now_s, heard_s=now_s)


LATER_S = TIMING.dead_after_s + 0.1


def test_the_watchdog_proves_nothing_before_the_disk_condemns_the_node_too() -> None:
    judge = Judge(TIMING)
    judge.look(seen(None, 0.0))
    condemned(judge, 0.0)
    assert proof(judge, seen(None, 1.0)) is None
    assert "cannot be condemned" in judge.says["e"]
    for now_s in range(10, 540, 10):  # again and again
        condemned(judge, float(now_s))
    assert proof(judge, seen(on_disk(), 501.0)) is None
    assert proof(judge, seen(on_disk(verdict="boot@5"), 510.0)) is None
    assert proof(judge, seen(on_disk(), 511.0)) is None  # it was taken back
    assert proof(judge, seen(on_disk(verdict="boot@5"), 520.0)) is None
    assert proof(judge, seen(on_disk(verdict="boot@5"), 520.0 + LATER_S - 0.2)) is None
    assert proof(judge, seen(None, 520.0 + LATER_S)) is Proof.WATCHDOG  # it stands there
    # Condemned once, and not again: the others vouch for it by then.
    judge = Judge(TIMING)
    judge.look(seen(None, 0.0))
    condemned(judge, 0.0)
    judge.look(seen(on_disk(verdict="boot@5"), 100.0))
    assert proof(judge, seen(None, 100.0 + LATER_S)) is None


@pytest.mark.parametrize(
    "disk",
    [
        DiskView("copy", "boot", "boot@5", "boot@5"),
        on_disk(boot_id="boot before", gave_up="boot@5", verdict="boot@5"),
        on_disk(verdict="boot@4", gave_up="boot@4"),
    ],
)
def test_another_disk_boot_or_loss_proves_nothing(disk: DiskView) -> None:
    judge = Judge(TIMING)
    judge.look(seen(disk, 0.0))
    condemned(judge, 0.0)
    assert [proof(judge, seen(disk, now_s)) for now_s in (0.0, 50.0, 500.0)] == [None] * 3


def test_who_gave_up_on_the_disk_is_dead_when_its_watchdog_has_run_out() -> None:
    judge, gone = Judge(TIMING), on_disk(gave_up="boot@5", verdict="boot@5")
    assert proof(judge, seen(gone, 10.0)) is None  # nobody else has condemned it
    assert "it gave up" in judge.says["e"]
    assert proof(judge, seen(None, 15.9)) is None
    assert proof(judge, seen(None, 16.0)) is Proof.DISK


def test_a_node_that_does_not_live_by_the_disk_is_proved_dead_as_ever() -> None:
    judge, plain = Judge(TIMING), Guard(boot_id="boot", watchdog_s=5.0)
    judge.look(seen(None, 0.0, plain))
    condemned(judge, 0.0)
    condemned(judge, 10.0)
    assert proof(judge, seen(None, LATER_S, plain)) is Proof.WATCHDOG
