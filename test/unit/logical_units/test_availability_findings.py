"""Tests of ganeti/logical_units/cluster/availability_findings.py: what `verify` says of agents."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ganeti.logical_units.cluster.availability_findings import judge_agent
from ganeti.store.availability import Settings, SharedDisk

DAY_S = 86400.0
DISK = SharedDisk(path="/dev/x", cluster="c", lease="l", size=32, slots={"a": 0})
SETTINGS = Settings(endpoints=[], prefix="/", members=["a"], disk=DISK, witness="w")
WELL: Mapping[str, object] = {"settings": "s", "taken": "s", "agent": True, "member": True}


def said(name: str, settings: Settings = SETTINGS, **more: object) -> list[str]:
    found = judge_agent(name, {**WELL, **more}, "s", settings, 1000 * DAY_S)
    return [f"{each.severity.name} {each.text}" for each in found]


def test_where_all_is_well_nothing_is_said() -> None:
    assert said("a", disk="", ends={"/x.pem": 1061 * DAY_S}) == []


@pytest.mark.parametrize(
    ("left_days", "severity"), [(59, "WARNING"), (8, "WARNING"), (6, "ERROR"), (-3, "ERROR")]
)
def test_certificates_that_end_soon_are_named_with_the_command(
    left_days: int, severity: str
) -> None:
    [text] = said("a", ends={"/x.pem": (1000 + left_days) * DAY_S})
    assert text.startswith(f"{severity} ")
    assert f"/x.pem for etcd, which ends in {left_days} days" in text
    assert text.endswith("gnt-cluster renew-crypto --new-etcd-certificates")
    site = Settings(endpoints=["https://x:1"], prefix="/")
    [text] = said("a", site, member=None, ends={"/x.pem": (1000 + left_days) * DAY_S})
    assert "gnt-cluster ha-enable --endpoints" in text


def test_a_lease_that_is_not_held_is_told_and_a_slot_that_is_missing() -> None:
    [text] = said("a", disk="it does not answer")
    assert text == "ERROR does not hold its lease on /dev/x: it does not answer"
    [text] = said("b", member=None)
    assert "has no slot on lease disk /dev/x" in text
    assert said("w", member=None) == []
