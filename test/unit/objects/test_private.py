"""Values that must not be seen."""

from __future__ import annotations

from ganeti.objects.private import PrivateParams


def test_only_names_are_shown() -> None:
    params = PrivateParams({"key": "VALUE"})
    for shown in (repr(params), str(params), f"{params}", f"{[params]}"):
        assert "VALUE" not in shown
        assert "'key': ***" in shown


def test_values_are_there_for_who_asks() -> None:
    params = PrivateParams({"a": "1", "b": 2})
    revealed = params.reveal()
    revealed["c"] = 3
    assert params.reveal() == {"a": "1", "b": 2}
    assert (list(params), params.names(), len(params), "a" in params) == (
        ["a", "b"],
        ["a", "b"],
        2,
        True,
    )


def test_merging_and_comparing() -> None:
    params = PrivateParams({"a": "1"})
    assert params.merged({"b": "2"}) == PrivateParams({"a": "1", "b": "2"})
    assert params.merged(PrivateParams({"a": "3"})).reveal() == {"a": "3"}
    assert params != PrivateParams({"a": "2"})
    assert params != {"a": "1"}
