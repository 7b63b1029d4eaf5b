"""Make a new instance.

Everything is decided and checked first, by node calls that change nothing; then the work goes on
step by step, each step pushing its undo, so that any failure leaves no disk, no file, no
reservation and no entry in the configuration behind.

Only the instance's own name is locked exclusively.  The node is locked shared: any number of
creations go on at the same time, also on one node; that they do not use the same memory twice is
seen to by reservations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from ganeti.base.errors import OpPrereqError, TagError, refusing, wrong_state
from ganeti.base.ids import InstanceUuid
from ganeti.base.text import shown
from ganeti.logical_units import lookup
from ganeti.logical_units.allocator.placing import still_usable
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.cluster import communication
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.instance import isolated, parameters
from ganeti.logical_units.instance.base import check_pair, check_takes_instances
from ganeti.logical_units.instance.changes import nics
from ganeti.logical_units.instance.creation import sources
from ganeti.logical_units.instance.creation.building import Creation, build
from ganeti.logical_units.instance.creation.choosing import check_one_way, choose_for_new
from ganeti.logical_units.instance.guest import (
    check_hvparams_on,
    check_os,
    check_os_scripts,
    reserve_memory,
    space_on_node_mib,
)
from ganeti.logical_units.instance.names import check_ip_free, check_name_free, new_name
from ganeti.logical_units.instance.storage import planning
from ganeti.logical_units.instance.storage.files import file_place
from ganeti.logical_units.instance.storage.planner import SIZE_UNKNOWN
from ganeti.logical_units.instance.view import InstanceView
from ganeti.logical_units.locks import LockLevel, LockNeed, exclusive, shared
from ganeti.objects.disk_templates import DiskTemplate, traits_of
from ganeti.objects.fill import (
    cluster_hvparams,
    fill_beparams,
    fill_hvparams,
    fill_nicparams,
    fill_osparams,
    fill_osparams_all,
)
from ganeti.objects.model import AdminState, Disk, Instance, Network, Node, NodeGroup
from ganeti.objects.nic import NIC
from ganeti.objects.record import PrivateParams
from ganeti.objects.tags import add_tags
from ganeti.opcodes.instance import InstanceCreateMode, OpInstanceCreate


@dataclass(frozen=True, slots=True)
class Wanted:
    """An instance that is to be made, as far as names decide it.

    Attributes:
        op: the opcode, its unset parameters taken from the export or the planned instance.
        resolved_ip: the address of its name, where the name was resolved.
        networks: the networks of the NICs, by the names used there.
        nodes: the primary one, then the secondary one; none until an allocator has chosen them.
        planned: the forthcoming instance that is to be made.
    """

    op: OpInstanceCreate
    name: str
    resolved_ip: str | None
    networks: Mapping[str, Network]
    nodes: Sequence[Node]
    export: sources.Export | None
    planned: InstanceView | None

    @property
    def primary(self) -> Node:
        """The node that it is put on."""
        assert self.nodes, "it is placed before anybody asks"
        return self.nodes[0]

    @property
    def planned_nics(self) -> list[NIC]:
        """The NICs of the planned instance, which have their addresses already."""
        return self.planned.instance.nics if self.planned else []


class LUInstanceCreate(LogicalUnit[OpInstanceCreate, Wanted, Creation]):
    """Make a new instance, install its operating system, start it."""

    hooks = HookPoint("instance-add", ObjectType.INSTANCE)

    def resolve(self) -> Wanted:
        """Decide the name, and look the node up if one is named."""
        op = self.op
        sources.check_options(op)
        export = planned = None
        if op.commit:
            planned = sources.find_planned(self.context, op.instance_name)
            op = sources.filled_from_planned(op, planned)
        if op.mode is InstanceCreateMode.IMPORT:
            export = sources.find_export(self.context, op)
            op = sources.filled_from_export(op, export)
        if planned is not None:
            name, resolved_ip = planned.instance.name, None
        else:
            name, resolved_ip = new_name(self.context, op, self.op.instance_name)
        left_out = sources.tags_left_out(self.op, export, name)
        if left_out:
            op = structs.replace(op, tags=[tag for tag in op.tags if tag not in left_out])
        op = communication.with_interface(self.cluster, op, name)
        nodes = self._named_nodes(op, name)
        networks = nics.named_networks(self.config, op.nics)
        return Wanted(op, name, resolved_ip, networks, nodes, export, planned)

    def _named_nodes(self, op: OpInstanceCreate, name: str) -> list[Node]:
        what = f"instance {name!r}"
        named = op.pnode_uuid or op.pnode
        check_one_way(what, node=op.pnode or named, iallocator=op.iallocator)
        if named is None:
            return []
        if op.opportunistic_locking:
            raise OpPrereqError(
                f"{what}: --opportunistic-locking is for an allocator to choose among the free"
                " nodes; do not give a node as well"
            )
        if op.explain:
            raise OpPrereqError(
                f"{what}: --explain is about the choice of an allocator, and the node is given;"
                " leave one of them out"
            )
        second = op.snode_uuid or op.snode
        keys = [named, second] if second and self._has_second(op) else [named]
        return [lookup.require_node(self.config, key) for key in keys]

    def _has_second(self, op: OpInstanceCreate) -> bool:
        templates = planning.templates_of(self.cluster, op.disk_template, op.disks)
        return any(each.traits.mirrored for each in templates)

    def place(self, found: Wanted, earlier: Wanted | None) -> Wanted:
        """Have an allocator choose the nodes, unless they were named; room on them is reserved."""
        if found.nodes:
            return found
        if earlier is None:
            return replace(found, nodes=self._choose_nodes(found))
        nodes = still_usable(self.config, earlier.nodes)
        # Locks are held by now: no more of them can be tried.
        op = structs.replace(found.op, opportunistic_locking=False)
        return replace(found, nodes=nodes or self._choose_nodes(replace(found, op=op)))

    def _choose_nodes(self, found: Wanted) -> list[Node]:
        self._check_name_free(found)
        op = sources.with_planned_disks(found.op, found.planned)
        start = op.start and not (op.no_install or op.forthcoming)
        source = [found.export.node] if found.export else []
        return choose_for_new(
            self.context, self.cluster, op, found.name, start=start, source=source
        )

    def locks(self, found: Wanted) -> LockNeed:
        """Lock the new name and where disks are made exclusively, nodes and networks shared."""
        own = [node.uuid for node in found.nodes]
        source = [found.export.node.uuid] if found.export else []
        template = found.op.disk_template or self.cluster.enabled_disk_templates[0]
        makes_disks = traits_of(template).has_disks and not found.op.forthcoming
        return (
            exclusive(LockLevel.INSTANCE, [found.name])
            | shared(LockLevel.NODE, [*own, *source])
            | exclusive(LockLevel.NODE_RES, own if makes_disks else [])
            | nics.network_locks(found.networks.values())
        )

    # Conditions that must hold before anything is made.

    def plan(self, found: Wanted) -> Creation:
        """Decide everything, and ask the node whether it can be done."""
        found = replace(found, planned=self._check_name_free(found))
        self._check_node(found)
        op, node = found.op, found.primary
        if (op.snode or op.snode_uuid) and not self._has_second(op):
            words = ", ".join(planning.templates_of(self.cluster, op.disk_template, op.disks))
            self.context.warn(f"the secondary node is ignored for disk template {words}")
        group = lookup.require_group(self.config, node.group)
        start = self._decide_start()
        disks = self._plan_disks(found, group)
        instance = self._plan_settings(found, group, disks, start=start)
        planning.check_formats(instance.hypervisor, disks)
        adopted = self._adopted(disks)
        disks = planning.check_on_nodes(self.context, found.nodes, disks)
        if found.planned is None or not sources.keeps_disks(op, found.planned):
            planning.check_spindles(self.context, node, disks, adopted)
        ignore = self.op.ignore_ipolicy
        parameters.check_policy(self.context, self.cluster, group, instance, disks, ignore=ignore)
        private = instance.osparams_private
        osparams = fill_osparams_all(
            self.cluster, instance.os, instance.osparams, private, op.osparams_secret
        )
        install = self._decide_install(found, instance, adopted)
        limits = self._decide_isolated(found, instance) if install else None
        if not op.forthcoming:
            boots = start or limits is not None
            self._check_on_node(found, instance, disks, osparams, installs=install, boots=boots)
            if self.op.ip_check:
                check_ip_free(found.name, found.resolved_ip)
        settled = nics.settle_addresses(
            self.config, found.planned_nics, instance.nics, conflicts_check=op.conflicts_check
        )
        networks = {str(network.uuid): network for network in found.networks.values()}
        instance = structs.replace(instance, nics=settled)
        return Creation(
            InstanceView(
                self.cluster,
                instance,
                [planning.settle(self.context, disk) for disk in disks],
                list(found.nodes),
                self._groups(found.nodes, group),
                networks,
            ),
            op,
            osparams,
            install=install,
            isolated=limits,
            start=start,
            export=found.export,
            planned=found.planned,
            adopted=adopted,
        )

    def _groups(self, nodes: Sequence[Node], first: NodeGroup) -> list[NodeGroup]:
        """Return the groups of the nodes; the first one's is known."""
        others = {node.group for node in nodes} - {first.uuid}
        return [first, *(lookup.require_group(self.config, uuid) for uuid in sorted(others))]

    def _adopted(self, disks: Sequence[Disk]) -> list[str]:
        """Return the UUIDs of the disks that are there already.

        Raises:
            OpPrereqError: the instance is only planned, so they could be gone later.
        """
        found = [disk for disk in disks if disk.size == SIZE_UNKNOWN]
        if self.op.forthcoming and not all(disk.traits.must_adopt for disk in found):
            raise OpPrereqError("disks cannot be adopted by an instance that is only planned")
        return [disk.uuid for disk in found]

    def _check_name_free(self, found: Wanted) -> InstanceView | None:
        """Refuse a name that is taken; returns the planned instance as it is now."""
        if found.planned is not None:
            return sources.still_planned(self.context, found.planned)
        check_name_free(self.context, found.name)
        return None

    def _check_node(self, found: Wanted) -> None:
        node = found.primary
        check_takes_instances(node, f"put instance {found.name!r} on")
        templates = planning.templates_of(self.cluster, found.op.disk_template, found.op.disks)
        if found.planned and sources.keeps_disks(found.op, found.planned):
            templates = [DiskTemplate(each) for each in found.planned.templates]
        check_pair(self.context, f"instance {found.name!r}", found.nodes, templates)
        if found.op.group_name is not None:
            wanted = lookup.require_group(self.config, found.op.group_name)
            if wanted.uuid != node.group:
                raise OpPrereqError(f"node {node.name!r} is not in node group {wanted.name!r}")

    def _decide_start(self) -> bool:
        if self.op.forthcoming:
            return False
        if self.op.no_install and self.op.start:
            self.context.info("no-installation mode selected, disabling startup")
            return False
        return self.op.start

    def _decide_install(self, found: Wanted, instance: Instance, adopted: Sequence[str]) -> bool:
        """Tell whether the operating system is installed: never over adopted data."""
        if self.op.forthcoming or not instance.os or self.op.no_install or found.export is not None:
            return False
        if adopted:
            self.context.info(
                "adopted disks keep their data, so the operating system is not installed;"
                f" 'gnt-instance reinstall {found.name}' does that"
            )
            return False
        return True

    def _decide_isolated(self, found: Wanted, instance: Instance) -> isolated.Limits | None:
        """Return the limits of the machine that installs it, None if a node's script does."""
        op = self.op
        limits = isolated.limits_of(op.helper_startup_timeout, op.helper_shutdown_timeout)
        cluster, node = self.cluster, found.primary
        hypervisor = instance.hypervisor
        if isolated.is_needed(self.context, cluster, node, hypervisor, instance.os):
            return limits
        return None

    def _plan_disks(self, found: Wanted, group: NodeGroup) -> list[Disk]:
        op, nodes = found.op, found.nodes
        planned = sources.planned_disks(op, found.planned, nodes) if found.planned else None
        if planned is not None:
            return planned
        directory, driver = op.file_storage_dir, op.file_driver
        templates = planning.templates_of(self.cluster, op.disk_template, op.disks)
        of_files = [each for each in templates if each.traits.is_file] or templates
        places = {
            each: file_place(self.cluster, group, each, found.name, directory, driver)
            for each in of_files
        }
        usual = planning.choose_template(self.cluster, op.disk_template)
        planned_anew = planning.plan_disks(self.cluster, usual, op.disks, group)
        new_uuid = self.context.new_uuid
        return [
            planning.describe_disk(disk, index, places.get(disk.template), nodes, new_uuid)
            for index, disk in enumerate(planned_anew)
        ]

    def _plan_settings(
        self, found: Wanted, group: NodeGroup, disks: Sequence[Disk], *, start: bool
    ) -> Instance:
        op = found.op
        hypervisor = str(op.hypervisor or self.cluster.enabled_hypervisors[0])
        parameters.check_hypervisor_enabled(self.cluster, hypervisor)
        connections = nics.read_connections(
            self.config,
            self.cluster,
            group,
            found.networks,
            resolved_ip=found.resolved_ip,
            conflicts_check=op.conflicts_check,
        )
        planned_nics = nics.plan_nics(connections, op.nics, self.context.new_uuid)
        nics.check_places(self.config, self.cluster, found.planned_nics, planned_nics)
        new_uuid = InstanceUuid(self.context.new_uuid())
        with refusing(TagError):
            tags = add_tags([], op.tags)
        hvparams = parameters.check_hvparams(hypervisor, op.hvparams)
        beparams = parameters.check_beparams(op.beparams)
        private = op.osparams_private or PrivateParams()
        instance = Instance(
            name=found.name,
            uuid=found.planned.instance.uuid if found.planned else new_uuid,
            primary_node=found.primary.uuid,
            os=self._os_name(found),
            hypervisor=hypervisor,
            hvparams=parameters.without_defaults(hvparams),
            beparams=parameters.without_defaults(beparams),
            osparams=parameters.without_defaults(op.osparams),
            osparams_private=PrivateParams(parameters.without_defaults(private.reveal())),
            admin_state=AdminState.UP if start else AdminState.DOWN,
            nics=planned_nics,
            disks=[disk.uuid for disk in disks],
            disks_active=False,
            serial_no=1,
            tags=tags,
        )
        filled = fill_beparams(self.cluster, instance)
        parameters.check_filled_beparams(filled)
        parameters.check_processors(fill_hvparams(self.cluster, instance), filled["vcpus"])
        return self._without_default_values(instance) if op.identify_defaults else instance

    def _without_default_values(self, instance: Instance) -> Instance:
        bare = structs.replace(instance, hvparams={}, beparams={})
        hv_defaults = fill_hvparams(self.cluster, bare)
        be_defaults: Mapping[str, object] = {**fill_beparams(self.cluster, bare)}
        nic_defaults: Mapping[str, object] = {**fill_nicparams(self.cluster, {})}
        return structs.replace(
            instance,
            hvparams=_different(instance.hvparams, hv_defaults),
            beparams=_different(instance.beparams, be_defaults),
            osparams=_different(instance.osparams, fill_osparams(self.cluster, instance.os)),
            nics=[
                # In a network they are those of its connection.
                nic
                if nic.network
                else structs.replace(nic, nicparams=_different(nic.nicparams, nic_defaults))
                for nic in instance.nics
            ],
        )

    def _os_name(self, found: Wanted) -> str:
        os_type = found.op.os_type
        if os_type is None:
            if self.op.no_install or found.export is not None:
                return ""
            raise OpPrereqError(
                f"instance {found.name!r}: no operating system was given; give one with -o (see"
                " 'gnt-os list'), or use --no-install"
            )
        if os_type in self.cluster.blacklisted_os:
            raise wrong_state(f"operating system {os_type!r} is blacklisted on this cluster")
        return os_type

    def _check_on_node(
        self,
        found: Wanted,
        instance: Instance,
        disks: Sequence[Disk],
        osparams: PrivateParams,
        *,
        installs: bool,
        boots: bool,
    ) -> None:
        context, node, hypervisor = self.context, found.primary, instance.hypervisor
        check_hvparams_on(context, found.nodes, hypervisor, fill_hvparams(self.cluster, instance))
        if instance.os and not self.op.no_install:
            check_os(
                context,
                node,
                instance.os,
                osparams,
                hypervisor=hypervisor,
                installs=self.op.mode is InstanceCreateMode.CREATE,
                isolates=not installs or bool(self.cluster.install_image),
                force_variant=self.op.force_variant,
            )
        if instance.os and self.op.mode is not InstanceCreateMode.CREATE:
            export = found.export
            exported = export.description.name if export else self.op.source_instance_name
            scripts = ["import"] if exported == found.name else ["import", "rename"]
            check_os_scripts(context, node, instance.os, *scripts)
        nics.check_bridges(context, node, nics.bridges_of(self.cluster, instance.nics))
        if boots:
            reserve_memory(
                context,
                found.nodes,
                f"instance {found.name!r}",
                fill_beparams(self.cluster, instance)["maxmem"],
                hypervisor,
                cluster_hvparams(self.cluster).get(hypervisor, {}),
                disk_mib=space_on_node_mib((disk.dev_type, disk.size) for disk in disks),
            )

    # Hooks and work.

    def hook_nodes(self, plan: Creation) -> Sequence[Node]:
        return [self.master, *plan.view.nodes]

    def hook_values(self, plan: Creation) -> Mapping[str, object]:
        """Tell about the instance to be."""
        values: dict[str, object] = {**plan.view.env(), "ADD_MODE": self.op.mode.value}
        if plan.export is not None:
            dumps = [disk.dump for disk in plan.export.description.disks]
            values |= {
                "SRC_NODE": plan.export.node.name,
                "SRC_PATH": plan.export.path,
                "SRC_IMAGES": " ".join(dumps),
            }
        return values

    def rehearsal(self, plan: Creation) -> list[str]:
        """Return the names of the nodes that would have it."""
        return [node.name for node in plan.view.nodes]

    def execute(self, plan: Creation) -> list[str]:
        """Make the instance, or only plan it; returns the names of its nodes."""
        left_out = sources.tags_left_out(self.op, plan.export, plan.view.name)
        if left_out:
            self.context.info(
                f"{plan.view.name} does not get the tags {shown(left_out)} of the export;"
                " 'gnt-backup set-policy' gives it a policy of backups"
            )
        if self.op.forthcoming:
            sources.plan_only(self.context, plan.view)
        else:
            build(self.context, plan)
        self.context.created(f"instance {plan.view.name}", plan.view.instance.uuid)
        return self.rehearsal(plan)


def _different(values: Mapping[str, object], defaults: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if defaults.get(name) != value}
