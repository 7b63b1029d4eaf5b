"""Make a new instance.

Everything is decided and checked first (`plan` modules and node calls that change nothing); then
the work goes on step by step, each step pushing its undo, so that whatever fails leaves no disk, no
file, no reservation and no entry in the configuration behind.

Only the instance's own name is locked exclusively.  The node is locked shared: any number of
creations go on at the same time, also on one node; that they do not use the same memory twice is
seen to by reservations.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, Self

from ganeti.base.errors import ErrorCode, NotSupportedError, OpPrereqError, TagError
from ganeti.base.ids import InstanceUuid
from ganeti.clients.wconfd_values import InstanceContext
from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.host_names import normal_name, resolve
from ganeti.logical_units.instance import forthcoming, new_disks, new_nics
from ganeti.logical_units.instance.building import Plan, build
from ganeti.logical_units.instance.memory import reserve_memory, space_on_node_mib
from ganeti.logical_units.instance.nic_addresses import (
    bridges_of,
    check_places,
    look_around,
    named_networks,
    network_locks,
    settle_addresses,
)
from ganeti.logical_units.instance.outside_disks import check_outside
from ganeti.logical_units.instance.parameters import (
    check_beparams,
    check_cpu_mask,
    check_filled_beparams,
    check_hvparams,
    check_hypervisor_enabled,
    without_defaults,
)
from ganeti.logical_units.instance.policy import check_policy, spec_of
from ganeti.logical_units.instance.subject import Subject
from ganeti.logical_units.lock_plan import LockLevel, LockNeed, exclusive, shared
from ganeti.logical_units.node_calls import ask
from ganeti.objects.admin_state import AdminState
from ganeti.objects.disk_templates import MUST_ADOPT
from ganeti.objects.fill import (
    cluster_hvparams,
    fill_beparams,
    fill_hvparams,
    fill_osparams_all,
)
from ganeti.objects.instance import Instance
from ganeti.objects.private import PrivateParams
from ganeti.objects.rpc_instance import disk_template
from ganeti.objects.tags import add_tags
from ganeti.opcodes.instance import InstanceCreateMode, OpInstanceCreate
from ganeti.protocol.node_rpc import DEFAULT_PORT
from ganeti.protocol.node_rpc_values import OS_CHECK_HYPERVISOR
from ganeti.system.reachable import answers

if TYPE_CHECKING:
    from ganeti.base.ids import NodeUuid
    from ganeti.logical_units.instance.importing import Export
    from ganeti.objects.disk import Disk
    from ganeti.objects.nic import NIC
    from ganeti.objects.node import Node
    from ganeti.objects.nodegroup import NodeGroup

PING_TIMEOUT_S: Final = 10.0  # TCP_PING_TIMEOUT
OS_CHECKS: Final = ["parameters"]

# Parameters of the opcode that mean something which is not built yet: name and what to say.
_NOT_YET: Final = {
    "instance_communication": "instance communication is not supported",
}


class LUInstanceCreate(LogicalUnit[OpInstanceCreate]):
    """Make a new instance, install its operating system, start it."""

    export: Export | None
    planned: Subject | None  # the forthcoming instance that is to be made
    chosen_node: NodeUuid | None = None  # by an allocator

    def expand_names(self) -> None:
        """Decide the name, and look the node up."""
        self._check_supported()
        forthcoming.check_wish(self.op)
        self.export = self.planned = None
        if self.op.commit:
            self.planned = forthcoming.find_planned(self.context, self.op.instance_name)
            self.op = forthcoming.filled_from(self.op, self.planned)
        if self.op.mode is InstanceCreateMode.IMPORT:
            from ganeti.logical_units.instance import importing

            self.export = importing.find_export(self.context, self.op)
            self.op = importing.filled_from(self.op, self.export)
        self.name, self.resolved_ip = self._decide_name()
        self.node = self._decide_node()
        self.networks = named_networks(self.config, self.op.nics)

    def _check_supported(self) -> None:
        for name, text in _NOT_YET.items():
            if getattr(self.op, name):
                raise NotSupportedError(f"instance {self.op.instance_name!r}: {text}")

    def _decide_name(self) -> tuple[str, str | None]:
        if self.planned is not None:
            return self.planned.instance.name, None
        if self.op.name_check:
            return resolve(
                "instance",
                self.op.instance_name,
                self.context.paths,
                "; use --no-name-check if the name need not resolve",
            )
        if self.op.ip_check:
            raise OpPrereqError(
                "the IP address cannot be checked without the name; use --no-ip-check together"
                " with --no-name-check"
            )
        return normal_name("instance", self.op.instance_name), None

    def take_over(self, earlier: Self) -> None:
        """Stay with the node that the allocator chose; room on it is reserved."""
        self.chosen_node = earlier.chosen_node

    def _decide_node(self) -> Node:
        """Look up the node that was named, or have one chosen where the instance has room."""
        from ganeti.logical_units.instance.choosing import check_one_way

        op, what = self.op, f"instance {self.name!r}"
        named = op.pnode_uuid or op.pnode
        check_one_way(what, node=op.pnode or named, iallocator=op.iallocator)
        if named is None:
            return self._chosen_before() or self._choose_node()
        if op.opportunistic_locking:
            raise OpPrereqError(
                f"{what}: --opportunistic-locking is for an allocator to choose among the free"
                " nodes; do not give a node as well",
                ErrorCode.INVAL,
            )
        return lookup.require_node(self.config, named)

    def _chosen_before(self) -> Node | None:
        from ganeti.logical_units.allocator.placing import still_usable

        return still_usable(self.config, self.chosen_node)

    def _choose_node(self) -> Node:
        from ganeti.logical_units.instance.choosing import choose_for_new

        self._check_name_free()
        start = self.op.start and not (self.op.no_install or self.op.forthcoming)
        wanted = forthcoming.with_planned_disks(self.op, self.planned)
        node = choose_for_new(self.context, self.cluster, wanted, self.name, start=start)
        self.chosen_node = node.uuid
        return node

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock the new name exclusively, the node and the networks shared."""
        match level:
            case LockLevel.INSTANCE:
                return exclusive(level, [self.name])
            case LockLevel.NODE:
                source = [self.export.node.uuid] if self.export else []
                return shared(level, [self.node.uuid, *source])
            case LockLevel.NETWORK:
                return network_locks(level, self.networks.values())
            case _:
                return {}

    @cached_property
    def group(self) -> NodeGroup:
        """The node's group."""
        return lookup.require_group(self.config, self.node.group)

    # What must be so before anything is made.

    def check_prereq(self) -> None:
        """Decide everything, and ask the node whether it can be done."""
        self._check_name_free()
        self._check_node()
        self.start = self._decide_start()
        instance, disks, place = self._plan_instance()
        disks = check_outside(self.context, self.node, disks)
        self._check_policy(instance, disks)
        osparams = fill_osparams_all(
            self.cluster,
            instance.os,
            instance.osparams,
            instance.osparams_private,
            self.op.osparams_secret,
        )
        if not self.op.forthcoming:
            self._check_on_node(instance, disks, osparams)
            self._check_ip_free()
        instance = self._with_addresses(instance)
        used = list(self.networks.values())
        subject = Subject(
            InstanceContext(self.cluster, instance, disks, [self.node], [self.group], used)
        )
        self.plan = Plan(
            subject=subject,
            place=place,
            osparams=osparams,
            install=self._decide_install(instance, disks),
            start=self.start,
            reason=self.op.reason,
            debug_level=self.op.debug_level or 0,
            export=self.export,
            compress=self.op.compress,
            planned=self.planned,
        )

    def _check_name_free(self) -> None:
        if self.planned is not None:
            self.planned = forthcoming.still_planned(self.context, self.planned)
        elif lookup.present(self.config.get_instances([self.name])):
            raise OpPrereqError(
                f"instance {self.name!r} is already in the cluster", ErrorCode.EXISTS
            )

    def _check_node(self) -> None:
        node = self.node
        for is_bad, what in (
            (node.offline, "is marked offline"),
            (node.drained, "is drained"),
            (not node.vm_capable, "is not vm_capable"),
        ):
            if is_bad:
                raise OpPrereqError(
                    f"cannot put instance {self.name!r} on node {node.name!r}: it {what}",
                    ErrorCode.STATE,
                )
        if self.op.group_name is not None:
            wanted = lookup.require_group(self.config, self.op.group_name)
            if wanted.uuid != node.group:
                raise OpPrereqError(
                    f"node {node.name!r} is not in node group {wanted.name!r}", ErrorCode.INVAL
                )

    def _decide_start(self) -> bool:
        if self.op.forthcoming:
            return False
        if self.op.no_install and self.op.start:
            self.context.info("no-installation mode selected, disabling startup")
            return False
        return self.op.start

    def _decide_install(self, instance: Instance, disks: Sequence[Disk]) -> bool:
        """Tell whether the operating system is installed: never over what a device holds."""
        if not instance.os or self.op.no_install or self.export is not None:
            return False
        if any(disk.dev_type in MUST_ADOPT for disk in disks):
            self.context.info(
                "adopted devices keep what they hold, so the operating system is not installed;"
                f" 'gnt-instance reinstall {self.name}' does that"
            )
            return False
        return True

    def _plan_instance(self) -> tuple[Instance, list[Disk], new_disks.FilePlace | None]:
        op, cluster = self.op, self.cluster
        template = new_disks.choose_template(cluster, op.disk_template)
        if op.snode or op.snode_uuid:
            self.context.warn(f"the secondary node is ignored for disk template {template.value}")
        if self.planned is not None:
            as_planned = forthcoming.planned_disks(op, self.planned, self.node)
            if as_planned is not None:
                disks, place = as_planned
                return self._instance(disks), disks, place
        place = new_disks.file_place(
            cluster, template, self.name, op.file_storage_dir, op.file_driver
        )
        new_uuid = self.context.new_uuid
        disks = [
            new_disks.make_disk(
                disk,
                index=index,
                template=template,
                uuid=new_uuid(),
                unique_id=new_uuid(),
                place=place,
                nodes=new_disks.nodes_of(template, self.node.uuid),
            )
            for index, disk in enumerate(new_disks.plan_disks(template, op.disks))
        ]
        return self._instance(disks), disks, place

    def _instance(self, disks: Sequence[Disk]) -> Instance:
        op = self.op
        hypervisor = str(op.hypervisor or self.cluster.enabled_hypervisors[0])
        check_hypervisor_enabled(self.cluster, hypervisor)
        nics = new_nics.plan_nics(self._around(), op.nics, self.context.new_uuid)
        check_places(self.config, self.cluster, self._planned_nics, nics)
        new_uuid = InstanceUuid(self.context.new_uuid())
        instance = Instance(
            name=self.name,
            uuid=self.planned.instance.uuid if self.planned else new_uuid,
            primary_node=self.node.uuid,
            os=self._os_name(),
            hypervisor=hypervisor,
            hvparams=without_defaults(check_hvparams(hypervisor, op.hvparams)),
            beparams=without_defaults(check_beparams(op.beparams)),
            osparams=dict(op.osparams),
            osparams_private=op.osparams_private or PrivateParams(),
            admin_state=AdminState.UP if self.start else AdminState.DOWN,
            nics=nics,
            disks=[disk.uuid for disk in disks],
            disks_active=False,
            serial_no=1,
            tags=self._tags(),
        )
        filled = fill_beparams(self.cluster, instance)
        check_filled_beparams(filled)
        check_cpu_mask(fill_hvparams(self.cluster, instance), filled["vcpus"])
        if op.identify_defaults:
            return self._without_default_values(instance)
        return instance

    def _without_default_values(self, instance: Instance) -> Instance:
        from msgspec.structs import replace

        bare = replace(instance, hvparams={}, beparams={})
        hv_defaults = fill_hvparams(self.cluster, bare)
        be_defaults: Mapping[str, object] = {**fill_beparams(self.cluster, bare)}
        return replace(
            instance,
            hvparams=_different(instance.hvparams, hv_defaults),
            beparams=_different(instance.beparams, be_defaults),
        )

    def _os_name(self) -> str:
        if self.op.os_type is None:
            if self.op.no_install or self.export is not None:
                return ""
            raise OpPrereqError(
                f"instance {self.name!r}: no operating system was given; give one with -o (see"
                " 'gnt-os list'), or use --no-install",
                ErrorCode.INVAL,
            )
        if self.op.os_type in self.cluster.blacklisted_os:
            raise OpPrereqError(
                f"operating system {self.op.os_type!r} is blacklisted on this cluster",
                ErrorCode.STATE,
            )
        return self.op.os_type

    def _tags(self) -> list[str]:
        try:
            return add_tags([], self.op.tags)
        except TagError as err:
            raise OpPrereqError(err.message, ErrorCode.INVAL) from err

    def _check_policy(self, instance: Instance, disks: Sequence[Disk]) -> None:
        ignored = check_policy(
            self.cluster,
            self.group,
            self.name,
            spec_of(self.cluster, instance, disks),
            ignore=self.op.ignore_ipolicy,
        )
        if ignored:
            self.context.warn(f"{ignored}; ignoring")

    def _check_on_node(
        self, instance: Instance, disks: Sequence[Disk], osparams: PrivateParams
    ) -> None:
        context, node = self.context, self.node
        ask(
            context,
            node,
            f"use the hypervisor parameters of instance {self.name!r}",
            "hypervisor_validate_params",
            instance.hypervisor,
            fill_hvparams(self.cluster, instance),
            ecode=ErrorCode.INVAL,
        )
        if instance.os and not self.op.no_install:
            ask(
                context,
                node,
                f"use operating system {instance.os!r}",
                "os_validate",
                True,
                instance.os,
                [*OS_CHECKS, OS_CHECK_HYPERVISOR + instance.hypervisor],
                osparams.reveal(),
                self.op.force_variant,
                ecode=ErrorCode.INVAL,
            )
        self._check_bridges(instance)
        if self.start:
            reserve_memory(
                context,
                node,
                f"instance {self.name!r}",
                fill_beparams(self.cluster, instance)["maxmem"],
                instance.hypervisor,
                cluster_hvparams(self.cluster).get(instance.hypervisor, {}),
                disk_mib=space_on_node_mib(disk_template(disks), [disk.size for disk in disks]),
            )

    def _around(self) -> new_nics.Around:
        """Read the networks that the instance could be in."""
        return look_around(
            self.config,
            self.cluster,
            self.group,
            self.networks,
            resolved_ip=self.resolved_ip,
            conflicts_check=self.op.conflicts_check,
        )

    def _check_bridges(self, instance: Instance) -> None:
        bridges = bridges_of(self.cluster, instance.nics)
        if bridges:
            ask(self.context, self.node, "use the bridges of the NICs", "bridges_exist", bridges)

    def _check_ip_free(self) -> None:
        ip = self.resolved_ip if self.op.ip_check else None
        if ip is None or ipaddress.ip_address(ip).is_loopback:
            return
        if answers(ip, DEFAULT_PORT, PING_TIMEOUT_S):
            raise OpPrereqError(
                f"the IP address {ip} of instance {self.name!r} is already in use; use"
                " --no-ip-check if that is known",
                ErrorCode.NOTUNIQUE,
            )

    def _with_addresses(self, instance: Instance) -> Instance:
        """Draw or reserve the addresses; they are given back if nothing comes of it."""
        from msgspec.structs import replace

        nics = settle_addresses(
            self.config,
            self._planned_nics,
            instance.nics,
            conflicts_check=self.op.conflicts_check,
        )
        return replace(instance, nics=nics)

    @property
    def _planned_nics(self) -> list[NIC]:
        return self.planned.instance.nics if self.planned else []

    # Hooks and work.

    def hooks_nodes(self) -> tuple[Sequence[Node], Sequence[Node]]:
        """Run hooks on the master and the new instance's node."""
        return [self.master, self.node], [self.master, self.node]

    def hooks_env(self) -> Mapping[str, object]:
        """Tell about the instance to be."""
        env: dict[str, object] = {**self.plan.subject.env(), "ADD_MODE": self.op.mode.value}
        if self.export is not None:
            dumps = [disk.dump for disk in self.export.description.disks]
            env |= {
                "SRC_NODE": self.export.node.name,
                "SRC_PATH": self.export.path,
                "SRC_IMAGES": " ".join(dumps),
            }
        return env

    def exec(self) -> list[str]:
        """Make the instance, or only plan it; returns the names of its nodes."""
        if self.op.forthcoming:
            forthcoming.plan_only(self.context, self.plan.subject)
        else:
            build(self.context, self.plan)
        return [self.node.name]


def _different(values: Mapping[str, object], defaults: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if defaults.get(name) != value}
