"""What LVM says of its volumes: one run of ``lvs``, ``vgs`` or ``pvs``, and records read from it.

Reading is pure; `logical_volumes`, `volume_groups` and `physical_volumes` run the program once for
the whole node.  A volume that lies in several pieces is one record here.

Source: lvs(8), vgs(8), pvs(8), lvmreport(7).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from ganeti.base.errors import CommandError, StorageError
from ganeti.system import process

MIB: Final = 1 << 20
READ_TIMEOUT_S: Final = 50.0  # less than the call has that waits for it (URGENT, 60 s)
CHANGE_TIMEOUT_S: Final = 600.0  # as much less (NORMAL, 900 s)
FULL_PERCENT: Final = 100.0
_OUTPUT_BYTES_MAX: Final = 16 << 20
_SYSTEM_PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"
_NOISE: Final = ("WARNING:", "File descriptor", "/dev/mapper/control:", "TEST MODE:")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LogicalVolume:
    """A logical volume; ``attributes`` are the letters of lv_attr, ``physical`` its devices."""

    group: str
    name: str
    size_bytes: int
    attributes: str
    tags: tuple[str, ...] = ()
    major: int = -1
    minor: int = -1
    origin: str = ""
    pool: str = ""
    stripes: int = 1
    physical: tuple[str, ...] = ()
    data_percent: float = 0.0
    metadata_percent: float = 0.0

    @property
    def path(self) -> str:
        """Its name as LVM's programs take it: group and volume."""
        return f"{self.group}/{self.name}"

    @property
    def size_mib(self) -> float:
        """Its size in MiB."""
        return self.size_bytes / MIB

    @property
    def is_active(self) -> bool:
        """Whether it may have a device; LVM does not always know."""
        return self.attributes[4:5] != "-"

    @property
    def is_open(self) -> bool:
        """Whether something holds its device open."""
        return self.attributes[5:6] == "o"

    @property
    def is_partial(self) -> bool:
        """Whether a physical volume of it is missing."""
        return self.attributes[8:9] == "p"

    @property
    def is_virtual(self) -> bool:
        """Whether it has no space of its own, as the remains of a lost volume have none."""
        return self.attributes[:1] == "v"

    @property
    def is_thin_pool(self) -> bool:
        """Whether it gives space to thin volumes, and is none itself."""
        return self.attributes[:1] == "t"

    @property
    def left_bytes(self) -> int:
        """The space of a thin pool that no volume has written to."""
        return int(self.size_bytes * (1 - min(self.data_percent, 100.0) / 100))

    @property
    def pool_problem(self) -> str:
        """Why a thin pool gives no more space, with the command that helps; "" while it does."""
        health = self.attributes[8:9]
        if health == "F":
            return f"has failed; see 'lvs -a {self.group}' and 'lvconvert --repair {self.path}'"
        if health == "M" or self.metadata_percent >= FULL_PERCENT:
            return (
                "has no room for more metadata; give it some with 'lvextend"
                f" --poolmetadatasize=+... {self.path}'"
            )
        if health == "D" or self.data_percent >= FULL_PERCENT:
            return f"is full; give it space with 'lvextend --size=+... {self.path}'"
        return ""


@dataclass(frozen=True, slots=True)
class VolumeGroup:
    """A volume group."""

    name: str
    size_bytes: int
    free_bytes: int
    extent_bytes: int
    missing: int = 0

    @property
    def size_mib(self) -> int:
        """Its size in MiB."""
        return self.size_bytes // MIB

    @property
    def free_mib(self) -> int:
        """The space that no volume has, in MiB."""
        return self.free_bytes // MIB


