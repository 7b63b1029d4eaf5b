"""What the nodes of a group are asked to look at when it is verified.

Source: node_rpc.json, "node_verify_checks".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ganeti.base.paths import Paths
from ganeti.logical_units.instance.nic_addresses import bridges_of
from ganeti.objects.fill import cluster_hvparams, fill_hvparams, fill_hvparams_for, fill_ndparams
from ganeti.protocol.node_rpc_values import STORED_DISKS_CHECK

if TYPE_CHECKING:
    from ganeti.objects.cluster import Cluster
    from ganeti.objects.instance import Instance
    from ganeti.objects.node import Node
    from ganeti.objects.nodegroup import NodeGroup

_MASTER_IP_SCRIPT: Final = "master-ip-setup"
# Storage directories by disk template: name of the check, setting of the cluster.
_STORAGE: Final = {
    "file": ("file-storage-path", "file_storage_dir"),
    "sharedfile": ("shared-file-storage-path", "shared_file_storage_dir"),
}


def checks_of_group(
    cluster: Cluster,
    group: NodeGroup,
    nodes: Sequence[Node],
    instances: Sequence[Instance],
    *,
    master: Node,
    candidates: Sequence[str],
) -> dict[str, object]:
    """Return the checks that all nodes of a group are asked for, with what each is given.

    Args:
        candidates: names of the master candidates, who look at the network for all.
    """
    online = [node for node in nodes if not node.offline]
    checks: dict[str, object] = {
        "version": None,
        "time": None,
        "client-cert": None,
        "nodesetup": None,
        "oslist": None,
        "hypervisor": [str(name) for name in cluster.enabled_hypervisors],
        "hvinfo": str(cluster.enabled_hypervisors[0]),
        "hvparms": list(_hypervisor_params(cluster, instances)),
        "nonvmnodes": [node.name for node in nodes if not node.vm_capable],
        "allowed-file-storage-paths": master.name,
        "nodelist": [[node.name for node in online], {}, list(candidates)],
        "node-net-test": [
            [[node.name, node.primary_ip, node.secondary_ip] for node in online],
            list(candidates),
        ],
        "master-ip": [master.name, cluster.master_ip, list(candidates)],
        "bridges": bridges_of(cluster, [nic for item in instances for nic in item.nics]),
        "oob-paths": oob_programs(cluster, group, nodes),
    }
    directories = storage_directories(cluster)
    for template, (check, _setting) in _STORAGE.items():
        if template in directories:
            checks[check] = directories[template]
    if directories:
        checks[STORED_DISKS_CHECK] = sorted(directories.values())
    if cluster.use_external_mip_script:
        checks["user-scripts"] = [f"{Paths().user_scripts_dir}/{_MASTER_IP_SCRIPT}"]
    return checks


def oob_programs(cluster: Cluster, group: NodeGroup, nodes: Sequence[Node]) -> list[str]:
    """Return the out-of-band programs of some nodes; the master runs them."""
    programs = {str(fill_ndparams(cluster, group, node)["oob_program"]) for node in nodes}
    return sorted(programs - {""})


def ssh_check(cluster: Cluster, nodes: Sequence[Node]) -> list[object]:
    """Return what nodes need to look at SSH keys: who may log in, and the kind of keys."""
    rows = [
        [node.uuid, node.name, node.master_candidate, node.master_capable, not node.offline]
        for node in nodes
    ]
    return [rows, str(cluster.ssh_key_type)]


def storage_directories(cluster: Cluster) -> dict[str, str]:
    """Return the directories with disks in files by the enabled disk templates."""
    templates = {str(name) for name in cluster.enabled_disk_templates}
    return {
        template: str(getattr(cluster, setting))
        for template, (_check, setting) in _STORAGE.items()
        if template in templates
    }


def _hypervisor_params(
    cluster: Cluster, instances: Sequence[Instance]
) -> Iterator[tuple[str, str, dict[str, object]]]:
    """Yield (whose they are, hypervisor, filled parameters); equal ones only once."""
    enabled = {str(name) for name in cluster.enabled_hypervisors}
    seen: list[tuple[str, dict[str, object]]] = []
    for source, hypervisor, params in _all_hypervisor_params(cluster, instances):
        if hypervisor in enabled and (hypervisor, params) not in seen:
            seen.append((hypervisor, params))
            yield source, hypervisor, params


def _all_hypervisor_params(
    cluster: Cluster, instances: Sequence[Instance]
) -> Iterator[tuple[str, str, dict[str, object]]]:
    for hypervisor, params in cluster_hvparams(cluster).items():
        yield "the cluster", hypervisor, params
    for os_name, by_hypervisor in cluster.os_hvp.items():
        for hypervisor in by_hypervisor:
            yield f"OS {os_name}", hypervisor, fill_hvparams_for(cluster, hypervisor, os_name)
    for instance in instances:
        yield (
            f"instance {instance.name}",
            instance.hypervisor,
            fill_hvparams(cluster, instance),
        )
