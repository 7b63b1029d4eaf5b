"""Parameter groups as tables: names, types, defaults; and the rules for changing them.

Filling in defaults from cluster, group and so on is `ganeti.objects.fill`.

Source: constants.json, "hvparams", "beparams", "nicparams", "ndparams", "diskparams", "ipolicy".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import partial
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from ganeti.base.errors import TypeEnforcementError, UnitParseError
from ganeti.base.units import parse_unit
from ganeti.objects.disk_templates import (
    FORMAT,
    STRIPE_SIZE,
    THIN_POOL,
    DiskAccess,
    DiskFormat,
    DiskMode,
    DiskTemplate,
)
from ganeti.objects.nic import DEFAULT_BRIDGE, DEFAULT_SWITCH

VALUE_DEFAULT: Final = "default"  # given for a parameter: forget the own value
VALUE_NONE: Final = "none"


class ValueType(StrEnum):
    """Types of parameters."""

    BOOL = "bool"
    FLOAT = "float"
    INT = "int"
    MAYBE_STRING = "maybe-string"
    SIZE = "size"  # MiB; text with a unit is understood
    STRING = "string"


class Form(msgspec.Struct, frozen=True):
    """The form of a text parameter: in words, and as a pattern for the whole text."""

    words: str
    pattern: str

    def problem(self, what: str, value: str) -> str | None:
        """Return why a text does not have the form, None if it does."""
        if re.fullmatch(self.pattern, value):
            return None
        return f"{what}: {value!r} is not {self.words}"


_CONTROL: Final = r"\x00-\x1f\x7f-\x9f\u2028\u2029"  # with the separators of lines
ABSOLUTE_PATH: Final = Form("an absolute path", rf"(/[^{_CONTROL}]*)?")
_WITHOUT_BLANKS: Final = Form("a name without blanks", rf"[^\s{_CONTROL}]*")
_NO_OPTION: Final = r"(?!-)"  # what a program gets as an argument must not look like an option
LVM_NAME: Final = Form("a name of LVM", _NO_OPTION + r"(?!\.\.?\Z)[a-zA-Z0-9+_.-]{1,127}")
_BARRIERS: Final = Form("n, or some of the letters b, f and d", "n|[bfd]+")
_OPTIONS: Final = Form(
    "options as in --max-buffers=8000, with each quote closed",
    r"""((?=\ *["']?-)([^'"\\\x00-\x1f]|\\[^\x00-\x1f]|'[^'\x00-\x1f]*'"""
    r"""|"([^"\\\x00-\x1f]|\\[^\x00-\x1f])*")+)?""",
)
_HOST: Final = Form("a name or an address", _NO_OPTION + r"[a-zA-Z0-9_.:-]+")
_GLUSTER_VOLUME: Final = Form("a name of letters, digits, _ and -", _NO_OPTION + "[a-zA-Z0-9_-]+")
_RADOS_POOL: Final = Form("a name without blanks, / and @", _NO_OPTION + r"[^\s/@]+")


class ParamSpec(msgspec.Struct, frozen=True):
    """One parameter: its checks, its help and its manual are all read from here."""

    type: ValueType
    default: object
    summary: str = ""  # one sentence for people
    unit: str = ""  # of a number, such as "MiB/s"
    least: float | None = None
    most: float | None = None
    choices: tuple[str | int, ...] = ()
    form: Form | None = None
    cluster_wide: bool = False  # only the cluster may set it
    fixed: bool = False  # decided when the object is made
    is_ours: bool = False  # 3.0 does not know it: stored only where it is given

    @property
    def described(self) -> str:
        """The purpose of the parameter, with its type, unit, range and default."""
        return f"{self.summary.rstrip('.')} ({'; '.join(self._notes())})"

    def _notes(self) -> Iterator[str]:
        if self.choices:
            yield "one of " + ", ".join(str(choice) or '""' for choice in self.choices)
        elif self.form:
            yield self.form.words
        elif self.type is not ValueType.STRING:
            yield _KINDS[self.type]
        if self.unit:
            yield f"in {self.unit}"
        if self.least is not None and self.most is not None:
            yield f"from {_in_full(self.least)} to {_in_full(self.most)}"
        elif self.least is not None:
            yield f"at least {_in_full(self.least)}"
        elif self.most is not None:
            yield f"at most {_in_full(self.most)}"
        default = self.default
        if isinstance(default, bool):
            default = "yes" if default else "no"
        yield "no default" if default in ("", None) else f"default {default}"
        if self.cluster_wide:
            yield "only for the whole cluster"
        if self.fixed:
            yield "decided when the object is made"

    def problem(self, value: object) -> str | None:
        """Return the fault of a value of the right type (limits, choices, form), or None."""
        if self.choices and value not in self.choices:
            known = ", ".join(str(word) if word != "" else '""' for word in self.choices)
            return f"{value!r} is not one of {known}"
        if isinstance(value, int | float) and not isinstance(value, bool):
            return self._problem_of_number(value)
        if self.form and isinstance(value, str) and not re.fullmatch(self.form.pattern, value):
            return f"{value!r} is not {self.form.words}"
        return None

    def _problem_of_number(self, value: float) -> str | None:
        low, high = self.least, self.most
        if low is not None and high is not None and not low <= value <= high:
            return f"{value} is not between {low} and {high}"
        if low is not None and value < low:
            return f"{value} is less than {low}"
        if high is not None and value > high:
            return f"{value} is more than {high}"
        return None


