"""Tests of ganeti/config/upgrade: whole configurations, and laws that hold for all of them."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from fakes.old_configs import (
    CURRENT_VERSION,
    NOW,
    OLD_VERSIONS,
    config_bytes,
    counted_uuids,
    load_config,
)
from fakes.sample_config import CONFIG_BYTES
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import ConfigurationError, ConfigVersionMismatch
from ganeti.base.versions import CONFIG_VERSION
from ganeti.bootstrap.cluster_config import Birth, ClusterRequest, FirstNode, build_config
from ganeti.config.config_data import TABLES, ConfigData, join_config, split_config
from ganeti.config.overlay import decode_record
from ganeti.config.state import problems_in
from ganeti.config.upgrade.downgrade import find_foreign_keys
from ganeti.config.upgrade.upgrading import (
    STEPS,
    decode_config,
    needs_upgrade,
    steps_for,
    upgrade_bytes,
    upgrade_config,
)
from ganeti.config.upgrade.versions import CURRENT, UnsupportedVersion, Version, check_version
from ganeti.objects.model import Cluster

FILES = [*OLD_VERSIONS, CURRENT_VERSION]
UNKNOWN = "x-nobody-knows"


def no_uuid() -> str:
    raise AssertionError("a UUID was asked for")


def upgraded(config: Any) -> Any:
    return upgrade_config(config, new_uuid=counted_uuids(), now=NOW)


@pytest.mark.shows("2.0/instance-parameters/mapping")
@pytest.mark.parametrize("version", OLD_VERSIONS)
def test_old_configurations_become_what_they_should(version: str) -> None:
    expected = load_config(f"{version}.upgraded")
    result = upgraded(load_config(version))
    assert result.config == expected["config"]
    assert list(result.notes) == expected["notes"]
    assert str(result.version) == version


@pytest.mark.parametrize("version", OLD_VERSIONS)
def test_the_result_is_a_configuration_without_problems(version: str) -> None:
    data, result = upgrade_bytes(config_bytes(version), new_uuid=counted_uuids(), now=NOW)
    assert problems_in(data) == []
    assert not needs_upgrade(data)
    record = ConfigData.from_wire(result.config)
    assert record.version == CONFIG_VERSION
    split = split_config(data)
    assert json.loads(join_config(split)) == json.loads(data)
    for table in TABLES:
        assert all(
            json.loads(bytes(raw))["uuid"] == key for key, raw in split.tables[table].items()
        )


@pytest.mark.parametrize("version", OLD_VERSIONS)
def test_the_result_has_no_keys_that_3_0_does_not_know(version: str) -> None:
    assert find_foreign_keys(upgraded(load_config(version)).config) == []


@pytest.mark.shows("2.1/uuid-two/inside")
@pytest.mark.parametrize("version", OLD_VERSIONS)
def test_both_nodes_hold_the_volumes_below_a_drbd_disk(version: str) -> None:
    config: Any = upgraded(load_config(version)).config
    drbd = [disk for disk in config["disks"].values() if disk["dev_type"] == "drbd"]
    assert drbd
    for disk in drbd:
        assert disk["nodes"] == disk["logical_id"][:2]
        assert [child["nodes"] for child in disk["children"]] == [disk["nodes"]] * 2


@pytest.mark.parametrize("version", ["2.7", "2.12"])
def test_disks_are_as_old_as_their_instances_were(version: str) -> None:
    config: Any = upgraded(load_config(version)).config
    for instance in config["instances"].values():
        for uuid in instance["disks"]:
            disk = config["disks"][uuid]
            assert (disk["ctime"], disk["mtime"]) == (instance["ctime"], instance["mtime"])


@pytest.mark.shows(
    "2.0/instance-parameters/mapping",
    "2.1/diskparams/default",
    "2.1/routed/bridged-link",
    "2.1/uuid-one/upgraded",
)
def test_a_configuration_of_2_0_gets_what_came_later() -> None:
    config: Any = upgraded(load_config("2.0")).config
    by_name = {one["name"]: one for one in config["instances"].values()}
    web, mail = by_name["web.example.com"], by_name["mail.example.com"]
    assert (web["admin_state"], mail["admin_state"]) == ("up", "down")
    assert (web["disks_active"], mail["disks_active"]) == (True, False)
    assert [nic["nicparams"] for nic in (*web["nics"], *mail["nics"])] == [
        {"mode": "bridged", "link": "xen-br0"},
        {"mode": "bridged", "link": "br-dmz"},
        {},
    ]
    cluster = config["cluster"]
    assert cluster["nicparams"]["default"]["link"] == "xen-br0"
    assert cluster["enabled_hypervisors"] == ["xen-pvm", "kvm"]
    (group,) = config["nodegroups"].values()
    assert group["name"] == "default"
    assert {node["group"] for node in config["nodes"].values()} == {group["uuid"]}
    things = [config[table].values() for table in ("nodes", "nodegroups", "instances", "disks")]
    uuids = [cluster["uuid"], *(one["uuid"] for table in things for one in table)]
    assert len(set(uuids)) == len(uuids) == 1 + 3 + 1 + 3 + 3
    assert config["nodes"][cluster["master_node"]]["name"] == "node1.example.com"


def test_whole_numbers_may_have_a_fraction_of_nothing() -> None:
    """As 3.0's own upgrade writes the intervals of data collectors."""
    config = load_config(CURRENT_VERSION)
    for collector in config["cluster"]["data_collectors"].values():
        collector["interval"] = 5000000.0
    data = json.dumps(config).encode()
    assert b"5000000.0" in data
    assert problems_in(data) == []
    assert not needs_upgrade(data)
    for cluster in (
        ConfigData.from_wire(config).cluster,
        decode_record(split_config(data).cluster, Cluster),
    ):
        assert {each.interval for each in cluster.data_collectors.values()} == {5_000_000}
        assert all(type(each.interval) is int for each in cluster.data_collectors.values())
    config["cluster"]["data_collectors"]["lv"]["interval"] = 0.5
    with pytest.raises(ConfigurationError, match="interval"):
        ConfigData.from_wire(config)


