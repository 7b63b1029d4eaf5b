"""Does an instance fit the policy of a group: plain decisions over plain values.

Source: config.json, "IPolicy" and "ISpec"; constants.json, "ipolicy".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from ganeti.objects.disk_templates import DiskTemplate


class InstanceSpec(Struct, frozen=True):
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
