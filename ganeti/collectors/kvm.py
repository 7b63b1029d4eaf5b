"""The KVM instances of this node, found by their pid files.

Source: `ganeti.hypervisor.kvm.files`; proc(5).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.collectors.node_view import NodeView
from ganeti.hypervisor.interface import InstanceState, NodeEnv
from ganeti.hypervisor.kvm import state
from ganeti.hypervisor.kvm.files import MachineFiles
from ganeti.hypervisor.kvm.process import QemuProcess, find_process
from ganeti.system import process_facts
from ganeti.system.process_facts import ProcessFacts

# Only such a QEMU outlives its guest; all others run as long as they are there.
_OUTLIVES_GUEST: Final = "-no-shutdown"


def running(view: NodeView) -> Iterator[tuple[MachineFiles, QemuProcess, ProcessFacts]]:
    """Yield the machines that run here, but not those still being received."""
    # The address is for what listens, and nothing listens here.
    for name in state.known_names(NodeEnv(view.paths, view.hostname, address="")):
        files = MachineFiles(view.paths, name)
        if state.is_incoming(files):
            continue
        process = find_process(files)
        facts = None if process is None else process_facts.read(process.pid)
        if process is not None and facts is not None:
            yield files, process, facts


def is_guest_down(files: MachineFiles, process: QemuProcess) -> bool:
    """Tell whether the guest has switched itself off while its QEMU goes on."""
    if _OUTLIVES_GUEST not in process.arguments:
        return False
    try:
        info = state.look(files)
    except GenericError:
        return False  # what does not say that it is down is taken to run
    return info is not None and info.state is InstanceState.SHUTDOWN
