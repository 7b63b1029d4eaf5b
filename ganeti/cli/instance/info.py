"""``gnt-instance info``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ganeti.base.errors import OpPrereqError
from ganeti.base.text import natural_sort_key
from ganeti.base.units import format_unit
from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, Context, Options, command, opt
from ganeti.cli.info import parameters
from ganeti.cli.run.binding import submit
from ganeti.cli.run.report import Facts, format_report
from ganeti.cli.run.table import format_time
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
    context.terminal.write_lines(format_report([describe(found[name]) for name in names]))
    return EXIT_SUCCESS


def describe(instance: Values) -> Facts:
    """Return the facts about an instance."""
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
        ]
    )
    if instance.get("network_port") is not None:
        facts.append(("Allocated network port", instance["network_port"]))
    facts += [
        ("Hypervisor", instance.get("hypervisor")),
        ("Hypervisor parameters", _parameters(instance, "hv")),
        ("Back-end parameters", _parameters(instance, "be")),
        ("NICs", [_nic(nic) for nic in _list(instance.get("nics"))]),
        ("Disk template", instance.get("disk_template")),
        ("Disks", [_disk(disk) for disk in _list(instance.get("disks"))]),
    ]
    return facts


def _state(instance: Values) -> str:
    configured = f"configured to be {instance.get('config_state')}"
    running = instance.get("run_state")
    return f"{configured}, actual state is {running}" if running else configured


def _nodes(instance: Values) -> Facts:
    facts = Facts([("primary", _primary(instance))])
    secondaries = _list(instance.get("snodes"))
    groups = _list(instance.get("snodes_group_names"))
    names = [
        f"{name} (group {groups[position]})" if position < len(groups) else str(name)
        for position, name in enumerate(secondaries)
    ]
    facts.append(("secondaries", ", ".join(names)))
    return facts


def _primary(instance: Values) -> str:
    group = instance.get("pnode_group_name")
    return f"{instance.get('pnode')}" + (f" (group {group})" if group else "")


def _parameters(instance: Values, prefix: str) -> Facts:
    filled, own = instance.get(f"{prefix}_actual"), instance.get(f"{prefix}_instance")
    return parameters(filled, own) or Facts()


# What is shown of an interface, and its place in what is answered.
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


def _nic(nic: object) -> Facts:
    values = _list(nic)
    facts = Facts()
    for title, place in _NIC_PLACES:
        value = values[place] if place < len(values) else None
        facts.append((title, value.get("name") if isinstance(value, Mapping) else value))
    return facts


def _disk(disk: object) -> Facts:
    if not isinstance(disk, Mapping):
        return Facts()
    size = disk.get("size")
    words = [str(disk.get("dev_type"))]
    if isinstance(size, int):
        words.append(f"size {format_unit(size)}")
    facts = Facts([(str(disk.get("iv_name") or "disk"), ", ".join(words))])
    facts += [("access mode", disk.get("mode"))]
    logical_id = disk.get("logical_id")
    if isinstance(logical_id, Sequence) and not isinstance(logical_id, str):
        facts.append(("logical_id", " ".join(str(part) for part in logical_id)))
    for title, key in (("on primary", "pstatus"), ("on secondary", "sstatus")):
        if disk.get(key):
            facts.append((title, _status(disk[key])))
    if disk.get("name"):
        facts.append(("name", disk["name"]))
    facts.append(("UUID", disk.get("uuid")))
    children = [_disk(child) for child in _list(disk.get("children"))]
    if children:
        facts.append(("child devices", children))
    return facts


def _status(status: object) -> str:
    """Return the state of a disk on a node.

    It is [path, major, minor, percent in step, seconds left, degraded, state of the local disk].
    """
    match status:
        case [path, *_, bool(is_degraded), _]:
            return f"{path}{' *DEGRADED*' if is_degraded else ''}"
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
        opt.flag("-s --static", "only what the configuration says; asks no node"),
        opcode=OpInstanceQueryData,
        aliases=("show",),
        examples="gnt-instance info web1  # show web1",
    ),
)
