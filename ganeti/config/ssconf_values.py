"""The simple configuration as it follows from the whole one.

Source: config.json, "ssconf".
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Final

from ganeti.base.paths import SSCONF_BYTES_MAX
from ganeti.base.text import natural_sort_key, natural_sorted
from ganeti.base.versions import RELEASE_VERSION
from ganeti.config.index import CLUSTER, GROUPS, INSTANCES, NETWORKS, NODES, ObjectId
from ganeti.config.views import Base
from ganeti.objects.fill import fill_ndparams
from ganeti.objects.hypervisors import HVPARAMS
from ganeti.objects.model import Cluster, Node
from ganeti.objects.parameters import stored_defaults

_NODE_TABLES: Final = frozenset({NODES, GROUPS})
_LISTS: Final = {"instance_list": INSTANCES, "networks": NETWORKS, "nodegroups": GROUPS}


class SsconfComposer:
    """Keeps the values up to date; the cost of a change grows with the change, not the cluster."""

    def __init__(self, view: Base) -> None:
        self._view = view
        self._names = {table: view.names(table) for table in _LISTS.values()}
        self._instances = sorted(
            (natural_sort_key(name), name) for name in self._names[INSTANCES].values()
        )
        self._ndparams = view.cluster.ndparams
        self.values = {**_values_of_cluster(view), **_values_of_nodes(view)}
        for key, table in _LISTS.items():
            self.values[key] = self._list(table)

    def follow(self, changed: Iterable[ObjectId]) -> bool:
        """Take over changes that are in the view by now; returns whether a value changed."""
        before = self.values
        values = dict(before)
        tables = {table for table, _ in changed}
        ndparams = self._view.cluster.ndparams
        if CLUSTER in tables or NODES in tables:  # the master's name is one of these values
            values.update(_values_of_cluster(self._view))
        if not _NODE_TABLES.isdisjoint(tables) or ndparams != self._ndparams:
            self._ndparams = ndparams
            values.update(_values_of_nodes(self._view))
        for key, table in _LISTS.items():
            if table in tables and self._follow_names(table, changed):
                values[key] = self._list(table)
        self.values = values
        return values != before

    def _follow_names(self, table: str, changed: Iterable[ObjectId]) -> bool:
        names = self._names[table]
        found = False
        for identity in changed:
            if identity[0] != table:
                continue
            exists = self._view.stored(identity) is not None
            new = self._view.name_of(identity) if exists else None
            old = names.pop(identity[1], None)
            if new is not None:
                names[identity[1]] = new
            if new != old:
                found = True
                if table == INSTANCES:
                    self._move_instance(old, new)
        return found

    def _move_instance(self, old: str | None, new: str | None) -> None:
        if old is not None:
            entry = (natural_sort_key(old), old)
            del self._instances[bisect_left(self._instances, entry)]
        if new is not None:
            insort(self._instances, (natural_sort_key(new), new))

    def _list(self, table: str) -> str:
        if table == INSTANCES:
            return _fitting(name for _, name in self._instances)
        return _fitting(f"{uuid} {name}" for uuid, name in self._names[table].items())


def ssconf_values(view: Base) -> dict[str, str]:
    """Return every key with its value, without the final newline."""
    return SsconfComposer(view).values


def _values_of_cluster(view: Base) -> dict[str, str]:
    cluster = view.cluster
    master = view.node(cluster.master_node)
    return {
        **_cluster_values(cluster),
        "master_node": "" if master is None else master.name,
        "master_candidates_certs": _lines(
            f"{uuid}={digest}" for uuid, digest in cluster.candidate_certs.items()
        ),
    }


def _values_of_nodes(view: Base) -> dict[str, str]:
    by_name = {
        node.name: node for uuid in view.tables[NODES] if (node := view.node(uuid)) is not None
    }
    nodes = [by_name[name] for name in natural_sorted(by_name)]
    return {
        **_node_values(nodes),
        "ssh_ports": _lines(f"{node.name}={_ssh_port(view, node)}" for node in nodes),
    }


def _ssh_port(view: Base, node: Node) -> int:
    group = view.group(node.group)
    if group is None:
        return 22
    return fill_ndparams(view.cluster, group, node)["ssh_port"]


def _lines(values: Iterable[str]) -> str:
    return "\n".join(values)


def _fitting(values: Iterable[str]) -> str:
    """Return the lines that fit into a value: readers of 3.0 look no further either.

    The names of 5,000 instances do; little but scripts of the administrator reads them here, and a
    value that is refused would keep all others from the nodes.
    """
    lines = _lines(values)
    data = lines.encode()
    if len(data) < SSCONF_BYTES_MAX:
        return lines
    return data[: data.rindex(b"\n", 0, SSCONF_BYTES_MAX)].decode()


def _cluster_values(cluster: Cluster) -> dict[str, str]:
    values = {
        "cluster_name": cluster.cluster_name,
        "cluster_tags": _fitting(cluster.tags),
        "enabled_user_shutdown": str(cluster.enabled_user_shutdown),
        "file_storage_dir": cluster.file_storage_dir,
        "gluster_storage_dir": cluster.gluster_storage_dir,
        "hypervisor_list": _lines(cluster.enabled_hypervisors),
        "maintain_node_health": str(cluster.maintain_node_health),
        "master_ip": cluster.master_ip,
        "master_netdev": cluster.master_netdev,
        "master_netmask": str(cluster.master_netmask),
        "primary_ip_family": str(int(cluster.primary_ip_family)),
        "release_version": RELEASE_VERSION,
        "shared_file_storage_dir": cluster.shared_file_storage_dir,
        "uid_pool": _lines(
            str(low) if low == high else f"{low}-{high}" for low, high in cluster.uid_pool
        ),
    }
    for hypervisor, table in HVPARAMS.items():
        params = {**stored_defaults(table), **cluster.hvparams.get(hypervisor, {})}
        values[f"hvparams_{hypervisor}"] = _lines(
            f"{name}={params[name]}" for name in sorted(params)
        )
    return values


def _node_values(nodes: list[Node]) -> dict[str, str]:
    candidates = [node for node in nodes if node.master_candidate]
    return {
        "master_candidates": _lines(node.name for node in candidates),
        "master_candidates_ips": _lines(node.primary_ip for node in candidates),
        "node_list": _lines(node.name for node in nodes),
        "node_primary_ips": _lines(f"{node.name} {node.primary_ip}" for node in nodes),
        "node_secondary_ips": _lines(f"{node.name} {node.secondary_ip}" for node in nodes),
        "node_vm_capable": _lines(f"{node.name}={node.vm_capable}" for node in nodes),
        "offline_nodes": _lines(node.name for node in nodes if node.offline),
        "online_nodes": _lines(node.name for node in nodes if not node.offline),
    }
