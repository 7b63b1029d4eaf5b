"""Tests of ganeti/config/upgrade/downgrade.py and foreign_keys.py."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from fakes.old_configs import load_config
from fakes.sample_config import CONFIG

from ganeti.base.errors import ConfigurationError, OpPrereqError
from ganeti.config.upgrade.downgrade import downgrade_config, find_foreign_keys

INSTANCE = "0000000c-0000-4000-8000-000000000001"
DISK = "0000000e-0000-4000-8000-000000000001"
GROUP = "0000000b-0000-4000-8000-000000000001"
NETWORK = "0000000d-0000-4000-8000-000000000001"

PLACES: list[tuple[str | int, ...]] = [
    (),
    ("cluster",),
    ("cluster", "beparams", "default"),
    ("cluster", "nicparams", "default"),
    ("cluster", "ndparams"),
    ("cluster", "ipolicy"),
    ("cluster", "ipolicy", "std"),
    ("cluster", "ipolicy", "minmax", 0),
    ("cluster", "ipolicy", "minmax", 0, "max"),
    ("cluster", "data_collectors", "lv"),
    ("nodegroups", GROUP),
    ("nodegroups", GROUP, "ndparams"),
    ("nodegroups", GROUP, "ipolicy", "minmax", 0, "min"),
    ("nodegroups", GROUP, "networks", NETWORK),
    ("networks", NETWORK),
    ("instances", INSTANCE),
    ("instances", INSTANCE, "beparams"),
    ("instances", INSTANCE, "nics", 0),
    ("instances", INSTANCE, "nics", 0, "nicparams"),
    ("disks", DISK),
    ("disks", DISK, "children", 1),
]
FREE: list[tuple[str | int, ...]] = [
    ("cluster", "hvparams", "kvm"),
    ("cluster", "osparams"),
    ("cluster", "diskparams", "ext"),
    ("cluster", "default_iallocator_params"),
    ("instances", INSTANCE, "hvparams"),
    ("instances", INSTANCE, "osparams"),
    ("disks", DISK, "params"),
]


def clean() -> Any:
    return copy.deepcopy(load_config("2.16.upgraded")["config"])


def place(config: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        config = config[step]
    return config


@pytest.mark.parametrize("config", [CONFIG, clean()], ids=["sample", "upgraded"])
def test_a_configuration_of_3_0_stays_as_it_is(config: Any) -> None:
    assert find_foreign_keys(config) == []
    result = downgrade_config(config)
    assert result.config is config
    assert result.notes == ()


@pytest.mark.parametrize("path", PLACES, ids=str)
@pytest.mark.parametrize("value", [None, False, "", [], {}, 0, {"x": [False, {}]}], ids=repr)
def test_what_is_empty_is_taken_out(path: tuple[str | int, ...], value: object) -> None:
    config = clean()
    place(config, path)["ours"] = value
    before = copy.deepcopy(config)
    result = downgrade_config(config)
    assert result.config == clean(), "also its serial number"
    assert result.notes == (f"{'.'.join(map(str, (*path, 'ours')))} removed, it was empty",)
    assert config == before


@pytest.mark.parametrize("path", PLACES, ids=str)
def test_what_would_be_lost_is_a_reason_to_refuse(path: tuple[str | int, ...]) -> None:
    config = clean()
    place(config, path)["ours"] = "my secret value"
    with pytest.raises(OpPrereqError, match="would be lost") as raised:
        downgrade_config(config)
    assert f"{'.'.join(map(str, (*path, 'ours')))} = a text of 15 characters" in str(raised.value)


@pytest.mark.parametrize("path", FREE, ids=str)
def test_parameters_may_have_any_name(path: tuple[str | int, ...]) -> None:
    config = clean()
    place(config, path)["ours"] = 1
    assert find_foreign_keys(config) == []


def test_images_that_3_0_would_take_for_raw_disks_are_a_reason_to_refuse() -> None:
    config = clean()
    place(config, ("disks", DISK))["params"] = {"format": "qcow2"}
    with pytest.raises(OpPrereqError, match=rf"would be lost:\n  disks\.{DISK}\.params\.format"):
        downgrade_config(config)


@pytest.mark.shows("maintd/store/in-config")
def test_the_state_of_the_maintenance_daemon_goes_in_any_case() -> None:
    config = clean() | {"maintenance": {"roundDelay": 300, "jobs": [1], "incidents": [{"x": 1}]}}
    result = downgrade_config(config)
    assert "maintenance" not in result.config
    assert result.notes == ("maintenance removed, with its state; nobody goes on with it",)


def test_of_lists_of_default_allocators_the_first_one_stays() -> None:
    config = clean()
    config["cluster"]["default_iallocators"] = {"default": ["hail", "spare"]}
    result = downgrade_config(config)
    assert "default_iallocators" not in result.config["cluster"]
    assert result.config["cluster"]["default_iallocator"] == "hail"
    assert result.notes == (
        "cluster.default_iallocators removed, the first default allocator stays",
    )


def test_results_of_rehearsals_go_in_any_case() -> None:
    config = clean()
    result = {"ended": 1.0, "job": 7, "node": "node1", "exported": 1, "failure": ""}
    config["instances"][INSTANCE]["rehearsal"] = result
    found = downgrade_config(config)
    assert found.config == clean()
    assert found.notes == (
        f"instances.{INSTANCE}.rehearsal removed, the result of the last rehearsal of its backup",
    )


def test_the_way_to_give_a_feature_up_is_told() -> None:
    config = clean()
    config["cluster"] |= {"silent_node_tries": 3, "max_disk_transfers": 2}
    config["cluster"]["diagnose_data_collector_filename"] = "diagnose"
    place(config, ("disks", DISK))["params"] = {"format": "qcow2"}
    config["networks"][NETWORK]["ext_reservations6"] = ["2001:db8::1-2001:db8::2"]
    with pytest.raises(OpPrereqError) as raised:
        downgrade_config(config)
    hints = [line.partition("; give it up by ")[2] for line in str(raised.value).splitlines()]
    assert set(filter(None, hints)) == {
        "gnt-cluster modify --silent-node-tries=0",
        "gnt-cluster modify --max-disk-transfers=0",
        "gnt-cluster modify --diagnose-data-collector-filename=''",
        "gnt-instance modify -t TEMPLATE -e format=raw INSTANCE",
        "gnt-network modify --remove-reserved-ips=RANGE,... NETWORK",
    }


def test_many_reasons_are_not_all_shown() -> None:
    config = clean()
    config["cluster"].update({f"ours{number}": number + 1 for number in range(50)})
    with pytest.raises(OpPrereqError) as raised:
        downgrade_config(config)
    assert "cluster.ours0 = 1\n" in str(raised.value)
    assert "and 30 more" in str(raised.value)


def test_other_versions_are_refused() -> None:
    with pytest.raises(
        OpPrereqError, match=r"of version 2\.12; --downgrade only takes the additions"
    ):
        downgrade_config(load_config("2.12"))


def test_what_is_no_configuration_of_3_0_is_refused() -> None:
    config = clean()
    config["cluster"]["enabled_hypervisors"].append("of-the-future")
    with pytest.raises(ConfigurationError, match="enabled_hypervisors"):
        downgrade_config(config)
