"""Processors and memory that come to a machine while it runs, within the room that its start made.

Both are written down with their places, for the target of a migration: QEMU makes devices there by
the number of processors of the start, so it must not start with more.  Nothing is taken away: that
needs a guest that lets it go, and few do.

Source: QEMU's QMP reference, query-hotpluggable-cpus, object-add, device_add, query-memory-devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import HotplugError, HypervisorError
from ganeti.hypervisor.kvm import devices
from ganeti.hypervisor.kvm.files import MachineFiles, local_file
from ganeti.hypervisor.kvm.launch import pin
from ganeti.hypervisor.kvm.machine import MEMORY_SLOTS, Dimm, Machine
from ganeti.hypervisor.kvm.monitor import Monitor
from ganeti.hypervisor.kvm.state import Runtime, save_runtime
from ganeti.hypervisor.params import assign_cpus

STEP_MIB: Final = 128  # Linux on x86-64 takes memory in blocks of this size
_PLACE: Final = ("socket-id", "die-id", "core-id", "thread-id")


def check(machine: Machine, *, vcpus: int, memory_mib: int) -> None:
    """Refuse sizes that a machine cannot come to while it runs.

    Raises:
        HotplugError: says why, and which parameter makes room at the next start.
        OpPrereqError: each processor has its own mask, and there is none for more of them.
    """
    name, params = machine.name, machine.params
    has_mib, has_vcpus = machine.memory_now_mib, machine.vcpus_now
    if vcpus < has_vcpus or memory_mib < has_mib:
        what = f"{has_vcpus} processors and {has_mib} MiB"
        raise HotplugError(
            f"instance {name} runs with {what}, and has less only after a restart"
            " (memory: 'gnt-instance modify -m' takes it from the running guest)"
        )
    if vcpus > max(has_vcpus, params.number("max_vcpus")):
        raise _no_room(name, f"{vcpus} processors", "max_vcpus", vcpus)
    if memory_mib > max(has_mib, params.number("max_memory")):
        raise _no_room(name, f"{memory_mib} MiB of memory", "max_memory", memory_mib)
    rest_mib = (memory_mib - has_mib) % STEP_MIB
    if rest_mib:
        below, above = memory_mib - rest_mib, memory_mib - rest_mib + STEP_MIB
        raise HotplugError(
            f"instance {name} has {has_mib} MiB of memory and gets more in steps of {STEP_MIB} MiB"
            f" while it runs: {below} or {above} MiB"
        )
    assign_cpus(params.text("cpu_mask"), vcpus)
    if memory_mib > has_mib and len(machine.dimms) >= MEMORY_SLOTS:
        text = f"has got memory {MEMORY_SLOTS} times since its start; restart it for more"
        raise HotplugError(f"instance {name} {text}")


def _no_room(name: str, what: str, parameter: str, value: int) -> HotplugError:
    return HotplugError(
        f"instance {name} was not started with room for {what}; make it with 'gnt-instance modify"
        f" -H {parameter}={value} {name}' and 'gnt-instance reboot -t full {name}'"
    )


def grow(
    monitor: Monitor, runtime: Runtime, files: MachineFiles, *, vcpus: int, memory_mib: int
) -> None:
    """Give a machine memory and processors until it has so much of them.

    Each step is written down when QEMU has taken it.

    Raises:
        HotplugError: it cannot have them; see `check`.
    """
    machine = runtime.machine
    check(machine, vcpus=vcpus, memory_mib=memory_mib)
    more_mib = memory_mib - machine.memory_now_mib
    if more_mib > 0:
        path = local_file(machine.params.text("mem_path"), files.paths)
        machine = _add_memory(monitor, machine, more_mib, path)
        save_runtime(files, replace(runtime, machine=machine))
    while vcpus > machine.vcpus_now:
        machine = _add_processor(monitor, machine)
        save_runtime(files, replace(runtime, machine=machine))
        mask = machine.params.text("cpu_mask")
        pin(monitor, machine.name, assign_cpus(mask, machine.vcpus_now))


def _add_memory(monitor: Monitor, machine: Machine, size_mib: int, path: str) -> Machine:
    """Add a module of memory; returns the machine as it is then.

    Raises:
        HypervisorError: QEMU refuses; nothing is left of it.
    """
    slot = next(n for n in range(MEMORY_SLOTS) if n not in {dimm.slot for dimm in machine.dimms})
    dimm = Dimm(slot=slot, size_mib=size_mib, address=0)
    if dimm.device_id not in _modules(monitor):  # it may be there, if a process died meanwhile
        monitor.execute("object-add", devices.memory_options(dimm, machine.params, path))
        try:
            wanted = devices.dimm_options(dimm)
            wanted.pop("addr")  # QEMU finds the place
            monitor.execute("device_add", wanted)
        except HypervisorError:
            monitor.execute("object-del", {"id": dimm.memory_id})
            raise
    found = _modules(monitor)[dimm.device_id]
    size_mib = int(str(found["size"])) >> 20
    dimm = replace(dimm, address=int(str(found["addr"])), size_mib=size_mib)
    return replace(machine, dimms=(*machine.dimms, dimm))


def _modules(monitor: Monitor) -> dict[str, Mapping[str, object]]:
    """Return the modules of memory by their names."""
    rows = [row.get("data") for row in monitor.query_list("query-memory-devices")]
    return {str(row.get("id")): row for row in rows if isinstance(row, Mapping)}


def _add_processor(monitor: Monitor, machine: Machine) -> Machine:
    """Add the processor that QEMU counts next; returns the machine as it is then."""
    known = [_key(processor) for processor in machine.processors]
    rows = [
        (place, "qom-path" in row, {"driver": str(row["type"]), **place})
        for row in monitor.query_list("query-hotpluggable-cpus")
        if isinstance(place := row.get("props"), dict)
    ]
    ordered = sorted(rows, key=lambda row: _key(row[0]))
    # One may be there that is not written down, if a process died meanwhile: it follows the others.
    later = [row for row in ordered[machine.vcpus :] if _key(row[0]) not in known]
    _place, is_there, found = later[0]
    if not is_there:
        name = "-".join(map(str, _key(found)))
        monitor.execute("device_add", {**found, "id": f"cpu-{name}"})
    return replace(machine, processors=(*machine.processors, found))


def _key(place: Mapping[str, object]) -> list[int]:
    """Return what QEMU counts processors by."""
    return [int(str(place.get(name, 0))) for name in _PLACE]
