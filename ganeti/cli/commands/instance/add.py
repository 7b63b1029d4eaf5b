"""``gnt-instance add``."""

from __future__ import annotations

from ganeti.base.errors import OpPrereqError
from ganeti.cli.commands.instance.devices import disks_for_create, nics_for_create
from ganeti.cli.commands.instance.parameters import (
    backend_parameters,
    split_nodes,
    split_tags,
    unset_as_default,
)
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_SUCCESS
from ganeti.cli.run.jobs import execute, make_opcode


def add(context: Context, options: Options, args: list[str]) -> int:
    """Create an instance."""
    [name] = args
    opcode = make_opcode(
        "OP_INSTANCE_CREATE",
        **settings_of_new(options),
        mode="create",
        instance_name=name,
        **_devices(options),
        os_type=options.os_type,
        force_variant=options.force_variant,
        no_install=options.no_install,
        start=options.start and not options.forthcoming,
        forthcoming=options.forthcoming,
        commit=options.commit,
        instance_communication=bool(options.instance_communication),
    )
    execute(context, options, opcode)
    return EXIT_SUCCESS


def _devices(options: Options) -> dict[str, object]:
    """Return disks and interfaces; none where a planned instance is made as it was planned."""
    as_planned = options.commit and options.os_size is None
    disks: list[dict[str, object]] = []
    nics: list[dict[str, object]] = []
    if options.disks or not as_planned:
        disks = disks_for_create(options.disks, options.disk_template, options.os_size)
    if options.nics or not options.commit:
        nics = nics_for_create(options.nics, no_nics=options.no_nics)
    return {"disks": disks, "nics": nics}


def settings_of_new(options: Options) -> dict[str, object]:
    """Return the settings that every command takes by which an instance is made.

    Raises:
        OpPrereqError: two options do not go together, or one has no such value.
    """
    pnode, snode = split_nodes(options.node)
    if pnode is not None and options.iallocator is not None:
        raise OpPrereqError("give either nodes or an allocator, not both")
    hypervisor, hvparams = hypervisor_and_parameters(options.hypervisor)
    return {
        "disk_template": options.disk_template,
        "pnode": pnode,
        "snode": snode,
        "group_name": options.node_group,
        "iallocator": options.iallocator,
        "name_check": options.name_check,
        "ip_check": options.ip_check,
        "conflicts_check": options.conflicts_check,
        "wait_for_sync": options.wait_for_sync,
        "file_storage_dir": options.file_storage_dir,
        "file_driver": options.file_driver,
        "hypervisor": hypervisor,
        "hvparams": hvparams,
        "beparams": backend_parameters(options.beparams),
        "osparams": options.osparams,
        "osparams_private": options.osparams_private or None,
        "osparams_secret": options.osparams_secret or None,
        "tags": split_tags(options.tags),
        "ignore_ipolicy": options.ignore_ipolicy,
        "opportunistic_locking": options.opportunistic_locking,
        "helper_startup_timeout": options.helper_startup_timeout,
        "helper_shutdown_timeout": options.helper_shutdown_timeout,
    }


def hypervisor_and_parameters(given: object) -> tuple[str | None, dict[str, object]]:
    """Return hypervisor and parameters from ``-H``.

    Raises:
        OpPrereqError: it removes or unsets, which means nothing here.
    """
    match given:
        case None:
            return None, {}
        case (str(name), dict(params)):
            return name, unset_as_default(params)
        case _:
            raise OpPrereqError("-H takes HYPERVISOR[:parameter=value,...]")
