"""Parameter tables and the rules for changing parameters."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import pytest
from fakes.sample_config import load_sample
from hypothesis import example, given
from hypothesis import strategies as st

from ganeti.base.errors import TypeEnforcementError
from ganeti.objects.hypervisors import HVPARAMS
from ganeti.objects.parameters import (
    ABSOLUTE_PATH,
    BEPARAMS,
    DISKPARAMS,
    IPOLICY_DEFAULTS,
    NDPARAMS,
    NICPARAMS,
    VALUE_DEFAULT,
    ParamTable,
    apply_changes,
    cluster_wide_only,
    enforce_types,
    flag,
    integer,
    maybe_text,
    number,
    problems,
    size,
    text,
)

GOLDEN: dict[str, Any] = load_sample("parameters")


def as_golden(table: ParamTable) -> dict[str, dict[str, object]]:
    rows: dict[str, dict[str, object]] = {}
    for name, spec in table.items():
        if spec.is_ours:
            continue
        rows[name] = {"type": str(spec.type), "default": spec.default}
        if spec.cluster_wide:
            rows[name]["cluster_wide_only"] = True
    return rows


@pytest.mark.shows("backend/instance/kinds", "2.0/parameters/classes", "2.1/diskparams/mode-link")
@pytest.mark.parametrize(
    ("name", "table"), [("beparams", BEPARAMS), ("nicparams", NICPARAMS), ("ndparams", NDPARAMS)]
)
def test_tables_are_as_specified(name: str, table: ParamTable) -> None:
    assert as_golden(table) == GOLDEN[name]


@pytest.mark.shows(
    "backend/instance/kinds",
    "2.0/core/name-spaces",
    "2.0/instance-parameters/generic",
    "2.0/validation/names",
    "2.1/vnc/levels",
    "2.1/vnc/compatible",
    "2.1/diskparams/stripes",
    "2.1/diskparams/barriers",
)
@pytest.mark.parametrize(("name", "tables"), [("hvparams", HVPARAMS), ("diskparams", DISKPARAMS)])
def test_tables_by_kind_are_as_specified(name: str, tables: Mapping[str, ParamTable]) -> None:
    assert {kind: as_golden(table) for kind, table in tables.items()} == GOLDEN[name]


def test_policy_defaults_are_as_specified() -> None:
    assert GOLDEN["ipolicy"] == IPOLICY_DEFAULTS


TABLE = {
    "b": flag(True),
    "f": number(1.0, least=0.5),
    "i": integer(1, least=0, most=12, cluster_wide=True),
    "m": maybe_text(""),
    "s": text("", choices=("", "x")),
    "z": size(128),
    "p": text("", form=ABSOLUTE_PATH),
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


@pytest.mark.shows("2.1/diskparams/validated")
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


@pytest.mark.shows("2.0/validation/names", "2.1/diskparams/unknown")
def test_unknown_parameters_are_refused() -> None:
    with pytest.raises(TypeEnforcementError, match="unknown parameter 'x'; known are: b, f, i"):
        enforce_types({"x": 1}, TABLE)


def test_changes_are_laid_over() -> None:
    old = {"a": 1, "b": 2, "c": 3}
    assert apply_changes(old, {"a": "default", "b": None, "d": 4}) == {"b": None, "c": 3, "d": 4}
    assert apply_changes(old, {"b": None}, none_removes=True) == {"a": 1, "c": 3}
    assert apply_changes({"a": "default"}, {}) == {"a": "default"}


@pytest.mark.shows("2.1/global/not-instance")
def test_what_only_the_cluster_may_set() -> None:
    assert cluster_wide_only({"i": 1, "b": True, "x": 1}, TABLE) == ["i"]


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("f", 0.1, "thing 'f': 0.1 is less than 0.5"),
        ("i", "13", "thing 'i': 13 is not between 0 and 12"),
        ("s", "y", "thing 's': 'y' is not one of \"\", x"),
        ("p", "etc/x", "thing 'p': 'etc/x' is not an absolute path"),
        ("z", "big", "thing 'z': expected a size in MiB or with a unit, such as 512 or 10g,"),
        ("nothing", 1, "unknown thing 'nothing'; known are: b, f, i, m, p, s, z"),
    ],
)
def test_problems_are_found_without_raising(name: str, value: object, problem: str) -> None:
    (found,) = problems({name: value, "b": True}, TABLE, what="thing")
    assert found.startswith(problem)


def test_default_and_right_values_are_no_problem() -> None:
    given = {"f": 0.5, "i": VALUE_DEFAULT, "s": "default", "p": "/etc/x", "m": None}
    assert list(problems(given, TABLE)) == []


@pytest.mark.shows("2.1/diskparams/validated")
@pytest.mark.parametrize(
    ("template", "name", "wrong"),
    [
        ("drbd", "c-delay-target", [0, 101]),
        ("drbd", "c-fill-target", [-1, (1 << 20) + 1]),
        ("drbd", "c-max-rate", [249, (4 << 20) + 1]),
        ("drbd", "c-min-rate", [-1, (4 << 20) + 1]),
        ("drbd", "c-plan-ahead", [-1, 301]),
        ("drbd", "data-stripes", [0, -5, 129]),
        ("drbd", "disk-barriers", ["zzz", "", "nb", "bn", "B"]),
        ("drbd", "disk-custom", ["'", "x", "--a 'b", "--a\\", "--a\nb", "a --b"]),
        ("drbd", "dynamic-resync", ["maybe", 3.5]),
        ("drbd", "meta-barriers", ["n"]),
        ("drbd", "meta-stripes", [0, 129, "x"]),
        ("drbd", "metavg", ["", "-x", ".", "..", "a/b", "a b", "x" * 128]),
        ("drbd", "net-custom", ['"', "y"]),
        ("drbd", "protocol", ["Z", "c", ""]),
        ("drbd", "resync-rate", [-4, 0, (4 << 20) + 1]),
        ("ext", "access", ["user", ""]),
        ("gluster", "access", ["user"]),
        ("gluster", "host", ["", "-x", "a b", "a/b"]),
        ("gluster", "port", [0, 65536]),
        ("gluster", "volume", ["", "-x", "a/b", "../x"]),
        ("plain", "stripes", [0, -5, 129, "1.5"]),
        ("rbd", "access", ["user"]),
        ("rbd", "pool", ["", "-x", "a/b", "a@b", "a b"]),
    ],
)
def test_values_of_disk_parameters_that_cannot_be(
    template: str, name: str, wrong: list[object]
) -> None:
    table = DISKPARAMS[template]
    for value in wrong:
        (found,) = problems({name: value}, table, what="parameter")
        assert found.startswith(f"parameter '{name}': ")
    assert list(problems({name: table[name].default}, table)) == []


def test_every_disk_parameter_has_limits() -> None:
    bare = [
        f"{template}:{name}"
        for template, table in DISKPARAMS.items()
        for name, spec in table.items()
        if spec.type != "bool" and not (spec.form or spec.choices or spec.least is not None)
    ]
    assert bare == []


@given(st.text(alphabet="-ab =\"'\\", max_size=12))
@example("--a='b c' \\\"")
def test_custom_options_are_those_that_can_be_split(words: str) -> None:
    try:
        split = shlex.split(words)
    except ValueError:
        split = None
    is_right = not list(problems({"net-custom": words}, DISKPARAMS["drbd"]))
    if is_right:
        assert split is not None
        assert split == [] or words.lstrip(" \"'").startswith("-")
    elif split:
        assert not words.lstrip(" ").startswith("-")


def test_limits_are_told_in_full() -> None:
    drbd = DISKPARAMS["drbd"]
    assert "from 0 to 1048576;" in drbd["c-fill-target"].described
    assert "from 0 to 4194304;" in drbd["c-min-rate"].described
    assert "from 0.001 to 1000;" in NDPARAMS["cpu_speed"].described
    tables = (*HVPARAMS.values(), *DISKPARAMS.values(), NDPARAMS)
    assert not [spec for table in tables for spec in table.values() if "e+" in spec.described]
