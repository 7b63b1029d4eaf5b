"""An instance whose guest writes a pattern and says how far it is (`guests/pattern.py`), on machines of the rig."""

from __future__ import annotations

import base64
import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from guests import pattern

from .containers import TIMEOUT_S, Machine
from .virtual_machines import VOLUME_GROUP

OS_NAME: Final = "pattern"
OS_TYPE: Final = f"--os-type={OS_NAME}+default "
ADD: Final = f"gnt-instance add {OS_TYPE}--no-nics --no-name-check --no-ip-check -B memory=32"
_DIRECTORY: Final = f"/srv/ganeti/os/{OS_NAME}"
_CREATE: Final = f"""#!/bin/sh
exec dd if={_DIRECTORY}/image of="$DISK_0_PATH" bs=64k conv=notrunc,fsync status=none
"""
_PAUSE_S: Final = 0.2
SYNC_TIMEOUT_S: Final = 300.0


def install_os(machine: Machine) -> None:
    """Put the operating system on a machine: a disk image, as of the example beside it."""
    machine.run(f"mkdir -p {_DIRECTORY}; cp -r $(dirname {_DIRECTORY})/bootsector/. {_DIRECTORY}")
    machine.run(f"cat > {_DIRECTORY}/create", _CREATE)
    machine.run(f"cat > {_DIRECTORY}/image", pattern.image())


class Writer:
    """One instance, told by commands on ``master`` (changed when another machine is)."""

    def __init__(self, name: str, machines: Sequence[Machine]) -> None:
        self.name = name
        self.master = machines[0]
        self.last = 0  # the highest number that it has said
        self.machines = machines
        self.log = f"/var/log/ganeti/kvm/{name}.serial.log"
        self._files = tempfile.TemporaryDirectory(prefix="writer-")
        self._tails: list[tuple[subprocess.Popen[bytes], Path]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for tail, _path in self._tails:
            tail.kill()
            tail.wait(TIMEOUT_S)
        self._files.cleanup()

    def field(self, name: str) -> str:
        """Return a field of the instance, such as ``pnode``, or several with | between."""
        return self.master.run(
            f"gnt-instance list --no-headers --separator='|' --output={name} {self.name}"
        ).strip()

    def primary(self) -> Machine:
        """Return the machine that it runs on."""
        return self._machine(self.field("pnode"))

    def _machine(self, name: str) -> Machine:
        return next(machine for machine in self.machines if machine.name == name)

    def holders(self) -> list[Machine]:
        """Return the machines with its disks, the primary one first."""
        names = re.split("[|,]", self.field("pnode,snodes"))
        return [self._machine(name) for name in names if name]

    def begins_anew(self) -> None:
        """Forget what it said, when its disks are new and it is down."""
        for tail, _path in self._tails:
            tail.kill()
            tail.wait(TIMEOUT_S)
        self._tails, self.last = [], 0
        for machine in self.machines:
            machine.run(f"rm -f {self.log}")

    def listen(self, machine: Machine) -> Path:
        """Hear from now on what it says on this machine; returns the file that has just that."""
        path = Path(self._files.name) / str(len(self._tails))
        with path.open("wb") as file:
            tail = subprocess.Popen(
                machine.ssh("--", f"tail -F -c +1 {self.log}"),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.DEVNULL,
            )
        self._tails.append((tail, path))
        return path

    def acknowledged(self) -> int:
        """Return the highest number that was heard: it was written, and the guest was told so."""
        said = [pattern.acknowledged(path.read_text("ascii", "replace")) for _, path in self._tails]
        self.last = max([self.last, *said])
        return self.last

    def goes_on(self, numbers: int = 10) -> int:
        """Wait until it has written more; returns how far it is."""
        if not self._tails:
            self.listen(self.primary())
        until, wanted = time.monotonic() + TIMEOUT_S, self.acknowledged() + numbers
        while self.acknowledged() < wanted:
            assert time.monotonic() < until, f"{self.name} stands still at {self.last}"
            time.sleep(_PAUSE_S)
        return self.last

    def copies_have_all(self, machines: Sequence[Machine] = ()) -> int:
        """Check that the volumes on machines, all that it has if (), have what it said until now.

        Returns:
            The highest number that is on all of them; it may go on writing.
        """
        holders, last = machines or self.holders(), self.acknowledged()
        return min(
            pattern.check(read(machine, volume_of(machine, self.name)), last) for machine in holders
        )

    def check(self) -> int:
        """Stop it, and check its disk on the primary node; returns the highest number there."""
        self.master.run(f"gnt-instance shutdown {self.name}")
        return self.copies_have_all(self.holders()[:1])

    def check_by_device(self) -> int:
        """Stop it, and check its disk as the guest would see it; returns the highest number there."""
        self.master.run(f"gnt-instance shutdown {self.name}")
        last = self.acknowledged()
        place = self.master.run(f"gnt-instance activate-disks {self.name}").split()[-1]
        node, _, device = place.split(":")
        found = pattern.check(read(self._machine(node), device), last)
        self.master.run(f"gnt-instance deactivate-disks {self.name}")
        return found

    def start(self) -> None:
        """Start it, and wait until it writes."""
        self.master.run(f"gnt-instance start {self.name}")
        self.listen(self.primary())
        self.goes_on()


def volumes(machine: Machine) -> set[str]:
    """Return the names of the logical volumes of a machine."""
    return set(machine.run(f"lvs --noheadings --options=lv_name {VOLUME_GROUP}").split())


def read(machine: Machine, device: str) -> bytes:
    """Return what the guest has written, from a block device or an image file."""
    blocks = -(-pattern.IMAGE_BYTES // (64 << 10))
    command = f"dd if={device} bs=64k count={blocks} iflag=direct status=none | base64 --wrap=0"
    return base64.b64decode(machine.run(command))


def volumes_of(machine: Machine, instance: str) -> list[str]:
    """Return the paths of the volumes with data of an instance on a machine."""
    shown = f"lvs --noheadings --options=lv_path @originstname+{instance}"
    return [path for path in machine.run(shown).split() if not path.endswith("_meta")]


def volume_of(machine: Machine, instance: str) -> str:
    """Return the path of the only volume with data of an instance on a machine."""
    (path,) = volumes_of(machine, instance)
    return path


def break_volume(machine: Machine, volume: str, table: str) -> None:
    """Let a volume, given by its path, return errors from now on.

    Args:
        table: a new one of device-mapper, with {size} and {place} of the old one's.
    """
    _, size, _, *place = machine.run(f"dmsetup table {volume}").split()
    new = table.format(size=size, place=" ".join(place))
    machine.run(
        f"dmsetup suspend --noflush {volume} && dmsetup load {volume} --table '{new}'"
        f" && dmsetup resume {volume}"
    )


def wait_for_sync(writer: Writer) -> None:
    """Wait until both copies are the same."""
    writer.master.wait_until(
        f"gnt-instance activate-disks --wait-for-sync {writer.name}", timeout_s=SYNC_TIMEOUT_S
    )
