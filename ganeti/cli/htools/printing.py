"""Tables of nodes, instances and components of a score, as the tools for placement print them.

Source: manual page htools(1), "--print-nodes"; the forms are those of 3.0.2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from decimal import Decimal
from typing import Final, NamedTuple

from msgspec import Struct

from ganeti.allocation.load import Free, NodeLoad
from ganeti.allocation.model import Instance, InstanceStatus, Node
from ganeti.allocation.score import Component
from ganeti.allocation.snapshot import Snapshot
from ganeti.allocation.state import ClusterState

GIB: Final = 1024  # in MiB
_MORE: Final = "+"  # before fields that are printed besides the usual ones
_UNKNOWN: Final = "<unknown field>"
# What may be missing of the sum of a node before it is told.
_MEMORY_MISSING_MAX, _DISK_MISSING_MAX = 512, 1024


class Column(NamedTuple):
    """A column of a table; numbers stand at the right."""

    title: str
    is_number: bool = False


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]], indent: str) -> list[str]:
    """Return the lines of a table, its titles first."""
    lines = [[column.title for column in columns], *rows]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    made = []
    for line in lines:
        cells = zip(line, widths, columns, strict=True)
        padded = [cell.rjust(w) if column.is_number else cell.ljust(w) for cell, w, column in cells]
        made.append(indent + " ".join(padded))
    return made


_BARE: Final = re.compile(r"[\w.]*")


def shell_value(text: str) -> str:
    """Return a value of a key for programs, in quotes where 3.0 sets them."""
    return text if _BARE.fullmatch(text) else f"'{text}'"


class Shown(Struct, frozen=True):
    """A node to be shown: what it reports, its load and its instances.

    Attributes:
        lost_memory: what neither it nor its running instances took and that was not free, when it
            was asked.
        numbers: the place of each instance in the list of the source.
    """

    node: Node
    free: Free
    load: NodeLoad
    primaries: Sequence[Instance]
    secondaries: Sequence[Instance]
    lost_memory: int
    numbers: Mapping[str, int]

    @property
    def used_memory(self) -> int:
        """Memory of the instances that run on it."""
        return sum(each.running_memory for each in self.primaries)

    @property
    def flag(self) -> str:
        """Its state in one letter."""
        if not self.node.is_usable:
            return "-"
        return "*" if self.load.fails_n1 else " "


def shown_nodes(
    snapshot: Snapshot, state: ClusterState, only: Iterable[str] | None = None
) -> list[Shown]:
    """Return the nodes (of the groups with these UUIDs) to be shown, in the order of the source.

    Args:
        snapshot: as the source told it; memory that is free as reported does not change.
    """
    primaries: dict[str, list[Instance]] = {name: [] for name in snapshot.nodes}
    secondaries: dict[str, list[Instance]] = {name: [] for name in snapshot.nodes}
    for each in state.instances.values():
        primaries[each.primary].append(each)
        for name in each.nodes[1:]:
            secondaries[name].append(each)
    groups = None if only is None else frozenset(only)
    lost = _lost_memory(snapshot)
    numbers = {
        name: number for number, name in enumerate({**snapshot.instances, **state.instances})
    }
    return [
        Shown(
            node=node,
            free=snapshot.free[name],
            load=state.load(name),
            primaries=primaries[name],
            secondaries=secondaries[name],
            lost_memory=lost[name],
            numbers=numbers,
        )
        for name, node in snapshot.nodes.items()
        if groups is None or node.group in groups
    ]


def _lost_memory(snapshot: Snapshot) -> dict[str, int]:
    lost = {
        name: node.total_memory - node.own_memory - snapshot.free[name].memory
        for name, node in snapshot.nodes.items()
    }
    for each in snapshot.instances.values():
        lost[each.primary] -= each.running_memory
    return lost


NodeField = tuple[Column, Callable[[Shown], str]]


def _number(title: str, value: Callable[[Shown], int]) -> NodeField:
    return Column(title, True), lambda shown: str(value(shown))


def _fraction(title: str, digits: int, value: Callable[[Shown], float]) -> NodeField:
    return Column(title, True), lambda shown: _rounded(value(shown), digits)


def _rounded(value: float, digits: int) -> str:
    """Return a number as 3.0 rounds it: by its shortest decimal form, a half to the even digit."""
    return str(Decimal(repr(float(value))).quantize(Decimal(1).scaleb(-digits)))


def _listed(shown: Shown, instances: Iterable[Instance]) -> str:
    """Return the numbers of instances, as 3.0 lists them: the last one first."""
    made = [each.name for each in instances if not each.is_forthcoming]
    numbers = sorted((shown.numbers[name] for name in made), reverse=True)
    return f"[{','.join(map(str, numbers))}]"


def _part(value: float, whole: float) -> float:
    return value / whole if whole else 0.0


def _free_disk_part(shown: Shown) -> float:
    node, load = shown.node, shown.load
    if node.exclusive_storage:
        return _part(load.free_spindles + load.promised.spindles, node.spindle_count)
    return _part(load.free_disk + load.promised.disk, node.total_disk)


def _vcpus(shown: Shown) -> int:
    return shown.load.vcpus - shown.load.promised.vcpus


NODE_FIELDS: Final[Mapping[str, NodeField]] = {
    "status": (Column("F"), lambda shown: shown.flag),
    "name": (Column("Name"), lambda shown: shown.node.name),
    "tmem": _number("t_mem", lambda shown: shown.node.total_memory),
    "nmem": _number("n_mem", lambda shown: shown.node.own_memory),
    "imem": _number("i_mem", lambda shown: shown.used_memory),
    "xmem": _number("x_mem", lambda shown: shown.lost_memory),
    "fmem": _number("f_mem", lambda shown: shown.free.memory),
    "umem": _number("u_mem", lambda shown: shown.load.present_free_memory),
    "rmem": _number("r_mem", lambda shown: shown.load.reserved),
    "tdsk": _number("t_dsk", lambda shown: round(shown.node.total_disk / GIB)),
    "fdsk": _number(
        "f_dsk", lambda shown: (shown.load.free_disk + shown.load.promised.disk) // GIB
    ),
    "tcpu": _number("pcpu", lambda shown: shown.node.cpus),
    "ucpu": _number("vcpu", _vcpus),
    "pcnt": _number("pcnt", lambda shown: shown.load.primaries),
    "scnt": _number("scnt", lambda shown: shown.load.secondaries),
    "plist": (Column("primaries", True), lambda shown: _listed(shown, shown.primaries)),
    "slist": (Column("secondaries", True), lambda shown: _listed(shown, shown.secondaries)),
    "pfmem": _fraction(
        "p_fmem", 4, lambda shown: _part(shown.load.present_free_memory, shown.node.total_memory)
    ),
    "pfdsk": _fraction("p_fdsk", 4, _free_disk_part),
    "rcpu": _fraction("r_cpu", 2, lambda shown: _part(_vcpus(shown), shown.node.cpus)),
    "cload": _fraction("lCpu", 3, lambda shown: shown.load.load.cpu),
    "mload": _fraction("lMem", 3, lambda shown: shown.load.load.memory),
    "dload": _fraction("lDsk", 3, lambda shown: shown.load.load.disk),
    "nload": _fraction("lNet", 3, lambda shown: shown.load.load.network),
    "ptags": (Column("PrimaryTags"), lambda shown: _tags(shown.load.exclusion)),
}
_USUAL: Final = tuple(name for name in NODE_FIELDS if name not in ("plist", "slist", "ptags"))


def _tags(counts: Mapping[str, int]) -> str:
    return ",".join(f"{tag}={count}" for tag, count in sorted(counts.items()))


def node_table(nodes: Sequence[Shown], fields: str) -> list[str]:
    """Return the lines of a table of nodes.

    Args:
        fields: the value of ``--print-nodes``; "" means the usual ones.
    """
    more = fields.startswith(_MORE)
    words = [word for word in fields.removeprefix(_MORE).split(",") if word]
    names = [*_USUAL, *words] if more or not words else words
    unknown: NodeField = (Column(_UNKNOWN), lambda _: _UNKNOWN)
    chosen = [NODE_FIELDS.get(name, unknown) for name in names]
    rows = [[value(node) for _, value in chosen] for node in nodes]
    return table([column for column, _ in chosen], rows, " ")


_RUNNING: Final = (InstanceStatus.RUNNING, InstanceStatus.ERROR_UP)
_INSTANCE_COLUMNS: Final = (
    *(Column("F"), Column("Name"), Column("Pri_node"), Column("Sec_node"), Column("Auto_bal")),
    *(Column(title, True) for title in ("vcpu", "mem", "dsk", "lCpu", "lMem", "lDsk", "lNet")),
)


def instance_table(instances: Iterable[Instance]) -> list[str]:
    """Return the lines of a table of instances."""
    rows = [
        [
            "R" if each.status in _RUNNING else " ",
            each.name,
            each.primary,
            each.secondary or "",
            "Y" if each.is_auto_balanced else "N",
            str(each.spec.vcpus),
            *(f"{size:5}" for size in (each.memory, sum(each.spec.disk_sizes_mib) // GIB)),
            *(f"{value:.3f}" for value in each.load),
        ]
        for each in instances
    ]
    return table(_INSTANCE_COLUMNS, rows, " ")


_COMPONENT_COLUMNS: Final = (Column("Field"), Column("Value", True), Column("Weight", True))


def component_table(components: Iterable[Component]) -> list[str]:
    """Return the lines of a table of the components of a score."""
    rows = [[each.name, f"{each.value:.8f}", f"x{each.weight:.2f}"] for each in components]
    return table(_COMPONENT_COLUMNS, rows, "   ")


def inconsistencies(nodes: Iterable[Shown]) -> list[str]:
    """Return a line for each node whose report does not fit its instances, the last node first."""
    found = []
    for shown in nodes:
        if not shown.node.is_offline or shown.node.total_memory:
            disk = _missing_disk(shown)
            memory = shown.lost_memory
            if memory > _MEMORY_MISSING_MAX or disk > _DISK_MISSING_MAX:
                text = f"is missing {memory} MB ram and {disk // GIB} GB disk"
                found.append(f"  - node {shown.node.name} {text}")
    return found[::-1]


def count_hit(instances: Iterable[Instance], bad: Set[str]) -> int:
    """Return how many instances are on nodes with these names; forthcoming ones do not count."""
    return sum(not (each.is_forthcoming or bad.isdisjoint(each.nodes)) for each in instances)


def _disk_size(instance: Instance) -> int:
    return 0 if instance.is_forthcoming else sum(instance.spec.disk_sizes_mib)


def _missing_disk(shown: Shown) -> int:
    used = sum(map(_disk_size, (*shown.primaries, *shown.secondaries)))
    return shown.node.total_disk - shown.free.disk - used
