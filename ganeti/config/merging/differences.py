"""The differences of two clusters, and what they mean for a merge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ganeti.base.json import loads_as
from ganeti.base.text import shown
from ganeti.config.config_data import SplitConfig, split_config
from ganeti.config.index import DISKS, GROUPS, INSTANCES, NETWORKS, NODES, WHAT
from ganeti.config.state import ConfigState
from ganeti.config.upgrade.versions import version_of
from ganeti.config.views import Base
from ganeti.objects import fill
from ganeti.objects.model import Cluster, Disk, Instance, Node, NodeGroup
from ganeti.objects.parameters import DISKPARAMS

_TAKEN: Final = (GROUPS, NODES, NETWORKS, INSTANCES, DISKS)
_NAMED: Final = (NODES, INSTANCES, NETWORKS)
# Settings that instances of the other cluster depend on, compared as they stand.
_PLACES: Final = (
    *("volume_group_name", "drbd_usermode_helper", "file_storage_dir"),
    *("shared_file_storage_dir", "gluster_storage_dir", "primary_ip_family"),
)
# And those that they inherit, with defaults.
_FILLED: Final[Mapping[str, Callable[[Cluster], Mapping[str, Any]]]] = {
    "beparams": fill.fill_beparams,
    "nicparams": lambda cluster: fill.fill_nicparams(cluster, {}),
    "ndparams": lambda cluster: cluster.ndparams,
    "ipolicy": fill.fill_cluster_ipolicy,
}
# Settings of the other cluster that end with it, if they are not those of this one.
_DROPPED: Final = (
    *("tags", "uid_pool", "reserved_lvs", "hidden_os", "blacklisted_os", "default_iallocator"),
    *("candidate_pool_size", "maintain_node_health", "prealloc_wipe_disks"),
)


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two configurations."""

    split: SplitConfig
    view: Base

    @classmethod
    def of(cls, data: bytes) -> Side:
        """Read a configuration; raises ConfigurationError."""
        return cls(split_config(data), ConfigState(data).durable)

    @property
    def cluster(self) -> Cluster:
        """Its cluster."""
        return self.view.cluster

    def records(self, table: str, kind: type[Any]) -> dict[str, Any]:
        """Return the objects of a table."""
        return {uuid: self.view.record((table, uuid), kind) for uuid in self.split.tables[table]}

    @property
    def instances(self) -> Mapping[str, Instance]:
        """Its instances."""
        return self.records(INSTANCES, Instance)

    @property
    def groups(self) -> Mapping[str, NodeGroup]:
        """Its node groups."""
        return self.records(GROUPS, NodeGroup)

    @property
    def disks(self) -> Mapping[str, Disk]:
        """Its disks."""
        return self.records(DISKS, Disk)

    def names(self, table: str) -> dict[str, str]:
        """Return the UUIDs of a table's objects by their names."""
        return {self.view.name_of((table, uuid)): uuid for uuid in self.split.tables[table]}


def versions(own: bytes, other: bytes) -> Iterator[str]:
    """Tell configurations of different versions apart."""
    tops = [split_config(data).top for data in (own, other)]
    numbers = [loads_as(int, bytes(top["version"])) if "version" in top else None for top in tops]
    mine, its = (version_of({"version": number}) for number in numbers)
    if mine != its:
        yield f"the configurations have versions {mine} here and {its} there; upgrade first"


def identities(here: Side, there: Side) -> Iterator[str]:
    """Tell whether both are one cluster."""
    if here.cluster.uuid == there.cluster.uuid:
        yield f"both are the same cluster ({here.cluster.cluster_name})"


def same_names(here: Side, there: Side) -> Iterator[str]:
    """Tell the names and UUIDs that both clusters have."""
    for table in _NAMED:
        same = sorted(here.names(table).keys() & there.names(table).keys())
        if same:
            yield f"both clusters have {WHAT[table]}s named {shown(same)}; rename or remove them"
    for table in _TAKEN:
        twice = sorted(here.split.tables[table].keys() & there.split.tables[table].keys())
        if twice:
            yield f"both clusters have {WHAT[table]}s with the UUIDs {shown(twice)}"