@pytest.mark.parametrize("version", FILES)
def test_upgrading_twice_is_upgrading_once(version: str) -> None:
    data, _ = upgrade_bytes(config_bytes(version), new_uuid=counted_uuids(), now=NOW)
    again, result = upgrade_bytes(data, new_uuid=no_uuid, now=NOW + 1)
    assert again == data
    assert result.notes == ()


@pytest.mark.parametrize("version", OLD_VERSIONS)
def test_every_step_may_be_taken_again(version: str) -> None:
    """A file brought half-way by hand, or by another program, comes out the same."""
    once = dict(upgraded(load_config(version)).config)
    twice = upgrade_config({**once, "version": 2070000}, new_uuid=no_uuid, now=NOW)
    assert twice.config == {**once, "serial_no": once["serial_no"] + 1}
    assert twice.notes == ("version 2.7 became 3.0",)


@pytest.mark.parametrize("data", [config_bytes(CURRENT_VERSION), CONFIG_BYTES])
def test_a_proper_configuration_stays_byte_by_byte(data: bytes) -> None:
    assert not needs_upgrade(data)
    same, result = upgrade_bytes(data, new_uuid=no_uuid, now=NOW)
    assert same is data
    assert result.notes == ()


def test_what_is_given_is_not_changed() -> None:
    config = load_config("2.7")
    before = copy.deepcopy(config)
    upgraded(config)
    assert config == before


