"""Changes of a list of devices, against a slow and obvious model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import OpPrereqError
from ganeti.logical_units.instance.changes.device_changes import (
    DISKS,
    NICS,
    DevicePlan,
    find_device,
    plan_changes,
)
from ganeti.opcodes.values import DeviceChange


@dataclass(frozen=True)
class Thing:
    uuid: str
    name: str | None = None
    note: str = ""


class ThingMakers:
    """New things are numbered; what is attached has the UUID that was given."""

    def __init__(self) -> None:
        self.made = 0

    def add(self, what: str, index: int, settings: Any) -> Thing:
        self.made += 1
        return Thing(f"new{self.made}", settings.get("name"), what)

    def attach(self, what: str, index: int, settings: Any) -> Thing:
        return Thing(settings["uuid"], None, what)

    def modify(self, what: str, index: int, device: Thing, settings: Any) -> Thing:
        return replace(device, name=settings.get("name", device.name), note=what)


HAS = [Thing("u0", "root"), Thing("u1", "swap"), Thing("u2")]


def plan(*changes: Any, kind: Any = DISKS, has: list[Thing] | None = None) -> DevicePlan[Thing]:
    parsed = [DeviceChange.from_wire(change) for change in changes]
    return plan_changes(kind, HAS if has is None else has, parsed, ThingMakers())


def names(made: DevicePlan[Thing]) -> list[str]:
    return [thing.uuid for thing in made.devices]


@pytest.mark.shows("2.0/remove-devices/remove")
@pytest.mark.parametrize(
    ("changes", "after"),
    [
        ([["add", -1, {}]], ["u0", "u1", "u2", "new1"]),
        ([["add", {}]], ["u0", "u1", "u2", "new1"]),
        ([["add", 0, {}]], ["new1", "u0", "u1", "u2"]),
        ([["add", 3, {}]], ["u0", "u1", "u2", "new1"]),
        ([["remove", {}]], ["u0", "u1"]),
        ([["remove", "root", {}]], ["u1", "u2"]),
        ([["remove", "u1", {}]], ["u0", "u2"]),
        ([["remove", 0, {}], ["remove", 0, {}]], ["u2"]),
        ([["detach", "swap", {}], ["attach", 0, {"uuid": "u9"}]], ["u9", "u0", "u2"]),
        ([[1, {"name": "new"}]], ["u0", "u1", "u2"]),
        ([["add", 1, {"name": "x"}], ["remove", "x", {}]], ["u0", "u1", "u2"]),
        ([["remove", 0, {}], ["add", 0, {"name": "root"}]], ["new1", "u1", "u2"]),
    ],
)
def test_changes_are_played_in_order(changes: list[Any], after: list[str]) -> None:
    assert names(plan(*changes)) == after


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (["add", 4, {}], "an index from 0 to 3"),
        (["add", -2, {}], "an index from 0 to 3"),
        (["add", "root", {}], "is given the index"),
        (["remove", 3, {}], "disk 3 not found: the instance has 3"),
        (["remove", -2, {}], "disk -2 not found"),
        (["remove", "nix", {}], "disk 'nix' not found"),
        (["remove", 0, {"size": 1}], "remove takes no settings, got size"),
        (["modify", 0, {}], "nothing to change"),
        (["modify", 0, {"name": "swap"}], "cannot be called 'swap': disk 0 is|disk 1"),
        (["add", -1, {"name": "root"}], "disk 0 is called that"),
    ],
)
def test_what_cannot_be_is_refused(change: list[Any], text: str) -> None:
    with pytest.raises(OpPrereqError, match=text):
        plan(change)


def test_only_disks_are_attached() -> None:
    with pytest.raises(OpPrereqError, match="for disks only"):
        plan(["attach", -1, {"uuid": "x"}], kind=NICS)


def test_there_is_room_for_so_many_only() -> None:
    plan(*[["add", -1, {}]] * (DISKS.many_max - 3))
    with pytest.raises(OpPrereqError, match="at most 16 disks"):
        plan(*[["add", -1, {}]] * (DISKS.many_max - 2))
    with pytest.raises(OpPrereqError, match="at most 8 nics"):
        plan(*[["add", -1, {}]] * 9, kind=NICS, has=[])


def test_a_name_that_means_several_is_refused() -> None:
    with pytest.raises(OpPrereqError, match=r"several have that name \(0, 1\)"):
        find_device(DISKS, [Thing("a", "x"), Thing("b", "x")], "x")


def test_steps_know_place_before_and_after() -> None:
    made = plan(["add", 1, {}], ["modify", 2, {"name": "n"}], ["remove", 0, {}])
    assert [(step.action.value, step.index) for step in made.steps] == [
        ("add", 1),
        ("modify", 2),
        ("remove", 0),
    ]
    add, modify, remove = made.steps
    assert (add.before, add.device.uuid) == (None, "new1")
    assert modify.before == HAS[1]
    assert modify.after == Thing("u1", "n", "disk/2")
    assert (remove.after, remove.device) == (None, HAS[0])


change_sets = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(-1, 4), st.just({})),
        st.tuples(st.just("remove"), st.integers(-1, 4), st.just({})),
        st.tuples(st.just("modify"), st.integers(-1, 4), st.just({"name": "n"})),
    ),
    max_size=8,
)


@pytest.mark.shows("2.0/disks/variable", "2.0/devices/no-shift")
@given(change_sets)
def test_the_steps_lead_from_the_old_list_to_the_new(changes: list[tuple[str, int, Any]]) -> None:
    try:
        made = plan(*map(list, changes))
    except OpPrereqError:
        return
    current = list(HAS)
    for step in made.steps:
        if step.before is None:
            current.insert(step.index, step.device)
        else:
            assert current[step.index] == step.before
            current[step.index : step.index + 1] = [step.after] if step.after else []
    assert current == list(made.devices)
    assert len({thing.uuid for thing in current}) == len(current)
