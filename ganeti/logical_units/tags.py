"""Tags of everything: read, search, add, remove."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar

from ganeti.base.errors import ErrorCode, OpPrereqError, ParameterError, TagError
from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.lock_plan import LockLevel, LockNeed, exclusive
from ganeti.objects.tags import TagKind, add_tags, check_tag, remove_tags
from ganeti.opcodes.tags import OpTagsDel, OpTagsGet, OpTagsSearch, OpTagsSet
from ganeti.query.regex import bounded_regex

if TYPE_CHECKING:
    from ganeti.clients.wconfd_stub import WConfStub
    from ganeti.objects.cluster import Cluster
    from ganeti.objects.instance import Instance
    from ganeti.objects.network import Network
    from ganeti.objects.node import Node
    from ganeti.objects.nodegroup import NodeGroup

    Tagged = Cluster | Node | NodeGroup | Instance | Network

TagOpType = TypeVar("TagOpType", bound=OpTagsGet | OpTagsSet | OpTagsDel)

_LEVELS: Final = {
    TagKind.INSTANCE: LockLevel.INSTANCE,
    TagKind.NODE: LockLevel.NODE,
    TagKind.NODEGROUP: LockLevel.NODEGROUP,
    TagKind.NETWORK: LockLevel.NETWORK,
}


def find_tagged(config: WConfStub, kind: TagKind, name: str | None) -> Tagged:
    """Return the object that has the tags.

    Raises:
        OpPrereqError: there is none of that name, or no name was given.
    """
    if kind is TagKind.CLUSTER:
        return config.get_cluster()
    if not name:
        raise OpPrereqError(f"a name is needed for tags of kind {kind.value!r}", ErrorCode.INVAL)
    match kind:
        case TagKind.INSTANCE:
            return lookup.require_instance(config, name)
        case TagKind.NODE:
            return lookup.require_node(config, name)
        case TagKind.NODEGROUP:
            return lookup.require_group(config, name)
        case TagKind.NETWORK:
            return lookup.require_network(config, name)


class _TagsUnit(LogicalUnit[TagOpType]):
    """An operation on the tags of one thing."""

    def expand_names(self) -> None:
        """Look the thing up."""
        self.tagged = find_tagged(self.config, self.op.kind, self.op.name)


class LUTagsGet(_TagsUnit[OpTagsGet]):
    """Answer the tags of a thing."""

    def exec(self) -> list[str]:
        """Return them."""
        return list(self.tagged.tags)


class _TagsChange(_TagsUnit[TagOpType]):
    """A change of the tags of one thing, which is locked exclusively."""

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock the thing; a cluster's tags need no lock."""
        if _LEVELS.get(self.op.kind) is not level:
            return {}
        key = self.tagged.uuid
        if level is LockLevel.INSTANCE:
            key = getattr(self.tagged, "name", key)
        return exclusive(level, [key])


class LUTagsSet(_TagsChange[OpTagsSet]):
    """Add tags."""

    def check_prereq(self) -> None:
        """Refuse tags that are not well-formed, and too many."""
        try:
            add_tags(self.tagged.tags, self.op.tags)
        except TagError as err:
            raise OpPrereqError(err.message, ErrorCode.INVAL) from err

    def exec(self) -> None:
        """Add them."""
        self.config.add_tags(self.op.kind.value, self.tagged.uuid, self.op.tags)


class LUTagsDel(_TagsChange[OpTagsDel]):
    """Remove tags."""

    def check_prereq(self) -> None:
        """Refuse tags that are not well-formed, and those that the thing does not have."""
        try:
            for tag in self.op.tags:
                check_tag(tag)
        except TagError as err:
            raise OpPrereqError(err.message, ErrorCode.INVAL) from err
        try:
            remove_tags(self.tagged.tags, self.op.tags)
        except TagError as err:
            raise OpPrereqError(err.message, ErrorCode.NOENT) from err

    def exec(self) -> None:
        """Remove them."""
        self.config.remove_tags(self.op.kind.value, self.tagged.uuid, self.op.tags)


class LUTagsSearch(LogicalUnit[OpTagsSearch]):
    """Answer (path, tag) of every tag that a regular expression fits."""

    @cached_property
    def matches(self) -> Callable[[str], bool]:
        """The compiled pattern.

        Raises:
            OpPrereqError: it is none, or one that could take too long.
        """
        try:
            return bounded_regex(self.op.pattern)
        except ParameterError as err:
            raise OpPrereqError(err.message, ErrorCode.INVAL) from err

    def expand_names(self) -> None:
        """Refuse a pattern that is none."""
        _ = self.matches

    def exec(self) -> list[tuple[str, str]]:
        """Return the matches."""
        return [
            (path, tag)
            for path, thing in self._everything()
            for tag in thing.tags
            if self.matches(tag)
        ]

    def _everything(self) -> Iterator[tuple[str, Tagged]]:
        config = self.config
        yield "/cluster", self.cluster
        for instance in lookup.present(config.get_instances(None)):
            yield f"/instances/{instance.name}", instance
        for node in lookup.all_nodes(config):
            yield f"/nodes/{node.name}", node
        for group in lookup.present(config.get_node_groups(None)):
            yield f"/nodegroup/{group.name}", group
        for network in lookup.present(config.get_networks(None)):
            yield f"/network/{network.name}", network
