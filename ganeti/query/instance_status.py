"""The status of an instance: the wanted state together with the actual one.

Where an instance was found running decides first: on its primary node, on another one, or nowhere;
then the wanted state.  An instance that its user shut down from inside is not in error.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ganeti.objects import model
from ganeti.objects.hypervisors import Hypervisor
from ganeti.query.context import RunContext
from ganeti.query.fields import NODATA, OFFLINE, Absent
from ganeti.query.view import InstanceLive


class Found(msgspec.Struct, frozen=True):
    """An instance that a node reported."""

    live: InstanceLive
    on_primary: bool

    @property
    def is_running(self) -> bool:
        """False for one that is shut down but still known to the hypervisor."""
        return self.live.state == model.LiveState.RUNNING


def find_live(instance: model.Instance, context: RunContext) -> Found | Absent | None:
    """Find an instance in the answers of the nodes; None if no node has it.

    `OFFLINE` if its primary node is marked offline, `NODATA` if that node did not answer.
    """
    view = context.view
    primary = context.nodes.get(instance.primary_node)
    if primary is not None and primary.offline:
        return OFFLINE
    on_primary = view.instance_live.get(instance.primary_node)
    if on_primary is None:
        return NODATA
    live = on_primary.get(instance.name)
    if live is not None:
        return Found(live, on_primary=True)
    elsewhere = context.live_by_name.get(instance.name)
    return None if elsewhere is None else Found(elsewhere, on_primary=False)


def runs(instance: model.Instance, context: RunContext) -> bool:
    """Tell whether a node said that the instance runs."""
    found = find_live(instance, context)
    return isinstance(found, Found) and found.is_running


def user_may_shut_down(
    cluster: model.Cluster, instance: model.Instance, hvparams: Mapping[str, object]
) -> bool:
    """Tell whether a shutdown from inside is to be taken as meant."""
    if not cluster.enabled_user_shutdown:
        return False
    return instance.hypervisor != Hypervisor.KVM or hvparams.get("user_shutdown") is True


def instance_status(instance: model.Instance, context: RunContext) -> model.InstanceStatus:
    """Tell the status of an instance."""
    found = find_live(instance, context)
    if isinstance(found, Absent):
        offline = found is OFFLINE
        return (
            model.InstanceStatus.ERROR_NODEOFFLINE
            if offline
            else model.InstanceStatus.ERROR_NODEDOWN
        )
    if found is not None and found.is_running:
        if not found.on_primary:
            return model.InstanceStatus.ERROR_WRONGNODE
        if instance.admin_state is model.AdminState.UP:
            return model.InstanceStatus.RUNNING
        return model.InstanceStatus.ERROR_UP
    if instance.admin_state is model.AdminState.OFFLINE:
        return model.InstanceStatus.ADMIN_OFFLINE
    if instance.admin_state is model.AdminState.DOWN:
        by_user = instance.admin_state_source is model.AdminStateSource.USER
        return model.InstanceStatus.USER_DOWN if by_user else model.InstanceStatus.ADMIN_DOWN
    # Meant to be up, but it is not: shut down from inside, or crashed.
    shut_down = found is not None and user_may_shut_down(
        context.cluster, instance, context.hvparams(instance)
    )
    return model.InstanceStatus.USER_DOWN if shut_down else model.InstanceStatus.ERROR_DOWN
