"""Splitting and joining ``config.data``."""

from __future__ import annotations

import json

import pytest
from fakes.sample_config import CONFIG, CONFIG_BYTES

from ganeti.base.errors import ConfigurationError
from ganeti.config.config_data import join_config, split_config


@pytest.mark.shows("backend/config-data/one-file")
def test_every_object_becomes_one_raw_value() -> None:
    split = split_config(CONFIG_BYTES)
    assert json.loads(bytes(split.cluster)) == CONFIG["cluster"]
    assert set(split.tables) == {"nodes", "nodegroups", "instances", "networks", "disks", "filters"}
    for name, table in split.tables.items():
        assert {uuid: json.loads(bytes(raw)) for uuid, raw in table.items()} == CONFIG[name]
    assert {key: json.loads(bytes(raw)) for key, raw in split.top.items()} == {
        key: CONFIG[key] for key in ("version", "ctime", "mtime", "serial_no")
    }


@pytest.mark.shows("backend/config-data/one-file")
def test_joining_gives_the_same_bytes() -> None:
    assert join_config(split_config(CONFIG_BYTES)) == CONFIG_BYTES


@pytest.mark.shows("maintd/store/kept")
def test_unknown_top_level_keys_and_number_forms_survive() -> None:
    data = b'{"x":1.50,"cluster":{"a":1e3},"nodes":{"u":{"t":1.0}},"later":[{"k":0.10}]}'
    assert join_config(split_config(data)) == data


def test_a_table_that_was_missing_is_written_once_it_has_objects() -> None:
    split = split_config(b'{"cluster":{}}')
    assert join_config(split) == b'{"cluster":{}}'
    changed = type(split)(
        cluster=split.cluster,
        tables={**split.tables, "nodes": {"u": split.cluster}},
        top=split.top,
        order=split.order,
    )
    assert join_config(changed) == b'{"cluster":{},"nodes":{"u":{}}}'


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the configuration is not JSON: Input data was truncated at byte 0"),
        (CONFIG_BYTES[:100], "truncated at byte 100"),
        (b'{"cluster":{"a":tru}}', "invalid character at byte 17"),
        (b'{"cluster":"\xff"}', "not UTF-8 at byte 12"),
        (b"[]", "the configuration is not a JSON object"),
        (b"{}", "the configuration has no 'cluster'"),
        (b'{"cluster":{},"nodes":[]}', "nodes is not a JSON object"),
    ],
)
def test_what_is_wrong_is_named(data: bytes, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        split_config(data)
    assert message in caught.value.message


def test_absurd_nesting_is_refused() -> None:
    data = b'{"cluster":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    try:
        split = split_config(data)
    except ConfigurationError:
        return
    assert join_config(split) == data
