"""Queries: checked and planned first, then run on a view.

1. `prepare` checks fields and filter and returns the facts that it needs (`Plan.needs`).
2. With a view of the configuration `Plan.targets` names the nodes that must be asked: only those
   of things that the filter does not rule out already.
3. `Plan.run` makes the answer from a view whose live part was filled.

Work that grows with the cluster can be done in steps, for a caller that must not be held up.

Source: query_fields.json.
"""

from __future__ import annotations

import contextlib
from collections.abc import (
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.base.ids import InstanceUuid, NodeUuid
from ganeti.base.json import dumps
from ganeti.base.text import name_matches, shown
from ganeti.config.index import FILTERS, GROUPS, INSTANCES, NETWORKS, NODES, first_component
from ganeti.config.tables import name_key
from ganeti.objects.model import Instance, Node
from ganeti.objects.query_words import FieldKind, QueryResource, ResultStatus
from ganeti.objects.rpc_instance import RpcDisk, build_rpc_disk
from ganeti.query.context import RunContext
from ganeti.query.fields import (
    ASKED_WHILE_RUNNING,
    LIVE_SOURCES,
    Absent,
    AnyField,
    AnyResource,
    Comparison,
    FieldSpec,
    Source,
)
from ganeti.query.filter_prefix import EVERYTHING, Filter, compile_filter
from ganeti.query.instance_status import runs
from ganeti.query.limits import Budget, check_asked
from ganeti.query.resources import by_job, export, group, instance, job, lock, network, node
from ganeti.query.resources import filter as job_filter
from ganeti.query.view import View

_OF_ONE_MODULE: Final = (export, group, instance, job, job_filter, lock, network, node)
_RESOURCES: Final[Mapping[QueryResource, AnyResource]] = {
    each.name: each for each in (*by_job.RESOURCES, *(of.RESOURCE for of in _OF_ONE_MODULE))
}
TABLE_OF: Final[Mapping[QueryResource, str]] = {
    QueryResource.FILTER: FILTERS,
    QueryResource.GROUP: GROUPS,
    QueryResource.INSTANCE: INSTANCES,
    QueryResource.NETWORK: NETWORKS,
    QueryResource.NODE: NODES,
}
"""Tables of the configuration that can be queried."""

_LIST_OF: Final[Mapping[QueryResource, tuple[str, str]]] = {
    QueryResource.EXPORT: ("node", "gnt-node list"),
    QueryResource.GROUP: ("node group", "gnt-group list"),
    QueryResource.INSTANCE: ("instance", "gnt-instance list"),
    QueryResource.NETWORK: ("network", "gnt-network list"),
    QueryResource.NODE: ("node", "gnt-node list"),
}
"""What names must be names of, and the command that lists them; of others any name may be asked."""

KEYED_BY_NAME: Final = frozenset({QueryResource.JOB, QueryResource.FILTER, QueryResource.LOCK})
ROWS_KEPT: Final = frozenset({QueryResource.INSTANCE})  # there are few of the others
_CELLS_PER_STEP: Final = 3000  # of rows: 1 to 2 ms
_DISKS_PER_STEP: Final = 30
_COLUMNS_KEPT_MAX: Final = 64  # programs ask for the same few lists again and again

_UNKNOWN: Final = Absent(ResultStatus.UNKNOWN)

T = TypeVar("T")
_Row = Callable[[Any, RunContext], object]

Steps = Generator[None, None, T]
"""Work in steps of few milliseconds, with a result."""


def finish(steps: Steps[T]) -> T:
    """Do all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def resource_of(name: str) -> AnyResource:
    """Return the table of a resource.

    Raises:
        OpPrereqError: there is no such resource (wrong_input).
    """
    try:
        return _RESOURCES[QueryResource(name)]
    except ValueError as err:
        known = ", ".join(QueryResource)
        raise OpPrereqError(f"nothing called {name!r} can be queried; known are: {known}") from err


def fields_of(resource: str, names: Iterable[str] | None = None) -> dict[str, object]:
    """Describe fields: ``{"fields": [...]}``, the named ones or, without names, all by name.

    Raises:
        OpPrereqError: there is no such resource, or too many fields are named.
    """
    fields = resource_of(resource).fields
    wanted = list(names or ())
    check_asked(wanted)
    wanted = wanted or sorted(fields, key=name_key)
    return {"fields": [_field(fields, name).definition() for name in wanted]}


def _field(fields: Mapping[str, AnyField], name: str) -> AnyField:
    found = fields.get(name)
    if found is None:
        return FieldSpec(
            name, "<unknown>", FieldKind.UNKNOWN, "Unknown field", lambda _item, _context: _UNKNOWN
        )
    return found


class Columns(msgspec.Struct, frozen=True):
    """The fields that a query asks for.

    ``getters`` find their values; ``heading`` are their descriptions, encoded; ``is_static`` if
    rows of them are worth keeping: the configuration alone makes them.
    """

    names: tuple[str, ...]
    fields: tuple[AnyField, ...]
    getters: tuple[Callable[[Any, RunContext], Any], ...]
    sources: frozenset[Source]
    heading: Raw
    is_static: bool

    def row(self, item: object, context: RunContext) -> list[list[object]]:
        """Return [status, value] for each field of an item."""
        values = [get(item, context) for get in self.getters]
        return [value.cell if value.__class__ is Absent else [0, value] for value in values]


def _columns(resource: str, names: tuple[str, ...]) -> Columns:
    table = resource_of(resource)
    fields = tuple(_field(table.fields, name) for name in names)
    sources = frozenset(field.source for field in fields) | {table.source}
    return Columns(
        names=names,
        fields=fields,
        getters=tuple(field.get for field in fields),
        sources=sources,
        heading=Raw(dumps([field.definition() for field in fields])),
        is_static=sources == {Source.CONFIG} and table.fields.keys() >= set(names),
    )


_known_columns: Final = lru_cache(maxsize=_COLUMNS_KEPT_MAX)(_columns)


class Targets(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes to ask, none of them offline; empty where the plan has no such need.

    ``instance_info`` is about ``only``, the single instance that is asked for, or about all.
    ``copies`` are the disks that each node is asked about, as it gets them.  ``consoles`` and
    ``guests`` are of running instances: ask again once these are known.
    """

    node_info: Sequence[NodeUuid] = ()
    instance_info: Sequence[NodeUuid] = ()
    only: Instance | None = None
    copies: Mapping[NodeUuid, Sequence[RpcDisk]] = {}
    consoles: Sequence[InstanceUuid] = ()
    guests: Sequence[InstanceUuid] = ()
    exports: Sequence[NodeUuid] = ()
    chains: Sequence[NodeUuid] = ()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A checked query.

    ``needs`` are the parts of the view that must be filled beyond the configuration: any of
    node_live, instance_live, console, copies, disks, jobs, locks, exports, chains, rows.
    ``names``, unless None, are the only names (job ids) that can be in the answer.  With
    ``only_names`` they are all that is asked for, and rows are in their order; ``must_exist`` if
    one of nothing is refused.
    """

    resource: AnyResource
    columns: Columns
    filter: Filter
    needs: frozenset[Source]
    names: tuple[object, ...] | None
    only_names: bool
    must_exist: bool

    @property
    def unknown_fields(self) -> list[str]:
        """Names of the fields that do not exist."""
        return [field.name for field in self.columns.fields if field.kind is FieldKind.UNKNOWN]

    def targets(self, view: View) -> Targets:
        """Return the nodes to ask for the things that the configuration does not rule out."""
        return finish(self.targets_in_steps(view))

    def targets_in_steps(self, view: View) -> Steps[Targets]:
        """As `targets`."""
        online = {uuid for uuid, node in view.config.nodes.items() if not node.offline}
        if Source.EXPORTS in self.needs:
            chains = sorted(online) if Source.CHAINS in self.needs else ()
            return Targets(exports=sorted(online), chains=chains)
        if not self.needs & LIVE_SOURCES:
            return Targets()
        run = _Run(self, view)
        items = [run.items[key] for key in (yield from run.selected(static=True))]
        if self.resource.name is QueryResource.NODE:
            nodes = [item.uuid for item in items if isinstance(item, Node) and item.vm_capable]
            return Targets(node_info=[uuid for uuid in nodes if uuid in online])
        instances = [item for item in items if isinstance(item, Instance)]
        is_asked = Source.INSTANCE_LIVE in self.needs
        asked = dict.fromkeys(
            uuid
            for instance in instances
            for uuid in (instance.primary_node, *run.context.secondaries(instance))
        )
        running = [
            each.uuid
            for each in instances
            if ASKED_WHILE_RUNNING & self.needs and runs(each, run.context)
        ]
        wants_disks = Source.DISKS in self.needs
        copies = {}
        if wants_disks or Source.COPIES in self.needs:
            copies = yield from _disks(instances, run.context, all_kinds=wants_disks)
        return Targets(
            instance_info=[uuid for uuid in asked if uuid in online and is_asked],
            only=instances[0] if len(instances) == 1 else None,
            copies={uuid: disks for uuid, disks in copies.items() if uuid in online},
            consoles=running if Source.CONSOLE in self.needs else (),
            guests=running if Source.GUEST in self.needs else (),
        )

    def prepared(self, view: View) -> Steps[None]:
        """Make all rows that can be kept ahead of need."""
        return _Run(self, view).learned()

    def run(self, view: View) -> dict[str, object]:
        """Answer the query: ``{"fields": [...], "data": [[[status, value], ...], ...]}``.

        Raises:
            ParameterError: a value met by the filter cannot be compared.
        """
        return {
            "fields": [field.definition() for field in self.columns.fields],
            "data": finish(_Run(self, view).rows()),
        }

    def run_encoded(self, view: View) -> dict[str, object]:
        """As `run`, made for being encoded: headings and rows are JSON already.

        Raises:
            OpPrereqError: that would be too much.
        """
        return finish(self.encoded_in_steps(view, Budget()))

    def encoded_in_steps(self, view: View, budget: Budget) -> Steps[dict[str, object]]:
        """As `run_encoded`."""
        rows = yield from _Run(self, view).encoded_rows(budget)
        return {"fields": self.columns.heading, "data": rows}

    def run_plain(self, view: View) -> list[list[object]]:
        """Answer in the old style: rows of values, null where there is none."""
        return list(map(_plain, finish(_Run(self, view).rows())))

    def plain_in_steps(self, view: View, budget: Budget) -> Steps[list[Raw]]:
        """As `run_plain`, made for being encoded."""
        return (yield from _Run(self, view).plain_rows(budget))


def _plain(row: Iterable[Sequence[object]]) -> list[object]:
    return [value for _status, value in row]


def _disks(
    instances: Iterable[Instance], context: RunContext, *, all_kinds: bool
) -> Steps[dict[NodeUuid, list[RpcDisk]]]:
    """Return the active disks by the primary node; see `RunContext.active_disks_of`."""
    ips = {uuid: node.secondary_ip for uuid, node in context.nodes.items()}
    found: dict[NodeUuid, list[RpcDisk]] = {}
    for count, each in enumerate(instances, 1):
        home = each.primary_node
        group = context.group_of(home)
        if group is None:
            continue
        for disk in context.active_disks_of(each, all_kinds=all_kinds):
            wire = build_rpc_disk(context.cluster, group, disk, node_uuid=home, secondary_ips=ips)
            found.setdefault(home, []).append(wire)
        if count % _DISKS_PER_STEP == 0:
            yield
    return found


class _Run:
    """One run of a plan on a view."""

    def __init__(self, plan: Plan, view: View) -> None:
        self._plan = plan
        is_config = plan.resource.source is Source.CONFIG
        self._table = view.config.by_name[TABLE_OF[plan.resource.name]] if is_config else None
        self.context = RunContext(view)
        self.items = plan.resource.items(self.context)

    def rows(self) -> Steps[list[list[list[object]]]]:
        """Return [[status, value], ...] for each item that is asked for."""
        row = self._plan.columns.row
        made: list[list[list[object]]] = []
        for keys in self._portions((yield from self._sorted())):
            made += [row(self.items[key], self.context) for key in keys]
            yield
        return made

    def encoded_rows(self, budget: Budget) -> Steps[list[Raw]]:
        """Return the same as JSON; known rows are not made again."""
        known, keys = self._known(), (yield from self._sorted())
        if known is None:
            return (yield from self._made(keys, self._plan.columns.row, budget))
        yield from self._learn(known, keys)
        rows = [known[key] for key in keys]
        budget.take(sum(memoryview(row).nbytes for row in rows), len(rows))
        return rows

    def plain_rows(self, budget: Budget) -> Steps[list[Raw]]:
        """Return rows of values alone as JSON."""
        row = self._plan.columns.row
        keys = yield from self._sorted()
        return (yield from self._made(keys, lambda *item: _plain(row(*item)), budget))

    def learned(self) -> Steps[None]:
        """Make all rows that can be kept and are not known."""
        known = self._known()
        if known is not None:
            with contextlib.suppress(OpPrereqError):  # who asks for them hears of it
                yield from self._learn(known, list(self.items))

    def _known(self) -> MutableMapping[Any, Raw] | None:
        """Return the rows that are kept; None if they are not worth it."""
        columns, kept = self._plan.columns, self.context.view.kept_rows
        if kept is None or not columns.is_static:
            return None
        return kept.of(columns.names) if self._plan.resource.name in ROWS_KEPT else None

    def _learn(self, known: MutableMapping[Any, Raw], keys: Sequence[Any]) -> Steps[None]:
        """Make the rows that are not known, which others may make meanwhile as well."""
        columns, missing = self._plan.columns, [key for key in keys if key not in known]
        try:
            yield from self._make(known, missing, columns.row, Budget())
        except OpPrereqError:
            if (kept := self.context.view.kept_rows) is not None:
                kept.forget(columns.names)
            raise

    def _made(self, keys: Sequence[Any], row: _Row, budget: Budget) -> Steps[list[Raw]]:
        made: dict[Any, Raw] = {}
        yield from self._make(made, keys, row, budget)
        return list(made.values())

    def _make(
        self, into: MutableMapping[Any, Raw], keys: Sequence[Any], row: _Row, budget: Budget
    ) -> Steps[None]:
        for some in self._portions(keys):
            for key in some:
                into[key] = budget.row(dumps(row(self.items[key], self.context)))
            yield

    def _portions(self, keys: Sequence[Any]) -> Iterator[Sequence[Any]]:
        """Cut keys into as many as can be shown in one step."""
        size = 1 + _CELLS_PER_STEP // (1 + len(self._plan.columns.names))
        return (keys[start : start + size] for start in range(0, len(keys), size))

    def _sorted(self) -> Steps[Sequence[Any]]:
        keys = yield from self.selected(static=False)
        if self._plan.only_names or (self._plan.names is None and self._order is not None):
            return keys
        return self._by_name(keys)

    def _by_name(self, keys: Iterable[Any]) -> Sequence[Any]:
        sort_key = self._plan.resource.sort_key
        return sorted(keys, key=lambda key: sort_key(self.items[key], self.context))

    def selected(self, *, static: bool) -> Steps[Sequence[Any]]:
        """Return the keys of the objects asked for, as far as they can be told."""
        keys = self._candidates()
        if self._plan.filter is EVERYTHING or self._plan.only_names:
            return keys
        test = self._plan.filter.test
        found: list[Any] = []
        for key in keys:
            if test(self.items[key], self.context, static) is not False:
                found.append(key)
            yield  # one item may take some milliseconds
        return found

    @property
    def _order(self) -> Sequence[str] | None:
        return None if self._table is None or not self._table.has_names else self._table.order

    def _candidates(self) -> Sequence[Any]:
        if self._plan.names is None:
            return self._order or list(self.items)
        keys: dict[Any, None] = {}
        find = self._finder()
        unknown: list[str] = []
        for name in self._plan.names:
            found = [name] if name in self.items else [it for it in find(name) if it in self.items]
            keys.update(dict.fromkeys(found if len(found) < 2 else self._by_name(found)))
            if not found:
                unknown.append(str(name))
        if self._plan.must_exist and unknown:
            raise _unknown(self._plan.resource.name, unknown)
        return list(keys)

    def _finder(self) -> Callable[[Any], Iterable[Any]]:
        """Return a function from a name to the keys of the items that have it."""
        table, resource = self._table, self._plan.resource
        if resource.name in KEYED_BY_NAME:
            return lambda name: (name,)
        field = resource.fields[resource.name_field]
        takes_short = field.comparison is Comparison.HOST_NAME
        if table is not None and table.has_names and takes_short:
            return table.named
        if table is not None and table.has_names:
            return lambda name: [it for it in table.named(name) if table.name_of(it) == name]
        first = first_component if takes_short else str
        by_first: dict[str, list[tuple[Any, str]]] = {}
        for key, item in self.items.items():
            for name in (str(field.get(item, self.context)), getattr(item, "uuid", None)):
                if name is not None:
                    by_first.setdefault(first(name), []).append((key, name))
        return lambda wanted: [
            key for key, name in by_first.get(first(wanted), ()) if name_matches(wanted, name)
        ]


def _unknown(resource: QueryResource, names: Sequence[str]) -> OpPrereqError:
    """Return the refusal of names that nothing has."""
    what, listed_by = _LIST_OF[resource]
    some = shown(map(repr, names))
    is_known = f"{what} {some} is" if len(names) == 1 else f"{what}s {some} are"
    return OpPrereqError(f"{is_known} not known; see '{listed_by}'", ErrorCode.NOENT)


def prepare(
    resource: str,
    fields: Sequence[str],
    qfilter: object = None,
    *,
    names: Sequence[object] | None = None,
) -> Plan:
    """Check a query and plan it.

    ``names``, if given and not empty, are names, short names or UUIDs (ids of jobs) of the objects
    asked for, as in the old query calls; names that do not exist are left out of the answer.  A
    filter that only lists names may name existing objects only: running the plan refuses
    the names of no instance, node, group or network (unknown_entity).

    Raises:
        OpPrereqError: there is no such resource, or too many fields are asked for (wrong_input).
        ParameterError: the filter is wrong.
    """
    table = resource_of(resource)
    check_asked(fields)
    wanted = tuple(fields)
    known = table.fields.keys() >= set(wanted)
    columns = (_known_columns if known else _columns)(table.name, wanted)
    compiled = compile_filter(qfilter, table.fields.get, table.name_field)
    needs = (columns.sources | compiled.sources) - {Source.CONFIG}
    if ASKED_WHILE_RUNNING & needs:
        needs |= {Source.INSTANCE_LIVE}
    return Plan(
        resource=table,
        columns=columns,
        filter=compiled,
        needs=needs,
        names=tuple(names) if names else compiled.names,
        only_names=bool(names) or compiled.only_names,
        must_exist=compiled.only_names and table.name in _LIST_OF,
    )
