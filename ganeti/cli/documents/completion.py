"""Shell completion for bash: functions written by hand, and candidates from the tables.

The functions are ``doc/manual/completion.sh``, which says how the tables below them are to be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ganeti.base import paths
from ganeti.base.daemons import FACES
from ganeti.cli.declaration.parameters import tables_of, takes_names
from ganeti.cli.declaration.parser import options_of
from ganeti.cli.declaration.program import Action, Argument, Command, Option, Program
from ganeti.cli.declaration.values import FILTER_ACTIONS, PRIORITIES, Priority, YesNo
from ganeti.cli.node.storage import (
    STORAGE_COLUMNS,
    STORAGE_COLUMNS_MORE,
    VOLUME_COLUMNS,
    VOLUME_COLUMNS_MORE,
)
from ganeti.collectors.registry import COLLECTORS
from ganeti.objects import parameters
from ganeti.objects.disk_templates import DeviceAction, supported_templates
from ganeti.objects.hypervisors import HVPARAMS, Hypervisor
from ganeti.objects.parameters import ParamSpec, ParamTable, ValueType
from ganeti.objects.query_words import QueryResource
from ganeti.query.engine import resource_of

_YES_NO: Final = "=yes|no"
_TEMPLATES: Final = supported_templates()
_HYPERVISORS: Final = [str(each) for each in Hypervisor]

# Candidates that no type, kind or table of an option names: its long flag -> source
_SOURCES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            *("--cluster-domain-secret", "--diagnose-data-collector-filename", "--from"),
            *("--install-image", "--rapi-certificate", "--spice-ca-certificate"),
            *("--spice-certificate", "--zeroing-image"),
        ),
        "file",
    ),
    **dict.fromkeys(
        ("--confdir", "--gluster-storage-dir", "--shared-file-storage-dir"), "directory"
    ),
    "--action": f"={'|'.join(FILTER_ACTIONS)}",
    "--alloc-policy": "=preferred|last_resort|unallocable",
    "--data-collector-interval": "keys:intervals",
    "--disk-state": "named:nothing:disk_state",
    "--disk-template": "template",
    "--enabled-data-collectors": "keys:collectors",
    "--enabled-disk-templates": f",={'|'.join(_TEMPLATES)}",
    "--enabled-hypervisors": f",={'|'.join(_HYPERVISORS)}",
    "--hypervisor-state": "named:hypervisor:hv_state",
    "--ipolicy-bounds-specs": "named:=min|max:ispecs",
    "--ipolicy-disk-templates": ",template",
    "--ipolicy-std-specs": "keys:ispecs",
    "--os-parameters": "keys:osparams",
    "--os-parameters-private": "keys:osparams",
    "--os-parameters-secret": "keys:osparams",
    "--primary-ip-version": "=4|6",
    "--rights": ",=read|write",
    "--src-dir": "export",
    "--without": f",={'|'.join(FACES)}",
}
_FIELDS: Final[Mapping[tuple[str, str], str]] = {
    ("gnt-debug", "locks"): "lock",
    ("gnt-node", "list-storage"): "storage",
    ("gnt-node", "volumes"): "volume",
    **{
        (f"gnt-{kind.replace('export', 'backup')}", command): kind
        for kind in ("export", "filter", "group", "instance", "job", "network", "node")
        for command in ("list", "list-fields")
    },
}
# an option that decides the kind of the arguments -> source
_SELECTIONS: Final[Mapping[str, str]] = {
    "nodes": "node",
    "nodes-pri": "node",
    "nodes-sec": "node",
    "instances-by-tags": "nothing",
    "nodes-by-tags": "nothing",
    "nodes-pri-by-tags": "nothing",
    "nodes-sec-by-tags": "nothing",
}


def completion_script(functions: str, programs: Sequence[Program]) -> str:
    """Return the script for some programs, with or without subcommands."""
    for name, words in {
        "HYPERVISORS": _HYPERVISORS,
        "TEMPLATES": _TEMPLATES,
        "SHARES": paths.SHARES,
        "LIBRARIES": paths.LIBRARIES,
    }.items():
        functions = functions.replace(f"@{name}@", " ".join(words))
    lines = [f"_ganeti_keys[{name}]='{' '.join(keys)}'" for name, keys in _keys().items()]
    for program in programs:
        lines += _program(program)
    names = " ".join(program.name for program in programs)
    return "\n".join([functions, *lines, f"complete -F _ganeti_complete {names}", ""])


def _program(program: Program) -> Iterator[str]:
    if program.is_interspersed:
        yield f"_ganeti_interspersed[{program.name}]=yes"
    if not program.is_single:
        names = [name for each in program.commands for name in (each.name, *each.aliases)]
        yield f"_ganeti_commands[{program.name}]='{'|'.join(sorted(names))}'"
    for command in program.commands:
        at = program.name if program.is_single else f"{program.name} {command.name}"
        for alias in command.aliases:
            yield f"_ganeti_aliases['{program.name} {alias}']='{at}'"
        options = [_option(program, command, each) for each in options_of(program, command)]
        yield f"_ganeti_options['{at}']='{' '.join(options)}'"
        arguments = [word for each in command.args for word in _argument(program, command, each)]
        if arguments:
            yield f"_ganeti_arguments['{at}']='{' '.join(arguments)}'"


def _option(program: Program, command: Command, option: Option) -> str:
    flags = ",".join(option.flags)
    if option.takes_value:
        sign = "=" if option.alone is None else "?"
        return f"{flags}{sign}{source_of(program, command, option)}"
    named = _SELECTIONS.get(str(option.const)) if option.action is Action.CONST else None
    if (command.name, option.long) == ("epo", "--groups"):
        named = "group"
    return f"{flags}!{named}" if named else flags


def source_of(program: Program, command: Command, option: Option) -> str:
    """Return where the values of an option come from, "" if they cannot be guessed."""
    if option.destination == "output":
        return f"+table:fields:{_FIELDS[program.name, command.name]}"
    if option.long in _SOURCES:
        return _SOURCES[option.long]
    if tables_of(option):
        return _keys_source(command, option)
    if option.type == YesNo:
        return _YES_NO
    choices = tuple(PRIORITIES) if option.type == Priority else option.choices
    return f"={'|'.join(choices)}" if choices else str(option.completes or "")


def _keys_source(command: Command, option: Option) -> str:
    name = option.destination.replace("hypervisor", "hvparams")
    if name in ("disks", "nics"):
        is_change = command.name == "modify"
        return f"named:change:{name}-change" if is_change else f"named:device:{name}"
    if takes_names(option):
        return f"named:{'hypervisor' if name == 'hvparams' else 'template'}:{name}"
    return f"keys:{name}"


def _argument(program: Program, command: Command, argument: Argument) -> Iterator[str]:
    """Yield the sources of an argument, one for each time that it may stand."""
    if argument.choices:
        source = f"={'|'.join(argument.choices)}"
    elif command.name == "list-fields":
        source = f"table:fields:{_FIELDS[program.name, command.name]}"
    else:
        source = argument.completes or str(argument.kind)
    if argument.max is None:
        yield f"{source}+"
    else:
        yield from [source] * argument.max


def _keys() -> Mapping[str, Sequence[str]]:
    """Return the keys of each table of parameters, and the fields of each list."""
    found = {
        "beparams": _of(parameters.BACKEND_SETTINGS),
        "collectors": [f"{name}=yes|no" for name in COLLECTORS],
        "disk_state": _of(parameters.DISK_STATE_PARAMS),
        "disks": _of(parameters.all_disk_settings()),
        "disks-change": [*map(str, DeviceAction), *_of(parameters.all_disk_settings())],
        "hv_state": _of(parameters.HV_STATE_PARAMS),
        "intervals": [f"{name}=" for name in COLLECTORS],
        "ispecs": _of(parameters.ISPEC_TABLE),
        "ndparams": _of(parameters.NDPARAMS),
        "nicparams": _of(parameters.NICPARAMS),
        "nics": _of(parameters.NIC_SETTINGS),
        "nics-change": ["add", "modify", "remove", *_of(parameters.NIC_SETTINGS)],
        **{f"hvparams:{name}": _of(table) for name, table in HVPARAMS.items()},
        **{f"diskparams:{name}": _of(table) for name, table in parameters.DISKPARAMS.items()},
        "fields:storage": [*STORAGE_COLUMNS, *STORAGE_COLUMNS_MORE],
        "fields:volume": [*VOLUME_COLUMNS, *VOLUME_COLUMNS_MORE],
    }
    for resource in QueryResource:
        names = [name for name in resource_of(resource).fields if not re.search("/[1-9]", name)]
        found[f"fields:{resource}"] = names
    return found


def _of(table: ParamTable) -> list[str]:
    return [f"{name}={_values(spec)}" for name, spec in sorted(table.items())]


def _values(spec: ParamSpec) -> str:
    if spec.type is ValueType.BOOL:
        return "yes|no"
    return "|".join(str(choice) for choice in spec.choices if choice != "")
