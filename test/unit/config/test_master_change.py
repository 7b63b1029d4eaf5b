"""The configuration under a new master."""

from __future__ import annotations

import copy
import json

import pytest
from fakes.large_config import large_config_bytes, uuid_of

from ganeti.base.errors import ConfigurationError
from ganeti.base.ids import NodeUuid
from ganeti.config.config_data import with_candidate_certs, with_master
from ganeti.config.ssconf_values import ssconf_values
from ganeti.config.state import ConfigState

DATA = large_config_bytes(3, 3, 2)


def test_only_master_serial_and_time_change_and_unknown_keys_stay() -> None:
    before = json.loads(DATA)
    before["unknown"] = {"kept": [1, 2.50]}
    before["cluster"]["also_unknown"] = "kept"
    data = json.dumps(before).encode().replace(b"2.5]", b"2.50]")
    changed = with_master(data, master_name="node2.example.com", serial_no=70, now=9.5)
    expected = copy.deepcopy(before)
    expected.update(serial_no=70, mtime=9.5)
    expected["cluster"].update(
        master_node=uuid_of("node", 2), serial_no=before["cluster"]["serial_no"] + 1, mtime=9.5
    )
    assert json.loads(changed) == expected
    assert b"2.50" in changed
    assert list(json.loads(changed)) == list(before)
    assert ssconf_values(ConfigState(changed).durable)["master_node"] == "node2.example.com"


@pytest.mark.shows(
    "backend/roles/from-candidates",
    "backend/roles/offline-no-master",
    "2.0/candidate/failover-target",
)
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("node3.example.com", "not a master candidate"),
        ("node9.example.com", "not in the configuration"),
    ],
)
def test_not_every_node_can_be_master(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        with_master(DATA, master_name=name, serial_no=70, now=9.5)


def test_a_broken_configuration_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="byte"):
        with_master(DATA[:-5], master_name="node2.example.com", serial_no=70, now=9.5)


def test_certificates_are_trusted_alone() -> None:
    before = json.loads(DATA)
    digests = {NodeUuid(uuid_of("node", 1)): "AA:BB", NodeUuid(uuid_of("node", 2)): "CC:DD"}
    changed = json.loads(with_candidate_certs(DATA, digests, now=9.5))
    assert changed["cluster"]["candidate_certs"] == digests
    assert changed["serial_no"] == before["serial_no"] + 1
    assert changed["nodes"] == before["nodes"]