@dataclass(frozen=True, slots=True)
class PhysicalVolume:
    """A physical volume of a group, with the volumes that have space on it."""

    name: str
    group: str
    size_bytes: int
    free_bytes: int
    attributes: str
    volumes: tuple[str, ...] = ()

    @property
    def is_allocatable(self) -> bool:
        """Whether new volumes may have space on it."""
        return self.attributes[:1] == "a" and not self.is_missing

    @property
    def is_missing(self) -> bool:
        """Whether its device is gone."""
        return self.attributes[2:3] == "m"

    @property
    def is_empty(self) -> bool:
        """Whether no volume has space on it."""
        return self.free_bytes == self.size_bytes


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _devices(text: str) -> tuple[str, ...]:
    """Read ``/dev/sda1(0),/dev/sdb1(12)``: devices with the number of their first extent."""
    return tuple(dict.fromkeys(word.partition("(")[0] for word in _words(text)))


def _count(text: str) -> int:
    return int(text or 1)


def _percent(text: str) -> float:
    return float(text or 0)


Fields = Mapping[str, tuple[str, Callable[[str], Any]]]  # attribute -> (column, how it is read)
LV_FIELDS: Final[Fields] = {
    "group": ("vg_name", str),
    "name": ("lv_name", str),
    "size_bytes": ("lv_size", int),
    "attributes": ("lv_attr", str),
    "tags": ("lv_tags", _words),
    "major": ("lv_kernel_major", int),
    "minor": ("lv_kernel_minor", int),
    "origin": ("origin", str),
    "pool": ("pool_lv", str),
    "stripes": ("stripes", _count),
    "physical": ("devices", _devices),
    "data_percent": ("data_percent", _percent),
    "metadata_percent": ("metadata_percent", _percent),
}
VG_FIELDS: Final[Fields] = {
    "name": ("vg_name", str),
    "size_bytes": ("vg_size", int),
    "free_bytes": ("vg_free", int),
    "extent_bytes": ("vg_extent_size", int),
    "missing": ("vg_missing_pv_count", int),
}
PV_FIELDS: Final[Fields] = {
    "name": ("pv_name", str),
    "group": ("vg_name", str),
    "size_bytes": ("pv_size", int),
    "free_bytes": ("pv_free", int),
    "attributes": ("pv_attr", str),
    "volumes": ("lv_name", lambda text: (text.strip("[]"),) if text else ()),
}


def report_command(program: str, fields: Fields) -> list[str]:
    """Return the command line of a report."""
    columns = ",".join(column for column, _read in fields.values())
    return [program, "--reportformat=json", "--units=b", "--nosuffix", f"--options={columns}"]


def parse(
    program: str, output: bytes, kind: str, fields: Fields, make: Callable[..., T]
) -> list[T]:
    """Read the rows of a report in JSON.

    Args:
        kind: the name of a list of rows in the report: lv, vg or pv.

    Raises:
        StorageError: that is no such report; the text shows its beginning.
    """
    try:
        found = msgspec.json.decode(output, type=dict[str, list[dict[str, list[dict[str, str]]]]])
        rows = [row for part in found["report"] for row in part.get(kind, ())]
        return [
            make(**{name: read(row[column]) for name, (column, read) in fields.items()})
            for row in rows
        ]
    except (msgspec.DecodeError, KeyError, ValueError) as err:
        shown = output[:200].decode("utf-8", "replace")
        raise StorageError(f"cannot understand the output of {program}: {shown!r}") from err


def _merged(rows: Sequence[T], key: Callable[[T], object], lists: str) -> list[T]:
    """Make one record of all pieces of a volume; ``lists`` is the attribute that they add to."""
    found: dict[object, Any] = {}
    for row in rows:
        known: Any = found.setdefault(key(row), row)
        joined = dict.fromkeys([*getattr(known, lists), *getattr(row, lists)])
        found[key(row)] = replace(known, **{lists: tuple(joined)})
    return list(found.values())


def parse_logical(output: bytes) -> list[LogicalVolume]:
    """Read the report of lvs, which has a row for each piece of a volume."""
    rows = parse("lvs", output, "lv", LV_FIELDS, LogicalVolume)
    return _merged(rows, lambda row: row.path, "physical")


def parse_groups(output: bytes) -> list[VolumeGroup]:
    """Read the report of vgs."""
    return parse("vgs", output, "vg", VG_FIELDS, VolumeGroup)


