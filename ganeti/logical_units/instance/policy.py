"""The policy of a group, for instances of the configuration.

Source: config.json, "IPolicy" and "ISpec"; constants.json, "ipolicy".
"""

from __future__ import annotations

from collections.abc import Sequence

from ganeti.base.errors import OpPrereqError
from ganeti.objects.fill import fill_beparams, fill_ipolicy
from ganeti.objects.instance_policy import InstanceSpec, violations
from ganeti.objects.model import Cluster, Disk, Instance, NodeGroup
from ganeti.objects.rpc_instance import disk_template


def spec_of(cluster: Cluster, instance: Instance, disks: Sequence[Disk]) -> InstanceSpec:
    """Return the values that an instance policy limits."""
    beparams = fill_beparams(cluster, instance)
    return InstanceSpec(
        memory_mib=beparams["maxmem"],
        vcpus=beparams["vcpus"],
        nics=len(instance.nics),
        spindles=beparams["spindle_use"],
        disk_sizes_mib=tuple(disk.size for disk in disks),
        template=disk_template(disks),
    )


def check_policy(
    cluster: Cluster, group: NodeGroup, name: str, spec: InstanceSpec, *, ignore: bool = False
) -> str | None:
    """Refuse an instance that does not fit a group's policy.

    Returns:
        When violations are to be ignored, a text that names them; None if there are none.

    Raises:
        OpPrereqError: it does not fit (wrong_input).
    """
    found = violations(fill_ipolicy(cluster, group), spec)
    if not found:
        return None
    text = (
        f"instance {name!r} violates the instance policy of node group {group.name!r}:"
        f" {'; '.join(found)}"
    )
    if ignore:
        return text
    raise OpPrereqError(f"{text} (use --ignore-ipolicy to allow it)")
