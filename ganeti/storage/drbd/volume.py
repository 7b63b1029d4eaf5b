"""Disks of template ``drbd``: two copies on two nodes, each with its metadata in a volume apart.

The device of this node is minor N in resource ``resourceN``, with one volume.  The look at all
devices is taken anew for each operation, and only the difference to what is wanted is carried out;
so an operation that was cut short is completed by its repetition, and a device that Ganeti 3.0 made
is used as it is.

Source: config.json, "disk_logical_id" and "drbd_children"; design 2.0, "DRBD minor allocation" and
"DRBD8 peer authentication"; drbdsetup(8) and drbdmeta(8) of DRBD 8.4.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Final, TypeVar

from ganeti.base.errors import BlockDeviceError, GenericError, failing_as
from ganeti.protocol.node_rpc_values import CopySide
from ganeti.storage.data import wipe
from ganeti.storage.drbd import drbdsetup, fencing, options, states, steps
from ganeti.storage.drbd.plan import (
    Found,
    Owner,
    Step,
    Wanted,
    find,
    in_use,
    may_become_second_primary,
    owner_of,
    plan,
)
from ganeti.storage.drbd.show import address
from ganeti.storage.drbd.status import Device
from ganeti.storage.interface import Assembled, BlockDevStatus, Dimensions, Look, Storage, Volume
from ganeti.system import clock

T = TypeVar("T")

MIB: Final = 1 << 20
_SECTOR_BYTES: Final = 512
_RELEASE_TIMEOUT_S: Final = 5.0  # a process that ends, or udev, may hold a device for a moment
_RELEASE_PAUSE_S: Final = 0.2
_RESIZE_TIMEOUT_S: Final = 60.0
_WAIT_OVER: Final = 5  # exit status of drbdsetup wait-connect
_LINK_STEPS: Final = frozenset({Step.DISCONNECT, Step.CONNECT, Step.NET_OPTIONS})


class DrbdVolume(Volume):
    """This node's half of a mirrored disk, and its connection."""

    def _locate(self, logical_id: list[object]) -> None:
        match logical_id:
            case [str(), str(), int() | None, int(), int(), str(secret)]:
                self._secret = secret
            case _:
                raise self._malformed()
        match getattr(self._disk, "dynamic_params", None):
            case {
                "local-ip": str(local),
                "remote-ip": str(remote),
                "port": int(port),
                "local-minor": int(minor),
            }:
                self._minor = minor
            case {"port": None}:
                raise BlockDeviceError(
                    f"disk {self._disk.uuid} has no port for the connection of its two sides, as a"
                    " forthcoming disk has none yet; make it with 'gnt-instance add --commit'"
                )
            case _:
                raise BlockDeviceError(
                    f"disk {self._disk.uuid}: this node is none of the two that hold it"
                )
        try:
            self._local, self._remote = address(local, port), address(remote, port)
        except ValueError as err:
            raise BlockDeviceError(f"disk {self._disk.uuid}: {err}") from err

    @property
    def device(self) -> str:
        """Path of the device."""
        return self._env.paths.localize(f"/dev/drbd{self._minor}")

    @property
    def mirror(self) -> DrbdVolume:
        """The connection is part of the device."""
        return self

    @property
    def _halves(self) -> tuple[Volume, Volume]:
        """The children: data and metadata."""
        if len(self.children) != 2:
            raise BlockDeviceError(
                f"disk {self._disk.uuid} has {len(self.children)} children instead of data and"
                " metadata"
            )
        return self.children[0], self.children[1]

    @cached_property
    def _params(self) -> Mapping[str, object]:
        try:
            return options.checked(self._disk.params)
        except BlockDeviceError as err:
            raise BlockDeviceError(f"disk {self._disk.uuid}: {err.message}") from err

    @property
    def place(self) -> Wanted:
        """Where the device is to be, whatever its options."""
        data, meta = (child.device for child in self._halves)
        return Wanted(
            minor=self._minor,
            data=data,
            meta=meta,
            local=self._local,
            remote=self._remote,
            size_mib=self._disk.size,
            has_half=os.path.exists(data) and os.path.exists(meta),
        )

    def wanted(self, *, dual_primary: bool = False) -> Wanted:
        """Return the device as it is to be.

        Raises:
            BlockDeviceError: a parameter is wrong.
        """
        params = self._params
        net = options.net_options(params, self._secret, dual_primary=dual_primary)
        disk = {**fencing.options(self._env.paths), **options.disk_options(params)}
        return replace(self.place, disk_options=disk, net_options=net)

    def found_in(self, seen: drbdsetup.View) -> Found:
        """Return the minor of this disk, whoever has it."""
        return find(self._minor, seen.resources, seen.status)

    def _look(self) -> Found:
        """Return the minor as it stands, before it is changed.

        Raises:
            BlockDeviceError: this version of DRBD does not take our commands.
        """
        seen = drbdsetup.view()
        if not seen.can_change:
            raise BlockDeviceError(
                f"DRBD {seen.status.version} can only be looked at: disks need version 8.4 of the"
                " driver"
            )
        return self.found_in(seen)

    def _ours(self) -> tuple[Found, Device]:
        """Return the device of this disk, which must be there.

        Raises:
            BlockDeviceError: it is not, or the minor is a stranger's.
        """
        found = self._look()
        if owner_of(self.place, found) is not Owner.OURS or found.device is None:
            raise BlockDeviceError(
                f"DRBD minor {self._minor} is not active for disk {self._disk.uuid} ({found});"
                " type: gnt-instance activate-disks INSTANCE"
            )
        return found, found.device

    # Life

    def create(self, size_mib: int, *, exclusive_storage: bool = False) -> list[object] | None:
        """Write new metadata, by which all data of a half differ from those of the other."""
        for child in self._halves:
            child.assemble()
        found = self._look()
        match owner_of(self.place, found):
            case Owner.STRANGER:
                raise in_use(self.place, found)
            case Owner.OURS:
                raise BlockDeviceError(f"DRBD minor {self._minor} is in use: {found}")
        steps.initialize(self._minor, self._halves[1].device)
        return None

    def remove(self) -> None:
        """Take the device down, and make its metadata useless."""
        self.shutdown()
        meta = self._halves[1].device
        if os.path.exists(meta):
            with suppress(BlockDeviceError):  # it had none
                steps.metadata(self._minor, meta, "wipe-md")

    def find(self) -> BlockDevStatus | None:
        """Look at the device; None when it is not active."""
        [state] = DrbdStorage(self.traits.storage, self._env).look([self])
        if isinstance(state, GenericError):
            raise state
        return state

    def assemble(self) -> Assembled:
        """Make the device, or complete it; without its own half it works by the other copy."""
        fencing.prepare(self._env.paths)
        found = self._look()
        wanted = self.wanted(dual_primary=may_become_second_primary(found))
        steps.carry_out(wanted, found, plan(wanted, found))
        if found.device is not None and found.device.is_paused_here:  # by a job that died
            self.pause_sync(pause=False)
        return Assembled(self.device)

    def shutdown(self) -> None:
        """Take the device down; the minor of a stranger is left alone."""
        if not drbdsetup.is_loaded():
            return
        place, found = self.place, self._look()
        if found.resource is None or found.resource.name != place.resource:
            return
        if owner_of(place, found) is not Owner.STRANGER:
            drbdsetup.run(("drbdsetup", "down", place.resource))

    def open(self, *, exclusive: bool = True) -> None:
        """Take the primary role; two nodes may have it only while a migration allows it."""
        _found, device = self._ours()
        if not device.is_primary:
            self._primary()

    def open_new(self) -> None:
        """Take the primary role although no copy counts yet: this one does from now on."""
        _found, device = self._ours()
        if device.remote_disk == "UpToDate" or device.is_up_to_date:
            self.open()
        else:
            self._primary("--force")

    def _primary(self, *force: str) -> None:
        try:
            drbdsetup.run(("drbdsetup", "primary", str(self._minor), *force))
        except BlockDeviceError as err:
            _found, device = self._ours()
            hint = f"; {fencing.HINT}" if fencing.REFUSAL in err.message else ""
            raise BlockDeviceError(
                f"{self.device} cannot be written on this node: {err.message} ({device}){hint}"
            ) from err

    def close(self) -> None:
        """Give the primary role up."""
        if not drbdsetup.is_loaded():
            return
        found = self._look()
        is_ours = owner_of(self.place, found) is Owner.OURS
        if is_ours and found.device is not None and found.device.is_primary:
            argv = ("drbdsetup", "secondary", str(self._minor))
            _until_released(lambda: drbdsetup.run(argv))

    def set_info(self, text: str) -> None:
        """Note the purpose on the children."""
        for child in self.children:
            child.set_info(text)

    def grow(self, amount_mib: int, *, dryrun: bool = False, backingstore: bool = True) -> None:
        """Add to the local half on each node, then, without ``backingstore``, to the device."""
        if amount_mib <= 0:
            raise BlockDeviceError(f"{self.device} cannot grow by {amount_mib} MiB")
        if backingstore:
            data, _meta = self._halves
            data.exclusive_storage = self.exclusive_storage
            data.grow(amount_mib, dryrun=dryrun)
        elif not dryrun:
            self._resize(self._disk.size + amount_mib)

    def _resize(self, size_mib: int) -> None:
        _found, device = self._ours()
        size = self.dimensions()
        if size is not None and size.size_bytes > size_mib * MIB:
            text = f"{self.device} has {size.size_bytes // MIB} MiB already, more than {size_mib}"
            raise BlockDeviceError(text)
        if not device.is_connected:
            raise BlockDeviceError(
                f"{self.device} cannot grow while its copy is not connected ({device})"
            )
        drbdsetup.run(("drbdsetup", "resize", str(self._minor), f"--size={size_mib}m"))
        self._wait_for_size(size_mib * MIB)

    def _wait_for_size(self, size_bytes: int) -> None:
        """Wait for the answer of the other node, before which the size stays."""
        deadline_s = clock.monotonic() + _RESIZE_TIMEOUT_S
        while (size := self.dimensions()) is not None and size.size_bytes < size_bytes:
            if clock.monotonic() > deadline_s:
                raise BlockDeviceError(
                    f"{self.device} did not grow in {_RESIZE_TIMEOUT_S:.0f} seconds: it has"
                    f" {size.size_bytes // MIB} MiB instead of {size_bytes // MIB}; is the other"
                    " node's half large enough?"
                )
            clock.pause(_RELEASE_PAUSE_S)

    def snapshot(self, name: str, size_mib: int) -> list[object]:
        """Take a snapshot of the local half."""
        return self._halves[0].snapshot(name, size_mib)

    def wipe(self, offset_mib: int, size_mib: int) -> None:
        """Write zeroes over a part of the device, on the primary node."""
        with failing_as(BlockDeviceError, f"cannot wipe {self.device}"):
            wipe(self.device, offset_mib * MIB, size_mib * MIB)

    def dimensions(self) -> Dimensions | None:
        """Return the size of the device; None when it is not active."""
        try:
            path = self._env.paths.localize(f"/sys/class/block/drbd{self._minor}/size")
            with open(path, encoding="ascii") as file:
                return Dimensions(int(file.read()) * _SECTOR_BYTES)
        except FileNotFoundError:
            return None

    # The mirror

    def connect(self, *, dual_primary: bool) -> None:
        """Connect with the copy, or change the options of the connection."""
        found, _device = self._ours()
        wanted = self.wanted(dual_primary=dual_primary)
        todo = [step for step in plan(wanted, found) if step in _LINK_STEPS]
        steps.carry_out(wanted, found, todo)

    def wait_connected(self, timeout_s: float) -> None:
        """Wait until the copy is connected, or is refused for good."""
        deadline_s = clock.monotonic() + timeout_s
        while True:
            left_s = deadline_s - clock.monotonic()
            self._wait_connect(max(1, int(left_s)))
            _found, device = self._ours()
            if device.is_connected:
                return
            if device.is_alone or left_s <= 1:
                text = states.text(device, _partings([device]))
                raise BlockDeviceError(f"{self.device}: {text}")
            clock.pause(_RELEASE_PAUSE_S)  # the driver takes a refused connection apart

    def _wait_connect(self, timeout_s: int) -> None:
        names = ("wfc-timeout", "degr-wfc-timeout", "outdated-wfc-timeout")
        limits = [f"--{name}={timeout_s}" for name in names]
        argv = ("drbdsetup", "wait-connect", str(self._minor), *limits)
        drbdsetup.run(argv, timeout_s=timeout_s + 10, may_end=frozenset({0, _WAIT_OVER}))

    def disconnect(self) -> None:
        """Give the connection up, by force if the other node does not answer."""
        if owner_of(self.place, self._look()) is Owner.NOBODY:
            return
        found, _device = self._ours()
        if found.resource is None or not found.resource.local:
            return
        argv = ("drbdsetup", "disconnect", found.resource.local, found.resource.remote)
        try:
            drbdsetup.run(argv)
        except BlockDeviceError:
            drbdsetup.run((*argv, "--force"))

    def attach(self, children: Sequence[Volume]) -> None:
        """Put new local storage under the device; all its data comes from the copy.

        A device without a connection, as after a split brain, was empty; it is made anew.
        """
        data, meta = self._paths(children)
        found = self._look()
        is_empty = owner_of(self.place, found) is Owner.NOBODY
        if not is_empty:
            found, _device = self._ours()
        if found.volume is not None and found.volume.data:
            raise BlockDeviceError(f"{self.device} has local storage already: {found}")
        steps.initialize(self._minor, meta)
        wanted = replace(self.wanted(), data=data, meta=meta, has_half=True)
        steps.carry_out(wanted, found, plan(wanted, found) if is_empty else [Step.ATTACH])

    def detach(self, children: Sequence[Volume]) -> None:
        """Take the local storage away; the driver refuses it for the last good copy."""
        paths = self._paths(children)
        found = self._look()
        volume = found.volume
        if volume is None or not volume.data:
            return
        if (volume.data, volume.meta) != paths:
            raise BlockDeviceError(f"{self.device} does not have {' and '.join(paths)}: {found}")
        drbdsetup.run(("drbdsetup", "detach", str(self._minor)))

    def _paths(self, children: Sequence[Volume]) -> tuple[str, str]:
        if len(children) != 2:
            raise BlockDeviceError(f"{self.device} takes two children, data and metadata")
        return children[0].device, children[1].device

    def pause_sync(self, *, pause: bool) -> None:
        """Interrupt the resynchronization on this side, or let it go on."""
        _found, device = self._ours()
        if device.is_paused_here is not pause:
            action = "pause-sync" if pause else "resume-sync"
            drbdsetup.run(("drbdsetup", action, str(self._minor)))

    def side(self) -> CopySide | None:
        """Return what tells which side has the newer data: the driver's own marks, and its log."""
        seen = drbdsetup.view()
        found = self.found_in(seen)
        device = found.device
        if device is None or owner_of(self.place, found) is not Owner.OURS:
            return None
        log = "" if device.is_connected else drbdsetup.kernel_log()
        return CopySide(
            is_connected=device.is_connected,
            is_open=device.is_primary,
            is_open_there=device.is_writable_there,
            is_outdated=device.local_disk == "Outdated",
            generations=[] if device.is_diskless else drbdsetup.generations(self._minor),
            alone_since=drbdsetup.last_seen(log, clock.monotonic()).get(self._minor),
            parting=drbdsetup.partings(log).get(self._minor, "") if device.is_alone else "",
        )

    def outdate(self) -> None:
        """Mark the data as older than that of the other node; the driver refuses to open it then.

        The next resynchronization takes the mark away.  While both are connected it means nothing.
        """
        self._ours()
        drbdsetup.run(("drbdsetup", "outdate", str(self._minor)))