def needs(here: Side, there: Side) -> Iterator[str]:
    """Tell which hypervisors and disk templates of its instances are missing here."""
    hypervisors = {str(each.hypervisor) for each in there.instances.values() if each.hypervisor}
    templates = {str(each.dev_type) for each in there.disks.values() if each.dev_type}
    for what, used, enabled, option in (
        ("hypervisor", hypervisors, here.cluster.enabled_hypervisors, "enabled-hypervisors"),
        ("disk template", templates, here.cluster.enabled_disk_templates, "enabled-disk-templates"),
    ):
        for name in sorted(used - set(map(str, enabled))):
            yield (
                f"instances there use {what} {name}, which is not enabled here"
                f" ('gnt-cluster modify --{option}')"
            )


def homing(here: Side, there: Side) -> Iterator[str]:
    """Tell the nodes there that have a secondary address if the master here has none, or not."""
    master = here.records(NODES, Node)[here.cluster.master_node]
    differ = sorted(
        node.name
        for node in there.records(NODES, Node).values()
        if not node.offline and _is_dual(node) != _is_dual(master)
    )
    if differ:
        have, has = ("no", "has one") if _is_dual(master) else ("a", "has none")
        yield (
            f"nodes there have {have} secondary address of their own, and the master here {has}:"
            f" {shown(differ)}; 'gnt-node modify --secondary-ip' there changes that, for the master"
            " first"
        )


def _is_dual(node: Node) -> bool:
    return node.secondary_ip != node.primary_ip


def differences(here: Side, there: Side) -> Iterator[str]:
    """Tell the settings by which instances and nodes there would change."""
    mine, its = here.cluster, there.cluster
    for name in _PLACES:
        yield from differs(name, getattr(mine, name), getattr(its, name))
    for name, filled in _FILLED.items():
        yield from _each_differs(name, filled(mine), filled(its))
    for hypervisor in sorted({str(each.hypervisor) for each in there.instances.values()}):
        if hypervisor:
            pair = [fill.fill_hvparams_for(each, hypervisor, "") for each in (mine, its)]
            yield from _each_differs(f"hvparams of {hypervisor}", *pair)
    used = {str(each.dev_type) for each in there.disks.values()}
    for template in sorted(used & DISKPARAMS.keys()):
        pair = [dict(each.diskparams.get(template, {})) for each in (mine, its)]
        yield from _each_differs(f"diskparams of {template}", *pair)
    systems = {each.os for each in there.instances.values()}
    systems |= {each.partition("+")[0] for each in systems}
    for name in ("os_hvp", "osparams"):
        for system in sorted(systems):
            pair = [dict(getattr(each, name).get(system, {})) for each in (mine, its)]
            yield from _each_differs(f"{name} of {system}", *pair)
    if any(system in its.osparams_private_cluster for system in systems):
        yield "private parameters of operating systems there are not taken"


def differs(name: str, mine: object, its: object) -> Iterator[str]:
    """Tell the two values of a setting if they are not the same."""
    if mine != its:
        yield f"{name} is {mine!r} here, {its!r} there"


def _each_differs(what: str, mine: Mapping[str, Any], its: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(mine.keys() | its.keys()):
        yield from differs(f"{what}: {name}", mine.get(name), its.get(name))


def dropped(here: Side, there: Side) -> Iterator[str]:
    """Tell the settings of the other cluster that end with it."""
    name = there.cluster.cluster_name
    for setting in _DROPPED:
        mine, its = getattr(here.cluster, setting), getattr(there.cluster, setting)
        if its and its != mine:
            yield f"{setting} of {name} ({shown(its) if isinstance(its, list) else its}) ends"
    if count := len(there.split.tables["filters"]):
        yield f"{count} job filters of {name} end"
    for node in there.records(NODES, Node).values():
        if node.offline:
            yield (
                f"node {node.name} is offline and stays so; take it in by 'gnt-node add --readd"
                " --force-join' later"
            )
