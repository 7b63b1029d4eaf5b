"""Disks of external storage providers: their parameters, and whether a node has the provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace as changed

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.storage.planner import DiskSettings, FilePlace, NewDisk, Planner
from ganeti.objects.disk_templates import DISK_PARAM_NAMES, DiskAccess
from ganeti.objects.model import Disk, Node


class ExternalDisks(Planner):
    """Volumes of a provider, with parameters of its own."""

    def plan(self, what: str, settings: DiskSettings, new: NewDisk) -> NewDisk:
        provider, access = settings.get("provider"), settings.get("access")
        if not isinstance(provider, str):
            raise OpPrereqError(
                f"{what}: disk template {str(self.template)!r} needs a provider (provider=...);"
                " see 'gnt-storage list'"
            )
        params: dict[str, object] = {
            name: value for name, value in settings.items() if name not in DISK_PARAM_NAMES
        }
        if access is not None:
            if access not in tuple(DiskAccess):
                known = " or ".join(DiskAccess)
                raise OpPrereqError(f"{what}: the access mode must be {known}, got {access!r}")
            params["access"] = access
        return changed(new, provider=provider, params=params)

    def make(self, disk: Disk, new: NewDisk, name: str, place: FilePlace | None) -> Disk:
        return replace(disk, logical_id=[new.provider, name])

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
