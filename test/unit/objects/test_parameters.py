"""Parameter tables and the rules for changing parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from fakes.sample_config import load_sample

from ganeti.base.errors import TypeEnforcementError
from ganeti.objects.parameters import (
    BEPARAMS,
    DISKPARAMS,
    HVPARAMS,
    IPOLICY_DEFAULTS,
    NDPARAMS,
    NICPARAMS,
    ParamSpec,
    ParamTable,
    ValueType,
    apply_changes,
    bool_param,
    cluster_wide_only,
    defaults_of,
    enforce_types,
    int_param,
    text_param,
)

GOLDEN: dict[str, Any] = load_sample("parameters")


def as_golden(table: ParamTable) -> dict[str, dict[str, object]]:
    rows: dict[str, dict[str, object]] = {}
    for name, spec in table.items():
        rows[name] = {"type": str(spec.type), "default": spec.default}
        if spec.cluster_wide:
            rows[name]["cluster_wide_only"] = True
    return rows


@pytest.mark.parametrize(
    ("name", "table"), [("beparams", BEPARAMS), ("nicparams", NICPARAMS), ("ndparams", NDPARAMS)]
)
def test_tables_are_as_specified(name: str, table: ParamTable) -> None:
    assert as_golden(table) == GOLDEN[name]


@pytest.mark.parametrize(("name", "tables"), [("hvparams", HVPARAMS), ("diskparams", DISKPARAMS)])
def test_tables_by_kind_are_as_specified(name: str, tables: Mapping[str, ParamTable]) -> None:
    assert {kind: as_golden(table) for kind, table in tables.items()} == GOLDEN[name]


def test_policy_defaults_are_as_specified() -> None:
    assert GOLDEN["ipolicy"] == IPOLICY_DEFAULTS


TABLE = {
    "b": ParamSpec(ValueType.BOOL, True),
    "f": ParamSpec(ValueType.FLOAT, 1.0),
    "i": ParamSpec(ValueType.INT, 1, cluster_wide=True),
    "m": ParamSpec(ValueType.MAYBE_STRING, ""),
    "s": ParamSpec(ValueType.STRING, ""),
    "z": ParamSpec(ValueType.SIZE, 128),
}


@pytest.mark.parametrize(
    ("name", "value", "enforced"),
    [
        ("b", "True", True),
        ("b", "no", False),
        ("b", 1, True),
        ("f", 2, 2.0),
        ("f", "0.5", 0.5),
        ("i", "12", 12),
        ("m", None, None),
        ("m", "x", "x"),
        ("s", False, ""),
        ("s", "text", "text"),
        ("z", "1g", 1024),
        ("z", 512, 512),
        ("i", "default", "default"),
    ],
)
def test_values_are_converted(name: str, value: object, enforced: object) -> None:
    result = enforce_types({name: value}, TABLE)[name]
    assert result == enforced
    assert type(result) is type(enforced)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("b", "maybe"),
        ("b", 0.5),
        ("f", True),
        ("f", "x"),
        ("i", "1.5"),
        ("i", 1.5),
        ("i", True),
        ("m", 3),
        ("s", None),
        ("s", 3),
        ("z", "1q"),
        ("z", None),
    ],
)
def test_values_of_the_wrong_type_are_refused(name: str, value: object) -> None:
    with pytest.raises(TypeEnforcementError, match=f"test parameter '{name}': expected"):
        enforce_types({name: value}, TABLE, what="test parameter")


def test_unknown_parameters_are_refused() -> None:
    with pytest.raises(TypeEnforcementError, match="unknown parameter 'x'; known are: b, f, i"):
        enforce_types({"x": 1}, TABLE)


def test_changes_are_laid_over() -> None:
    old = {"a": 1, "b": 2, "c": 3}
    assert apply_changes(old, {"a": "default", "b": None, "d": 4}) == {"b": None, "c": 3, "d": 4}
    assert apply_changes(old, {"b": None}, none_removes=True) == {"a": 1, "c": 3}
    assert apply_changes({"a": "default"}, {}) == {"a": "default"}


def test_what_only_the_cluster_may_set() -> None:
    assert cluster_wide_only({"i": 1, "b": True, "x": 1}, TABLE) == ["i"]


def test_reading_filled_parameters() -> None:
    filled = defaults_of(HVPARAMS["kvm"])
    assert text_param(filled, "kvm_path") == "/usr/bin/kvm"
    assert int_param(filled, "migration_port") == 8102
    assert bool_param(filled, "acpi") is True
    for read, name in ((text_param, "acpi"), (int_param, "acpi"), (bool_param, "nothing")):
        with pytest.raises(TypeEnforcementError):
            read(filled, name)
