"""Instance policies: whether one makes sense, and whether an instance fits it.  Plain decisions.

`policy_problems` is the one set of rules: requests are refused with its first finding, a check of
the configuration lists all of them.

Source: config.json, "IPolicy" and "ISpec"; constants.json, "ipolicy".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeGuard

from msgspec import Struct

from ganeti.objects.disk_templates import DiskTemplate, traits_of_all
from ganeti.objects.parameters import IPOLICY_RATIOS, ISPEC_PARAMS

MINMAX: Final = "minmax"
STD: Final = "std"
TEMPLATES: Final = "disk-templates"
POLICY_KEYS: Final = (TEMPLATES, MINMAX, *IPOLICY_RATIOS, STD)

Policy = Mapping[str, object]


class InstanceSpec(Struct, frozen=True):
    """The values that a policy limits: sizes in MiB, counts, and the disk templates.

    ``nics`` is None where nobody knows how many there will be.
    """

    memory_mib: int
    vcpus: int
    nics: int | None
    spindles: int
    disk_sizes_mib: tuple[int, ...]
    templates: tuple[str, ...]

    def values(self) -> Iterator[tuple[str, str, int]]:
        """Yield (name in the policy, which one, value) for everything that has limits."""
        yield "memory-size", "", self.memory_mib
        yield "cpu-count", "", self.vcpus
        if self.nics is not None:
            yield "nic-count", "", self.nics
        yield "spindle-use", "", self.spindles
        if traits_of_all(self.templates).has_disks:
            yield "disk-count", "", len(self.disk_sizes_mib)
        for index, size_mib in enumerate(self.disk_sizes_mib):
            yield "disk-size", f" of disk {index}", size_mib


def violations(policy: Policy, spec: InstanceSpec) -> list[str]:
    """Return the violations of a filled policy by an instance, a sentence each.

    It fits the limits if it fits one of their pairs; if it fits none, the pair that it misses by
    the fewest values is explained.
    """
    return [text for _, text in _violations(policy, spec)]


def violated(policy: Policy, spec: InstanceSpec) -> list[str]:
    """Return the keys of a policy behind its `violations`, in the same order."""
    return [key for key, _ in _violations(policy, spec)]


def _violations(policy: Policy, spec: InstanceSpec) -> list[tuple[str, str]]:
    """Return the violations, each with its key in the policy."""
    found = []
    templates = policy.get(TEMPLATES)
    if isinstance(templates, Sequence):
        refused = [each for each in spec.templates if each not in templates]
        found += [(TEMPLATES, f"disk template {each} is not allowed") for each in refused]
    pairs = policy.get(MINMAX)
    misses = [
        _outside(pair, spec)
        for pair in (pairs if isinstance(pairs, Sequence) else [])
        if isinstance(pair, Mapping)
    ]
    return found + min(misses, key=len, default=[])


def _outside(pair: Mapping[str, object], spec: InstanceSpec) -> list[tuple[str, str]]:
    low, high = _limits(pair, "min"), _limits(pair, "max")
    return [
        (
            name,
            f"{name}{which}: {value} is not between {low.get(name, 0)} and {high.get(name, 'any')}",
        )
        for name, which, value in spec.values()
        if value < low.get(name, value) or value > high.get(name, value)
    ]


def _limits(pair: Mapping[str, object], which: str) -> dict[str, int]:
    limits = pair.get(which)
    if not isinstance(limits, Mapping):
        return {}
    return {str(name): value for name, value in limits.items() if isinstance(value, int)}


def policy_problems(policy: Policy, *, of_cluster: bool, partial: bool) -> Iterator[str]:
    """Yield the faults of a policy by itself, a sentence each.

    Args:
        of_cluster: only the cluster has a standard specification.
        partial: keys may be missing, as they may in a group and in a request.
    """
    unknown = sorted(set(policy).difference(POLICY_KEYS))
    if unknown:
        yield f"unknown key {unknown[0]!r}; known are: {', '.join(POLICY_KEYS)}"
    if not partial:
        required = [key for key in (TEMPLATES, MINMAX, STD) if key not in policy]
        yield from (f"{key} is missing" for key in required)
    for key in IPOLICY_RATIOS:
        ratio = policy.get(key, 1)
        if isinstance(ratio, bool) or not isinstance(ratio, int | float) or ratio <= 0:
            yield f"{key} is {ratio!r}, must be a number greater than 0"
    if TEMPLATES in policy:
        yield from _template_problems(policy[TEMPLATES])
    if MINMAX in policy:
        yield from _minmax_problems(policy[MINMAX])
    if STD not in policy:
        return
    if not of_cluster:
        yield f"{STD} can only be set for the whole cluster"
    wrong = list(_spec_problems(STD, policy[STD], partial=partial))
    yield from wrong
    if not partial and not wrong:
        yield from filter(None, [std_problem(policy)])


def _template_problems(value: object) -> Iterator[str]:
    if not _is_list(value) or not value:
        yield f"{TEMPLATES} must be a list of disk templates, not empty"
        return
    known = [str(template) for template in DiskTemplate]
    unknown = [str(name) for name in value if name not in known]
    if unknown:
        yield f"unknown disk template(s) {', '.join(sorted(unknown))}"


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _minmax_problems(value: object) -> Iterator[str]:
    if not _is_list(value):
        yield f"{MINMAX} must be a list of pairs of limits"
        return
    for number, pair in enumerate(value):
        if not isinstance(pair, Mapping) or set(pair) != {"min", "max"}:
            yield f"{MINMAX} {number} must have exactly 'min' and 'max'"
            continue
        wrong = [
            f"{MINMAX} {number}: {problem}"
            for which in ("min", "max")
            for problem in _spec_problems(which, pair[which], partial=False)
        ]
        yield from wrong
        for name in [] if wrong else ISPEC_PARAMS:
            low, high = pair["min"][name], pair["max"][name]
            if low > high:
                yield f"{MINMAX} {number}: {name}: min {low} is greater than max {high}"


def _spec_problems(which: str, spec: object, *, partial: bool) -> Iterator[str]:
    if not isinstance(spec, Mapping):
        yield f"{which} must be an object"
        return
    unknown = sorted(set(spec).difference(ISPEC_PARAMS))
    missing = [] if partial else sorted(set(ISPEC_PARAMS).difference(spec))
    if unknown:
        yield f"{which}: unknown {', '.join(unknown)}; known are: {', '.join(ISPEC_PARAMS)}"
    if missing:
        yield f"{which}: {', '.join(missing)} is missing"
    for name, number in spec.items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            yield f"{which}: {name} must be an integer from 0, got {number!r}"


def standard_disk_mib(policy: Policy) -> int:
    """Return the size of a disk for which no size is given, by a filled policy."""
    std = policy[STD]
    assert isinstance(std, Mapping)
    return int(std["disk-size"])


def std_problem(policy: Policy) -> str | None:
    """Say if the standard specification lies outside every pair of limits."""
    std, pairs = policy.get(STD), policy.get(MINMAX)
    if not isinstance(std, Mapping) or not _is_list(pairs) or not pairs:
        return None
    if any(_within(pair, std) for pair in pairs):
        return None
    shown = ", ".join(f"{name}={value}" for name, value in std.items())
    return f"{STD} ({shown}) lies outside all limits"


def _within(pair: object, std: Mapping[str, object]) -> bool:
    if not isinstance(pair, Mapping):
        return False
    low, high = _limits(pair, "min"), _limits(pair, "max")
    return all(
        isinstance(value, int) and low.get(name, value) <= value <= high.get(name, value)
        for name, value in std.items()
    )
