"""``gnt-cluster`` modify and redist-conf."""

from __future__ import annotations

from typing import Final

from ganeti.base.errors import OpPrereqError
from ganeti.cli.commands.cluster.parameters import (
    by_name,
    intervals_us,
    ipolicy_of,
    parse_netmask,
    parse_uid_pool,
    split_list,
    switches,
)
from ganeti.cli.commands.instance.parameters import backend_parameters, unset_as_default
from ganeti.cli.commands.node.add import disk_state
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_FAILURE, EXIT_SUCCESS, JobSubmitted
from ganeti.cli.run.jobs import (
    encode,
    execute,
    follow,
    make_opcode,
    results_of_all,
    submitted_jobs,
)

# opcode parameter -> option, where they are called differently
_SAME_VALUE: Final = {
    "vg_name": "vg_name",
    "drbd_helper": "drbd_usermode_helper",
    "candidate_pool_size": "candidate_pool_size",
    "max_running_jobs": "max_running_jobs",
    "max_tracked_jobs": "max_tracked_jobs",
    "maintain_node_health": "maintain_node_health",
    "prealloc_wipe_disks": "prealloc_wipe_disks",
    "default_iallocator": "default_iallocator",
    "default_iallocator_params": "default_iallocator_params",
    "mac_prefix": "mac_prefix",
    "master_netdev": "master_netdev",
    "use_external_mip_script": "use_external_mip_script",
    "modify_etc_hosts": "modify_etc_hosts",
    "file_storage_dir": "file_storage_dir",
    "shared_file_storage_dir": "shared_file_storage_dir",
    "install_image": "install_image",
    "instance_communication_network": "instance_communication_network",
    "zeroing_image": "zeroing_image",
    "enabled_user_shutdown": "enabled_user_shutdown",
    "diagnose_data_collector_filename": "diagnose_data_collector_filename",
}
_LISTS: Final = (
    "enabled_hypervisors",
    "enabled_disk_templates",
    "compression_tools",
    "reserved_lvs",
)
_POOLS: Final = ("uid_pool", "add_uids", "remove_uids")


def modify(context: Context, options: Options, _args: list[str]) -> int:
    """Change parameters of the cluster."""
    wanted = changes_of(options)
    if not wanted:
        raise OpPrereqError("nothing to change; give at least one option")
    opcode = make_opcode("OP_CLUSTER_SET_PARAMS", force=options.force, **wanted)
    [result] = execute(context, options, opcode)
    failures, _ = results_of_all(context, submitted_jobs(result))
    return EXIT_FAILURE if failures else EXIT_SUCCESS


def changes_of(options: Options) -> dict[str, object]:
    """Return the opcode's parameters that the options give.

    Raises:
        OpPrereqError: a value cannot be understood.
    """
    wanted: dict[str, object] = {
        parameter: options.get(option)
        for parameter, option in _SAME_VALUE.items()
        if options.get(option) is not None
    }
    for name in _LISTS:
        if options.get(name) is not None:
            wanted[name] = split_list(options.get(name))
    for name in _POOLS:
        if options.get(name) is not None:
            wanted[name] = [list(bounds) for bounds in parse_uid_pool(options.get(name))]
    groups: dict[str, object] = {
        "hvparams": by_name("hypervisor", options.hvparams),
        "diskparams": by_name("disk template", options.diskparams),
        "beparams": backend_parameters(options.beparams),
        "nicparams": unset_as_default(options.nicparams),
        "ndparams": unset_as_default(options.ndparams or {}),
        "ipolicy": ipolicy_of(options),
        "hv_state": by_name("hypervisor state", options.hv_state),
        "disk_state": disk_state(options.disk_state),
        "enabled_data_collectors": switches(options.enabled_data_collectors),
        "data_collector_interval": intervals_us(options.data_collector_interval),
    }
    wanted.update({name: group for name, group in groups.items() if group})
    netmask = parse_netmask(options.master_netmask)
    return wanted if netmask is None else {**wanted, "master_netmask": netmask}


def redist_conf(context: Context, options: Options, _args: list[str]) -> int:
    """Copy the configuration and all other files to all nodes again."""
    opcode = make_opcode("OP_CLUSTER_REDIST_CONF")
    if not options.yes_do_it:
        execute(context, options, opcode)
        return EXIT_SUCCESS
    job_id = context.client.submit_job_to_drained_queue([encode(context, options, opcode)])
    if options.submit:
        raise JobSubmitted(job_id)
    follow(context, job_id)
    return EXIT_SUCCESS
