"""``gnt-cluster`` init and destroy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ganeti.base.errors import GenericError, NotSupportedError, OpPrereqError
from ganeti.bootstrap.cluster_config import USUAL_DISK_TEMPLATES, ClusterRequest
from ganeti.cli.commands.cluster.parameters import (
    by_name,
    ipolicy_of,
    parse_netmask,
    parse_uid_pool,
    split_list,
)
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.confirm import confirm
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_SUCCESS
from ganeti.cli.run.jobs import execute, make_opcode
from ganeti.objects.hypervisors import SUPPORTED_HYPERVISORS

# Options that nothing supports yet, and why.
_NOT_YET: Final = {
    "vg_name": "--vg-name (logical volumes)",
    "drbd_usermode_helper": "--drbd-usermode-helper (DRBD)",
    "disk_state": "--disk-state",
    "hv_state": "--hypervisor-state",
    "install_image": "--install-image (helper instances)",
    "zeroing_image": "--zeroing-image (helper instances)",
}
_OLD_SPECS: Final = {
    "specs_cpu_count": "cpu-count",
    "specs_disk_count": "disk-count",
    "specs_disk_size": "disk-size",
    "specs_mem_size": "memory-size",
    "specs_nic_count": "nic-count",
}


def init(context: Context, options: Options, args: list[str]) -> int:
    """Make a cluster, with this machine as its first node."""
    from ganeti.bootstrap.init import init_cluster

    request = make_request(args[0], options)
    try:
        init_cluster(context.paths, request, context.write)
    except OSError as err:
        raise GenericError(
            f"cannot use {err.filename}: {err.strerror}; what was made is removed again"
        ) from err
    execute(context, options, make_opcode("OP_CLUSTER_POST_INIT"))
    context.write(f"Cluster {request.cluster_name} is ready.")
    return EXIT_SUCCESS


def make_request(cluster_name: str, options: Options) -> ClusterRequest:
    """Return what the options ask for.

    Raises:
        OpPrereqError: they contradict each other, or ask for what is not supported.
    """
    for name, what in _NOT_YET.items():
        if options.get(name):
            raise NotSupportedError(f"{what} is not supported yet")
    wanted: dict[str, object] = {
        "cluster_name": cluster_name.lower(),
        "enabled_hypervisors": split_list(options.enabled_hypervisors)
        or [str(SUPPORTED_HYPERVISORS[0])],
        "enabled_disk_templates": split_list(options.enabled_disk_templates)
        or [str(template) for template in USUAL_DISK_TEMPLATES],
        "hvparams": by_name("hypervisor", options.hvparams),
        "diskparams": by_name("disk template", options.diskparams),
        "beparams": options.beparams,
        "nicparams": options.nicparams,
        "ndparams": options.ndparams or {},
        "ipolicy": {**_old_ipolicy(options), **ipolicy_of(options)},
        "default_iallocator_params": options.default_iallocator_params or {},
        "master_netmask": parse_netmask(options.master_netmask),
        "primary_ip_version": _ip_version(options.primary_ip_version),
        "uid_pool": parse_uid_pool(options.uid_pool or ""),
        "modify_etc_hosts": options.modify_etc_hosts,
        "modify_ssh_setup": options.modify_ssh_setup,
    }
    if options.compression_tools:
        wanted["compression_tools"] = split_list(options.compression_tools)
    for name in _TAKEN_AS_THEY_ARE:
        if options.get(name) is not None:
            wanted[name] = options.get(name)
    return ClusterRequest(**wanted)  # type: ignore[arg-type]  # names and types as of the table


_TAKEN_AS_THEY_ARE: Final = (
    "mac_prefix",
    "master_netdev",
    "secondary_ip",
    "candidate_pool_size",
    "file_storage_dir",
    "shared_file_storage_dir",
    "gluster_storage_dir",
    "default_iallocator",
    "maintain_node_health",
    "prealloc_wipe_disks",
    "use_external_mip_script",
    "enabled_user_shutdown",
    "ssh_key_type",
    "ssh_key_bits",
)


def _ip_version(given: object) -> int:
    if str(given) not in ("4", "6"):
        raise OpPrereqError(f"IP version {given!r} is neither 4 nor 6")
    return int(str(given))


def _old_ipolicy(options: Options) -> dict[str, object]:
    """Return the policy of the options ``--specs-*``, each with min, max and std of one thing."""
    from ganeti.objects.parameters import IPOLICY_DEFAULTS

    given = {name: options.get(option) for option, name in _OLD_SPECS.items()}
    if not any(given.values()):
        return {}
    if options.ipolicy_bounds_specs or options.ipolicy_std_specs:
        raise OpPrereqError("give either --specs-* or --ipolicy-*-specs, not both")
    defaults = IPOLICY_DEFAULTS["minmax"]
    std_defaults = IPOLICY_DEFAULTS["std"]
    assert isinstance(defaults, list)
    assert isinstance(std_defaults, Mapping)
    bounds = {which: dict(defaults[0][which]) for which in ("min", "max")}
    std = dict(std_defaults)
    for name, values in given.items():
        for which, value in (values or {}).items():
            if which not in ("min", "max", "std"):
                raise OpPrereqError(f"{name}: {which!r} is none of min, max and std")
            (std if which == "std" else bounds[which])[name] = value
    return {"minmax": [bounds], "std": std}


def destroy(context: Context, options: Options, _args: list[str]) -> int:
    """Destroy the cluster."""
    from ganeti.bootstrap.init import finish_destroy

    if not options.yes_do_it:
        confirm(context, "This destroys the cluster.  Go on?", option="--yes-do-it")
    execute(context, options, make_opcode("OP_CLUSTER_DESTROY"))
    finish_destroy(context.paths, context.write)
    context.write("The cluster is destroyed.")
    return EXIT_SUCCESS
