"""Findings about backups by schedule: old exports, bad rehearsals, policies that make no sense."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ganeti.backups.plan import Export, Facts, Machine, NodeState, plan_backups, tag_problems
from ganeti.base.ids import GroupUuid
from ganeti.logical_units import lookup
from ganeti.logical_units.cluster.findings import Finding, Severity
from ganeti.logical_units.context import JobContext
from ganeti.objects.model import Instance, Node, NodeGroup
from ganeti.objects.tags import BACKUP_TAGS
from ganeti.objects.verify_errors import VerifyErrorCode
from ganeti.protocol.node_calls import NodeCalls


def backup_findings(
    context: JobContext, nodes: Sequence[Node], instances: Sequence[Instance]
) -> Iterator[Finding]:
    """Yield warnings; nodes are asked only if anything has a policy."""
    cluster_tags = context.config.get_cluster().tags
    groups = {group.uuid: group for group in lookup.all_groups(context.config)}
    tagged = [cluster_tags, *(group.tags for group in groups.values())]
    tagged += [instance.tags for instance in instances]
    if not any(tag.startswith(BACKUP_TAGS) for tags in tagged for tag in tags):
        return
    exports, silent = _exports(context, nodes)
    facts = Facts(
        machines=_machines(nodes, groups, instances),
        nodes=dict.fromkeys(silent, NodeState.SILENT),
        now=context.now(),
        cluster_tags=cluster_tags,
        exports=exports,
    )
    for text in tag_problems(facts):
        yield Finding(VerifyErrorCode.ECLUSTERCFG, "", text, Severity.WARNING)
    for each in plan_backups(facts).standings:
        may_have_one = each.export is None and bool(silent)
        standing = replace(each, is_late=each.is_late and not may_have_one)
        for text in standing.warnings(facts.now):
            name = each.machine.name
            yield Finding(VerifyErrorCode.EINSTANCEPOLICY, name, text, Severity.WARNING)


def _exports(
    context: JobContext, nodes: Sequence[Node]
) -> tuple[dict[str, list[Export]], list[str]]:
    """Return the exports of each instance, and the nodes that do not answer."""
    asked = [node for node in nodes if not node.offline]
    answers = context.nodes.call_all(NodeCalls.export_chains, asked, [])
    found: dict[str, list[Export]] = defaultdict(list)
    silent = []
    for node in asked:
        answer = answers[node.name]
        if answer.error is not None:
            silent.append(node.name)
            continue
        for name, points in answer.payload:
            if points:
                numbers = tuple(point.number for point in points)
                found[name].append(Export(node.name, points[-1].timestamp, numbers))
    return found, silent


def _machines(
    nodes: Sequence[Node], groups: Mapping[GroupUuid, NodeGroup], instances: Sequence[Instance]
) -> list[Machine]:
    primaries = {node.uuid: node for node in nodes}
    machines = []
    for each in instances:
        node = primaries.get(each.primary_node)
        group = groups.get(node.group) if node is not None else None
        if node is None or group is None or each.forthcoming:
            continue
        tags = {"instance": each.tags, "nodegroup": group.tags}
        machines.append(
            Machine(
                each.name,
                node.name,
                made=each.ctime,
                group=group.name,
                rehearsed=each.rehearsal,
                tags=tags,
            )
        )
    return machines