def objects_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Iterate over the places of all objects whose keys have a meaning (not tables)."""
    config = value
    yield ()
    yield ("cluster",)
    for table in ("nodes", "nodegroups", "networks", "instances", "disks"):
        for key, item in config.get(table, {}).items():
            yield (table, key)
            for index in range(len(item.get("nics", ()))):
                yield (table, key, "nics", index)
            for index, disk in enumerate(item.get("disks", ())):
                if isinstance(disk, dict):
                    yield (table, key, "disks", index)
                    for child in range(len(disk.get("children", ()))):
                        yield (table, key, "disks", index, "children", child)


def place(config: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        config = config[step]
    return config


def count_unknown(value: Any) -> int:
    if isinstance(value, dict):
        return (UNKNOWN in value) + sum(map(count_unknown, value.values()))
    return sum(map(count_unknown, value)) if isinstance(value, list) else 0


@pytest.mark.parametrize("version", FILES)
@given(data=st.data())
def test_unknown_keys_survive(version: str, data: st.DataObject) -> None:
    config = load_config(version)
    paths = data.draw(st.lists(st.sampled_from(list(objects_in(config))), unique=True))
    values = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5))
    for path in paths:
        place(config, path)[UNKNOWN] = data.draw(values)
    assert count_unknown(upgraded(config).config) == len(paths)


REQUIRED_OF_CLUSTER = sorted(
    load_config("3.0")["cluster"].keys()
    - {
        "cluster_name",
        "ctime",
        "drbd_usermode_helper",
        "dsahostkeypub",
        "enabled_disk_templates",
        "enabled_hypervisors",
        "highest_used_port",
        "hvparams",
        "diskparams",
        "mac_prefix",
        "master_ip",
        "master_netdev",
        "master_node",
        "mtime",
        "osparams_private_cluster",
        "rsahostkeypub",
        "tags",
        "unknown_setting",
        "uuid",
        "volume_group_name",
    }
)


@pytest.mark.parametrize("name", REQUIRED_OF_CLUSTER)
def test_a_setting_that_is_missing_is_filled_in_any_version(name: str) -> None:
    config = load_config("3.0")
    del config["cluster"][name]
    data = json.dumps(config).encode()
    assert needs_upgrade(data)
    new, result = upgrade_bytes(data, new_uuid=no_uuid, now=NOW)
    assert result.notes
    assert not needs_upgrade(new)
    ConfigData.from_wire(result.config)
    assert result.config["serial_no"] == config["serial_no"] + 1


@pytest.mark.parametrize("group", ["beparams", "nicparams"])
def test_groups_of_parameters_are_complete_in_any_version(group: str) -> None:
    config = load_config("3.0")
    config["cluster"][group]["default"].popitem()
    assert needs_upgrade(json.dumps(config).encode())


@pytest.mark.shows("2.1/global/dropped")
def test_only_the_cluster_keeps_what_only_it_can_set() -> None:
    config = load_config("3.0")
    instance = next(iter(config["instances"].values()))
    instance["hvparams"]["migration_port"] = 8111
    instance["osparams"]["migration_port"] = "another one"
    data = json.dumps(config).encode()
    assert needs_upgrade(data)
    result = upgraded(config)
    (note,) = result.notes
    assert note.startswith("instance 'web.example.com': its own migration_port=8111 removed")
    stored = next(iter(result.config["instances"].values()))
    assert "migration_port" not in stored["hvparams"]
    assert stored["osparams"]["migration_port"] == "another one"
    assert result.config["cluster"]["hvparams"]["kvm"]["migration_port"] == 8102


def test_a_word_that_looks_like_a_parameter_is_no_reason_to_upgrade() -> None:
    config = load_config("3.0")
    next(iter(config["instances"].values()))["tags"] = ["xen_cmd"]
    assert not needs_upgrade(json.dumps(config).encode())


def test_a_missing_table_is_added() -> None:
    config = load_config("3.0")
    del config["filters"]
    assert needs_upgrade(json.dumps(config).encode())
    assert upgraded(config).config["filters"] == {}


def test_new_settings_are_those_of_a_new_cluster() -> None:
    node = FirstNode(name="n", uuid="u", primary_ip="i", secondary_ip="i", certificate_digest="d")
    birth = Birth(now=0.0, cluster_uuid="c", group_uuid="g", master_ip="m", host_key="k")
    request = ClusterRequest(
        cluster_name="c", enabled_hypervisors=["kvm"], enabled_disk_templates=["file"]
    )
    fresh: Any = build_config(request, node, birth)
    cluster = load_config("2.7.upgraded")["config"]["cluster"]
    own = {"ssh_key_type", "ssh_key_bits", "candidate_certs"}  # true of old clusters, not of new
    new = cluster.keys() - load_config("2.7")["cluster"].keys() - own - {"enabled_disk_templates"}
    assert len(new) > 8
    assert {name: cluster[name] for name in new} == {name: fresh["cluster"][name] for name in new}


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (3010000, r"version 3\.1 \(3010000\).*knows versions up to 3\.0"),
        (4000000, r"version 4\.0 \(4000000\).*Use the software of version 4\.0"),
        (3000001, r"version 3\.0 \(3000001\)"),
        (1020000, r"version 1\.2 .*start from 2\.0.*between 2\.0 and 2\.16 first"),
        (0, r"version 0\.0 "),
        (2170000, r"version 2\.17 .*no such version was ever released.*back to 2\.16"),
    ],
)
def test_other_versions_are_refused_with_what_to_do(number: int, words: str) -> None:
    config = load_config("3.0") | {"version": number}
    with pytest.raises(UnsupportedVersion, match=words) as raised:
        upgraded(config)
    assert isinstance(raised.value, ConfigVersionMismatch)
    with pytest.raises(UnsupportedVersion, match=words):
        needs_upgrade(json.dumps(config).encode())


@pytest.mark.parametrize("minor", range(17))
def test_all_versions_from_2_0_on_are_taken(minor: int) -> None:
    number = 2000000 + minor * 10000
    check_version(number)
    assert Version.of(number) == (2, minor)
    assert steps_for(Version.of(number)) == list(STEPS)


def test_the_current_version_takes_only_its_own_steps() -> None:
    assert 0 < len(steps_for(CURRENT)) < len(STEPS)
    versions = [step.version for step in STEPS]
    assert versions == sorted(versions)


@pytest.mark.parametrize("version", [None, "3.0", True, 2.7, [3]])
def test_a_version_that_is_no_number_is_refused(version: object) -> None:
    config = load_config("3.0") | {"version": version}
    for attempt in (upgraded, lambda config: needs_upgrade(json.dumps(config).encode())):
        with pytest.raises(ConfigurationError, match="which is not a number"):
            attempt(config)
        without = {key: value for key, value in config.items() if key != "version"}
        with pytest.raises(ConfigurationError, match="has no version"):
            attempt(without)


def test_damage_is_named_by_its_byte() -> None:
    data = config_bytes("2.7")
    for attempt in (decode_config, needs_upgrade):
        with pytest.raises(ConfigurationError, match="at byte 500"):
            attempt(data[:500])
    with pytest.raises(ConfigurationError, match="no 'cluster'"):
        needs_upgrade(b'{"version": 3000000}')


@given(
    path=st.sampled_from([path for path in objects_in(load_config("2.7")) if path]),
    value=st.sampled_from([None, 5, "text", [], ["x"], {}, [None], True]),
)
def test_any_malformed_part_is_refused_in_words(path: tuple[Any, ...], value: object) -> None:
    config = load_config("2.7")
    place(config, path[:-1])[path[-1]] = value
    try:
        upgraded(config)
    except ConfigurationError as err:
        assert err.message  # noqa: PT017 - some malformed parts are as good as empty


@given(data=st.data())
def test_any_malformed_field_is_refused_in_words(data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(OLD_VERSIONS))
    config = load_config(version)
    part = place(config, data.draw(st.sampled_from(list(objects_in(config)))))
    name = data.draw(st.sampled_from(sorted(part)))
    part[name] = data.draw(st.sampled_from([None, 5, "text", [], ["x"], {}, {"x": 1}, [[]], True]))
    try:
        upgraded(config)
    except ConfigurationError as err:
        assert err.message  # noqa: PT017 - many values are as good as others