def _in_full(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


_KINDS: Final[Mapping[ValueType, str]] = {
    ValueType.BOOL: "yes or no",
    ValueType.FLOAT: "a number",
    ValueType.INT: "a whole number",
    ValueType.MAYBE_STRING: "a text, or none",
    ValueType.SIZE: "a size",
}

ParamTable: TypeAlias = Mapping[str, ParamSpec]

# The types of parameters, to be called with default, summary and named fields of `ParamSpec`.
text: Final = partial(ParamSpec, ValueType.STRING)
path: Final = partial(text, form=ABSOLUTE_PATH)
maybe_text: Final = partial(ParamSpec, ValueType.MAYBE_STRING)
flag: Final = partial(ParamSpec, ValueType.BOOL)
integer: Final = partial(ParamSpec, ValueType.INT)
number: Final = partial(ParamSpec, ValueType.FLOAT)
size: Final = partial(ParamSpec, ValueType.SIZE, unit="MiB")


def choice(default: str, summary: str, words: str, *, is_ours: bool = False) -> ParamSpec:
    """Declare a text that is one of some words, or empty if that is the default."""
    choices = (*(() if default else ("",)), *words.split())
    return text(default, summary, choices=choices, is_ours=is_ours)


PORT_MAX: Final = 65535

BEPARAMS: Final[ParamTable] = {
    "minmem": size(128, "The memory that the instance can do with.", least=1),
    "maxmem": size(128, "The memory that the instance gets where there is enough.", least=1),
    "vcpus": integer(1, "The number of virtual processors.", least=1),
    "auto_balance": flag(True, "Count the instance when the cluster is balanced."),
    "always_failover": flag(False, "Never migrate the instance, always fail it over."),
    "spindle_use": integer(1, "The load on spindles that the instance counts for.", least=0),
}
BACKEND_SETTINGS: Final[ParamTable] = {
    **BEPARAMS,
    "memory": size(None, "Both minmem and maxmem.", least=1),
}
"""Back-end parameters as commands take them."""

NICPARAMS: Final[ParamTable] = {
    "link": text(
        DEFAULT_BRIDGE,
        "The bridge, routing table or switch that the interface is on.",
        form=_WITHOUT_BLANKS,
    ),
    "mode": choice("bridged", "How the interface is attached.", "bridged routed openvswitch"),
    "vlan": text("", "The VLANs of the interface: 10, :20:30 (trunk) or .10:20:30."),
}
NDPARAMS: Final[ParamTable] = {
    "oob_program": path("", "The program for out-of-band management of the node."),
    "spindle_count": integer(1, "The number of spindles of the node.", least=0, most=10_000),
    "exclusive_storage": flag(False, "Whole physical volumes are given to one instance each."),
    "ovs": flag(False, "Set up Open vSwitch on the node."),
    "ovs_name": maybe_text(DEFAULT_SWITCH, "The name of the switch.", form=_WITHOUT_BLANKS),
    "ovs_link": maybe_text(
        "", "The network device that connects the switch to the outside.", form=_WITHOUT_BLANKS
    ),
    "ssh_port": integer(22, "The port of the node's SSH server.", least=1, most=PORT_MAX),
    "cpu_speed": number(
        1.0, "The speed of the processors, as a multiple of the usual.", least=0.001, most=1000.0
    ),
}
_ACCESS: Final = choice("kernelspace", "How instances reach their disks.", " ".join(DiskAccess))
# Source of the limits: drbdsetup-84 xml-help disk-options; lvcreate(8).
_STRIPES_MAX: Final = 128
_stripes: Final = partial(integer, 1, least=1, most=_STRIPES_MAX, fixed=True)
_speed: Final = partial(integer, unit="KiB/s", most=4 << 20)
_FILES: Final[ParamTable] = {
    FORMAT: text(
        str(DiskFormat.RAW),
        "The format of the files of new disks: raw, or qcow2, which can have snapshots.",
        choices=tuple(map(str, DiskFormat)),
        fixed=True,
        is_ours=True,
    )
}
_CEPH_USER: Final = Form("the name of a user without 'client.'", r"([A-Za-z0-9_][\w.-]*)?")
_OF_TEMPLATES: Final[Mapping[str, ParamTable]] = {
    "drbd": {
        "c-delay-target": integer(
            1, "The delay aimed at while resynchronising.", unit="0.1 s", least=1, most=100
        ),
        "c-fill-target": integer(
            0,
            "The data on their way aimed at; 0: by the delay.",
            unit="sectors of 512 bytes",
            least=0,
            most=1 << 20,
        ),
        "c-max-rate": _speed(61440, "The highest speed of resynchronising.", least=250),
        "c-min-rate": _speed(4096, "The lowest speed of resynchronising.", least=0),
        "c-plan-ahead": integer(
            20, "How far the controller of the speed plans.", unit="0.1 s", least=0, most=300
        ),
        "data-stripes": _stripes("The number of stripes of the data volume."),
        "disk-barriers": text(
            "n",
            "The barriers of the disk that are switched off: barriers, flushes, drain, or none.",
            form=_BARRIERS,
        ),
        "disk-custom": text("", "More options of drbdsetup for the disk.", form=_OPTIONS),
        "dynamic-resync": flag(False, "Let a controller choose the speed of resynchronising."),
        "meta-barriers": flag(False, "Switch off barriers for the metadata."),
        "meta-stripes": _stripes("The number of stripes of the metadata volume."),
        "metavg": text("xenvg", "The volume group of the metadata.", form=LVM_NAME),
        "net-custom": text("", "More options of drbdsetup for the network.", form=_OPTIONS),
        "protocol": choice("C", "The replication protocol of DRBD.", "A B C"),
        "resync-rate": _speed(61440, "The fixed speed of resynchronising.", least=1),
    },
    "ext": {"access": _ACCESS},
    "file": _FILES,
    "gluster": {
        "access": _ACCESS,
        "host": text("127.0.0.1", "The host of the Gluster volume.", form=_HOST),
        "port": integer(24007, "The port of the Gluster daemon.", least=1, most=PORT_MAX),
        "volume": text("gv0", "The Gluster volume.", form=_GLUSTER_VOLUME),
    },
    "plain": {
        STRIPE_SIZE: integer(
            0,
            "The part of a stripe that lies on one physical volume; 0: that of LVM.",
            unit="KiB",
            choices=(0, *(4 << power for power in range(11))),
            fixed=True,
            is_ours=True,
        ),
        "stripes": _stripes("The number of stripes of a logical volume."),
        THIN_POOL: text(
            "",
            "The thin pool of the volume group that new disks take their space from when they are"
            " written; none for disks that have all of it from the start.",
            form=Form("a name of LVM, or empty", f"({LVM_NAME.pattern})?"),
            fixed=True,
            is_ours=True,
        ),
    },
    "rbd": {
        "access": _ACCESS,
        "pool": text("rbd", "The RADOS pool of the disks.", form=_RADOS_POOL, fixed=True),
        "user-id": text("", "The CephX user that reaches them.", form=_CEPH_USER, is_ours=True),
    },
    "sharedfile": _FILES,
}
DISKPARAMS: Final[Mapping[str, ParamTable]] = {
    str(template): _OF_TEMPLATES.get(template, {}) for template in DiskTemplate
}
"""Parameters of disks by template, as clusters and groups have them."""

NDPARAMS_CLUSTER_AND_GROUP: Final = frozenset({"exclusive_storage"})
"""Node parameters that cannot be set for one node alone."""

DISK_SETTINGS: Final[ParamTable] = {
    "access": _ACCESS,
    "adopt": text(
        "", "The existing volume, file or device that becomes the disk, instead of a new one."
    ),
    "dev_type": text("", "The disk template of this disk, where it is not that of the instance."),
    "metavg": text("", "The volume group of DRBD's metadata."),
    "mode": choice("rw", "Whether the instance may write.", " ".join(DiskMode)),
    "name": maybe_text("", "A name of the disk's own, unique in its instance; none removes it."),
    "provider": text("", "The external storage provider; further keys are its own parameters."),
    "size": size("auto", "The size of the disk; auto is the policy's standard size.", least=1),
    "spindles": integer(None, "The spindles of the disk, on nodes that give them out.", least=1),
    "vg": text("", "The volume group of the disk."),
}
"""Settings of one disk in an opcode; disks of template ext take others besides."""

OWN_DISKPARAMS: Final[Mapping[str, ParamTable]] = {
    template: {name: spec for name, spec in table.items() if name != "metavg"}
    for template, table in DISKPARAMS.items()
}
"""Parameters that one disk may have besides its cluster and group, by template.

``metavg`` is a setting of a new disk: afterwards the metadata's own logical id names the group.
"""

NIC_SETTINGS: Final[ParamTable] = {
    "bridge": maybe_text("", "The older name of link; auto is the cluster's default bridge."),
    "ip": maybe_text("", "The IP address; pool takes a free one of the network, none removes it."),
    **{name: replace(spec, default="") for name, spec in NICPARAMS.items()},
    "mac": text("auto", "The MAC address; auto and generate make a new one."),
    "name": maybe_text("", "A name of the interface's own; none removes it."),
    "network": maybe_text("", "The network that gives mode, link and address; none removes it."),
}
"""Settings of one network interface in an opcode."""

# Source: constants.json, DSS_PARAMETER_TYPES, HVSTS_PARAMETER_TYPES: figures are not rounded
DISK_STATE_PARAMS: Final[ParamTable] = {
    "disk_overhead": integer(
        0, "The space that the storage takes for itself.", unit="MiB", least=0
    ),
    "disk_reserved": integer(0, "The space that instances do not get.", unit="MiB", least=0),
    "disk_total": integer(0, "The space of the storage.", unit="MiB", least=0),
}
HV_STATE_PARAMS: Final[ParamTable] = {
    "cpu_node": integer(1, "The processors that the node itself needs.", least=0),
    "cpu_total": integer(1, "The processors of the node.", least=0),
    "mem_hv": integer(0, "The memory that the hypervisor needs.", unit="MiB", least=0),
    "mem_node": integer(0, "The memory that the node itself needs.", unit="MiB", least=0),
    "mem_total": integer(0, "The memory of the node.", unit="MiB", least=0),
}

ISPEC_TABLE: Final[ParamTable] = {
    "memory-size": size(0, "The memory of an instance.", least=0),
    "disk-size": size(0, "The size of each of its disks.", least=0),
    "disk-count": integer(0, "The number of its disks.", least=0),
    "cpu-count": integer(0, "The number of its virtual processors.", least=0),
    "nic-count": integer(0, "The number of its network interfaces.", least=0),
    "spindle-use": integer(0, "The load on spindles that it counts for.", least=0),
}
ISPEC_PARAMS: Final = tuple(ISPEC_TABLE)
IPOLICY_RATIOS: Final = ("spindle-ratio", "vcpu-ratio")


def _spec(*values: int) -> dict[str, int]:
    return dict(zip(ISPEC_PARAMS, values, strict=True))


IPOLICY_DEFAULTS: Final[Mapping[str, object]] = {
    "minmax": [{"min": _spec(128, 1024, 1, 1, 1, 1), "max": _spec(32768, 1048576, 16, 8, 8, 12)}],
    "std": _spec(128, 1024, 1, 1, 1, 1),
    "spindle-ratio": 32.0,
    "vcpu-ratio": 4.0,
    "disk-templates": [str(template) for template in DiskTemplate],
}


def all_disk_settings() -> ParamTable:
    """Return the settings of a disk with the parameters that disks of any template may have."""
    of_templates = {name: spec for table in OWN_DISKPARAMS.values() for name, spec in table.items()}
    return {**of_templates, **DISK_SETTINGS}


def defaults_of(table: ParamTable) -> dict[str, object]:
    """Return the default of each parameter of a table."""
    return {name: spec.default for name, spec in table.items()}


def stored_defaults(table: ParamTable) -> dict[str, object]:
    """Return the defaults that stand in a configuration: those of parameters that 3.0 knows."""
    return {name: spec.default for name, spec in table.items() if not spec.is_ours}


def _as_bool(value: object) -> bool:
    if isinstance(value, str):
        match value.lower():
            case "true" | "yes":
                return True
            case "false" | "no" | "":
                return False
        raise ValueError
    if isinstance(value, bool | int):
        return bool(value)
    raise ValueError


def _as_int(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError  # noqa: TRY004 - one error for all, converted by the caller
    return int(value)


def _as_float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError  # noqa: TRY004 - one error for all, converted by the caller
    return float(value)


def _as_size(value: object) -> int:
    if isinstance(value, str):
        return parse_unit(value)
    return _as_int(value)


def _as_text(value: object) -> str:
    if value is False:  # "no_name" on the command line
        return ""
    if isinstance(value, str):
        return value
    raise ValueError


def _as_maybe_text(value: object) -> str | None:
    return None if value is None else _as_text(value)


_CONVERT: Final = {
    ValueType.BOOL: (_as_bool, "true or false"),
    ValueType.FLOAT: (_as_float, "a number"),
    ValueType.INT: (_as_int, "an integer"),
    ValueType.MAYBE_STRING: (_as_maybe_text, "text or nothing"),
    ValueType.SIZE: (_as_size, "a size in MiB or with a unit, such as 512 or 10g"),
    ValueType.STRING: (_as_text, "text"),
}


def enforce_types(
    params: Mapping[str, object], table: ParamTable, *, what: str = "parameter"
) -> dict[str, object]:
    """Return the parameters with each value converted to its type; "default" is left as it is.

    Raises:
        TypeEnforcementError: a parameter is unknown or its value cannot be converted; ``what``
            names the group in the text ("backend parameter").
    """
    enforced: dict[str, object] = {}
    for name, value in params.items():
        spec = table.get(name)
        if spec is None:
            known = ", ".join(sorted(table)) or "none"
            raise TypeEnforcementError(f"unknown {what} {name!r}; known are: {known}")
        if value == VALUE_DEFAULT:
            enforced[name] = value
            continue
        convert, expected = _CONVERT[spec.type]
        try:
            enforced[name] = convert(value)
        except (ValueError, UnitParseError) as err:
            raise TypeEnforcementError(
                f"{what} {name!r}: expected {expected}, got {value!r}"
            ) from err
    return enforced


def problems(
    params: Mapping[str, object], table: ParamTable, *, what: str = "parameter"
) -> Iterator[str]:
    """Find the parameters that are unknown, of a wrong type or beyond their limits.

    Each finding is one sentence that names the group (``what``) and the parameter.  The value
    "default", which stands for no own value, is always right.
    """
    for name, value in params.items():
        try:
            converted = enforce_types({name: value}, table, what=what)[name]
        except TypeEnforcementError as err:
            yield err.message
            continue
        found = None if value == VALUE_DEFAULT else table[name].problem(converted)
        if found:
            yield f"{what} {name!r}: {found}"


def checked(
    params: Mapping[str, object], table: ParamTable, *, what: str = "parameter"
) -> dict[str, object]:
    """Return the parameters as `enforce_types`, all within their limits.

    Raises:
        TypeEnforcementError: the first of their `problems`.
    """
    for problem in problems(params, table, what=what):
        raise TypeEnforcementError(problem)
    return enforce_types(params, table, what=what)


def memory_problem(beparams: Mapping[str, object]) -> str | None:
    """Say that the limits of an instance's memory contradict each other, if they do."""
    least, most = beparams.get("minmem"), beparams.get("maxmem")
    if isinstance(least, int) and isinstance(most, int) and least > most:
        return f"minmem ({least} MiB) must not be larger than maxmem ({most} MiB)"
    return None


def apply_changes(
    old: Mapping[str, object], changes: Mapping[str, object], *, none_removes: bool = False
) -> dict[str, object]:
    """Lay changes over parameters; the value "default" (and perhaps null) removes one."""
    params = {**old, **changes}
    return {
        name: value
        for name, value in params.items()
        if not (name in changes and (value == VALUE_DEFAULT or (none_removes and value is None)))
    }


def cluster_wide_only(params: Mapping[str, object], table: ParamTable) -> list[str]:
    """Return the names of given parameters that only the cluster may set, sorted."""
    return sorted(name for name in params if name in table and table[name].cluster_wide)
