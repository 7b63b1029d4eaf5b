"""``gnt-instance info``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ganeti.base.errors import OpPrereqError
from ganeti.base.text import natural_sort_key
from ganeti.base.units import format_unit
from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, Context, Options, command, opt
from ganeti.cli.run.binding import submit
from ganeti.cli.run.report import Facts, format_report, parameters, with_roman_numbers
from ganeti.cli.run.table import format_time
from ganeti.objects.disk_templates import LocalDiskStatus
from ganeti.objects.parameters import OWN_DISKPARAMS
from ganeti.opcodes.instance import OpInstanceQueryData

Values = Mapping[str, object]


def info(context: Context, options: Options, args: list[str]) -> int:
    """Show everything about instances."""
    if not args and not options.show_all:
        raise OpPrereqError("name instances, or give --all")
    if args and options.show_all:
        raise OpPrereqError("give either names or --all, not both")
    result = submit(context, options, args)
    found = result if isinstance(result, Mapping) else {}
    if not found:
        context.terminal.error("No instances.")
        return EXIT_FAILURE
    names = sorted(found, key=natural_sort_key)
    facts = [describe(found[name], is_roman=options.roman) for name in names]
    context.terminal.write_lines(format_report(facts))
    return EXIT_SUCCESS


def describe(instance: Values, *, is_roman: bool = False) -> Facts:
    """Return the facts about an instance.

    Args:
        is_roman: write numbers the Roman way.
    """
    facts = Facts(
        [
            ("Instance name", instance.get("name")),
            ("UUID", instance.get("uuid")),
            ("Serial number", instance.get("serial_no")),
            ("Creation time", format_time(instance.get("ctime"))),
            ("Modification time", format_time(instance.get("mtime"))),
            ("State", _state(instance)),
            ("Nodes", _nodes(instance)),
            ("Operating system", instance.get("os")),
            ("Operating system parameters", _parameters(instance, "os")),
            ("Allocated network port", instance.get("network_port")),
            ("Hypervisor", instance.get("hypervisor")),
        ]
    )
    if console := _console(instance):
        facts.append(("console connection", console))
    facts += [
        ("Hypervisor parameters", _parameters(instance, "hv")),
        ("Back-end parameters", _parameters(instance, "be")),
        ("NICs", [_nic(index, nic) for index, nic in enumerate(_list(instance.get("nics")))]),
        ("Disk template", instance.get("disk_template")),
        ("Disks", [_disk("disk", index, disk) for index, disk in _numbered(instance, "disks")]),
    ]
    return (
        Facts((title, with_roman_numbers(value)) for title, value in facts) if is_roman else facts
    )


def _numbered(values: Values, key: str) -> Sequence[tuple[int, Values]]:
    disks = _list(values.get(key))
    return [(index, disk) for index, disk in enumerate(disks) if isinstance(disk, Mapping)]


def _state(instance: Values) -> str:
    configured = f"configured to be {instance.get('config_state')}"
    running = instance.get("run_state")
    return f"{configured}, actual state is {running}" if running else configured


def _nodes(instance: Values) -> list[Facts]:
    group = f"{instance.get('pnode_group_name')} (UUID {instance.get('pnode_group_uuid')})"
    secondaries = zip(
        _list(instance.get("snodes")),
        _list(instance.get("snodes_group_names")),
        _list(instance.get("snodes_group_uuids")),
        strict=False,
    )
    names = [f"{name} (group {title}, group UUID {uuid})" for name, title, uuid in secondaries]
    return [
        Facts([("primary", instance.get("pnode")), ("group", group)]),
        Facts([("secondaries", ", ".join(names))]),
    ]


_VNC_BASE_PORT: Final = 5900


def _console(instance: Values) -> str | None:
    """Say where the screen of an instance is shown, if it is."""
    hvparams, port = instance.get("hv_actual"), instance.get("network_port")
    address = hvparams.get("vnc_bind_address") if isinstance(hvparams, Mapping) else None
    if not address or not isinstance(port, int):
        return None
    node = instance.get("pnode")
    display = f"(display {port - _VNC_BASE_PORT})"
    if str(address).startswith("/"):
        return f"vnc to {node}:{address}"
    if address == "0.0.0.0":  # noqa: S104 - shown, not listened on
        return f"vnc to {node}:{port} {display}"
    return f"vnc to {address}:{port} (node {node}) {display}"


def _parameters(instance: Values, prefix: str) -> Facts:
    return parameters(instance.get(f"{prefix}_actual"), instance.get(f"{prefix}_instance"))


# The settings shown of an interface, and their places in the answer.
_NIC_PLACES = (
    ("MAC", 3),
    ("IP", 2),
    ("mode", 4),
    ("link", 5),
    ("vlan", 6),
    ("network", 8),
    ("UUID", 1),
    ("name", 0),
)


def _nic(index: int, nic: object) -> Facts:
    values = _list(nic)
    facts = Facts([(f"nic/{index}", "")])
    for title, place in _NIC_PLACES:
        value = values[place] if place < len(values) else None
        facts.append((title, value.get("name") if isinstance(value, Mapping) else value))
    return facts


def _disk(word: str, index: int, disk: Values) -> Facts:
    """Return the facts about a disk, or about a part of one."""
    size = disk.get("size")
    shown = format_unit(size) if isinstance(size, int) else "unknown"
    head = str(disk.get("iv_name") or f"{word}/{index}") if word == "disk" else f"{word} {index}"
    facts = Facts([(head, f"{disk.get('dev_type')}, size {shown}")])
    if word == "disk":
        facts.append(("access mode", disk.get("mode")))
    if disk.get("spindles") is not None:
        facts.append(("spindles", disk["spindles"]))
    facts += _place(disk)
    for title, key in (("on primary", "pstatus"), ("on secondary", "sstatus")):
        if disk.get(key):
            facts.append((title, _status(disk, disk[key])))
        elif disk.get(f"{key}_error"):
            facts.append((title, f"*UNAVAILABLE* {disk[f'{key}_error']}"))
    facts += [("name", disk.get("name")), ("UUID", disk.get("uuid"))]
    params, known = disk.get("params"), OWN_DISKPARAMS.get(str(disk.get("dev_type")), {})
    if isinstance(params, Mapping) and known.keys() & params.keys():
        own = [(name, params[name]) for name in sorted(known.keys() & params.keys())]
        facts.append(("own parameters", Facts(own)))
    children = [_disk("child", place, child) for place, child in _numbered(disk, "children")]
    if children:
        facts.append(("child devices", children))
    return facts


def _place(disk: Values) -> Facts:
    """Return where the data of a disk is."""
    logical_id, sides = disk.get("logical_id"), disk.get("drbd_info")
    if isinstance(sides, Mapping):
        return Facts(
            [
                ("nodeA", f"{sides.get('primary_node')}, minor={sides.get('primary_minor')}"),
                ("nodeB", f"{sides.get('secondary_node')}, minor={sides.get('secondary_minor')}"),
                ("port", sides.get("port")),
            ]
        )
    match disk.get("dev_type"), logical_id:
        case "plain", [group, volume]:
            return Facts([("logical_id", f"{group}/{volume}")])
        case _, [*parts]:
            return Facts([("logical_id", repr(parts))])
    return Facts()


_LOCAL_STATES: Final[Mapping[object, str]] = {
    LocalDiskStatus.UNKNOWN: " *UNCERTAIN STATE*",
    LocalDiskStatus.FAULTY: " *MISSING DISK*",
}


def _status(disk: Values, status: object) -> str:
    """Return the state of a disk on a node.

    It is [path, major, minor, percent in step, seconds left, degraded, state of the local disk].
    """
    match status:
        case [path, major, minor, percent, seconds, is_degraded, local]:
            numbers = [str(number) if number is not None else "N/A" for number in (major, minor)]
            text = f"{path} ({':'.join(numbers)})"
            if disk.get("dev_type") != "drbd":
                return text
            left = f"ETA {seconds}s" if seconds is not None else "ETA unknown"
            step = "in sync" if percent is None else f"*RECOVERING* {percent:5.2f}%, {left}"
            state = "*DEGRADED*" if is_degraded else "ok"
            return f"{text} {step}, status {state}{_LOCAL_STATES.get(local, '')}"
        case _:
            return str(status)


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else []


COMMANDS: Final = (
    command(
        info,
        "[<instance>...] --priority",
        opt.flag("--all -> show_all", "all instances (slow on large clusters)"),
        opt.flag("--roman", "show some numbers the Roman way"),
        opt.flag("-s --static", "only the facts in the configuration; asks no node"),
        opcode=OpInstanceQueryData,
        aliases=("show",),
        examples="gnt-instance info web1  # show web1",
    ),
)
