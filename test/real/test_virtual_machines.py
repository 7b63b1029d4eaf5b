"""What only a machine with a kernel of its own can show: limits of memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rig.virtual_machines import VirtualMachines, virtual_machines

PYTHON = "/opt/ganeti/bin/python -c"
IN_MEMORY = """
from ganeti.daemon import memory
memory.be_an_ordinary_victim()
memory.enable()
print(memory.lock_everything(), open("/proc/self/oom_score_adj").read())
"""


@pytest.fixture(scope="module")
def rig(root: None) -> Iterator[VirtualMachines]:
    with virtual_machines(1) as running:
        yield running


def test_memory_is_locked_and_guests_are_not_spared(rig: VirtualMachines) -> None:
    machine = rig.machines[0]
    limits = "-p LimitMEMLOCK=infinity -p OOMScoreAdjust=-900"  # as in the unit
    said = machine.run(f"systemd-run --wait --pipe --quiet {limits} {PYTHON} '{IN_MEMORY}'")
    assert said.split() == ["True", "0"]
