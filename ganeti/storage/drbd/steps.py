"""Carrying out the steps of a plan, and metadata.

Source: drbdsetup(8) and drbdmeta(8) of DRBD 8.4.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from ganeti.base.errors import BlockDeviceError, failing_as
from ganeti.objects.disk_templates import DRBD_META_SIZE_MIB
from ganeti.storage.data import size_of, wipe_open
from ganeti.storage.drbd import drbdsetup, options
from ganeti.storage.drbd.plan import Found, Step, Wanted, find, net_differences
from ganeti.system.files import closing

MIB: Final = 1 << 20
_NEW_GENERATION: Final = "0000000000000004:"  # of metadata that no disk was attached with


def carry_out(wanted: Wanted, found: Found, steps: Sequence[Step]) -> None:
    """Carry out the steps; a device that is made by them is taken down again if one fails.

    Raises:
        BlockDeviceError: one failed, or the driver did not take an option as it was given.
    """
    try:
        for step in steps:
            drbdsetup.run(("drbdsetup", *_arguments(step, wanted, found)))
            _read_back(step, wanted)
    except BlockDeviceError:
        if Step.NEW_MINOR in steps:
            with suppress(BlockDeviceError):
                drbdsetup.run(("drbdsetup", "down", wanted.resource))
        raise


def _arguments(step: Step, wanted: Wanted, found: Found) -> list[str]:
    minor, resource, here = str(wanted.minor), wanted.resource, found.resource
    match step:
        case Step.DOWN:
            assert here is not None
            return ["down", here.name]
        case Step.NEW_RESOURCE:
            return ["new-resource", resource]
        case Step.NEW_MINOR:
            return ["new-minor", resource, minor, "0"]
        case Step.ATTACH:
            size = _size_if_new(wanted)
            metadata(wanted.minor, wanted.meta, "apply-al")
            given = options.arguments({**wanted.disk_options, **size})
            return ["attach", minor, wanted.data, wanted.meta, "0", *given]
        case Step.DISK_OPTIONS:
            assert found.volume is not None
            differ = options.differences(wanted.disk_options, found.volume.options)
            return ["disk-options", minor, *options.arguments(differ)]
        case Step.DISCONNECT:
            assert here is not None
            return ["disconnect", here.local, here.remote]
        case Step.CONNECT:
            given = options.arguments(wanted.net_options)
            return ["connect", resource, wanted.local, wanted.remote, *given]
        case Step.NET_OPTIONS:
            differ = net_differences(wanted, found)
            return ["net-options", wanted.local, wanted.remote, *options.arguments(differ)]


def _size_if_new(wanted: Wanted) -> dict[str, str]:
    """Return the size for metadata that does not know it yet; nothing ever makes it smaller."""
    generation = metadata(wanted.minor, wanted.meta, "get-gi").strip().rpartition("\n")[2]
    is_new = generation.startswith(_NEW_GENERATION)
    return {options.SIZE: f"{wanted.size_mib}m"} if is_new else {}


def _read_back(step: Step, wanted: Wanted) -> None:
    """Compare the options of the device with the wanted ones, after they were set.

    Raises:
        BlockDeviceError: the driver has others.
    """
    if step not in (Step.ATTACH, Step.DISK_OPTIONS, Step.NET_OPTIONS):
        return
    seen = drbdsetup.view()
    found = find(wanted.minor, seen.resources, seen.status)
    if step is Step.NET_OPTIONS:
        has = found.resource.options if found.resource is not None else {}
        differ = net_differences(wanted, found)
    else:
        has = found.volume.options if found.volume is not None else {}
        differ = options.differences(wanted.disk_options, has)
    differ.pop(options.HIDDEN, None)
    if differ:
        texts = [f"{name} is {has.get(name)}, not {value}" for name, value in differ.items()]
        raise BlockDeviceError(f"DRBD minor {wanted.minor} did not take: {', '.join(texts)}")


def metadata(minor: int, meta: str, action: str) -> str:
    """Do something with the metadata in a volume; returns the output."""
    argv = ("drbdmeta", "--force", str(minor), "v08", meta, "0", action)
    return drbdsetup.run(argv).decode("utf-8", "replace")


def initialize(minor: int, meta: str) -> None:
    """Write new metadata over whatever was there.

    Raises:
        BlockDeviceError: the volume is too small, or in use.
    """
    with failing_as(BlockDeviceError, f"cannot write metadata to {meta}"):
        if size_of(meta) < DRBD_META_SIZE_MIB * MIB:
            raise BlockDeviceError(f"{meta} is smaller than {DRBD_META_SIZE_MIB} MiB")
        with closing(os.open(meta, os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC)) as descriptor:
            wipe_open(descriptor, 0, DRBD_META_SIZE_MIB * MIB)
            os.fsync(descriptor)
    metadata(minor, meta, "create-md")
