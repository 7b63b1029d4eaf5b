"""``tools/query-config``: look into a configuration file without any daemon.

The file may be of any version and damaged in any way short of not being JSON, so nothing is taken
for granted: missing parts are shown as missing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final, TypeAlias

import msgspec

from ganeti.base.errors import ConfigurationError, ErrorCode, OpPrereqError
from ganeti.base.json import dumps
from ganeti.base.text import meant_by, natural_sort_key
from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, ArgKind, Context, Options, command, opt
from ganeti.cli.declaration.program import DEBUG, Program
from ganeti.cli.run.listing import PLAIN_TABLE, print_plain
from ganeti.cli.run.table import Column
from ganeti.config.blanking import blank_secrets
from ganeti.config.state import problems_in
from ganeti.config.upgrade.upgrading import decode_config
from ganeti.config.upgrade.versions import CURRENT, version_of
from ganeti.store.config_file import SIZE_BYTES_MAX, read_config
from ganeti.store.config_upgrade import read_config_at

KINDS = ("nodes", "nodegroups", "instances", "networks", "disks", "filters")
CLUSTER = "cluster"

_PATH = opt.option(
    "--path=FILE", "configuration file to read, - for the standard input", completes=ArgKind.FILE
)
_SECRETS = opt.flag("--with-secrets", "print secrets too, for no other eyes than yours")


STANDARD_INPUT: Final = "-"

Fields: TypeAlias = Mapping[str, Any]


class Content:
    """A configuration to look into."""

    def __init__(self, config: Fields) -> None:
        self.config = config

    @property
    def cluster(self) -> Fields:
        """The cluster."""
        cluster: Fields = self.config[CLUSTER]
        return cluster

    @cached_property
    def tables(self) -> Mapping[str, Mapping[str, Fields]]:
        """The objects of each kind; other values are left out, they have nothing to show."""
        tables = {kind: _objects(self.config.get(kind)) for kind in KINDS}
        for owner, instance in tables["instances"].items():
            for index, disk in enumerate(_disks_of(instance)):
                if isinstance(disk, Mapping):
                    tables["disks"][_uuid_of(disk) or f"{owner}/{index}"] = disk
        return tables

    @cached_property
    def owners(self) -> Mapping[object, object]:
        """Names of instances by UUID, or if it has none by `id`, of each of their disks."""
        return {
            _uuid_of(disk) or id(disk): one.get("name")
            for one in self.tables["instances"].values()
            for disk in _disks_of(one)
        }


def _objects(table: object) -> dict[str, Fields]:
    if not isinstance(table, Mapping):
        return {}
    return {key: item for key, item in table.items() if isinstance(item, Mapping)}


def _uuid_of(disk: object) -> str:
    """Return the UUID of a disk, which may be all that there is of it; "" if it has none."""
    uuid = disk.get("uuid") if isinstance(disk, Mapping) else disk
    return uuid if isinstance(uuid, str) else ""


def _disks_of(instance: Fields) -> list[Any]:
    """Return the UUIDs of an instance's disks, or up to 2.13 the disks themselves."""
    disks = instance.get("disks")
    return disks if isinstance(disks, list) else []


Getter: TypeAlias = Callable[[Fields, Content], Any]


def _value(name: str) -> Getter:
    return lambda item, _content: item.get(name)


def _role(node: Fields, content: Content) -> str:
    master = content.cluster.get("master_node")
    if master and master in (node.get("uuid"), node.get("name")):
        return "master"
    roles = {"master_candidate": "candidate", "drained": "drained", "offline": "offline"}
    return next((role for key, role in roles.items() if node.get(key)), "regular")


def _name_in(table: str, key: str) -> Getter:
    """Show the object that an object refers to by name, or the UUID if there is no such object."""

    def get(item: Fields, content: Content) -> Any:
        reference = item.get(key)
        referred = content.tables[table].get(reference) if isinstance(reference, str) else None
        return reference if referred is None else referred.get("name", reference)

    return get


def _owner(disk: Fields, content: Content) -> Any:
    return content.owners.get(_uuid_of(disk) or id(disk))


def _disk_count(instance: Fields, _content: Content) -> int:
    return len(_disks_of(instance))


def _columns(names: str, **more: Getter) -> list[tuple[Column, Getter]]:
    """Return columns by their titles: of fields of the same name, then of other values."""
    fields = {name: _value(_FIELDS.get(name, name.lower())) for name in names.split()}
    getters = {**fields, **more}.items()
    return [(Column(name, _VALUE_KINDS.get(name, "text")), getter) for name, getter in getters]


_FIELDS: Final = {
    "PrimaryIP": "primary_ip",
    "AllocPolicy": "alloc_policy",
    "State": "admin_state",
    "Type": "dev_type",
}
_VALUE_KINDS: Final = {"Disks": "number", "Priority": "number", "Size": "unit"}
_GROUP: Final = _name_in("nodegroups", "group")
COLUMNS: Final[Mapping[str, list[tuple[Column, Getter]]]] = {
    "nodes": _columns("Name UUID PrimaryIP", Role=_role, Group=_GROUP),
    "nodegroups": _columns("Name UUID AllocPolicy"),
    "instances": [
        *_columns("Name UUID Hypervisor", PrimaryNode=_name_in("nodes", "primary_node")),
        *_columns("State", Disks=_disk_count),
    ],
    "networks": _columns("Name UUID Network Gateway"),
    "disks": _columns("UUID Name Type Size", Instance=_owner),
    "filters": _columns("UUID Priority Action"),
}


