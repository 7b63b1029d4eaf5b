"""What is said of hypervisors agrees with their drivers and with what nodes accept."""

from __future__ import annotations

from ganeti.hypervisor.registry import supported_hypervisors
from ganeti.node_ops.files import ALLOWED_PATHS
from ganeti.objects.hypervisors import ANCILLARY_FILES, SUPPORTED_HYPERVISORS


def test_supported_are_those_with_a_driver() -> None:
    assert sorted(SUPPORTED_HYPERVISORS) == supported_hypervisors()


def test_nodes_accept_the_files_of_hypervisors() -> None:
    assert {path for paths in ANCILLARY_FILES.values() for path in paths} <= ALLOWED_PATHS
