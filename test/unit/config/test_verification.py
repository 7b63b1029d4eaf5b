"""Tests of ganeti/config/verification.py."""

from __future__ import annotations

import json

import pytest
from fakes.old_configs import config_bytes, load_config

from ganeti.base.errors import ConfigurationError
from ganeti.config.verification import problems_in


def test_a_good_configuration_has_no_problems() -> None:
    assert problems_in(config_bytes("3.0")) == []


def test_problems_name_their_objects() -> None:
    config = load_config("3.0")
    node = next(iter(config["nodes"].values()))
    node["group"] = "nowhere"
    config["cluster"]["candidate_pool_size"] = 3
    found = problems_in(json.dumps(config).encode())
    assert "too few master candidates: 2, wanted are 3" in found
    assert f"node '{node['name']}': its group nowhere does not exist" in found


def test_what_cannot_be_read_raises() -> None:
    with pytest.raises(ConfigurationError, match="byte"):
        problems_in(b'{"cluster": {')
