"""Queries as jobs: what only a job can ask for, and what is in the configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ganeti.base.errors import ErrorCode, NotSupportedError, OpPrereqError, ParameterError
from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.cluster.query import cluster_row
from ganeti.logical_units.ext_storage_diagnose import ask_providers
from ganeti.logical_units.node_calls import call_nodes
from ganeti.logical_units.os_diagnose import ask_nodes, rows, summarize
from ganeti.objects.fill import cluster_hvparams
from ganeti.objects.query_words import BY_JOB_ONLY, QueryResource
from ganeti.opcodes.query import OpQuery, OpQueryFields
from ganeti.query.engine import Plan, fields_of, prepare
from ganeti.query.fields import Source
from ganeti.query.view import NodeLive, View, instances_from_rpc

_FROM_CONFIG: Final = frozenset(
    {QueryResource.GROUP, QueryResource.INSTANCE, QueryResource.NETWORK, QueryResource.NODE}
)


class LUQueryFields(LogicalUnit[OpQueryFields]):
    """Answer which fields a kind of thing has."""

    def exec(self) -> dict[str, object]:
        """Return their descriptions."""
        return fields_of(self.op.what, self.op.fields)


class LUQuery(LogicalUnit[OpQuery]):
    """Answer fields of a kind of thing."""

    plan: Plan

    def expand_names(self) -> None:
        """Check fields and filter."""
        if self.op.what not in BY_JOB_ONLY | _FROM_CONFIG:
            raise NotSupportedError(
                f"{self.op.what.value!r} cannot be queried by a job; use the LUXI query"
            )
        try:
            self.plan = prepare(self.op.what, self.op.fields, self.op.qfilter)
        except ParameterError as err:
            raise OpPrereqError(err.message, ErrorCode.INVAL) from err
        if Source.CONSOLE in self.plan.needs:
            raise NotSupportedError("consoles cannot be queried by a job; use the LUXI query")

    def exec(self) -> dict[str, object]:
        """Ask whom the fields need, and return the answer."""
        if self.op.what in BY_JOB_ONLY:
            return self.plan.run(View(cluster=self.cluster, rows=self._rows()))
        view = self._view()
        targets = self.plan.targets(view)
        if targets.node_info:
            view = self._view(node_live=self._node_live(targets.node_info))
        elif targets.instance_info:
            view = self._view(instance_live=self._instance_live(targets.instance_info))
        return self.plan.run(view)

    def _rows(self) -> Sequence[Mapping[str, object]]:
        if self.op.what is QueryResource.CLUSTER:
            return [cluster_row(self.cluster, self.master.name, self.context.paths)]
        if self.op.what is QueryResource.EXTSTORAGE:
            return ask_providers(self.context, self.config)
        return rows(self.cluster, summarize(ask_nodes(self.context, self.config)))

    def _view(self, **live: object) -> View:
        config, present = self.config, lookup.present
        return View(
            cluster=self.cluster,
            nodes={node.uuid: node for node in present(config.get_nodes(None))},
            groups={group.uuid: group for group in present(config.get_node_groups(None))},
            instances={item.uuid: item for item in present(config.get_instances(None))},
            disks={disk.uuid: disk for disk in present(config.get_disks(None))},
            networks={network.uuid: network for network in present(config.get_networks(None))},
            **live,  # type: ignore[arg-type]  # one of the live tables
        )

    def _node_live(self, uuids: Sequence[str]) -> dict[str, NodeLive | None]:
        nodes = lookup.present(self.config.get_nodes(list(uuids)))
        hypervisors = [[name, params] for name, params in cluster_hvparams(self.cluster).items()]
        storage = [["file", self.cluster.file_storage_dir, []]]
        if not self.cluster.file_storage_dir:
            storage = []
        results = call_nodes(self.context, nodes, "node_info", storage, hypervisors)
        by_name = {node.name: node.uuid for node in nodes}
        return {
            by_name[name]: NodeLive.from_rpc(result.payload) if result.error is None else None
            for name, result in results.items()
        }

    def _instance_live(self, uuids: Sequence[str]) -> dict[str, object]:
        nodes = lookup.present(self.config.get_nodes(list(uuids)))
        params = cluster_hvparams(self.cluster)
        results = call_nodes(self.context, nodes, "all_instances_info", list(params), params)
        by_name = {node.name: node.uuid for node in nodes}
        return {
            by_name[name]: instances_from_rpc(result.payload) if result.error is None else None
            for name, result in results.items()
        }
