"""How disks are asked for, named and checked, by template: the part of it on the master.

The class `Planner` is enough for a template whose disks are named by us and have no settings of
their own.  Others have a class here, and a row in `_PLANNERS`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from msgspec import structs

from ganeti.base.errors import ErrorCode, NotSupportedError, OpPrereqError, wrong_state
from ganeti.base.ids import DiskUuid
from ganeti.logical_units import lookup
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.parameters import check_enabled, device_name
from ganeti.logical_units.instance.storage.drbd_disks import DrbdDisks
from ganeti.logical_units.instance.storage.files import file_of
from ganeti.logical_units.instance.storage.lvm_disks import PlainDisks, has_exclusive_storage
from ganeti.logical_units.instance.storage.planner import (
    DEV_TYPE,
    SIZE_AUTO,
    SIZE_UNKNOWN,
    DiskSettings,
    FilePlace,
    NewDisk,
    Planner,
)
from ganeti.objects.disk_templates import (
    ADOPTABLE_BLOCKDEV_ROOT,
    BLOCKDEV_DRIVER,
    DISKS_MAX,
    FORMAT,
    DiskFormat,
    DiskMode,
    DiskTemplate,
    StorageType,
    supported_templates,
    traits_of,
)
from ganeti.objects.fill import fill_cluster_ipolicy
from ganeti.objects.hypervisors import Hypervisor
from ganeti.objects.instance_policy import standard_disk_mib
from ganeti.objects.model import Cluster, Disk, Node, NodeGroup
from ganeti.objects.parameters import DISK_SETTINGS
from ganeti.objects.rpc_instance import build_rpc_disk
from ganeti.protocol.node_calls import NodeCalls

_MADE_NAME: Final = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(\.[a-z]+)?\.disk\d+(_data|_meta)?"
)


class AdoptedDisks(Planner):
    """Devices that were there before the instance."""

    def plan(self, what: str, settings: DiskSettings, new: NewDisk) -> NewDisk:
        path = settings.get("adopt")
        if not isinstance(path, str):
            raise OpPrereqError(
                f"{what}: disk template {str(self.template)!r} adopts devices (adopt=/dev/...)"
            )
        if posixpath.normpath(path) != path or not path.startswith(ADOPTABLE_BLOCKDEV_ROOT):
            raise OpPrereqError(
                f"{what}: device {path!r} cannot be adopted; give one below"
                f" {ADOPTABLE_BLOCKDEV_ROOT}"
            )
        return replace(new, adopt=path)

    def make(self, disk: Disk, new: NewDisk, name: str, place: FilePlace | None) -> Disk:
        return structs.replace(disk, logical_id=[BLOCKDEV_DRIVER, new.adopt])

    def settings_of(self, disk: Disk) -> dict[str, str | int]:
        return {"adopt": disk.part("path"), "mode": disk.mode.value}

    def check_on_node(self, context: JobContext, node: Node, disks: Sequence[Disk]) -> list[Disk]:
        """Refuse devices that are taken or are not there; returns the disks with their sizes."""
        own = [disk for disk in disks if disk.dev_type == self.template]
        paths = [disk.part("path") for disk in own]
        _check_free(context, own, paths)
        sizes = _sizes(context, node, paths)
        return [
            structs.replace(disk, size=sizes[disk.part("path")]) if disk in own else disk
            for disk in disks
        ]


def _check_free(context: JobContext, own: Sequence[Disk], paths: Sequence[str]) -> None:
    for path in paths:
        if paths.count(path) > 1:
            raise OpPrereqError(f"device {path} is named twice", ErrorCode.NOTUNIQUE)
    uuids = {disk.uuid for disk in own}
    for disk in lookup.present(context.config.get_disks(None)):
        if disk.uuid in uuids or not disk.traits.must_adopt:
            continue
        if disk.part("path") in paths:
            raise OpPrereqError(
                f"device {disk.part('path')} is used by disk {disk.uuid} already",
                ErrorCode.NOTUNIQUE,
            )


def _sizes(context: JobContext, node: Node, paths: Sequence[str]) -> dict[str, int]:
    """Return {path: size in MiB}, none of which is missing."""
    # The call is one of many nodes: its answer is that of each.
    result = context.nodes.call_all(NodeCalls.bdev_sizes, [node], list(paths))[node.name]
    if result.error is not None:
        raise OpPrereqError(
            f"cannot look at devices on node {node.name!r}: {result.error}", ErrorCode.ENVIRON
        )
    found = result.payload if isinstance(result.payload, Mapping) else {}
    for path in paths:
        if not isinstance(found.get(path), int) or found[path] <= 0:
            raise OpPrereqError(
                f"{path} is not a block device of node {node.name!r}", ErrorCode.NOENT
            )
    return {path: int(found[path]) for path in paths}


class ExternalDisks(Planner):
    """Volumes of a provider, with parameters of its own."""

    def plan(self, what: str, settings: DiskSettings, new: NewDisk) -> NewDisk:
        provider = settings.get("provider")
        if not isinstance(provider, str):
            raise OpPrereqError(
                f"{what}: disk template {str(self.template)!r} needs a provider (provider=...);"
                " see 'gnt-storage diagnose'"
            )
        params = {name: value for name, value in settings.items() if name not in DISK_SETTINGS}
        return replace(new, provider=provider, params={**params, **(new.params or {})})

    def make(self, disk: Disk, new: NewDisk, name: str, place: FilePlace | None) -> Disk:
        return structs.replace(disk, logical_id=[new.provider, name])

    def settings_of(self, disk: Disk) -> dict[str, str | int]:
        return {**super().settings_of(disk), "provider": disk.part("provider")}

    def check_on_node(self, context: JobContext, node: Node, disks: Sequence[Disk]) -> list[Disk]:
        """Refuse providers that the node does not have, and parameters that they do not know."""
        answer = context.nodes.check(
            node, "list the external storage providers"
        ).extstorage_diagnose()
        known: dict[str, tuple[bool, str, list[str]]] = {}
        for row in answer:
            match row:
                case [str(name), _path, bool(is_well), str(problem), [*parameters]]:
                    found = [str(pair[0]) for pair in parameters if isinstance(pair, list)]
                    known.setdefault(name, (is_well, problem, found))
        for index, disk in enumerate(disks):
            if disk.dev_type == self.template:
                _check_volume(f"disk/{index}", node, disk, known)
        return list(disks)


def _check_volume(
    what: str, node: Node, disk: Disk, known: Mapping[str, tuple[bool, str, list[str]]]
) -> None:
    provider = str(disk.logical_id[0])
    if provider not in known:
        names = ", ".join(sorted(known)) or "none"
        raise OpPrereqError(
            f"{what}: external storage provider {provider!r} is not on node {node.name!r}; it has:"
            f" {names}",
            ErrorCode.NOENT,
        )
    is_well, problem, parameters = known[provider]
    if not is_well:
        raise OpPrereqError(
            f"{what}: external storage provider {provider!r} on node {node.name!r} is broken:"
            f" {problem}",
            ErrorCode.ENVIRON,
        )
    unknown = sorted(set(disk.params or {}) - {"access", *parameters})
    if unknown:
        raise OpPrereqError(
            f"{what}: {', '.join(unknown)}: not known to external storage provider {provider!r};"
            f" it has: {', '.join(sorted(parameters)) or 'no parameters'}"
        )


class FileDisks(Planner):
    """Files below a directory of the cluster; one that is adopted stays where it is."""

    def plan(self, what: str, settings: DiskSettings, new: NewDisk) -> NewDisk:
        path = settings.get("adopt")
        if path is None:
            return new
        if not isinstance(path, str) or posixpath.normpath(path) != path or path[:1] != "/":
            raise OpPrereqError(f"{what}: adopt: {path!r} is not the absolute path of a file")
        return replace(new, adopt=path)

    def make(self, disk: Disk, new: NewDisk, name: str, place: FilePlace | None) -> Disk:
        assert place is not None, "`file_place` returns one for templates of files"
        params = dict(new.params or {})
        usual = DiskFormat.RAW if new.adopt else place.format
        if params.setdefault(FORMAT, usual.value) == DiskFormat.RAW:
            del params[FORMAT]  # a file without it is raw
        path = new.adopt or f"{place.directory}/{name}"
        return structs.replace(disk, logical_id=[place.driver.value, path], params=params)

    def check_on_node(self, context: JobContext, node: Node, disks: Sequence[Disk]) -> list[Disk]:
        """Refuse files to be adopted that are taken, not there or not allowed; adds their sizes."""
        own = [each for each in disks if each.dev_type == self.template]
        adopted = [disk for disk in own if disk.size == SIZE_UNKNOWN]
        if not adopted:
            return list(disks)
        _check_files_free(context, node, adopted)
        cluster, group = (
            context.config.get_cluster(),
            lookup.require_group(context.config, node.group),
        )
        wires = [build_rpc_disk(cluster, group, disk) for disk in adopted]
        answer = context.nodes.check(node, "look at the files to be adopted")
        sizes = {}
        for disk, found in zip(adopted, answer.blockdev_getdimensions(wires), strict=True):
            what = f"file {disk.part('path')} of node {node.name!r}"
            if found is None:
                raise OpPrereqError(f"there is no {what}", ErrorCode.NOENT)
            size_mib, rest = divmod(found[0], _MIB)
            if rest or not size_mib:
                raise OpPrereqError(
                    f"{what} has {found[0]} bytes, which is no number of MiB; enlarge it with"
                    " 'truncate --size=%1M', or 'qemu-img resize' if it is an image"
                )
            sizes[disk.uuid] = size_mib
        return [structs.replace(disk, size=sizes.get(disk.uuid, disk.size)) for disk in disks]


_MIB: Final = 1 << 20


def _check_files_free(context: JobContext, node: Node, adopted: Sequence[Disk]) -> None:
    """Refuse a file that is named twice, or that is a disk already.

    Raises:
        OpPrereqError: names it.
    """
    paths = [disk.part("path") for disk in adopted]
    for path in paths:
        if paths.count(path) > 1:
            raise OpPrereqError(f"file {path} is named twice", ErrorCode.NOTUNIQUE)
    uuids = {disk.uuid for disk in adopted}
    for disk in lookup.present(context.config.get_disks(None)):
        is_here = disk.traits.shared or node.uuid in disk.nodes
        if disk.uuid not in uuids and is_here and file_of(disk) in paths:
            raise OpPrereqError(
                f"file {file_of(disk)} is disk {disk.uuid} already", ErrorCode.NOTUNIQUE
            )


# Templates whose disks have settings, names or checks of their own.
_PLANNERS: Final[Mapping[DiskTemplate, type[Planner]]] = {
    DiskTemplate.BLOCKDEV: AdoptedDisks,
    DiskTemplate.DRBD: DrbdDisks,
    DiskTemplate.EXT: ExternalDisks,
    DiskTemplate.FILE: FileDisks,
    DiskTemplate.GLUSTER: FileDisks,
    DiskTemplate.PLAIN: PlainDisks,
    DiskTemplate.SHAREDFILE: FileDisks,
}


def planner_of(template: str) -> Planner:
    """Return how the disks of a template are planned."""
    known = DiskTemplate(template)
    return _PLANNERS.get(known, Planner)(known)


def choose_template(cluster: Cluster, asked: str | None) -> DiskTemplate:
    """Return the disk template asked for, or the cluster's first.

    Raises:
        OpPrereqError: it is not enabled, or not supported.
    """
    template = asked or cluster.enabled_disk_templates[0]
    enabled = [str(name) for name in cluster.enabled_disk_templates]
    check_enabled("disk template", template, enabled, "--enabled-disk-templates")
    if not traits_of(template).is_supported:
        known = ", ".join(supported_templates())
        raise NotSupportedError(
            f"disk template {str(template)!r} is not supported yet; supported are: {known}"
        )
    return DiskTemplate(template)


def templates_of(
    cluster: Cluster, asked: str | None, settings: Iterable[DiskSettings]
) -> list[DiskTemplate]:
    """Return the templates that the disks of a new instance are to have, each once.

    Args:
        asked: that of the disks which name none (``dev_type``).

    Raises:
        OpPrereqError: one is not enabled, or not supported.
    """
    usual = choose_template(cluster, asked)
    return list(dict.fromkeys(_own_template(cluster, usual, each) for each in settings)) or [usual]


def _own_template(cluster: Cluster, usual: DiskTemplate, settings: DiskSettings) -> DiskTemplate:
    own = settings.get(DEV_TYPE)
    return choose_template(cluster, str(own)) if own else usual


def plan_disks(
    cluster: Cluster,
    template: DiskTemplate,
    settings: Sequence[DiskSettings],
    group: NodeGroup | None = None,
) -> list[NewDisk]:
    """Check the disks asked for; one without a size, or of size ``auto``, has the standard size.

    Args:
        template: that of the disks that name none.
        group: the node group of the instance, once it is known.

    Raises:
        OpPrereqError: one of them cannot be; names it by its index.
    """
    if not template.traits.has_disks and settings:
        raise OpPrereqError(
            "an instance with disk template 'diskless' cannot have disks; give another template"
            " with -t, or no disks"
        )
    if template.traits.has_disks and not settings:
        raise OpPrereqError(
            f"disk template {str(template)!r} needs at least one disk (--disk 0:size=..., or"
            ' "disks" in a file)'
        )
    if len(settings) > DISKS_MAX:
        raise OpPrereqError(
            f"an instance can have at most {DISKS_MAX} disks, {len(settings)} were given",
            ErrorCode.NORES,
        )
    planned = [
        plan_disk(cluster, _own_template(cluster, template, disk), f"disk/{index}", disk, group)
        for index, disk in enumerate(settings)
    ]
    names = [disk.name for disk in planned if disk.name is not None]
    for name in names:
        if names.count(name) > 1:
            raise OpPrereqError(f"several disks are to be called {name!r}", ErrorCode.NOTUNIQUE)
    return planned


def plan_disk(
    cluster: Cluster,
    template: DiskTemplate,
    what: str,
    settings: DiskSettings,
    group: NodeGroup | None = None,
) -> NewDisk:
    """Check one disk, as `plan_disks`.

    Args:
        what: its name in errors.
    """
    planner = planner_of(template)
    settings = {name: value for name, value in settings.items() if name != DEV_TYPE}
    if settings.get("size", SIZE_AUTO) == SIZE_AUTO and "adopt" not in settings:
        settings = {**settings, "size": standard_disk_mib(fill_cluster_ipolicy(cluster))}
    planner.check_settings(what, settings)
    settings = planner.with_defaults(cluster, group, settings)
    new = NewDisk(
        template=template,
        size_mib=planner.size_mib(what, settings),
        mode=disk_mode(what, settings.get("mode", DiskMode.RW.value)),
        name=device_name(what, settings.get("name")),
        params=planner.own_params(what, settings),
    )
    return planner.plan(what, settings, new)


def check_changeable(what: str, settings: Iterable[str], names: Sequence[str]) -> None:
    """Refuse to change other settings than these.

    Raises:
        OpPrereqError: says which can be changed.
    """
    unknown = sorted(set(settings) - set(names))
    if unknown:
        raise OpPrereqError(
            f"{what}: {', '.join(unknown)} cannot be changed; only {' and '.join(names)} can"
        )


def disk_mode(what: str, mode: object) -> DiskMode:
    """Return whether an instance may write.

    Raises:
        OpPrereqError: it is neither rw nor ro.
    """
    try:
        return DiskMode(str(mode))
    except ValueError as err:
        raise OpPrereqError(f"{what}: the mode must be rw or ro, got {mode!r}") from err


def nodes_of(template: str, nodes: Sequence[Node]) -> list[str]:
    """Return the UUIDs of the nodes that hold a disk: none in particular if all can reach it.

    Args:
        nodes: of the instance, the primary first.
    """
    traits = traits_of(template)
    return [] if traits.shared else [node.uuid for node in nodes[: traits.node_count]]


def on_nodes(disk: Disk, nodes: Sequence[Node]) -> Disk:
    """Return a disk that is to be made, as it is on the nodes of an instance, the primary first."""
    holders = nodes_of(disk.dev_type, nodes)
    children = [structs.replace(child, nodes=holders) for child in disk.children]
    return structs.replace(disk, nodes=holders, children=children)


def describe_disk(
    new: NewDisk,
    index: int,
    place: FilePlace | None,
    nodes: Sequence[Node],
    new_uuid: Callable[[], str],
    *,
    uuid: str | None = None,
) -> Disk:
    """Return the disk object, with the identity of its device decided.

    Args:
        nodes: of the instance, the primary first.
        uuid: that of the disk whose place it takes.
    """
    template = new.template
    holders = nodes_of(template, nodes)
    disk = Disk(
        uuid=DiskUuid(uuid or new_uuid()),
        logical_id=[],
        dev_type=template.value,
        iv_name=f"disk/{index}",
        size=new.size_mib,
        mode=new.mode,
        name=new.name,
        params=dict(new.params or {}),
        spindles=new.spindles,
        nodes=holders,
        children=[
            Disk(
                uuid=DiskUuid(new_uuid()),
                logical_id=[],
                dev_type="",
                size=0,
                nodes=holders,
                serial_no=1,
            )
            for _ in range(template.traits.child_count)
        ],
        serial_no=1,
    )
    infix = "" if template.traits.storage is StorageType.LVM_VG else f".{template.value}"
    name = f"{new_uuid()}{infix}.disk{index}"
    return planner_of(template).make(disk, new, name, place)


def is_made_name(name: str) -> bool:
    """Tell whether a volume or file has a name made for disks, so that it is nobody else's."""
    return _MADE_NAME.fullmatch(name) is not None


