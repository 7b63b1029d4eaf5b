"""Telling a node what it may tell the guest of an instance, before the guest asks."""

from __future__ import annotations

from collections.abc import Mapping

from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.view import InstanceView
from ganeti.objects.guest_metadata import describe_guest
from ganeti.objects.model import Node
from ganeti.protocol.node_calls import NodeCalls


def bring(
    context: JobContext, view: InstanceView, node: Node, secret: Mapping[str, object] | None = None
) -> None:
    """Bring the metadata of an instance to a node, if it communicates; a failure is told.

    A guest that cannot learn about itself is still a guest: it starts all the same.

    Args:
        secret: parameters of its operating system that were given for this work alone.
    """
    guest = describe_guest(view.cluster, view.instance, view.disks, view.networks, secret)
    if guest is not None:
        doing = f"tell node {node.name!r} the metadata of instance {view.name!r}"
        context.attempt(doing, NodeCalls.instance_metadata_modify, node, guest.to_wire())
