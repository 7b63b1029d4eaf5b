"""Tests of ganeti/wconfd/maintenance_methods.py, through the fence of the real WConfD."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fakes.fake_config import FakeConfig
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ganeti.base.errors import LockError, OpPrereqError
from ganeti.base.ids import JobId
from ganeti.protocol.maintenance import stored
from ganeti.protocol.maintenance.stored import Action, Incident, Maintenance, RepairStatus
from ganeti.wconfd import maintenance_methods

UUID = "11111111-1111-4111-8111-111111111111"
INCIDENT = Incident(
    original={"status": "evacuate", "details": {"n": 1.0, "disk": ["sda", None]}},
    action=Action.EVACUATE,
    node="node1.example.com",
    repair_status=RepairStatus.NOTED,
    tag=f"maintd:repairready:{UUID}",
    uuid=UUID,
)


@pytest.fixture
def config(tmp_path: Path) -> FakeConfig:
    made = FakeConfig(str(tmp_path))
    made.try_update_locks([("cluster/BGL", "shared")])
    return made


def section(config: FakeConfig) -> Any:
    """Return what stands in the file."""
    whole = json.loads(bytes(config.read_config()))
    return whole.get("maintenance")


@pytest.mark.shows("maintd/store/in-config")
def test_the_file_has_the_names_of_the_specification(config: FakeConfig) -> None:
    assert config.set_maintd_round_delay(60)
    assert config.set_maintd_balance(True)
    assert config.set_maintd_balance_threshold(0.25)
    assert config.set_maintd_duties(None, True, None)
    assert config.append_maintd_jobs([JobId(3), JobId(5)])
    assert config.add_maintd_evacuated(["i1"])
    assert config.update_maintd_incident(INCIDENT)
    found = section(config)
    times = [found.pop("ctime"), found.pop("mtime")]
    [incident] = found["incidents"]
    times += [incident.pop("ctime"), incident.pop("mtime")]
    assert all(time > 0 for time in times)
    assert found == {
        "roundDelay": 60,
        "jobs": [3, 5],
        "balance": True,
        "balanceThreshold": 0.25,
        "autoRepair": False,
        "useLoad": True,
        "moveDisks": False,
        "evacuated": ["i1"],
        "incidents": [
            {
                "original": {"status": "evacuate", "details": {"n": 1.0, "disk": ["sda", None]}},
                "action": "evacuate",
                "jobs": [],
                "node": "node1.example.com",
                "repair-status": "noted",
                "tag": f"maintd:repairready:{UUID}",
                "uuid": UUID,
                "serial_no": 1,
            }
        ],
        "serial_no": 7,
    }
    assert config.maintenance_round_delay() == 60
    assert config.maintenance_balancing() == (True, 0.25)
    assert config.maintenance_jobs() == [3, 5]
    assert config.maintenance_evacuated() == ["i1"]
    assert config.maintenance_incidents()[0].original == INCIDENT.original


def test_while_it_is_off_there_is_no_state_and_none_can_be_made(config: FakeConfig) -> None:
    assert config.get_maintenance() is None
    assert config.maintenance_round_delay() == 300
    assert config.maintenance_balancing() == (False, 0.1)
    assert config.maintenance_incidents() == []
    for change in (
        lambda: config.clear_maintd_jobs(),
        lambda: config.append_maintd_jobs([JobId(1)]),
        lambda: config.add_maintd_evacuated(["i1"]),
        lambda: config.rm_maintd_evacuated("i1"),
        lambda: config.update_maintd_incident(INCIDENT),
        lambda: config.rm_maintd_incident(UUID),
    ):
        with pytest.raises(OpPrereqError, match="maintenance is switched off; 'gnt-cluster modify"):
            change()
    assert section(config) is None


def test_a_delay_of_nothing_takes_the_key_out_of_the_file(config: FakeConfig) -> None:
    before = json.loads(bytes(config.read_config()))
    config.set_maintd_balance(True)
    config.update_maintd_incident(INCIDENT)
    assert section(config)["roundDelay"] == 300
    assert config.set_maintd_round_delay(0)
    assert config.set_maintd_round_delay(0)
    after = json.loads(bytes(config.read_config()))
    assert list(after) == list(before)
    config.verify_config()


@pytest.mark.parametrize(
    ("call", "args"),
    [
        ("set_maintd_round_delay", [-1]),
        ("set_maintd_round_delay", ["60"]),
        ("set_maintd_balance_threshold", [-0.1]),
        ("append_maintd_jobs", [["x"]]),
        ("update_maintd_incident", [{**INCIDENT.to_wire(), "repair-status": "done"}]),
        ("update_maintd_incident", [{**INCIDENT.to_wire(), "original": []}]),
    ],
)
def test_wrong_values_are_refused(config: FakeConfig, call: str, args: list[Any]) -> None:
    config.set_maintd_round_delay(60)
    with pytest.raises(OpPrereqError, match="wrong argument"):
        getattr(config, call)(*args)


def test_everything_may_be_said_twice(config: FakeConfig) -> None:
    config.set_maintd_round_delay(60)
    for _ in range(2):
        assert config.append_maintd_jobs([JobId(3)])
        assert config.add_maintd_evacuated(["i1", "i2"])
        assert config.update_maintd_incident(INCIDENT)
        assert config.rm_maintd_evacuated("i2")
    found = config.get_maintenance()
    assert found is not None
    assert (found.jobs, found.evacuated, len(found.incidents)) == ([3], ["i1"], 1)
    assert config.clear_maintd_jobs()
    assert config.maintenance_jobs() == []


def test_a_change_of_an_older_incident_is_refused(config: FakeConfig) -> None:
    config.set_maintd_round_delay(60)
    config.update_maintd_incident(INCIDENT)
    [read] = config.maintenance_incidents()
    config.update_maintd_incident(replace(read, repair_status=RepairStatus.CANCELED))
    with pytest.raises(OpPrereqError, match="was changed or removed since it was read"):
        config.update_maintd_incident(replace(read, repair_status=RepairStatus.PENDING))
    [now] = config.maintenance_incidents()
    assert (now.repair_status, now.serial_no) == (RepairStatus.CANCELED, 2)
    config.update_maintd_incident(now)  # says only that it was looked at
    [now] = config.maintenance_incidents()
    assert now.serial_no == 3
    config.rm_maintd_incident(UUID)
    with pytest.raises(OpPrereqError, match="was changed or removed since it was read"):
        config.update_maintd_incident(replace(now, jobs=[JobId(1)]))
    with pytest.raises(OpPrereqError, match=f"there is no incident '{UUID}'"):
        config.rm_maintd_incident(UUID)


def test_there_is_room_for_so_many(config: FakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance_methods, "INCIDENTS_MAX", 2)
    assert stored.INCIDENTS_MAX > 2
    config.set_maintd_round_delay(60)
    for name in "ab":
        config.update_maintd_incident(replace(INCIDENT, uuid=name))
    with pytest.raises(OpPrereqError, match="there are 2 incidents already"):
        config.update_maintd_incident(replace(INCIDENT, uuid="c"))
    config.update_maintd_incident(
        replace(config.maintenance_incidents()[0], repair_status=RepairStatus.FAILED)
    )


def test_a_dead_owner_changes_nothing(config: FakeConfig) -> None:
    config.set_maintd_round_delay(60)
    Path(config.owner.livelock).unlink()
    with pytest.raises(LockError, match="is dead: nobody holds"):
        config.update_maintd_incident(INCIDENT)
    assert section(config)["incidents"] == []


@pytest.mark.shows("maintd/details/opaque")
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(codec="utf-8")),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3)
        ),
        max_leaves=6,
    )
)
def test_an_object_is_kept_to_the_letter(details: Any) -> None:
    original = {"status": "evacuate", "details": details}
    kept = Incident.from_wire(
        json.loads(json.dumps(replace(INCIDENT, original=original).to_wire()))
    )
    assert json.dumps(kept.original) == json.dumps(original)
    whole = Maintenance(incidents=[kept])
    again = Maintenance.from_wire(json.loads(json.dumps(whole.to_wire())))
    assert json.dumps(again.incidents[0].original) == json.dumps(original)
