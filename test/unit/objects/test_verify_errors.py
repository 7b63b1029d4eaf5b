"""Codes of what cluster verification finds."""

from __future__ import annotations

import pytest

from ganeti.objects.verify_errors import VerifyErrorCode, item_kind


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ECLUSTERCFG", "cluster"),
        ("ECLUSTERDANGLINGNODES", "node"),
        ("EEXTAGS", "node"),
        ("EGROUPDIFFERENTPVSIZE", "group"),
        ("EINSTANCEDOWN", "instance"),
        ("ENODEOS", "node"),
    ],
)
def test_kind_of_thing(code: str, kind: str) -> None:
    assert item_kind(VerifyErrorCode(code)) == kind


def test_all_codes_have_a_kind() -> None:
    assert len(VerifyErrorCode) == 41
    assert {item_kind(code) for code in VerifyErrorCode} == {"cluster", "group", "instance", "node"}
