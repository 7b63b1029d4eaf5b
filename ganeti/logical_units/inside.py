"""What is in the cluster, for decisions about settings that concern all of it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ganeti.logical_units import lookup

if TYPE_CHECKING:
    from ganeti.clients.wconfd_stub import WConfStub
    from ganeti.objects.disk import Disk
    from ganeti.objects.instance import Instance
    from ganeti.objects.node import Node
    from ganeti.objects.nodegroup import NodeGroup


class Inside:
    """What is in the cluster, each kind read once when it is first looked at."""

    def __init__(self, config: WConfStub) -> None:
        self._config = config

    @cached_property
    def nodes(self) -> list[Node]:
        """All nodes."""
        return lookup.all_nodes(self._config)

    @cached_property
    def groups(self) -> list[NodeGroup]:
        """All node groups."""
        return lookup.present(self._config.get_node_groups(None))

    @cached_property
    def instances(self) -> list[Instance]:
        """All instances."""
        return lookup.present(self._config.get_instances(None))

    @cached_property
    def disks(self) -> dict[str, Disk]:
        """All disks, by UUID."""
        return {disk.uuid: disk for disk in lookup.present(self._config.get_disks(None))}
