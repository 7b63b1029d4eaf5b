"""What an instance is meant to do together with what it does."""

from __future__ import annotations

import json

import pytest
from fakes.sample_config import CONFIG, only

from ganeti.base.json import dumps
from ganeti.config.config_data import split_config
from ganeti.config.tables import Tables
from ganeti.query.engine import prepare
from ganeti.query.view import InstanceLive, View

NODE1 = only("nodes", "node1")["uuid"]
NODE2 = only("nodes", "node2")["uuid"]
RUNS = {"inst1": InstanceLive(memory=64, vcpus=2, state=0, time=1.5)}
SHUT = {"inst1": InstanceLive(memory=64, vcpus=2, state=1, time=1.5)}
DOWN = {"admin_state": "down"}
KVM = {"hypervisor": "kvm", "hvparams": {"user_shutdown": True}}


@pytest.mark.shows("backend/primary/primary")
@pytest.mark.parametrize(
    ("instance", "answers", "status"),
    [
        ({}, {NODE1: RUNS}, "running"),
        ({}, {NODE1: {}}, "ERROR_down"),
        ({}, {NODE1: SHUT}, "ERROR_down"),
        ({}, {NODE1: {}, NODE2: RUNS}, "ERROR_wrongnode"),
        ({}, {NODE1: None}, "ERROR_nodedown"),
        ({}, {}, "ERROR_nodedown"),
        (DOWN, {NODE1: {}}, "ADMIN_down"),
        (DOWN, {NODE1: RUNS}, "ERROR_up"),
        (DOWN, {NODE1: {}, NODE2: RUNS}, "ERROR_wrongnode"),
        ({**DOWN, "admin_state_source": "user"}, {NODE1: {}}, "USER_down"),
        ({"admin_state": "offline"}, {NODE1: {}}, "ADMIN_offline"),
        ({"admin_state": "offline"}, {NODE1: RUNS}, "ERROR_up"),
        (KVM, {NODE1: SHUT}, "USER_down"),
        ({"hypervisor": "kvm"}, {NODE1: SHUT}, "ERROR_down"),
        ({"hypervisor": "xen-pvm"}, {NODE1: SHUT}, "USER_down"),
    ],
)
def test_status(
    instance: dict[str, object], answers: dict[str, dict[str, InstanceLive] | None], status: str
) -> None:
    user_shutdown = "hypervisor" in instance
    assert state_of(instance, answers, user_shutdown=user_shutdown)[0] == [0, status]


def test_an_offline_primary_node_is_told_apart_from_one_that_is_down() -> None:
    status, *live = state_of({}, {}, offline=True)
    assert status == [0, "ERROR_nodeoffline"]
    assert live == [[4, None], [4, None], [4, None]]
    assert state_of({}, {})[1:] == [[2, None], [2, None], [2, None]]


def test_live_values() -> None:
    assert state_of({}, {NODE1: RUNS})[1:] == [[0, True], [0, 64], [0, 2]]
    assert state_of({}, {NODE1: {}})[1:] == [[0, False], [3, None], [3, None]]
    assert state_of({}, {NODE1: SHUT})[1:] == [[0, False], [3, None], [3, None]]


def state_of(
    instance: dict[str, object],
    answers: dict[str, dict[str, InstanceLive] | None],
    *,
    offline: bool = False,
    user_shutdown: bool = False,
) -> list[object]:
    config = json.loads(json.dumps(CONFIG))
    next(iter(config["instances"].values())).update(instance)
    config["nodes"][NODE1]["offline"] = offline
    config["cluster"]["enabled_user_shutdown"] = user_shutdown
    view = View(
        config=Tables(split_config(dumps(config))),
        instance_live=answers,  # type: ignore[arg-type]
    )
    plan = prepare("instance", ["status", "oper_state", "oper_ram", "oper_vcpus"])
    (row,) = plan.run(view)["data"]  # type: ignore[misc]
    return list(row)