def check_formats(hypervisor: str, disks: Iterable[Disk]) -> None:
    """Refuse files of a format that a hypervisor does not read.

    Raises:
        OpPrereqError: names the disk.
    """
    for disk in disks:
        if disk.format is not DiskFormat.RAW and not Hypervisor(hypervisor).traits.reads_images:
            raise OpPrereqError(
                f"{disk.iv_name or disk.uuid}: hypervisor {hypervisor!r} does not read files of"
                f" format {disk.format.value!r}; give format=raw"
            )


def check_on_nodes(context: JobContext, nodes: Sequence[Node], disks: Sequence[Disk]) -> list[Disk]:
    """Let the nodes check disks, before anything is made.

    Args:
        nodes: of the instance, the primary first.

    Returns:
        The disks; existing ones have their sizes.

    Raises:
        OpPrereqError: one is not there, or is taken, or a parameter is not its provider's.
    """
    checked = list(disks)
    for template in dict.fromkeys(disk.dev_type for disk in disks):
        traits = traits_of(template)
        for node in nodes[: traits.node_count]:
            if not traits.takes_physical_volumes and has_exclusive_storage(context, node):
                able = [str(each) for each in DiskTemplate if each.traits.takes_physical_volumes]
                raise wrong_state(
                    f"node {node.name!r} has exclusive storage, which disks of template"
                    f" {template!r} cannot have; only those of {', '.join(able)} can"
                )
            checked = planner_of(template).check_on_node(context, node, checked)
    return checked


def check_spindles(
    context: JobContext, node: Node, disks: Iterable[Disk], adopted: Container[str] = ()
) -> None:
    """Refuse new disks that do not say how many physical volumes of a node they are to have.

    Only nodes with exclusive storage must be told.

    Raises:
        OpPrereqError: names the disk.
    """
    silent = [disk for disk in disks if disk.spindles is None and disk.uuid not in adopted]
    if silent and has_exclusive_storage(context, node):
        raise OpPrereqError(
            f"{silent[0].iv_name}: node {node.name!r} has exclusive storage; say with spindles=N"
            " how many of its physical volumes the disk is to have"
        )


def settle(context: JobContext, disk: Disk) -> Disk:
    """Return a disk to be made, with the numbers that WConfD gives out reserved for this job."""
    return planner_of(disk.dev_type).settle(context, disk)
