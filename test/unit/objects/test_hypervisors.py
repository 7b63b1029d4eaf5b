"""What is said of hypervisors agrees with their drivers and with what nodes accept."""

from __future__ import annotations

from ganeti.hypervisor.interface import driver_modules
from ganeti.node_ops.machine.files import ALLOWED_PATHS
from ganeti.objects.hypervisors import SUPPORTED_HYPERVISORS, Hypervisor


def test_supported_are_those_with_a_driver() -> None:
    assert len(driver_modules()) == len(SUPPORTED_HYPERVISORS)


def test_nodes_accept_the_files_of_hypervisors() -> None:
    assert {path for each in Hypervisor for path in each.traits.files} <= ALLOWED_PATHS
