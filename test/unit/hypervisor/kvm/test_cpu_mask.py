"""Which processors virtual processors run on."""

import pytest

from ganeti.base.errors import OpPrereqError
from ganeti.hypervisor.kvm.cpu_mask import CpuSet, assign_cpus, parse_cpu_mask


@pytest.mark.parametrize(
    ("mask", "sets"),
    [
        ("all", [None]),
        ("0", [{0}]),
        ("0-2,5", [{0, 1, 2, 5}]),
        ("0:1-2:all", [{0}, {1, 2}, None]),
        (" 3 , 4 ", [{3, 4}]),
    ],
)
def test_masks(mask: str, sets: list[CpuSet]) -> None:
    assert parse_cpu_mask(mask) == sets


@pytest.mark.parametrize("mask", ["", "x", "1-", "3-1", "0::1", "all,1", "0-99999999", "-1"])
def test_wrong_masks_are_named(mask: str) -> None:
    with pytest.raises(OpPrereqError, match="cpu_mask"):
        parse_cpu_mask(mask)


def test_one_set_is_for_all_virtual_processors() -> None:
    assert assign_cpus("1-2", 3) == [{1, 2}] * 3
    assert assign_cpus("1:2", 2) == [{1}, {2}]
    with pytest.raises(OpPrereqError, match="the instance has 3"):
        assign_cpus("1:2", 3)
