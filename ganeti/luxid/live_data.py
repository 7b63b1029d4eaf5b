"""Asks nodes what only they know: memory, disk space, which instances run, consoles, exports.

Only the nodes that a plan names are asked; of one that does not answer nothing is known.

Source: node_rpc.json, "node_info", "all_instances_info", "instance_console_info", "export_list".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec

from ganeti.base.errors import GenericError, ProtocolError
from ganeti.base.ids import InstanceUuid, NodeUuid
from ganeti.clients.node_rpc import RpcResult, Target
from ganeti.luxid.config_view import ConfigView
from ganeti.luxid.live_calls import LiveCalls
from ganeti.objects.console import InstanceConsole
from ganeti.objects.fill import cluster_hvparams
from ganeti.objects.instance import Instance
from ganeti.objects.node import Node
from ganeti.objects.storage_units import storage_units
from ganeti.query.context import RunContext
from ganeti.query.view import InstanceLive, NodeLive, QueryView, instances_from_rpc

logger = logging.getLogger(__name__)

T = TypeVar("T")


class LiveData:
    """Asks the nodes."""

    def __init__(self, view: ConfigView, calls: LiveCalls) -> None:
        self._view = view
        self._calls = calls

    async def node_info(self, nodes: Iterable[NodeUuid]) -> dict[NodeUuid, NodeLive | None]:
        """Ask nodes for their memory, processors and disk space."""
        args = [self._storage_units(), self._hypervisor_specs()[:1]]
        asked = dict.fromkeys(nodes, args)
        return await self._ask("node_info", asked, NodeLive.from_rpc)

    async def instance_info(
        self, nodes: Iterable[NodeUuid]
    ) -> dict[NodeUuid, Mapping[str, InstanceLive] | None]:
        """Ask nodes which instances run there."""
        specs = self._hypervisor_specs()
        args: list[object] = [[name for name, _params in specs], dict(specs)]
        asked = dict.fromkeys(nodes, args)
        return await self._ask("all_instances_info", asked, instances_from_rpc)

    async def exports(self, nodes: Iterable[NodeUuid]) -> dict[NodeUuid, list[str] | None]:
        """Ask nodes for the names of their exports."""
        return await self._ask(
            "export_list", {uuid: [] for uuid in nodes}, lambda payload: _as(list[str], payload)
        )

    async def consoles(
        self, instances: Iterable[InstanceUuid], context: RunContext
    ) -> dict[InstanceUuid, InstanceConsole | None]:
        """Ask the primary nodes of instances how to reach their consoles."""
        by_node: dict[NodeUuid, list[Instance]] = {}
        for uuid in instances:
            instance = context.view.instances[uuid]  # by now it may be gone
            by_node.setdefault(instance.primary_node, []).append(instance)
        asked: dict[NodeUuid, list[object]] = {
            node: [{each.name: self._console_request(each, context) for each in some}]
            for node, some in by_node.items()
        }
        answers = await self._ask("instance_console_info", asked, _consoles)
        return {
            instance.uuid: (answers.get(node) or {}).get(instance.name)
            for node, some in by_node.items()
            for instance in some
        }

    def _console_request(self, instance: Instance, context: RunContext) -> dict[str, object]:
        node = context.view.nodes[instance.primary_node]
        return {
            "instance": instance.to_wire(),
            "node": node.to_wire(),
            "group": context.view.groups[node.group].to_wire(),
            "hvParams": dict(context.hvparams(instance)),
            "beParams": dict(context.beparams(instance)),
        }

    def _hypervisor_specs(self) -> list[tuple[str, dict[str, object]]]:
        """Return [name, parameters] of each enabled hypervisor, the default one first."""
        cluster = self._view.cluster
        filled = cluster_hvparams(cluster)
        return [(name.value, filled.get(name, {})) for name in cluster.enabled_hypervisors]

    def _storage_units(self) -> list[list[object]]:
        """Return [type, name, parameters] of the storage of the enabled disk templates."""
        cluster = self._view.cluster
        exclusive = bool(cluster.ndparams.get("exclusive_storage", False))
        return storage_units(cluster, exclusive=exclusive)

    async def _ask(
        self,
        call: str,
        asked: Mapping[NodeUuid, list[object]],
        decode: Callable[[object], T],
    ) -> dict[NodeUuid, T | None]:
        """Make one call on some nodes; None for one that gave no answer that can be used."""
        targets = {target_of(node): uuid for uuid in asked if (node := self._view.nodes.get(uuid))}
        if not targets:
            return {}
        results = await self._calls.ask(
            call, {target: asked[uuid] for target, uuid in targets.items()}
        )
        return {
            uuid: _decoded(call, results[target.name], decode) for target, uuid in targets.items()
        }


def _decoded(call: str, result: RpcResult, decode: Callable[[object], T]) -> T | None:
    try:
        return decode(result.check(call))
    except GenericError as err:
        logger.info("%s; going on", err)
        return None


def target_of(node: Node) -> Target:
    """Return where a node's daemon is reached."""
    return Target(node.name, node.primary_ip, offline=node.offline)


def _as(kind: type[T], payload: object) -> T:
    try:
        return msgspec.convert(payload, kind)
    except msgspec.ValidationError as err:
        raise ProtocolError(f"unexpected answer: {err}") from err


def _consoles(payload: object) -> dict[str, InstanceConsole]:
    return {
        name: InstanceConsole.from_wire(each)
        for name, each in _as(dict[str, dict[str, object]], payload).items()
    }


def live_context(view: QueryView) -> RunContext:
    """Return what computes filled parameters from a view."""
    return RunContext(view)
