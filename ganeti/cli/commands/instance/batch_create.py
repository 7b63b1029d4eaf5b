"""``gnt-instance batch-create``: many instances from one JSON file."""

from __future__ import annotations

from collections.abc import Mapping

from ganeti.base.errors import OpPrereqError
from ganeti.cli.commands.instance.devices import disk_settings
from ganeti.cli.commands.json_file import read_json
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_FAILURE, EXIT_SUCCESS
from ganeti.cli.run.jobs import execute, follow_all, make_opcode, split_submitted
from ganeti.opcodes.registry import encode_opcode

_NEW_INSTANCE = "OP_INSTANCE_CREATE"


def batch_create(context: Context, options: Options, args: list[str]) -> int:
    """Create the instances of a file, each in a job of its own."""
    [path] = args
    instances = instances_of(path, read_json(path))
    opcode = make_opcode(
        "OP_INSTANCE_MULTI_ALLOC", iallocator=options.iallocator, instances=instances
    )
    [result] = execute(context, options, opcode)
    jobs, refused = split_submitted(result)
    nowhere = _names(result, "failed")
    for name in nowhere:
        context.terminal.error(f"The allocator finds no place for instance {name}.")
    for said in refused:
        context.terminal.error(f"Not submitted: {said}")
    named = [
        (name, job_id)
        for name, (_, job_id) in zip(_names(result, "allocatable"), jobs, strict=False)
    ]
    failures = follow_all(context, named if len(named) == len(jobs) else jobs)
    return EXIT_FAILURE if failures or nowhere or refused else EXIT_SUCCESS


def _names(result: object, key: str) -> list[str]:
    names = result.get(key) if isinstance(result, Mapping) else None
    return list(map(str, names)) if isinstance(names, list) else []


def instances_of(path: str, content: object) -> list[dict[str, object]]:
    """Return the creations that a file holds, checked, in the form of opcodes.

    Raises:
        OpPrereqError: the file has another shape, or a value is wrong; the text names the entry.
    """
    if not isinstance(content, list) or not content:
        raise OpPrereqError(f"{path}: a list of instances is needed, with one object for each")
    return [_checked(f"{path}: entry {number}", entry) for number, entry in enumerate(content, 1)]


def _checked(where: str, entry: object) -> dict[str, object]:
    if not isinstance(entry, Mapping):
        raise OpPrereqError(f"{where}: an object with the settings of an instance is needed")
    settings = {name: value for name, value in entry.items() if name != "OP_ID"}
    if settings.get("name") and "instance_name" not in settings:
        settings["instance_name"] = settings.pop("name")
    if not isinstance(settings.get("instance_name"), str):
        raise OpPrereqError(f"{where}: instance_name is missing")
    where = f"{where} ({settings['instance_name']})"
    if settings.get("mode", "create") != "create":
        raise OpPrereqError(f"{where}: the mode can only be create")
    try:
        disks = [_disk(index, disk) for index, disk in enumerate(_list(settings, "disks", []))]
        opcode = make_opcode(
            _NEW_INSTANCE,
            **{**settings, "mode": "create", "disks": disks, "nics": _list(settings, "nics", [{}])},
        )
    except OpPrereqError as err:
        raise OpPrereqError(f"{where}: {err.message}") from err
    return encode_opcode(opcode)


def _list(settings: Mapping[str, object], name: str, default: list[object]) -> list[object]:
    value = settings.get(name, default)
    if not isinstance(value, list):
        raise OpPrereqError(f"{name} must be a list")
    return value


def _disk(index: int, disk: object) -> Mapping[str, object]:
    """Return the settings of a disk; its size may have a unit."""
    if not isinstance(disk, Mapping):
        raise OpPrereqError(f"disk {index} must be an object")
    if not isinstance(disk.get("size"), str):
        return disk
    return {**disk, **disk_settings(index, {"size": disk["size"]})}
