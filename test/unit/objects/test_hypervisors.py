"""What is said of hypervisors agrees with their drivers and with what nodes accept."""

from __future__ import annotations

from importlib import import_module

from ganeti.hypervisor.interface import driver_modules
from ganeti.node_ops.machine.files import ALLOWED_PATHS
from ganeti.objects.hypervisors import Hypervisor


def test_every_hypervisor_has_a_driver() -> None:
    for module in driver_modules():
        import_module(module)
    assert len(driver_modules()) == len(Hypervisor) - 1  # one is of both kinds of Xen


def test_nodes_accept_the_files_of_hypervisors() -> None:
    assert {path for each in Hypervisor for path in each.traits.files} <= ALLOWED_PATHS