def list_objects(context: Context, options: Options, args: list[str]) -> None:
    """List the objects of a kind, by name."""
    content = _load(context, options)
    columns = COLUMNS[args[0]]
    items = content.tables[args[0]].values()
    ordered = sorted(items, key=lambda item: _sort_key(item, content))
    rows = [[getter(item, content) for _, getter in columns] for item in ordered]
    print_plain(context, options, [column for column, _ in columns], rows)


def _sort_key(item: Fields, content: Content) -> list[tuple[int, int, str]]:
    if "dev_type" in item:  # a disk: beside the others of its instance
        return natural_sort_key(f"{_owner(item, content) or ''} {item.get('iv_name', '')}")
    return natural_sort_key(str(item.get("name") or item.get("uuid") or ""))


def show(context: Context, options: Options, args: list[str]) -> None:
    """Show one object as JSON."""
    content = _load(context, options)
    if args[0] == CLUSTER:
        if len(args) > 1 and args[1] != content.cluster.get("cluster_name"):
            raise OpPrereqError(
                f"there is no cluster {args[1]!r} in it; leave the name out", ErrorCode.NOENT
            )
        _print(context, options, content.cluster)
        return
    if len(args) == 1:
        raise OpPrereqError(f"say which of the {args[0]} to show, by name or UUID")
    _print(context, options, _find(content, args[0], args[1]))


def _find(content: Content, kind: str, key: str) -> Fields:
    table = content.tables[kind]
    if key in table:
        return table[key]
    names = {str(item["name"]): item for item in table.values() if item.get("name")}
    found = meant_by(key, names)
    if found is not None:
        return found
    for item in table.values():
        if item.get("uuid") == key:  # keyed by name up to 2.8
            return item
    raise OpPrereqError(f"none of the {kind} has the name or UUID {key!r}", ErrorCode.NOENT)


def count(context: Context, options: Options, _args: list[str]) -> None:
    """Count the objects of each kind."""
    content = _load(context, options)
    rows = [(kind, len(content.tables[kind])) for kind in KINDS]
    print_plain(context, options, ["Kind", Column("Objects", "number")], rows)


def check(context: Context, options: Options, _args: list[str]) -> int:
    """Print the problems of the configuration."""
    data = _read(context, options)
    version = version_of(decode_config(data))
    if version != CURRENT:
        context.write(
            f"The configuration is of version {version}; cfgupgrade brings it to {CURRENT}."
        )
        return EXIT_FAILURE
    problems = problems_in(data)
    context.terminal.write_lines(problems or ["Nothing is wrong."])
    return EXIT_FAILURE if problems else EXIT_SUCCESS


def export(context: Context, options: Options, _args: list[str]) -> None:
    """Print the whole configuration as JSON."""
    _print(context, options, _load(context, options).config)


def _print(context: Context, options: Options, value: Fields) -> None:
    shown = value if options.with_secrets else blank_secrets(value)
    context.write(msgspec.json.format(dumps(shown), indent=2).decode())


def _read(context: Context, options: Options) -> bytes:
    if options.path is None:
        return read_config(context.paths)
    if options.path == STANDARD_INPUT:
        return sys.stdin.buffer.read(SIZE_BYTES_MAX)
    return read_config_at(options.path)


def _load(context: Context, options: Options) -> Content:
    config = decode_config(_read(context, options))
    if not isinstance(config[CLUSTER], Mapping):
        raise ConfigurationError("the cluster is not a JSON object")
    return Content(config)


PROGRAM = Program(
    "query-config",
    "look into a configuration file without any daemon",
    """Lists and shows the objects of config.data, checks it, and prints all of it with the secrets
blanked, so that it can be sent to others.  Works on the file alone, whether daemons run or not, and
on files of older versions too; it never changes anything.""",
    (
        command(
            list_objects,
            opt.Argument(ArgKind.CHOICE, choices=KINDS),
            PLAIN_TABLE,
            title="list: list the objects of a kind",
            examples="""
query-config list instances  # all instances
query-config list --separator=, --no-headers nodes  # for a script""",
        ),
        command(
            show,
            opt.Argument(ArgKind.CHOICE, choices=(CLUSTER, *KINDS)),
            opt.Argument(ArgKind.TEXT, 0, metavar="NAME"),
            _SECRETS,
            description="""The object is given by its name, a short name, or its UUID.  Secrets are
            blanked as in an export.""",
            examples="""
query-config show cluster  # the cluster's settings
query-config show instances web  # one instance by a short name""",
        ),
        command(count),
        command(
            check,
            description="""Looks for the errors that 'gnt-cluster verify-config' finds.  The exit
            status is 0 without errors, 1 with some, 2 if the file cannot be used at all.""",
        ),
        command(
            export,
            _SECRETS,
            description="""Unless --with-secrets is given, <redacted> stands in the place of secrets
            of DRBD disks, private parameters of operating systems, host keys, files that hold
            passwords or keys, passwords in addresses and command lines, and whatever has the name
            of a secret.""",
            examples="query-config export > config.txt  # to send it to somebody",
        ),
    ),
    is_interspersed=True,
    common_options=(_PATH, DEBUG),
)
