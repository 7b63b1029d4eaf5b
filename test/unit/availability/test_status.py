"""Tests of ganeti/availability/status: what people are told."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from fakes.confd_config import DB, NODES, WEB, confd_config, encoded
from hypothesis import given
from hypothesis import strategies as st

from ganeti.availability.inventory import Inventory, Machine, read_inventory
from ganeti.availability.records import (
    Guard,
    Loss,
    Mastership,
    Outdated,
    Pause,
    Presence,
    Proof,
    outdated_key,
)
from ganeti.availability.restarts import Guest
from ganeti.availability.status import Seen, forecast, look
from ganeti.availability.timing import Timing
from ganeti.config.config_data import split_config
from ganeti.config.tables import Tables

NAMES = ("a", "b", "c", "d", "e")
MEMBERS = {f"https://192.0.2.{number}:2379": "" for number in (1, 2, 3)}


def machine(number: int, name: str) -> Machine:
    return Machine(name, f"192.0.2.{number}", is_master=name == "a", is_candidate=name in "abc")


GUESTS = (
    Guest("big", "d", 900, ["e"], priority=5),
    Guest("small", "d", 100, ["e", "b"]),
    Guest("alone", "d", 10, []),
    Guest("never", "d", 10, ["b"], priority=None),
    Guest("other", "a", 10, ["b", "c"]),
)
PORTS = {"big": [11000], "small": [11001, 11002]}
INVENTORY = Inventory(
    {name: machine(number, name) for number, name in enumerate(NAMES, 1)}, GUESTS, PORTS
)


def all_well(**more: Any) -> Seen:
    seen = Seen(
        now=1000.0,
        inventory=INVENTORY,
        timing=Timing(),
        members=MEMBERS,
        free_memory=dict.fromkeys(NAMES, 1000),
        presences={name: Presence(boot_id=f"boot {name}") for name in NAMES},
        guards={name: Guard(boot_id=f"boot {name}", watchdog_s=5.0) for name in NAMES},
        acting={"a": Mastership(node="a", boot_id="boot a")},
        master=Mastership(node="a", boot_id="boot a"),
    )
    return replace(seen, **more)


def without(names: Collection[str]) -> dict[str, Presence]:
    return {n: Presence(boot_id=f"boot {n}") for n in NAMES if n not in names}


def test_the_configuration_tells_nodes_instances_and_ports() -> None:
    config = confd_config()
    config["instances"][DB].update(admin_state="up", tags=["ha:priority:3"])
    config["instances"][WEB]["admin_state"] = "down"
    found = read_inventory(Tables(split_config(encoded(config))))
    name_of = {uuid: config["nodes"][uuid]["name"] for uuid in NODES}
    assert found.master == name_of[config["cluster"]["master_node"]]
    assert [each.is_offline for each in found.machines.values()].count(True) == 1
    assert found.machines[name_of[NODES[1]]].address == "192.0.2.2"
    [guest] = found.guests  # web is stopped
    assert (guest.name, guest.node, guest.priority) == ("db.example.com", name_of[NODES[1]], 3)
    assert list(guest.nodes) == [name_of[NODES[0]]]
    assert found.ports["db.example.com"] == [11000]
    assert not found.ports["web.example.com"]


@pytest.mark.parametrize("state", ["offline", "drained"])
def test_nothing_starts_on_a_node_that_takes_nothing(state: str) -> None:
    config = confd_config()
    config["instances"][DB]["admin_state"] = "up"
    config["instances"][WEB].update(admin_state="up", disks=[])  # reached by all
    config["nodes"][NODES[3]].update(drained=False)
    config["nodes"][NODES[4]].update(vm_capable=False)
    for uuid in (NODES[0], NODES[1]):
        config["nodes"][uuid][state] = True
    found = read_inventory(Tables(split_config(encoded(config))))
    near = {guest.name: list(guest.nodes) for guest in found.guests}
    assert near == {"db.example.com": [], "web.example.com": [config["nodes"][NODES[3]]["name"]]}
    shared = {guest.name: guest.is_shared for guest in found.guests}
    assert shared == {"db.example.com": False, "web.example.com": True}


def test_where_all_is_well_nothing_is_to_be_looked_at() -> None:
    status = look(all_well())
    assert status.warnings == ()
    assert status.holder == status.master == "a"
    assert status.may_take_over == ("b", "c")
    assert {each.lease for each in status.nodes} == {"held"}
    assert [each.role for each in status.nodes] == ["master", *["candidate"] * 2, *["regular"] * 2]


def test_who_does_not_hold_its_lease_on_the_disk_is_named() -> None:
    guards = {n: Guard(boot_id=f"boot {n}", watchdog_s=5.0, disk="lease") for n in NAMES}
    seen = all_well(guards=guards, lease_disk="/dev/x")
    assert look(seen).warnings == ()
    assert "after 20 s (13 s where it says on the lease disk" in forecast(seen, ["d"]).proofs["d"]
    status = look(replace(seen, guards={**guards, "d": all_well().guards["d"]}))
    assert status.warnings == ("d does not hold its lease on /dev/x",)
    assert [each.holds_disk for each in status.nodes] == [True, True, True, False, True]


def test_a_witness_needs_no_proof_and_its_loss_is_told() -> None:
    guards = {**all_well().guards, "c": Guard(boot_id="boot c")}
    seen = all_well(guards=guards, witness="c")
    status = look(seen)
    assert status.warnings == ()
    assert status.may_take_over == ("b",)
    assert [each.role for each in status.nodes][2] == "witness"
    assert forecast(seen, ["c"]).commands == ()
    lost = look(replace(seen, presences=without("c")))
    assert lost.warnings == ("c, the witness, does not answer: no other node may be lost now",)


def test_a_loss_is_told_in_the_order_of_the_starts() -> None:
    found = forecast(all_well(), ["d"])
    assert found.nobody == ""
    assert [(each.instance, each.node) for each in found.starts] == [("big", "e"), ("small", "b")]
    assert set(found.left) == {"alone", "never"}
    assert "its watchdog has reset it, after 20 s" in found.proofs["d"]
    assert found.commands == ()


def test_what_does_not_fit_is_named() -> None:
    found = forecast(all_well(free_memory={"e": 899, "b": 5, "a": 0, "c": 0}), ["d"])
    assert "needs 900 MiB" in found.left["big"]
    assert [each.instance for each in found.starts] == ["small"]
    assert forecast(all_well(free_memory={"e": 899}), ["d"]).unknown == ("b",)


def test_no_proof_no_start_and_the_command_that_a_person_may_give() -> None:
    seen = all_well(guards={**all_well().guards, "d": Guard(boot_id="boot d")})
    found = forecast(seen, ["d"])
    assert found.starts == ()
    assert "no watchdog, no helper" in found.left["big"]
    assert found.commands == ("gnt-cluster ha-confirm-dead d",)
    assert any("nothing could prove that d is dead" in each for each in look(seen).warnings)
    helped = replace(seen, helpers={"d"})
    assert "its helper switches it off" in forecast(helped, ["d"]).proofs["d"]
    assert look(helped).warnings == ()


@pytest.mark.parametrize(
    ("changes", "lost", "why"),
    [
        ({"trouble": "etcd does not answer"}, "d", "etcd does not answer"),
        ({"pause": Pause(until=1001.0)}, "d", "paused"),
        ({}, "cde", "only 2 of 5 nodes would be there"),
        ({}, "bc", "only 1 of 3 members of etcd would be there"),
        ({"presences": without("bc")}, "a", "only 2 of 5 nodes"),
        ({"alone": Mastership(node="a", boot_id="")}, "a", "no master candidate"),
        ({"acting": {"b": Mastership(node="b", boot_id="old")}}, "d", "node b was the master"),
    ],
)
def test_why_nobody_would_act(changes: dict[str, Any], lost: str, why: str) -> None:
    found = forecast(all_well(**changes), list(lost))
    assert why in found.nobody
    assert found.starts == ()
    assert {guest.name for guest in GUESTS if guest.node in lost} == set(found.left)


def test_a_pause_ends_by_itself() -> None:
    over = all_well(pause=Pause(until=999.0))
    assert forecast(over, ["d"]).nobody == ""
    assert look(over).paused_until is None
    paused = look(all_well(pause=Pause(until=1001.0, by="root@a", why="new switch")))
    assert (paused.paused_until, paused.paused_by, paused.paused_why) == (
        *(1001.0, "root@a"),
        "new switch",
    )
    assert any("paused" in each for each in paused.warnings)


def test_the_loss_of_the_master_needs_its_own_proof_too() -> None:
    assert forecast(all_well(), ["a"]).takes_over == ("b", "c")
    assert [each.node for each in forecast(all_well(), ["a"]).starts] == ["b"]
    unguarded = all_well(guards={**all_well().guards, "a": Guard(boot_id="boot a")})
    found = forecast(unguarded, ["a", "d"])
    assert "node a was the master" in found.nobody
    assert found.starts == ()


def test_a_copy_that_lacks_writes_is_not_started_from() -> None:
    seen = all_well(outdated={outdated_key("e", 11002): Outdated(by="d", since=1.0)})
    found = forecast(seen, ["d"])
    assert [(each.instance, each.node) for each in found.starts] == [("big", "e"), ("small", "b")]
    seen = all_well(outdated={outdated_key("e", 11000): Outdated(by="d", since=1.0)})
    found = forecast(seen, ["d"])
    assert "gnt-cluster ha-accept-copy --node=e big" in found.left["big"]
    [node] = [each for each in look(seen).nodes if each.name == "e"]
    assert node.outdated == ("big",)


@pytest.mark.parametrize(
    ("guard", "loss", "lease"),
    [
        (None, None, "never"),
        (Guard(boot_id="x", has_left=True), None, "left"),
        (Guard(boot_id="x"), None, "missed"),
        (Guard(boot_id="x"), Loss(uuid="u", node="d", since=5.0), "missed"),
        (Guard(boot_id="x"), Loss(uuid="u", node="d", proof=Proof.FENCED, by="a"), "dead"),
    ],
)
def test_an_absent_node(guard: Guard | None, loss: Loss | None, lease: str) -> None:
    guards = {name: each for name, each in all_well().guards.items() if name != "d"}
    seen = all_well(
        presences=without("d"),
        guards={**guards, "d": guard} if guard else guards,
        losses={"d": loss} if loss else {},
    )
    status = look(seen)
    [node] = [each for each in status.nodes if each.name == "d"]
    assert node.lease == lease
    assert any("d " in each for each in status.warnings)
    assert (node.proof == "fenced, by a") is (lease == "dead")
    assert bool(node.if_lost.starts) is (lease == "dead")


_names = st.sets(st.sampled_from(NAMES))


@given(
    present=_names,
    watched=_names,
    helped=_names,
    lost=_names.filter(bool),
    stale=st.sets(st.tuples(st.sampled_from(NAMES), st.sampled_from([11000, 11001, 11002]))),
    free=st.dictionaries(st.sampled_from(NAMES), st.integers(0, 2000)),
)
def test_nothing_starts_without_proof_room_or_a_good_copy(
    present: set[str],
    watched: set[str],
    helped: set[str],
    lost: set[str],
    stale: set[tuple[str, int]],
    free: dict[str, int],
) -> None:
    seen = all_well(
        presences=without({*NAMES} - present),
        guards={n: Guard(boot_id="x", watchdog_s=5.0 if n in watched else None) for n in NAMES},
        helpers=helped,
        free_memory=free,
        outdated={outdated_key(*each): Outdated(by="d") for each in stale},
    )
    found = forecast(seen, lost)
    started = {each.instance for each in found.starts}
    assert started.isdisjoint(found.left)
    assert started | set(found.left) == {each.name for each in GUESTS if each.node in lost}
    assert set(found.proofs) | set(found.unproved) == lost
    used = dict.fromkeys(NAMES, 0)
    by_name = {each.name: each for each in GUESTS}
    for start in found.starts:
        assert start.lost in watched | helped
        assert start.node in present - lost
        assert start.node in by_name[start.instance].nodes
        assert not any((start.node, port) in stale for port in PORTS.get(start.instance, ()))
        used[start.node] += by_name[start.instance].memory
    assert all(used[name] <= free.get(name, 0) for name in NAMES)
    assert bool(found.starts) <= (found.nobody == "")
    look(seen)
