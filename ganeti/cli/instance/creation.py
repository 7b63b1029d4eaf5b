"""``gnt-instance`` add, and batch-create: many instances from one JSON file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ganeti.base.errors import OpPrereqError
from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, Context, Options, command, opt
from ganeti.cli.instance import devices, guest
from ganeti.cli.run.binding import submit
from ganeti.cli.run.jobs import follow_all, make_opcode, read_json, split_submitted
from ganeti.opcodes.instance import OpInstanceCreate, OpInstanceMultiAlloc
from ganeti.opcodes.registry import encode_opcode


def add(context: Context, options: Options, args: list[str]) -> None:
    """Create an instance, install its operating system and start it."""
    guest.check_wait(options)
    more = {**devices.settings_of_new(options), **_devices(options)}
    result = submit(context, options, args, **more, start=options.start and not options.forthcoming)
    if options.dry_run and isinstance(result, list) and result:
        context.write(f"{args[0]} would be made on {' and '.join(map(str, result))}")
    if options.wait_for:
        guest.wait(context, args[0], options.wait_for, options.wait_timeout)


def _devices(options: Options) -> dict[str, object]:
    """Return disks and interfaces; none where a planned instance is made as it was planned."""
    as_planned = options.commit and options.os_size is None
    disks: list[dict[str, object]] = []
    nics: list[dict[str, object]] = []
    if options.disks or not as_planned:
        disks = devices.disks_for_create(options.disks, options.disk_template, options.os_size)
    if options.nics or not options.commit:
        nics = devices.nics_for_create(options.nics, no_nics=options.no_nics)
    return {"disks": disks, "nics": nics}


def batch_create(context: Context, options: Options, args: list[str]) -> int:
    """Create many instances from a JSON file."""
    [path] = args
    instances = instances_of(path, read_json(path))
    result = submit(context, options, [], instances=instances)
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
            OpInstanceCreate,
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
    return {**disk, **devices.disk_settings(index, {"size": disk["size"]})}


COMMANDS: Final = (
    command(
        add,
        "<instance>:host=instance_name NEW_INSTANCE --communication --force-variant --os-type",
        devices.DISK_KIND,
        opt.flag("--commit", "make a forthcoming instance; other settings are as planned"),
        opt.flag(
            "--explain",
            "have the allocator say why it goes where it goes, and why not elsewhere; with"
            " --dry-run nothing is made (hail can; not with -n)",
        ),
        opt.flag("--forthcoming", "only plan it: keep its name, node and addresses"),
        opt.flag("--no-install", "do not run the operating system's create script"),
        opt.unflag("--no-start", "do not start it"),
        opt.option(
            "--wait-for=WHAT",
            "once it runs, wait until its guest agent or its SSH server answers",
            choices=(guest.AGENT, guest.SSH),
        ),
        opt.number(
            "--wait-timeout=SECONDS", "how long --wait-for waits at most", default=guest.WAIT_S
        ),
        opt.with_help(opt.NODE_GROUP, "node group to put it in", "group_name"),
        description="""The name must resolve, and nobody may answer at its address, unless
--no-name-check and --no-ip-check are given.  Disks are numbered from 0; sizes are MiB unless they
end in g or t.  One network interface is made unless --net or --no-nics is given.""",
        examples="""
gnt-instance add -t file -s 1g -o debootstrap+bookworm -n node1 web1.example.com \
 # one disk of 1 GiB in a file on node1
gnt-instance add -t sharedfile --disk 0:size=10g --disk 1:size=512,name=swap \
-B memory=1g,vcpus=2 -o test -n node1 db1.example.com \
 # two disks, 1 GiB of memory, two CPUs
gnt-instance add -t file -s 10g -o cloud+debian-12 --wait-for=ssh web2.example.com \
 # from a cloud image; ready for 'gnt-instance ssh web2'
gnt-instance add --dry-run --explain -I hail -t drbd -s 10g -o test db2.example.com \
 # where would it go, and why not to the other nodes
gnt-instance add -t diskless -H fake -o test --no-name-check --no-ip-check -n node2 x \
 # no disks; a name that no name server knows""",
        opcode=OpInstanceCreate,
        fixed={"mode": "create"},
    ),
    command(
        batch_create,
        "<file> --iallocator CHANGE",
        opcode=OpInstanceMultiAlloc,
        description="""The file holds a list with one object for each instance, whose keys are the
parameters of the opcode OP_INSTANCE_CREATE; sizes of disks may have units.  Instances without a
node (pnode) are placed by the allocator, all of them together.  Each is made by a job of its own,
all at the same time.""",
        examples="""
gnt-instance batch-create instances.json \
 # with [{"instance_name": "web1", "pnode": "node1", "disk_template": "diskless"}]""",
    ),
)
