"""The LUXI methods that ask for fields of things.

A query is planned on its words alone, then the facts that the plan needs are collected, then it is
run.  Long work is done in slices (`slices`), so no client holds up the loop.

Source: luxi.json, "methods"; query_fields.json.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from msgspec import Raw
from msgspec.structs import replace

from ganeti.base.errors import OpPrereqError
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.clients.wconfd import WConfClient
from ganeti.luxid.cluster_methods import ask_wconfd
from ganeti.luxid.config_view import ConfigView
from ganeti.luxid.live_calls import LiveCalls
from ganeti.luxid.queue.job_store import JobStore
from ganeti.luxid.queue.known_jobs import KnownJobs
from ganeti.luxid.slices import Sliced, Slicer
from ganeti.objects.query_words import BY_JOB_ONLY
from ganeti.protocol.wconfd import ClientId
from ganeti.query.engine import Plan, fields_of, prepare
from ganeti.query.fields import ASKED_OF_NODES, ASKED_WHILE_RUNNING, Source
from ganeti.query.limits import Budget
from ganeti.query.live import lock_states, questions, questions_to_running
from ganeti.query.resources.job import ARCHIVED_FIELD
from ganeti.query.view import JobItem, LockState, View

_OLD_QUERY_NAMES_MAX: Final = 20000
_JOBS_AT_ONCE: Final = 200  # some 10 ms of work


@dataclass(eq=False, slots=True)
class JobTable(Mapping[JobId, JobItem]):
    """The jobs of the queue, and the named ones of the archive."""

    _known_jobs: KnownJobs
    _store: JobStore

    def __getitem__(self, job_id: JobId) -> JobItem:
        entry = self._known_jobs.get(job_id)
        if entry is not None:
            return JobItem(entry.shown)
        job = self._store.read_archived(job_id) if isinstance(job_id, int) else None
        if job is None:
            raise KeyError(job_id)
        return JobItem(job, archived=True)

    def __iter__(self) -> Iterator[JobId]:
        yield from (entry.job.id for entry in self._known_jobs)

    def __len__(self) -> int:
        return len(self._known_jobs)


@dataclass(eq=False, slots=True)
class QueryMethods:
    """Handlers of calls, declared in `ganeti.protocol.luxi`."""

    _paths: Paths
    _view: ConfigView
    _live: LiveCalls
    _known_jobs: KnownJobs
    _store: JobStore
    _owner: ClientId
    _slicer: Slicer = field(default_factory=Slicer)

    def query(self, what: str, fields: Sequence[str], qfilter: object) -> object:
        """Query; answered at once if the configuration alone does."""
        check_resource(what)
        plan = prepare(what, fields, qfilter)
        if not plan.needs:
            work = Sliced(plan.encoded_in_steps(self._view.snapshot(), Budget()))
            return work.result[0] if work.go_on() else self._slicer.finish(work)
        if plan.names is None and mentions(qfilter, ARCHIVED_FIELD):
            return self._run_with_archive(plan)
        return self._ask_and_run(plan)

    async def _ask_and_run(self, plan: Plan) -> dict[str, object]:
        view = await self._filled(plan)
        return await self._slicer.do(plan.encoded_in_steps(view, Budget()))

    async def _run_with_archive(self, plan: Plan) -> dict[str, object]:
        """Answer about the jobs of queue and archive, some at a time: the archive may be huge."""
        archived = await asyncio.to_thread(self._store.files.archived_ids)
        job_ids = sorted({*archived, *(entry.job.id for entry in self._known_jobs)})
        view = self._view.snapshot()
        answer = plan.run_encoded(view)
        data: list[object] = []
        budget = Budget()
        for start in range(0, len(job_ids), _JOBS_AT_ONCE):
            jobs = await self._read(job_ids[start : start + _JOBS_AT_ONCE])
            steps = plan.encoded_in_steps(replace(view, jobs=jobs), budget)
            part = await self._slicer.do(steps)
            data += cast("list[object]", part["data"])
        return {**answer, "data": data}

    async def _read(self, job_ids: Sequence[JobId]) -> dict[JobId, JobItem]:
        """Return jobs, those of the archive read by a thread; missing ones are left out."""
        left = [job_id for job_id in job_ids if self._known_jobs.get(job_id) is None]
        found: dict[JobId, JobItem] = {}
        if left:
            some = await asyncio.to_thread(lambda: list(map(self._store.read_archived, left)))
            found = {job.id: JobItem(job, archived=True) for job in some if job is not None}
        table = JobTable(self._known_jobs, self._store)  # some may have been archived meanwhile
        found.update((each, table[each]) for each in job_ids if each not in found and each in table)
        return found

    async def query_fields(self, what: str, fields: Sequence[str] | None) -> dict[str, object]:
        check_resource(what)
        return fields_of(what, fields)

    async def query_nodes(self, names: Sequence[str], fields: Sequence[str], lock: bool) -> object:
        return await self._old_query("node", names, fields, lock=lock)

    async def query_instances(
        self, names: Sequence[str], fields: Sequence[str], lock: bool
    ) -> object:
        return await self._old_query("instance", names, fields, lock=lock)

    async def query_groups(self, names: Sequence[str], fields: Sequence[str], lock: bool) -> object:
        return await self._old_query("group", names, fields, lock=lock)

    async def query_networks(
        self, names: Sequence[str], fields: Sequence[str], lock: bool
    ) -> object:
        return await self._old_query("network", names, fields, lock=lock)

    async def query_filters(self, uuids: Sequence[str] | None, fields: Sequence[str]) -> object:
        return await self._old_query("filter", uuids or [], fields, lock=False)

    async def query_exports(self, nodes: Sequence[str], lock: bool) -> object:
        return await self._old_query("export", nodes, ["node", "export"], lock=lock)

    async def _old_query(
        self, what: str, names: Sequence[str], fields: Sequence[str], *, lock: bool
    ) -> list[Raw]:
        if lock:
            raise OpPrereqError("queries cannot take locks")
        if len(names) > _OLD_QUERY_NAMES_MAX:
            raise OpPrereqError(
                f"{len(names)} names are too many, {_OLD_QUERY_NAMES_MAX} are possible"
            )
        plan = prepare(what, fields, names=names)
        if plan.unknown_fields:
            raise OpPrereqError(f"unknown fields of {what}: {', '.join(plan.unknown_fields)}")
        return await self._slicer.do(plan.plain_in_steps(await self._filled(plan), Budget()))

    # The facts that a plan needs.

    async def _filled(self, plan: Plan) -> View:
        """Return the view that a plan runs on."""
        view = self._view.snapshot()
        needs = plan.needs
        if Source.JOBS in needs:
            view = replace(view, jobs=await self._jobs(plan))
        if Source.LOCKS in needs:
            view = replace(view, locks=await self._locks())
        if needs & ASKED_OF_NODES:
            view = await self._with_live(plan, view)
        return view

    async def _jobs(self, plan: Plan) -> dict[JobId, JobItem]:
        """Return the jobs of the queue as they are now, or the named ones, archived or not."""
        if plan.names is None:
            known = {entry.job.id: JobItem(entry.shown) for entry in self._known_jobs}
            return {job_id: JobItem(job) for job_id, job in self._store.lost().items()} | known
        wanted = [JobId(name) for name in plan.names if isinstance(name, int)]
        found: dict[JobId, JobItem] = {}
        for start in range(0, len(wanted), _JOBS_AT_ONCE):
            found |= await self._read(wanted[start : start + _JOBS_AT_ONCE])
        if plan.only_names:
            found |= {each: JobItem(each, None) for each in wanted if each not in found}
        return found

    async def _with_live(self, plan: Plan, view: View) -> View:
        """Ask the nodes that the plan names."""
        targets = await self._slicer.do(plan.targets_in_steps(view))
        view = await self._live.add(view, questions(view.config, targets))
        if ASKED_WHILE_RUNNING & plan.needs:
            targets = await self._slicer.do(plan.targets_in_steps(view))
            view = await self._live.add(view, questions_to_running(view, targets))
        return view

    async def _locks(self) -> list[LockState]:
        ask = WConfClient.list_locks_waiting_status
        return lock_states(await asyncio.to_thread(ask_wconfd, self._paths, self._owner, ask))


def check_resource(what: str) -> None:
    """Refuse a resource that only a job can list.

    Raises:
        OpPrereqError: wrong_input.
    """
    if what in BY_JOB_ONLY:
        raise OpPrereqError(f"{what!r} can only be queried by a job (OP_QUERY)")


def mentions(qfilter: object, field: str) -> bool:
    """Tell whether a filter in prefix form looks at a field."""
    if not isinstance(qfilter, list) or len(qfilter) < 2:
        return False
    if qfilter[0] in ("&", "|", "!"):
        return any(mentions(each, field) for each in qfilter[1:])
    return bool(qfilter[1] == field)