def parse_physical(output: bytes) -> list[PhysicalVolume]:
    """Read the report of pvs, which has a row for each piece of a physical volume."""
    return _merged(
        parse("pvs", output, "pv", PV_FIELDS, PhysicalVolume),
        lambda row: (row.name, row.group),
        "volumes",
    )


@dataclass(frozen=True, slots=True)
class Report:
    """What a program of LVM said; ``problem`` is its complaint, "" without one.

    With a complaint some volumes may be missing from the report: one that is not in it may exist.
    """

    output: bytes
    problem: str = ""


def said(result: process.CommandResult) -> str:
    """Return the complaints of a program of LVM, without its warnings, in one line."""
    lines = [line.strip() for line in result.stderr.decode("utf-8", "replace").splitlines()]
    plain = [line for line in lines if line and not line.startswith(_NOISE)]
    return "; ".join(plain) or process.describe_end(result)


def run(argv: Sequence[str], *, timeout_s: float = CHANGE_TIMEOUT_S) -> process.CommandResult:
    """Run a program of LVM.

    Raises:
        StorageError: it is not installed.
    """
    path = os.pathsep.join(filter(None, (os.environ.get("PATH"), _SYSTEM_PATH)))
    env = {**os.environ, "PATH": path, "LC_ALL": "C", "LVM_SUPPRESS_FD_WARNINGS": "1"}
    try:
        return process.run(
            argv, timeout_s=timeout_s, env=env, output_bytes_max=_OUTPUT_BYTES_MAX, cwd="/"
        )
    except CommandError as err:
        raise StorageError(f"{err.message}; install LVM (package lvm2) on this node") from err


def _report(program: str, fields: Fields) -> Report:
    result = run(report_command(program, fields), timeout_s=READ_TIMEOUT_S)
    if result.timed_out or result.truncated or not result.stdout.strip():
        raise StorageError(f"{program}: {said(result)}")
    return Report(result.stdout, f"{program}: {said(result)}" if result.status != 0 else "")


logical_report = partial(_report, "lvs", LV_FIELDS)


def logical_volumes() -> list[LogicalVolume]:
    """Return all logical volumes of this node, by one run of lvs; hidden ones are left out.

    Raises:
        StorageError: LVM does not answer.
    """
    return parse_logical(logical_report().output)


def volume_groups() -> dict[str, VolumeGroup]:
    """Return all volume groups of this node, by one run of vgs; errors as `logical_volumes`."""
    return {each.name: each for each in parse_groups(_report("vgs", VG_FIELDS).output)}


def physical_volumes(group: str | None = None) -> list[PhysicalVolume]:
    """Return the physical volumes of all groups, or of one, by one run of pvs.

    Raises:
        StorageError: LVM does not answer.
    """
    found = parse_physical(_report("pvs", PV_FIELDS).output)
    return [each for each in found if each.group and group in (None, each.group)]


def existing_pool(path: str) -> LogicalVolume:
    """Return a thin pool, which must exist.

    Args:
        path: group and pool, as in "xenvg/pool".

    Raises:
        StorageError: it does not; says how to make it.
    """
    for each in logical_volumes():
        if each.path == path and each.is_thin_pool:
            return each
    group, _, name = path.partition("/")
    raise StorageError(
        f"volume group {group!r} has no thin pool {name!r}; make it there with 'lvcreate"
        f" --type=thin-pool --size=... --name={name} {group}', or give no thin-pool"
    )


def group_of(name: str) -> VolumeGroup:
    """Return a volume group, which must exist.

    Raises:
        StorageError: it does not; names those that do, and the next command.
    """
    groups = volume_groups()
    if name in groups:
        return groups[name]
    there = ", ".join(sorted(groups)) or "none"
    raise StorageError(
        f"there is no volume group {name!r} (there is: {there}); see 'vgs' and 'pvs' there, and"
        f" make it with 'vgcreate {name} /dev/...'"
    )
