"""Does an instance fit the policy of a group: plain decisions over plain values.

Source: config.json, "IPolicy" and "ISpec"; constants.json, "ipolicy".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.fill import fill_beparams, fill_ipolicy
from ganeti.objects.rpc_instance import disk_template

if TYPE_CHECKING:
    from ganeti.objects.cluster import Cluster
    from ganeti.objects.disk import Disk
    from ganeti.objects.instance import Instance
    from ganeti.objects.nodegroup import NodeGroup


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """What a policy looks at: sizes in MiB, counts, and the disk template."""

    memory_mib: int
    vcpus: int
    nics: int
    spindles: int
    disk_sizes_mib: tuple[int, ...]
    template: str

    def values(self) -> Iterator[tuple[str, str, int]]:
        """Yield (name in the policy, which one, value) for everything that has limits."""
        yield "memory-size", "", self.memory_mib
        yield "cpu-count", "", self.vcpus
        yield "nic-count", "", self.nics
        yield "spindle-use", "", self.spindles
        if self.template != DiskTemplate.DISKLESS:
            yield "disk-count", "", len(self.disk_sizes_mib)
        for index, size_mib in enumerate(self.disk_sizes_mib):
            yield "disk-size", f" of disk {index}", size_mib


def spec_of(cluster: Cluster, instance: Instance, disks: Sequence[Disk]) -> InstanceSpec:
    """Return what a policy looks at."""
    beparams = fill_beparams(cluster, instance)
    return InstanceSpec(
        memory_mib=beparams["maxmem"],
        vcpus=beparams["vcpus"],
        nics=len(instance.nics),
        spindles=beparams["spindle_use"],
        disk_sizes_mib=tuple(disk.size for disk in disks),
        template=disk_template(disks),
    )


def violations(policy: Mapping[str, object], spec: InstanceSpec) -> list[str]:
    """Say in what an instance does not fit a filled policy.

    It fits the limits if it fits one of their pairs; if it fits none, the pair that it misses by
    the fewest values is explained.
    """
    found = []
    templates = policy.get("disk-templates")
    if isinstance(templates, Sequence) and spec.template not in templates:
        found.append(f"disk template {spec.template} is not allowed")
    pairs = policy.get("minmax")
    misses = [
        _outside(pair, spec)
        for pair in (pairs if isinstance(pairs, Sequence) else [])
        if isinstance(pair, Mapping)
    ]
    return found + min(misses, key=len, default=[])


def _outside(pair: Mapping[str, object], spec: InstanceSpec) -> list[str]:
    low, high = _limits(pair, "min"), _limits(pair, "max")
    return [
        f"{name}{which}: {value} is not between {low.get(name, 0)} and {high.get(name, 'any')}"
        for name, which, value in spec.values()
        if value < low.get(name, value) or value > high.get(name, value)
    ]


def _limits(pair: Mapping[str, object], which: str) -> dict[str, int]:
    limits = pair.get(which)
    if not isinstance(limits, Mapping):
        return {}
    return {str(name): value for name, value in limits.items() if isinstance(value, int)}


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
    raise OpPrereqError(f"{text} (use --ignore-ipolicy to allow it)", ErrorCode.INVAL)
