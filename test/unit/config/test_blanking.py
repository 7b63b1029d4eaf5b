"""Tests of ganeti/config/blanking.py."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes.old_configs import CURRENT_VERSION, OLD_VERSIONS, load_config
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.secret import REDACTED
from ganeti.config.blanking import blank_secrets
from ganeti.config.config_data import ConfigData

SECRETS = (
    "d0c5ecre7d0c5ecre7",  # DRBD, in logical_id and physical_id
    "fakehostkey",
    "fakedsakey",
    "instance-private-value",
    "cluster-private-value",
    "/etc/ganeti/vnc-cluster-password",
)
WORD = "hunter2hunter2"
NAMES = ["password", "root_passwd", "API_KEY", "auth-token", "client_secret", "hmac", "passphrase"]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)


@pytest.mark.shows("2.0/parameter-security/no-secrets", "2.0/parameter-security/drbd-secret")
@pytest.mark.parametrize("version", [*OLD_VERSIONS, CURRENT_VERSION])
def test_no_secret_is_left(version: str) -> None:
    config = load_config(version)
    text = json.dumps(blank_secrets(config))
    assert [secret for secret in SECRETS if secret in text] == []
    found = [secret for secret in SECRETS if secret in json.dumps(config)]
    assert text.count(REDACTED) >= len(found) >= 2


@pytest.mark.shows("2.0/parameter-security/drbd-secret")
def test_the_rest_stays_and_is_still_a_configuration() -> None:
    config = load_config(CURRENT_VERSION)
    blanked = blank_secrets(config)
    ConfigData.from_wire(blanked)
    for table in ("nodes", "nodegroups", "networks", "filters"):
        assert blanked[table] == config[table]
    assert blanked["cluster"]["candidate_certs"] == config["cluster"]["candidate_certs"]
    disk = next(one for one in blanked["disks"].values() if one["dev_type"] == "drbd")
    assert disk["logical_id"][2:] == [11005, 0, 0, REDACTED]
    assert disk["children"][0]["logical_id"] == ["xenvg", "web.disk0_data"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", ["cluster", "osparams", "hvparams", "params", "unknown"])
def test_the_name_of_a_secret_is_enough(name: str, place: str) -> None:
    config: Any = {place: {name: WORD, f"x_{name}_y": [WORD, {"deep": WORD}], "other": "seen"}}
    blanked = blank_secrets(config)
    assert WORD not in json.dumps(blanked)
    assert blanked[place]["other"] == "seen"


@pytest.mark.parametrize(
    "text",
    [
        f"-vnc :1,password={WORD}",
        f"--object secret,id=s0,data={WORD}",
        f"console=ttyS0 secret: {WORD}",
        f'{{"token": "{WORD}"}}',
        f"http://user:{WORD}@images.example.com/x.img",
        f"https://{WORD}@images.example.com/",
    ],
)
def test_secrets_inside_texts_go(text: str) -> None:
    blanked = blank_secrets({"kvm_extra": text, "list": [text]})
    assert WORD not in json.dumps(blanked)
    assert REDACTED in blanked["kvm_extra"]


@pytest.mark.parametrize(
    "value",
    [
        "http://deb.example.com/debian",
        "someone@example.com",
        "secret-project.example.com",
        "",
        "ro quiet",
    ],
)
def test_harmless_texts_stay(value: str) -> None:
    assert blank_secrets({"kernel_args": value, "tags": [value]}) == {
        "kernel_args": value,
        "tags": [value],
    }


def test_what_is_not_set_is_seen_to_be_not_set() -> None:
    config = {"vnc_password_file": "", "password": None, "use_token": False}
    assert blank_secrets(config) == config


@pytest.mark.parametrize("kind", [["drbd"], {}, 1, [], True])
def test_a_disk_of_no_kind_that_is_a_text_may_have_a_secret(kind: object) -> None:
    disk = {"dev_type": kind, "logical_id": ["a", "b", WORD]}
    assert blank_secrets(disk) == {**disk, "logical_id": ["a", "b", REDACTED]}


@given(value=json_values)
def test_private_parameters_go_whatever_they_are(value: object) -> None:
    config = {"osparams_private": {"a": value, "b": WORD}, "logical_id": [WORD]}
    blanked = blank_secrets(config)
    assert blanked["osparams_private"]["b"] == REDACTED
    assert blanked["logical_id"] == [WORD]
    assert shape_of(blanked["osparams_private"]["a"]) == shape_of(value)
    assert blank_secrets(blanked) == blanked


def shape_of(value: object) -> object:
    if isinstance(value, dict):
        return {key: shape_of(item) for key, item in value.items()}
    return [shape_of(item) for item in value] if isinstance(value, list) else None