def _until_released(action: Callable[[], T]) -> T:
    """Try again for a moment while somebody has the device open.

    Raises:
        BlockDeviceError: still somebody does, or it failed in another way.
    """
    deadline_s = clock.monotonic() + _RELEASE_TIMEOUT_S
    while True:
        try:
            return action()
        except BlockDeviceError as err:
            if "held open" not in err.message or clock.monotonic() > deadline_s:
                raise
        clock.pause(_RELEASE_PAUSE_S)


def _partings(devices: Iterable[Device]) -> states.Partings:
    """Return why devices were parted from their copies; asks only where one is alone."""
    if not any(device.is_alone for device in devices):
        return {}
    return drbdsetup.partings(drbdsetup.kernel_log())


class DrbdStorage(Storage):
    """All mirrored disks of a node; their space is that of their children."""

    volume = DrbdVolume

    def look(self, volumes: Sequence[Volume]) -> list[Look]:
        """Look at all disks by one look at the node."""
        try:
            seen = drbdsetup.view()
        except BlockDeviceError as err:
            return [err for _ in volumes]
        partings = _partings(seen.status.devices.values())
        return [_state(each, seen, partings) for each in volumes if isinstance(each, DrbdVolume)]


def _state(volume: DrbdVolume, seen: drbdsetup.View, partings: states.Partings) -> Look:
    found = volume.found_in(seen)
    size = volume.dimensions()
    size_bytes = None if size is None else size.size_bytes
    if not seen.can_change:  # no resources are known, so nobody's minor can be told
        if found.device is None:
            return None
        return states.status(volume.device, found.device, size_bytes, partings)
    try:
        return states.state(volume.device, volume.place, found, size_bytes, partings)
    except BlockDeviceError as err:  # it has no children
        return err
