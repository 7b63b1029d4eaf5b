"""Fill in defaults: the parameters in force for an instance, node, NIC or disk, in one place.

Each function lays the values of the smaller thing over those of the greater: table of defaults,
then cluster, then group, then the thing itself.

Source: design-2.0 "Object parameters"; constants.json, the parameter tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypedDict, TypeVar

import msgspec

from ganeti.base.errors import ConfigurationError
from ganeti.objects import parameters
from ganeti.objects.hypervisors import HVPARAMS
from ganeti.objects.model import DEFAULTS, Cluster, Instance, Node, NodeGroup
from ganeti.objects.nic import NIC
from ganeti.objects.parameters import cluster_wide_only
from ganeti.objects.record import PrivateParams, explain_validation

Params = Mapping[str, object]
_NO_PARAMS: Final[Params] = {}


class BeParams(TypedDict):
    """Filled backend parameters; memory in MiB."""

    always_failover: bool
    auto_balance: bool
    maxmem: int
    minmem: int
    spindle_use: int
    vcpus: int


class NicParams(TypedDict):
    """Filled parameters of a network interface."""

    link: str
    mode: str
    vlan: str


class NdParams(TypedDict):
    """Filled node parameters."""

    cpu_speed: float
    exclusive_storage: bool
    oob_program: str
    ovs: bool
    ovs_link: str | None
    ovs_name: str | None
    spindle_count: int
    ssh_port: int


_Filled = TypeVar("_Filled", BeParams, NicParams, NdParams)


def _typed(kind: type[_Filled], params: Params, owner: str) -> _Filled:
    try:
        return msgspec.convert(params, kind)
    except msgspec.ValidationError as err:
        place, what = explain_validation(err)
        raise ConfigurationError(f"{owner}: parameter {place!r}: {what}") from err


def _fill(table: parameters.ParamTable, *layers: Params) -> dict[str, object]:
    filled = parameters.defaults_of(table)
    for layer in layers:
        filled.update(layer)
    return filled


def fill_beparams(cluster: Cluster, instance: Instance | None = None) -> BeParams:
    """Fill the backend parameters of an instance (of a new one without own values if None)."""
    if instance is None:
        return fill_beparams_with(cluster, _NO_PARAMS, "cluster")
    return fill_beparams_with(cluster, instance.beparams, f"instance {instance.name!r}")


def fill_beparams_with(cluster: Cluster, own: Params, owner: str) -> BeParams:
    """Fill backend parameters given by themselves; ``owner`` names their owner in errors."""
    return _typed(
        BeParams, _fill(parameters.BEPARAMS, cluster.beparams.get(DEFAULTS, _NO_PARAMS), own), owner
    )


def _os_layers(by_os: Mapping[str, Params], os_name: str) -> list[Params]:
    """Return the values for an OS: those of its name without variant, then of the full name."""
    base = os_name.split("+", 1)[0]
    names = [base] if base == os_name else [base, os_name]
    return [by_os[name] for name in names if name in by_os]


def fill_hvparams_for(
    cluster: Cluster, hypervisor: str, os_name: str, own: Params = _NO_PARAMS
) -> dict[str, object]:
    """Fill hypervisor parameters: table, cluster, OS, then the given own values."""
    layers = [cluster.hvparams.get(hypervisor, _NO_PARAMS)]
    by_os = {os: params.get(hypervisor, _NO_PARAMS) for os, params in cluster.os_hvp.items()}
    layers += _os_layers(by_os, os_name)
    return _fill_hvparams(hypervisor, *layers, own)


def _fill_hvparams(hypervisor: str, *layers: Params) -> dict[str, object]:
    """Fill hypervisor parameters; those that 3.0 does not know stand there only where they are set.

    So its nodes are asked for nothing that they do not know.  Drivers know the defaults.
    """
    filled = parameters.stored_defaults(HVPARAMS.get(hypervisor, {}))
    for layer in layers:
        filled.update(layer)
    return filled


def fill_hvparams(cluster: Cluster, instance: Instance) -> dict[str, object]:
    """Fill the hypervisor parameters of an instance."""
    return fill_hvparams_for(cluster, instance.hypervisor, instance.os, instance.hvparams)


def without_cluster_wide(hypervisor: str, hvparams: Params) -> dict[str, object]:
    """Return the parameters that an instance can have of its own: those of its cluster are none."""
    left_out = cluster_wide_only(hvparams, HVPARAMS.get(hypervisor, {}))
    return {name: value for name, value in hvparams.items() if name not in left_out}


def cluster_hvparams(cluster: Cluster) -> dict[str, dict[str, object]]:
    """Return the filled cluster-wide parameters of each enabled hypervisor."""
    return {
        str(hypervisor): _fill_hvparams(hypervisor, cluster.hvparams.get(hypervisor, _NO_PARAMS))
        for hypervisor in cluster.enabled_hypervisors
    }


def fill_osparams(cluster: Cluster, os_name: str, own: Params = _NO_PARAMS) -> dict[str, object]:
    """Fill the public parameters of an operating system."""
    return _fill({}, *_os_layers(cluster.osparams, os_name), own)


def fill_osparams_private(cluster: Cluster, os_name: str, own: PrivateParams) -> PrivateParams:
    """Fill the private parameters of an operating system."""
    by_os = {os: params.reveal() for os, params in cluster.osparams_private_cluster.items()}
    return PrivateParams(_fill({}, *_os_layers(by_os, os_name), own.reveal()))


def fill_osparams_all(
    cluster: Cluster,
    os_name: str,
    public: Params,
    private: PrivateParams,
    secret: PrivateParams | None = None,
) -> PrivateParams:
    """Fill public, private and secret parameters of an operating system together."""
    filled = PrivateParams(
        {
            **fill_osparams(cluster, os_name, public),
            **fill_osparams_private(cluster, os_name, private).reveal(),
        }
    )
    return filled if secret is None else filled.merged(secret)


def fill_nicparams(cluster: Cluster, nic: NIC | Params) -> NicParams:
    """Fill the parameters of a network interface, given as a NIC or as its own parameters."""
    own = nic.nicparams if isinstance(nic, NIC) else nic
    owner = f"NIC {nic.mac}" if isinstance(nic, NIC) else "NIC"
    layers = (cluster.nicparams.get(DEFAULTS, _NO_PARAMS), own)
    return _typed(NicParams, _fill(parameters.NICPARAMS, *layers), owner)


def fill_group_ndparams(cluster: Cluster, group: NodeGroup) -> NdParams:
    """Fill the node parameters that a group gives to its nodes."""
    filled = _fill(parameters.NDPARAMS, cluster.ndparams, group.ndparams)
    return _typed(NdParams, filled, f"node group {group.name!r}")


def fill_ndparams(cluster: Cluster, group: NodeGroup, node: Node) -> NdParams:
    """Fill the parameters of a node."""
    filled = _fill(parameters.NDPARAMS, cluster.ndparams, group.ndparams, node.ndparams)
    return _typed(NdParams, filled, f"node {node.name!r}")


def fill_diskparams(
    cluster: Cluster, group: NodeGroup | None, template: str, own: Params = _NO_PARAMS
) -> dict[str, object]:
    """Fill the parameters of a disk of a template, over those that its group gives to it.

    Args:
        group: None for a disk that is in no group, so that the cluster's count.
    """
    return _fill(
        parameters.DISKPARAMS.get(template, {}),
        cluster.diskparams.get(template, _NO_PARAMS),
        group.diskparams.get(template, _NO_PARAMS) if group is not None else _NO_PARAMS,
        own,
    )


def fill_all_diskparams(cluster: Cluster, group: NodeGroup) -> dict[str, dict[str, object]]:
    """Fill the disk parameters of a group for every template."""
    return {
        template: fill_diskparams(cluster, group, template) for template in parameters.DISKPARAMS
    }


def fill_ipolicy_over(filled: Params, own: Params) -> dict[str, object]:
    """Lay a partial instance policy over a full one; only ``std`` is merged key by key."""
    policy = {**filled, **own}
    std, own_std = filled.get("std"), own.get("std")
    if isinstance(std, Mapping) and isinstance(own_std, Mapping):
        policy["std"] = {**std, **own_std}
    return policy


def fill_cluster_ipolicy(cluster: Cluster) -> dict[str, object]:
    """Fill the instance policy of the cluster."""
    return fill_ipolicy_over(parameters.IPOLICY_DEFAULTS, cluster.ipolicy)


def fill_ipolicy(cluster: Cluster, group: NodeGroup) -> dict[str, object]:
    """Fill the instance policy of a group."""
    return fill_ipolicy_over(fill_cluster_ipolicy(cluster), group.ipolicy)
