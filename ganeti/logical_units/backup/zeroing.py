"""Free space on the disks of an instance, filled with zeroes by a machine of its own.

The cluster's zeroing image boots in a helper machine, see `helper`, which has no network.  The
system on the image knows what free space is.

Source: opcodes.json, OP_BACKUP_EXPORT "zero_free_space"; constants.json, HELPER_VM_STARTUP and
ZEROING_TIMEOUT_PER_MIB.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import NotSupportedError, OpExecError, OpPrereqError
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance import helper
from ganeti.logical_units.instance.helper import Beside
from ganeti.logical_units.instance.view import InstanceView
from ganeti.logical_units.undo import Undo
from ganeti.objects.hypervisors import Hypervisor
from ganeti.opcodes.backup import OpBackupExport

TIMEOUT_FIXED_S: Final = 300
TIMEOUT_PER_MIB_S: Final = 0.05


def check_options(context: JobContext, view: InstanceView, op: OpBackupExport) -> None:
    """Refuse to fill free space where that cannot be, and options that are for it alone.

    Raises:
        NotSupportedError, OpPrereqError: why it cannot be.
    """
    if not op.zero_free_space:
        for name in ("zeroing_timeout_fixed", "zeroing_timeout_per_mib"):
            if getattr(op, name) is not None:
                raise OpPrereqError(f"--{name.replace('_', '-')} is for --zero-free-space only")
        return
    name, hypervisor = view.name, view.instance.hypervisor
    if not op.shutdown or op.snapshot is not None:
        raise OpPrereqError(
            "free space is filled while the instance is stopped; leave --noshutdown and --snapshot"
            " out"
        )
    if not Hypervisor(hypervisor).traits.boots_disks:
        raise NotSupportedError(
            f"instance {name!r}: hypervisor {hypervisor!r} starts no machine from a disk, so"
            " nothing can fill its free space with zeroes"
        )
    helper.image_mib(context, view.cluster, view.primary, Beside.ZEROING)


def timeout_s(op: OpBackupExport, view: InstanceView) -> float:
    """Return how long the machine may work (seconds)."""
    fixed = TIMEOUT_FIXED_S if op.zeroing_timeout_fixed is None else op.zeroing_timeout_fixed
    per_mib = op.zeroing_timeout_per_mib
    return fixed + (TIMEOUT_PER_MIB_S if per_mib is None else per_mib) * sum(
        disk.size for disk in view.disks
    )


def fill(context: JobContext, view: InstanceView, op: OpBackupExport) -> None:
    """Fill the free space of a stopped instance's disks; nothing of the machine is left.

    Raises:
        OpExecError: the machine could not be started, or did not end in time.
        JobCanceled: canceled meanwhile.
    """
    reason = op.reason or []
    limit_s = timeout_s(op, view)
    context.feedback(f"Filling free space on the disks of {view.name} with zeroes")
    with Undo(context) as undo:
        image = helper.make_image(context, view, Beside.ZEROING, undo)
        machine = helper.machine(view, [image, *view.disks])
        machine = machine.with_instance(replace(machine.instance, nics=[]))
        helper.start(context, machine, reason, undo)
        _wait_off(context, machine, limit_s)
        undo.carry_out()
    context.feedback(f"Free space on the disks of {view.name} is filled")


def _wait_off(context: JobContext, machine: InstanceView, limit_s: float) -> None:
    deadline_s = context.monotonic() + limit_s
    while helper.runs(context, machine):
        context.check_canceled()
        if context.monotonic() >= deadline_s:
            raise OpExecError(
                f"the machine that fills free space of instance {machine.name!r} did not power"
                f" itself off within {limit_s:.0f} seconds; give it more time with"
                " --zeroing-timeout-fixed or --zeroing-timeout-per-mib"
            )
        context.wait(helper.LOOK_S)
