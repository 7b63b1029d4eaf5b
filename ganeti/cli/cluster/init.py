"""``gnt-cluster`` init and destroy."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.bootstrap.cluster_config import USUAL_DISK_TEMPLATES, ClusterRequest
from ganeti.cli.cluster.modify import CLUSTER_PARAMETERS
from ganeti.cli.command import Context, Options, command, confirm, opt
from ganeti.cli.policy import ipolicy_of
from ganeti.cli.run.jobs import execute, make_opcode
from ganeti.objects.hypervisors import USUAL_HYPERVISOR
from ganeti.opcodes.cluster import OpClusterDestroy, OpClusterPostInit

_OLD_SPECS: Final = {
    "specs_cpu_count": "cpu-count",
    "specs_disk_count": "disk-count",
    "specs_disk_size": "disk-size",
    "specs_mem_size": "memory-size",
    "specs_nic_count": "nic-count",
}


def init(context: Context, options: Options, args: list[str]) -> None:
    """Make a cluster, with this machine as its first node."""
    from ganeti.bootstrap.init import init_cluster

    request = make_request(args[0], options)
    try:
        init_cluster(context.paths, request, context.write)
    except OSError as err:
        raise GenericError(
            f"cannot use {err.filename}: {err.strerror}; new files are removed again"
        ) from err
    execute(context, options, make_opcode(OpClusterPostInit))
    context.write(f"Cluster {request.cluster_name} is ready.")


def make_request(cluster_name: str, options: Options) -> ClusterRequest:
    """Return the cluster that the options describe.

    Raises:
        OpPrereqError: they contradict each other.
    """
    given = {
        field.name: options.get(field.name)
        for field in dataclasses.fields(ClusterRequest)
        if options.get(field.name) not in (None, (), {})
    }
    policy = {**_old_ipolicy(options), **ipolicy_of(options).get("ipolicy", {})}
    wanted: dict[str, object] = {
        "enabled_hypervisors": [str(USUAL_HYPERVISOR)],
        "enabled_disk_templates": [str(template) for template in USUAL_DISK_TEMPLATES],
        **given,
        "cluster_name": cluster_name.lower(),
        "ipolicy": policy,
        "primary_ip_version": _ip_version(options.primary_ip_version),
    }
    return ClusterRequest(**wanted)  # type: ignore[arg-type]  # names and types as of the table


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


def destroy(context: Context, options: Options, _args: list[str]) -> None:
    """Destroy the cluster: no instances, other nodes or high availability may be left."""
    from ganeti.bootstrap.init import destroy_here

    if not options.yes_do_it:
        confirm(context, "This destroys the cluster.  Go on?", option="--yes-do-it")
    destroy_here(
        context.paths,
        lambda: execute(context, options, make_opcode(OpClusterDestroy)),
        context.write,
    )
    context.write("The cluster is destroyed.")


COMMANDS: Final = (
    command(
        destroy,
        "--yes-do-it",
        description="""Its files go: configuration, keys, jobs, and the users of the remote API with
their roles and tokens, who would be let into the next cluster. 'gnt-cluster backup' keeps them.""",
        examples="gnt-cluster destroy --yes-do-it  # stop the daemons, remove the files",
    ),
    command(
        init,
        "<cluster-name>:host --secondary-ip --ssh-key-bits --ssh-key-type",
        CLUSTER_PARAMETERS,
        opt.option(
            "--gluster-storage-dir=GLUSTERDIR",
            "directory for gluster mounts",
            default="/var/run/ganeti/gluster",
        ),
        opt.unflag("--no-etc-hosts -> modify_etc_hosts", "do not change /etc/hosts"),
        opt.unflag("--no-ssh-init -> modify_ssh_setup", "do not set up SSH keys"),
        opt.option("--primary-ip-version=4|6", "IP version of the nodes", default=4),
        opt.pairs("--specs-cpu-count", "min, max and std CPUs"),
        opt.pairs("--specs-disk-count", "min, max and std disks"),
        opt.pairs("--specs-disk-size", "min, max and std disk size"),
        opt.pairs("--specs-mem-size", "min, max and std memory"),
        opt.pairs("--specs-nic-count", "min, max and std interfaces"),
        description="""The name of the cluster must resolve to an address that is free; it becomes
the address of the master.  Nothing is left behind when a step fails.""",
        examples="""
gnt-cluster init --enabled-hypervisors=kvm --enabled-disk-templates=file cluster.example.com \
 # a cluster that runs KVM guests from files""",
    ),
)
