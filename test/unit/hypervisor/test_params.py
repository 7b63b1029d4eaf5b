"""Parameters of every hypervisor: types, masks of processors."""

from __future__ import annotations

import pytest

from ganeti.base.errors import OpPrereqError
from ganeti.hypervisor.params import CpuSet, HvParams, assign_cpus, check_cpus_here, parse_cpu_mask


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


@pytest.mark.parametrize(
    "mask", ["", "x", "1-", "3-1", "0::1", "all,1", "0-99999999", "-1", "1" * 5000]
)
def test_wrong_masks_are_named(mask: str) -> None:
    with pytest.raises(OpPrereqError, match="cpu_mask"):
        parse_cpu_mask(mask)


def test_one_set_is_for_all_virtual_processors() -> None:
    assert assign_cpus("1-2", 3) == [{1, 2}] * 3
    assert assign_cpus("1:2", 2) == [{1}, {2}]
    with pytest.raises(OpPrereqError, match="the instance has 3"):
        assign_cpus("1:2", 3)


def test_processors_of_this_node() -> None:
    check_cpus_here("all", "node1")
    check_cpus_here("0", "node1")
    with pytest.raises(OpPrereqError, match=r"node1 has processors .*, not 8000, 8001"):
        check_cpus_here("8000-8001", "node1")


def test_values_are_of_their_types() -> None:
    params = HvParams({"path": None, "count": True, "on": 1})
    assert params.text("path") == ""
    for read in (params.number, params.flag, params.text):
        with pytest.raises(OpPrereqError, match="must be"):
            read("count" if read != params.flag else "on")
