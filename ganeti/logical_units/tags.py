"""Tags of the cluster and its objects: read, search, add, remove."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

from ganeti.base.errors import ErrorCode, OpPrereqError, ParameterError, TagError, refusing
from ganeti.logical_units import lookup
from ganeti.logical_units.base import SimpleUnit
from ganeti.logical_units.locks import LockLevel, LockNeed, exclusive
from ganeti.objects.model import Cluster, Instance, Network, Node, NodeGroup
from ganeti.objects.tags import TagKind, add_tags, check_tag, remove_tags
from ganeti.opcodes.tags import OpTagsDel, OpTagsGet, OpTagsSearch, OpTagsSet
from ganeti.protocol.wconfd import ObjectKind, WConfCalls
from ganeti.query.regex import bounded_regex

Tagged = Cluster | Node | NodeGroup | Instance | Network


TagOpType = TypeVar("TagOpType", bound=OpTagsGet | OpTagsSet | OpTagsDel)

_KINDS: Final[Mapping[TagKind, tuple[LockLevel, Callable[[WConfCalls, str], Tagged]]]] = {
    TagKind.INSTANCE: (LockLevel.INSTANCE, lookup.require_instance),
    TagKind.NODE: (LockLevel.NODE, lookup.require_node),
    TagKind.NODEGROUP: (LockLevel.NODEGROUP, lookup.require_group),
    TagKind.NETWORK: (LockLevel.NETWORK, lookup.require_network),
}


def find_tagged(config: WConfCalls, kind: TagKind, name: str | None) -> Tagged:
    """Return the object that has the tags.

    Raises:
        OpPrereqError: there is none of that name, or no name was given.
    """
    if kind is TagKind.CLUSTER:
        return config.get_cluster()
    if not name:
        raise OpPrereqError(f"a name is needed for tags of kind {kind.value!r}")
    _level, require = _KINDS[kind]
    return require(config, name)


class _TagsUnit(SimpleUnit[TagOpType, Tagged]):
    """An operation on the tags of one object."""

    def resolve(self) -> Tagged:
        return find_tagged(self.config, self.op.kind, self.op.name)


class LUTagsGet(_TagsUnit[OpTagsGet]):
    """Answer the tags of an object."""

    def execute(self, plan: Tagged) -> list[str]:
        return list(plan.tags)


class _TagsChange(_TagsUnit[TagOpType]):
    """A change of the tags of one object, which is locked exclusively."""

    def locks(self, found: Tagged) -> LockNeed:
        """Lock the object; a cluster's tags need no lock."""
        if isinstance(found, Cluster):
            return {}
        level, _require = _KINDS[self.op.kind]
        return exclusive(level, [found.name if isinstance(found, Instance) else found.uuid])


class LUTagsSet(_TagsChange[OpTagsSet]):
    """Add tags."""

    def plan(self, found: Tagged) -> Tagged:
        """Refuse tags that are not well-formed, and too many."""
        with refusing(TagError):
            add_tags(found.tags, self.op.tags)
        return found

    def execute(self, plan: Tagged) -> None:
        self.config.add_tags(ObjectKind(self.op.kind), plan.uuid, self.op.tags)


class LUTagsDel(_TagsChange[OpTagsDel]):
    """Remove tags."""

    def plan(self, found: Tagged) -> Tagged:
        """Refuse tags that are not well-formed, or that the object does not have."""
        with refusing(TagError):
            for tag in self.op.tags:
                check_tag(tag)
        with refusing(TagError, ecode=ErrorCode.NOENT):
            remove_tags(found.tags, self.op.tags)
        return found

    def execute(self, plan: Tagged) -> None:
        self.config.remove_tags(ObjectKind(self.op.kind), plan.uuid, self.op.tags)


TextMatch = Callable[[str], bool]


class LUTagsSearch(SimpleUnit[OpTagsSearch, TextMatch]):
    """Answer (path, tag) of every tag that a regular expression fits."""

    def resolve(self) -> TextMatch:
        """Compile the pattern; refuse one that is malformed or could take too long."""
        with refusing(ParameterError):
            return bounded_regex(self.op.pattern)

    def execute(self, plan: TextMatch) -> list[tuple[str, str]]:
        return [
            (path, tag) for path, tagged in self._everything() for tag in tagged.tags if plan(tag)
        ]

    def _everything(self) -> Iterator[tuple[str, Tagged]]:
        config = self.config
        yield "/cluster", self.cluster
        yield from ((f"/instances/{each.name}", each) for each in lookup.all_instances(config))
        yield from ((f"/nodes/{each.name}", each) for each in lookup.all_nodes(config))
        yield from ((f"/nodegroup/{each.name}", each) for each in lookup.all_groups(config))
        yield from ((f"/network/{each.name}", each) for each in lookup.all_networks(config))
