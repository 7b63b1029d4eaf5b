"""Problems of a configuration, object by object.

`problems_of` returns the problems of one object as things stand; it looks only at the object and
at the entries of its indexes.  So a change need check only the objects touched, and the whole
configuration is checked by going through all objects (`cluster_problems` adds the problems of no
single one).  Each problem is a sentence that names the object.

Source: config.json; constants.json, the parameter tables; ARCHITECTURE, invariant 8;
wconfd.json, "verifyConfig".
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from ganeti.base.errors import AddressPoolError, ConfigurationError, TagError
from ganeti.config.addresses.pool import AddressPool
from ganeti.config.addresses.pool6 import AddressPool6, canonical
from ganeti.config.index import (
    CLUSTER,
    DISKS,
    GROUPS,
    INSTANCES,
    KINDS,
    NETWORKS,
    NODES,
    UNIQUE,
    WHAT,
    By,
    ObjectId,
    entries_of,
    nodes_of_disk,
)
from ganeti.config.views import View
from ganeti.objects import model, parameters
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.hypervisors import HVPARAMS
from ganeti.objects.instance_policy import policy_problems
from ganeti.objects.nic import mac_prefix_problem, mac_problem
from ganeti.objects.record import Record
from ganeti.objects.tags import add_tags
from ganeti.objects.uid_pool import problem_of

FIRST_DRBD_PORT: Final = 11000  # constants.json, "daemons_and_ports"
LAST_DRBD_PORT: Final = 14999


def problems_of(view: View, identity: ObjectId) -> list[str]:
    """Return the problems of an object; none when there is no such object."""
    return _named(view, identity, _found_in(view, identity))


def new_problems_of(view: View, before: View, identity: ObjectId) -> list[str]:
    """Return the problems of an object that it did not have before, though its name may differ."""
    found = _found_in(view, identity)
    known = _found_in(before, identity) if found else []
    return _named(view, identity, [problem for problem in found if problem not in known])


def _found_in(view: View, identity: ObjectId) -> list[str]:
    table, kind = identity[0], KINDS[identity[0]]
    try:
        record = view.record(identity, kind)
    except ConfigurationError as err:
        return [err.message]
    if record is None:
        return []
    found = list(_general(view, identity, record))
    if table in _CHECKS and not getattr(record, "forthcoming", False):
        found += _CHECKS[table](view, record)
    return found


def _named(view: View, identity: ObjectId, found: list[str]) -> list[str]:
    """Let problems name the object that has them."""
    if not found:
        return found
    table, uuid = identity
    try:
        record = view.record(identity, KINDS[table])
    except ConfigurationError:
        return found  # it names the object
    name = getattr(record, "name", None) or getattr(record, "cluster_name", None) or uuid
    what = f"{WHAT[table]} {name!r}{_owner(view, identity)}"
    return [f"{what}: {problem}" for problem in found]


def _owner(view: View, identity: ObjectId) -> str:
    """Say whose a disk is: few people know them by their UUIDs."""
    owners = view.find(By.DISK_OWNER, identity[1]) if identity[0] == DISKS else ()
    return "".join(f" of instance {view.name_of(owner)!r}" for owner in owners)


def cluster_problems(view: View, tables: Mapping[str, Mapping[str, object]]) -> list[str]:
    """Return the problems of the configuration as a whole."""
    found: list[str] = []
    if not tables[GROUPS]:
        found.append("there is no node group")
    candidates = view.find(By.CANDIDATE, "")
    possible = sum(1 for uuid in tables[NODES] if _may_be_candidate(view, uuid))
    wanted = min(view.cluster.candidate_pool_size, possible)
    if len(candidates) < wanted:
        found.append(f"too few master candidates: {len(candidates)}, wanted are {wanted}")
    found += _trusted_without_role(view)
    for uuid in tables[NETWORKS]:
        network = view.network(uuid)
        assert network is not None
        found += [f"network {network.name!r}: {text}" for text in _unused_addresses(view, network)]
    return found


def _trusted_without_role(view: View) -> Iterator[str]:
    """Nodes that may give orders to all others, and are to be ordinary ones; 3.0 may leave some."""
    for uuid in view.cluster.candidate_certs:
        node = view.node(uuid)
        if node is not None and not node.master_candidate:
            yield (
                f"candidate_certs names node {node.name}, which is no master candidate; 'gnt-node"
                f" modify --master-candidate=no {node.name}' ends that"
            )


def _unused_addresses(view: View, network: model.Network) -> Iterator[str]:
    """Addresses that nobody has although they are marked; they come and go while jobs run."""
    try:
        pool = AddressPool(network)
    except AddressPoolError:
        return  # reported with the network
    for address in pool.reserved_addresses():
        if not view.find(By.IP, (network.uuid, address)):
            yield f"address {address} is marked as used by an instance, but none has it"


def _may_be_candidate(view: View, uuid: str) -> bool:
    node = view.node(uuid)
    assert node is not None
    return node.master_capable and not node.offline and not node.drained


_NAMED_MAX: Final = 5  # of the objects that have the same; each of them names the others


def _general(view: View, identity: ObjectId, record: Record) -> Iterator[str]:
    """Check the rules for all objects: identity, uniqueness, tags."""
    uuid = identity[1]
    own = getattr(record, "uuid", "")
    if uuid and own != uuid:
        yield f"its key {uuid} differs from its UUID {own}"
    for what, key in sorted(entries_of(identity, record), key=str):
        if what not in UNIQUE:
            continue
        users = view.find(what, key)
        others = list(islice((other for other in users if other != identity), _NAMED_MAX))
        if others:
            shown = key[1] if isinstance(key, tuple) else key
            names = ", ".join(f"{WHAT[i[0]]} {view.name_of(i)}".rstrip() for i in others)
            more = len(users) - 1 - len(others)
            names += f" and {more} more" if more > 0 else ""
            yield f"{what.value} {shown} is used by {names} as well"
    try:
        add_tags((), getattr(record, "tags", ()))
    except TagError as err:
        yield err.message


def _cluster(view: View, cluster: model.Cluster) -> Iterator[str]:
    if cluster.master_node:
        master = view.node(cluster.master_node)
        if master is None:
            yield f"the master node {cluster.master_node} does not exist"
    if not cluster.enabled_hypervisors:
        yield "no hypervisor is enabled"
    if not cluster.enabled_disk_templates:
        yield "no disk template is enabled"
    yield from filter(None, [mac_prefix_problem(cluster.mac_prefix)])
    yield from cluster_params(cluster)
    yield from _ports(view, cluster)
    for uuid in cluster.candidate_certs:
        if view.node(uuid) is None:
            yield f"candidate_certs names node {uuid}, which does not exist"


def _ports(view: View, cluster: model.Cluster) -> Iterator[str]:
    seen: set[int] = set()
    for port in cluster.tcpudp_port_pool:
        if port in seen:
            yield f"port {port} is in the pool of free ports twice"
        seen.add(port)
        if port > cluster.highest_used_port:
            yield f"free port {port} is above the highest port used, {cluster.highest_used_port}"
        for user in view.find(By.PORT, port):
            yield f"free port {port} is used by {WHAT[user[0]]} {view.name_of(user)}"
    if cluster.highest_used_port > LAST_DRBD_PORT:
        yield f"the highest port used, {cluster.highest_used_port}, is above {LAST_DRBD_PORT}"


def _node(view: View, node: model.Node) -> Iterator[str]:
    roles = {
        "master_candidate": node.master_candidate,
        "offline": node.offline,
        "drained": node.drained,
    }
    held = [name for name, value in roles.items() if value]
    if len(held) > 1:
        yield f"cannot be {' and '.join(held)} at once"
    if node.master_candidate and not node.master_capable:
        yield "is a master candidate but not master-capable"
    if view.cluster.master_node == node.uuid:
        if node.offline or node.drained:
            yield "is the master and cannot be offline or drained"
        if not node.master_candidate:
            yield "is the master and must be a master candidate"
    if view.group(node.group) is None:
        yield f"its group {node.group} does not exist"
    if not node.vm_capable and view.find(By.PRIMARY, node.uuid):
        yield "is not vm-capable but has instances"
    for what in ("primary_ip", "secondary_ip"):
        yield from _is_address(what, getattr(node, what))
    yield from parameters.problems(node.ndparams, parameters.NDPARAMS, what="node parameter")


def _group(view: View, group: model.NodeGroup) -> Iterator[str]:
    for network in group.networks:
        if view.network(network) is None:
            yield f"is connected to network {network}, which does not exist"
    for params in group.networks.values():
        yield from parameters.problems(params, parameters.NICPARAMS, what="NIC parameter")
    yield from parameters.problems(group.ndparams, parameters.NDPARAMS, what="node parameter")
    yield from _diskparams(group.diskparams)
    yield from _policy(group.ipolicy, of_cluster=False)


def _instance(view: View, instance: model.Instance) -> Iterator[str]:
    if view.node(instance.primary_node) is None:
        yield f"its primary node {instance.primary_node} does not exist"
    yield from _hvparams(instance.hypervisor, instance.hvparams)
    defaults = view.cluster.beparams.get(model.DEFAULTS, {})
    yield from _beparams(instance.beparams, defaults)
    if len(set(instance.disks)) != len(instance.disks):
        yield "has a disk twice"
    for uuid in instance.disks:
        if view.disk(uuid) is None:
            yield f"its disk {uuid} does not exist"
    yield from _nics(view, instance)


def _nics(view: View, instance: model.Instance) -> Iterator[str]:
    seen: set[tuple[str, object]] = set()
    for index, nic in enumerate(instance.nics):
        problem = mac_problem(nic.mac)
        if problem:
            yield f"NIC {index}: {problem}"
        if nic.ip is not None:
            yield from _is_address(f"NIC {index}: IP address", nic.ip)
        own: list[tuple[str, object]] = [("MAC address", nic.mac.lower()), ("UUID", nic.uuid)]
        if nic.ip is not None:
            place = nic.network or nic.nicparams.get("link")
            own.append(("IP address", (place, nic.ip)))
        for what, value in own:
            if (what, value) in seen:
                shown = value[1] if isinstance(value, tuple) else value
                yield f"{what} {shown} is used by two of its NICs"
            seen.add((what, value))
        yield from parameters.problems(nic.nicparams, parameters.NICPARAMS, what="NIC parameter")
        if nic.network is None:
            yield from _default_link(view, instance, index)
            continue
        network = view.network(nic.network)
        if network is None:
            yield f"NIC {index} is in network {nic.network}, which does not exist"
        elif nic.ip is not None:
            yield from _address(network, index, nic.ip)


def _default_link(view: View, instance: model.Instance, index: int) -> Iterator[str]:
    """Look for the NIC's address where the cluster's default link is meant, named or not."""
    nic = instance.nics[index]
    default = view.cluster.nicparams.get(model.DEFAULTS, {}).get("link", "")
    link = nic.nicparams.get("link")
    if nic.ip is None or link not in (None, default):
        return
    other_spelling = default if link is None else ""
    for identity in view.find(By.IP, (other_spelling, canonical(nic.ip))):
        if identity[1] != instance.uuid:
            yield f"IP address {nic.ip} is used by instance {view.name_of(identity)} as well"


def _address(network: model.Network, index: int, address: str) -> Iterator[str]:
    try:
        pool = AddressPool(network)
        if pool.contains(address) and not pool.is_reserved(address):
            yield f"address {address} of NIC {index} is not reserved in network {network.name}"
    except AddressPoolError:
        return  # reported with the network


def _disk(view: View, disk: model.Disk) -> Iterator[str]:
    for node in disk.nodes:
        if view.node(node) is None:
            yield f"is on node {node}, which does not exist"
    if disk.size < 0:
        yield f"has the size {disk.size}"
    known = parameters.OWN_DISKPARAMS.get(disk.dev_type, {})
    own = {name: value for name, value in (disk.params or {}).items() if name in known}
    yield from parameters.problems(own, known, what=f"{disk.dev_type} parameter")
    yield from _device(view, disk)
    yield from _used_twice(view, disk)


def _used_twice(view: View, disk: model.Disk) -> Iterator[str]:
    """Find other disks on the same storage: two guests would overwrite each other."""
    entries = entries_of((DISKS, disk.uuid), disk)
    for by, key in sorted((each for each in entries if each[0] in _STORAGE), key=str):
        for identity in view.find(by, key):
            other = view.disk(identity[1]) if identity[1] != disk.uuid else None
            if other is None:
                continue
            if other.traits.shared or not {*nodes_of_disk(disk)}.isdisjoint(nodes_of_disk(other)):
                user = f"disk {other.uuid}{_owner(view, identity)}"
                yield f"{by.value} {key} is used by {user} as well"


_STORAGE: Final = frozenset({By.LV, By.PATH})


def _device(view: View, disk: model.Disk) -> Iterator[str]:
    traits = disk.traits
    if not traits.logical_id:
        yield f"has the unknown type {disk.dev_type!r}"
        return
    shape = traits.logical_id.values()
    fits = len(disk.logical_id) == len(shape) and all(
        isinstance(value, kind) for value, kind in zip(disk.logical_id, shape, strict=True)
    )
    if not fits:
        yield f"its logical_id does not fit the type {disk.dev_type}"
    if fits and disk.dev_type == DiskTemplate.DRBD:
        yield from _drbd(view, disk)
    if traits.child_count and len(disk.children) not in (0, traits.child_count):
        yield f"has {len(disk.children)} children, DRBD needs data and metadata"
    for child in disk.children:
        yield from _device(view, child)


def _drbd(view: View, disk: model.Disk) -> Iterator[str]:
    node_a, node_b, _, minor_a, minor_b, _ = disk.logical_id
    if node_a == node_b:
        yield f"both sides are on node {node_a}"
    for node, minor in ((node_a, minor_a), (node_b, minor_b)):
        if isinstance(node, str) and node not in disk.nodes and view.node(node) is None:
            yield f"is on node {node}, which does not exist"
        if isinstance(minor, int) and minor < 0:
            yield f"has the minor {minor}"


def _network(_view: View, network: model.Network) -> Iterator[str]:
    try:
        pool = AddressPool(network)
    except AddressPoolError as err:
        yield err.message
    else:
        if network.gateway and not pool.contains(network.gateway):
            yield f"its gateway {network.gateway} does not lie in {network.network}"
        elif network.gateway and not pool.is_external(network.gateway):
            yield f"its gateway {network.gateway} is not kept away from instances"
    if network.ext_reservations6:
        try:
            AddressPool6(network)
        except AddressPoolError as err:
            yield err.message
    if network.mac_prefix is not None:
        yield from filter(None, [mac_prefix_problem(network.mac_prefix)])


def _hvparams(hypervisor: str, params: Mapping[str, object]) -> Iterator[str]:
    """Check parameters of a hypervisor."""
    table = HVPARAMS.get(hypervisor)
    if table is None:
        yield f"unknown hypervisor {hypervisor!r}"
        return
    yield from parameters.problems(params, table, what=f"{hypervisor} parameter")


def _beparams(params: Mapping[str, object], defaults: Mapping[str, object]) -> Iterator[str]:
    """Check backend parameters, laid over defaults."""
    yield from parameters.problems(params, parameters.BEPARAMS, what="backend parameter")
    yield from filter(None, [parameters.memory_problem({**defaults, **params})])


def _diskparams(by_template: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    """Check parameters of disks."""
    for template, params in by_template.items():
        table = parameters.DISKPARAMS.get(template)
        if table is None:
            yield f"unknown disk template {template!r}"
        else:
            yield from parameters.problems(params, table, what=f"{template} parameter")


def cluster_params(cluster: model.Cluster) -> Iterator[str]:
    """Check all parameters and single values of the cluster."""
    for hypervisor, params in cluster.hvparams.items():
        yield from _hvparams(hypervisor, params)
    for os_name, by_hypervisor in cluster.os_hvp.items():
        for hypervisor, params in by_hypervisor.items():
            for problem in _hvparams(hypervisor, params):
                yield f"OS {os_name!r}: {problem}"
    for params in cluster.beparams.values():
        yield from _beparams(params, {})
    for params in cluster.nicparams.values():
        yield from parameters.problems(params, parameters.NICPARAMS, what="NIC parameter")
    yield from _complete("beparams", cluster.beparams, parameters.BEPARAMS)
    yield from _complete("nicparams", cluster.nicparams, parameters.NICPARAMS)
    yield from parameters.problems(cluster.ndparams, parameters.NDPARAMS, what="node parameter")
    yield from _diskparams(cluster.diskparams)
    yield from _policy(cluster.ipolicy, of_cluster=True)
    yield from _numbers(cluster)


def _complete(
    what: str, groups: Mapping[str, Mapping[str, object]], table: parameters.ParamTable
) -> Iterator[str]:
    """Check that the cluster has a default for each parameter."""
    missing = sorted(set(table).difference(groups.get(model.DEFAULTS, ())))
    if missing:
        yield f"{what}: no default for {', '.join(missing)}"


def _numbers(cluster: model.Cluster) -> Iterator[str]:
    for name in ("candidate_pool_size", "max_running_jobs", "max_tracked_jobs"):
        value = getattr(cluster, name)
        if value < 1:
            yield f"{name} is {value}, must be at least 1"
    for name, collector in cluster.data_collectors.items():
        if collector.interval <= 0:
            yield f"data collector {name} has the interval {collector.interval}"
    netmask = model.netmask_problem(cluster.master_netmask, cluster.primary_ip_family)
    if netmask:
        yield netmask
    yield from _is_address("master_ip", cluster.master_ip)
    for uids in cluster.uid_pool:
        problem = problem_of(uids)
        if problem is not None:
            yield problem


def _is_address(what: str, text: str) -> Iterator[str]:
    """Check that a text is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        yield f"{what} {text!r} is not an IP address"


def _policy(policy: Mapping[str, object], *, of_cluster: bool) -> Iterator[str]:
    for problem in policy_problems(policy, of_cluster=of_cluster, partial=not of_cluster):
        yield f"instance policy: {problem}"


_CHECKS: Final[Mapping[str, Callable[[View, Any], Iterator[str]]]] = {
    CLUSTER: _cluster,
    NODES: _node,
    GROUPS: _group,
    INSTANCES: _instance,
    NETWORKS: _network,
    DISKS: _disk,
}
