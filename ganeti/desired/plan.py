"""From a file and a cluster to the jobs that make the cluster what the file says.

The smallest change that will do: what is so already is left alone, and a plan that was carried out
leaves nothing for the next one.  What takes something away (an object that the file no longer has,
a disk, a network interface) is done only if that is asked for, and listed otherwise.

Jobs are in phases: those of a phase may run at the same time, and each phase needs those before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, TypeVar

from msgspec import UNSET

from ganeti.base.errors import AddressPoolError, GenericError, OpPrereqError
from ganeti.base.text import match_name_component, natural_sorted
from ganeti.config.addresses.pool6 import missing_from
from ganeti.desired import instance_plan
from ganeti.desired.changes import Draft, Facts, differing, tag_changes
from ganeti.desired.document import Path
from ganeti.desired.living import Living, LivingGroup, LivingNetwork
from ganeti.desired.spec import Connection, GroupSpec, NetworkSpec, Problem, Spec
from ganeti.objects.nic import parse_vlan
from ganeti.objects.tags import TagKind
from ganeti.opcodes.group import OpGroupAdd, OpGroupAssignNodes, OpGroupRemove, OpGroupSetParams
from ganeti.opcodes.instance import OpInstanceRemove
from ganeti.opcodes.network import (
    OpNetworkAdd,
    OpNetworkConnect,
    OpNetworkDisconnect,
    OpNetworkRemove,
    OpNetworkSetParams,
)
from ganeti.opcodes.opcode import OpCode

T = TypeVar("T")


class Phase(IntEnum):
    """When a job may run."""

    GROUPS = 0
    NETWORKS = 1
    INSTANCES = 2
    REMOVE_INSTANCES = 3
    REMOVE_NETWORKS = 4
    REMOVE_GROUPS = 5


@dataclass(frozen=True)
class Step:
    """One job: the object, the changes in words, and the opcodes in order."""

    phase: Phase
    kind: str
    name: str
    texts: tuple[str, ...]
    opcodes: tuple[OpCode, ...]
    removes: bool = False


@dataclass
class Plan:
    """All jobs in order, what is not done as it takes something away, and all mistakes."""

    steps: list[Step] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def plan(spec: Spec, living: Living, *, removes: bool = False) -> Plan:
    """Return the jobs that make a cluster what a file says.

    Args:
        removes: take away what the file does not have, in the sections that it has.
    """
    made = Plan()
    facts = Facts(living, removes)
    _Section(made, facts, "groups", "group", Phase.GROUPS, living.groups).plan(
        spec.groups, _plan_group, living.nodes
    )
    group_names = {*living.groups, *(spec.groups or {})}
    _Section(made, facts, "networks", "network", Phase.NETWORKS, living.networks).plan(
        spec.networks, _plan_network, group_names
    )
    network_names = {*living.networks, *(spec.networks or {})}
    _Section(made, facts, "instances", "instance", Phase.INSTANCES, living.instances).plan(
        spec.instances, instance_plan.plan_instance, network_names
    )
    _plan_removals(made, spec, living, removes=removes)
    made.problems += _nodes_twice(spec, living)
    made.steps.sort(key=lambda step: step.phase)
    return made


@dataclass(frozen=True)
class _Section:
    """One section of the file beside the objects that the cluster has of its kind."""

    made: Plan
    facts: Facts
    section: str
    kind: str
    phase: Phase
    living: Mapping[str, T]  # type: ignore[valid-type]

    def plan(
        self, specs: Mapping[str, object] | None, plan_one: Callable[..., None], around: object
    ) -> None:
        taken: dict[str, str] = {}
        for key, spec in (specs or {}).items():
            path: Path = (self.section, key)
            try:
                name = _meant(self.kind, key, self.living)
            except OpPrereqError as err:
                self.made.problems.append(Problem(path, err.message))
                continue
            if name in taken:
                self.made.problems.append(Problem(path, f"{taken[name]!r} is the same object"))
                continue
            taken[name] = key
            draft = Draft(name, path)
            try:
                plan_one(draft, spec, self.living.get(name), self.facts, around)
            except GenericError as err:
                draft.wrong(err.message)
            self.made.problems += draft.problems
            self.made.held += [f"{self.kind} {name}: {text}" for text in draft.held]
            if draft.opcodes and not draft.problems:
                self.made.steps.append(
                    Step(
                        *(self.phase, self.kind, name),
                        tuple(draft.texts),
                        tuple(draft.opcodes),
                        draft.removes,
                    )
                )


def _plan_group(
    draft: Draft,
    spec: GroupSpec,
    living: LivingGroup | None,
    _facts: Facts,
    groups_of_nodes: Mapping[str, str],
) -> None:
    wanted = _group_settings(spec, living)
    if living is None:
        draft.do("make it", OpGroupAdd, group_name=draft.name, **wanted)
    elif wanted:
        text = ", ".join(f"{key} {_short(value)}" for key, value in wanted.items())
        draft.do(f"set {text}", OpGroupSetParams, group_name=draft.name, **wanted)
    nodes: list[str] = []
    for number, key in enumerate(spec.nodes):
        node = match_name_component(key, groups_of_nodes)
        if node is None:
            draft.wrong(f"node {key!r} is not known", "nodes", number)
        elif groups_of_nodes[node] != draft.name:
            nodes.append(node)
    if nodes:
        text = f"put {', '.join(nodes)} into it"
        draft.do(text, OpGroupAssignNodes, group_name=draft.name, nodes=nodes)
    tag_changes(draft, TagKind.NODEGROUP, spec.tags, living.tags if living else frozenset())


def _group_settings(spec: GroupSpec, living: LivingGroup | None) -> dict[str, object]:
    wanted: dict[str, object] = {}
    policy = spec.alloc_policy
    if policy is not UNSET and (living is None or policy != living.alloc_policy):
        wanted["alloc_policy"] = policy
    for name, given in (("ndparams", spec.ndparams), ("ipolicy", spec.ipolicy)):
        if given is not UNSET:
            changed = differing(given, getattr(living, name) if living else {})
            if changed:
                wanted[name] = changed
    if spec.diskparams is not UNSET:
        have = living.diskparams if living else {}
        tables = {
            str(template): differing(params, have.get(template, {}))
            for template, params in spec.diskparams.items()
        }
        if any(tables.values()):
            wanted["diskparams"] = {name: params for name, params in tables.items() if params}
    return wanted


def _short(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_short(each)}" for key, each in value.items())
    return str(value)


_ADDRESSES: Final = ("gateway", "network6", "gateway6", "mac_prefix")


def _plan_network(
    draft: Draft,
    spec: NetworkSpec,
    living: LivingNetwork | None,
    facts: Facts,
    group_names: Collection[str],
) -> None:
    if living is None:
        if spec.network is UNSET and not spec.network6:
            draft.wrong("network is missing: give its addresses, as 192.0.2.0/24")
            return
        given = {key: getattr(spec, key) for key in ("network", *_ADDRESSES, "tags")}
        params = {key: value for key, value in given.items() if value not in (UNSET, None)}
        if spec.reserved:
            params["add_reserved_ips"] = spec.reserved
        draft.do(
            f"make it with {spec.network or spec.network6}",
            OpNetworkAdd,
            network_name=draft.name,
            **params,
        )
    else:
        _change_network(draft, spec, living)
        tag_changes(draft, TagKind.NETWORK, spec.tags, living.tags)
    if spec.groups is not UNSET:
        have = living.groups if living else {}
        _connect(draft, spec.groups, have, facts, group_names)


def _change_network(draft: Draft, spec: NetworkSpec, living: LivingNetwork) -> None:
    if spec.network not in (UNSET, living.network):
        has = living.network or f"{living.network6} alone"
        draft.wrong(f"has the addresses {has}, which cannot be changed", "network")
    changes: dict[str, object] = {}
    for key in _ADDRESSES:
        value, have = getattr(spec, key), getattr(living, key)
        if value is UNSET or str(value).lower() == str(have).lower():
            continue
        if value is None:
            draft.wrong(f"is {have}, and cannot be taken away", key)
        changes[key] = value
    if spec.reserved is not UNSET:
        try:
            added = missing_from(living.reserved, spec.reserved)
            gone = missing_from(spec.reserved, living.reserved)
        except AddressPoolError as err:
            draft.wrong(err.message, "reserved")
            return
        changes |= {"add_reserved_ips": added} if added else {}
        changes |= {"remove_reserved_ips": gone} if gone else {}
    if changes:
        text = ", ".join(f"{key} {value}" for key, value in changes.items())
        draft.do(f"set {text}", OpNetworkSetParams, network_name=draft.name, **changes)


def _connect(
    draft: Draft,
    wanted: Mapping[str, Connection],
    have: Mapping[str, tuple[str, str, str]],
    facts: Facts,
    group_names: Collection[str],
) -> None:
    names: dict[str, Connection] = {}
    for key, connection in wanted.items():
        if key not in group_names:
            draft.wrong(f"node group {key!r} is not known", "groups", key)
        else:
            names[key] = connection
    for group in sorted({*have} - {*names}):
        if facts.removes:
            _disconnect(draft, group)
            draft.removes = True
        else:
            draft.held.append(f"it stays connected to group {group}")
    for group, connection in names.items():
        vlan = str(parse_vlan(str(connection.vlan))) if connection.vlan != "" else ""
        target = (connection.mode, connection.link, vlan)
        if have.get(group) == target:
            continue
        if group in have:
            _disconnect(draft, group)
        draft.do(
            f"connect it to group {group}: {connection.mode} {connection.link} {vlan}".rstrip(),
            OpNetworkConnect,
            network_name=draft.name,
            group_name=group,
            network_mode=connection.mode,
            network_link=connection.link,
            network_vlan=str(connection.vlan),
        )


def _disconnect(draft: Draft, group: str) -> None:
    draft.do(
        f"disconnect it from group {group}",
        OpNetworkDisconnect,
        network_name=draft.name,
        group_name=group,
    )


def _nodes_twice(spec: Spec, living: Living) -> Iterator[Problem]:
    """Find the nodes that two groups list."""
    seen: dict[str, str] = {}
    for group, each in (spec.groups or {}).items():
        for number, key in enumerate(each.nodes):
            node = match_name_component(key, living.nodes) or key
            if seen.setdefault(node, group) != group:
                yield Problem(
                    ("groups", group, "nodes", number), f"node {key!r} is in group {seen[node]} too"
                )


def _plan_removals(made: Plan, spec: Spec, living: Living, *, removes: bool) -> None:
    """Take away the objects that a section of the file does not list."""
    for kind, specs, objects, phase in (
        ("instance", spec.instances, living.instances, Phase.REMOVE_INSTANCES),
        ("network", spec.networks, living.networks, Phase.REMOVE_NETWORKS),
        ("group", spec.groups, living.groups, Phase.REMOVE_GROUPS),
    ):
        if specs is None:
            continue
        listed = {_name(kind, key, objects) for key in specs}
        for name in natural_sorted(set(objects) - listed):
            if not removes:
                made.held.append(f"{kind} {name} stays, though the file does not have it")
                continue
            draft = Draft(name, (f"{kind}s",))
            _remove(draft, kind, living)
            if draft.problems:
                made.problems += draft.problems
                continue
            made.steps.append(
                Step(phase, kind, name, tuple(draft.texts), tuple(draft.opcodes), removes=True)
            )


def _meant(kind: str, key: str, objects: Mapping[str, object]) -> str:
    """Return the name of the object that a key means; only those of instances may be short.

    Raises:
        OpPrereqError: it means several.
    """
    return match_name_component(key, objects) or key if kind == "instance" else key


def _name(kind: str, key: str, objects: Mapping[str, object]) -> str:
    try:
        return _meant(kind, key, objects)
    except OpPrereqError:
        return key  # told already


def _remove(draft: Draft, kind: str, living: Living) -> None:
    if kind == "instance":
        draft.do(
            "shut it down and remove it with its disks", OpInstanceRemove, instance_name=draft.name
        )
    elif kind == "network":
        for group in living.networks[draft.name].groups:
            _disconnect(draft, group)
        draft.do("remove it", OpNetworkRemove, network_name=draft.name)
    else:
        draft.do("remove it; it must have no nodes", OpGroupRemove, group_name=draft.name)
