from __future__ import annotations

import json

import pytest
from fakes.large_config import large_config, large_config_bytes, uuid_of
from fakes.sample_config import CONFIG_BYTES

from ganeti.base.paths import SSCONF_BYTES_MAX
from ganeti.base.text import natural_sorted
from ganeti.base.versions import RELEASE_VERSION
from ganeti.config.index import INSTANCES
from ganeti.config.ssconf_values import ssconf_values
from ganeti.config.state import ConfigState
from ganeti.store.ssconf import KEYS, encode_values


def values_of(config: object) -> dict[str, str]:
    return ssconf_values(ConfigState(json.dumps(config).encode()).durable)


@pytest.mark.shows("maintd/store/ssconf")
def test_all_keys_are_there() -> None:
    assert set(ssconf_values(ConfigState(CONFIG_BYTES).durable)) == KEYS


def test_values() -> None:
    config = large_config(12, 10, 2)
    nodes = config["nodes"]
    nodes[uuid_of("node", 3)]["offline"] = True
    nodes[uuid_of("node", 4)]["vm_capable"] = False
    nodes[uuid_of("node", 4)]["ndparams"] = {"ssh_port": 2222}
    config["cluster"].update(
        tags=["b", "a"],
        uid_pool=[[5, 5], [10, 19]],
        candidate_certs={uuid_of("node", 1): "AA:BB"},
        enabled_user_shutdown=True,
    )
    values = values_of(config)
    assert values["cluster_tags"] == "b\na"
    assert values["uid_pool"] == "5\n10-19"
    assert values["enabled_user_shutdown"] == "True"
    assert values["master_node"] == "node1.example.com"
    assert values["master_candidates"] == "node1.example.com\nnode2.example.com"
    assert values["master_candidates_ips"] == "127.9.0.2\n127.9.0.3"
    assert values["master_candidates_certs"] == f"{uuid_of('node', 1)}=AA:BB"
    assert values["offline_nodes"] == "node3.example.com"
    assert "node3.example.com" not in values["online_nodes"]
    assert "node4.example.com=False" in values["node_vm_capable"]
    assert "node4.example.com=2222" in values["ssh_ports"]
    assert values["node_list"].split("\n")[-1] == "node10.example.com", "natural order"
    assert values["instance_list"].split("\n")[-1] == "inst11.example.com"
    assert values["nodegroups"] == f"{uuid_of('group', 0)} default"
    assert values["release_version"] == RELEASE_VERSION
    assert "migration_mode=live" in values["hvparams_fake"].split("\n")
    assert values["hvparams_kvm"].split("\n") == sorted(values["hvparams_kvm"].split("\n"))
    assert "acpi=True" in values["hvparams_kvm"]


def test_a_list_that_is_too_long_for_a_value_is_cut_after_a_name() -> None:
    view = ConfigState(large_config_bytes(8000)).durable
    values = ssconf_values(view)
    names = values["instance_list"].split("\n")
    assert (
        names
        == natural_sorted(view.name_of((INSTANCES, u)) for u in view.tables[INSTANCES])[
            : len(names)
        ]
    )
    assert 5000 < len(names) < 8000
    assert len(encode_values(values)["instance_list"]) <= SSCONF_BYTES_MAX


def test_tags_and_networks_that_are_too_many_keep_no_other_value_from_the_nodes() -> None:
    config = large_config(1)
    tags = [f"{number:04}:{'x' * 100}" for number in range(2000)]
    config["cluster"]["tags"] = tags
    for number in range(2500):
        uuid, name = uuid_of("network", number), f"network-{number}-{'x' * 20}"
        config["networks"][uuid] = {
            "name": name,
            "uuid": uuid,
            "network": "10.0.0.0/30",
            "serial_no": 1,
        }
    values = values_of(config)
    encode_values(values)
    kept = values["cluster_tags"].split("\n")
    assert len(kept) > 1000
    assert kept == tags[: len(kept)]
    assert values["networks"].split("\n")[-1].endswith("-" + "x" * 20)
