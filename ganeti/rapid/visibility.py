"""The objects and jobs that a user may ask for whose rights are not for all of them.

Patterns of resources and of instances are compared with full names, however a request or job names
an object: by a full name, a short one, or a UUID.  A job is his to see, or to cancel, if he has the
right and each of its opcodes is about instances of his and nothing else: a job that he could have
submitted himself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
from msgspec import Raw

from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.base.json import dumps, loads_as
from ganeti.base.text import meant_by
from ganeti.protocol.rapi.jobs import Inputs, Wire
from ganeti.protocol.rapi.routes import Question
from ganeti.protocol.rapi.users import Grant
from ganeti.protocol.rapi.values import HttpProblem, as_problem
from ganeti.rapid.luxi_pool import LuxiPool
from ganeti.rapid.planning import Target, instances_in, jobs_in

_PAGE: Final = 500  # jobs that are looked at together; some 20 ms of work
_OTHERS: Final = "Your rights are for some instances only, this is about others"

Grants = Sequence[Grant]
Found = tuple[str, str, list[str]]
"""Full name, UUID and tags of an object."""
_rows = msgspec.json.Decoder(list[list[Raw]])


class Visibility:
    """Finds out which instances and jobs grants extend to."""

    def __init__(self, luxi: LuxiPool) -> None:
        self._luxi = luxi

    async def named_in_full(self, target: Target) -> Target:
        """Return a resource with the full name of its object, in place of a short one or a UUID.

        A name of nothing, or of several things, stays: no job finds an object by it.
        """
        about = target.route.about
        if about not in target.values:
            return target
        name, _uuid, _tags = await self._find(about, target.values[about])
        values = {**target.values, about: name}
        return replace(target, path=target.route.path_of(values), values=values)

    async def check(self, grants: Grants, target: Target) -> None:
        """Refuse a question about anything else than these grants are for.

        Raises:
            HttpProblem: 403.
        """
        if "job_id" in target.values:
            await self._check_job(grants, target.values["job_id"])
        elif "instance" in target.values:
            await self.check_instances(grants, [target.values["instance"]])
        else:
            raise HttpProblem(403, _OTHERS)

    async def check_submission(self, grants: Grants, opcodes: Sequence[Wire]) -> None:
        """Refuse a job that is about anything else, or depends on the job of somebody else.

        Raises:
            HttpProblem: 403.
        """
        await self.check_instances(grants, instances_in(opcodes))
        for job_id in jobs_in(opcodes):
            await self._check_job(grants, job_id)

    async def check_instances(self, grants: Grants, names: Sequence[str] | None) -> None:
        """Refuse a request about other instances than these grants are for, or (None) about all.

        Raises:
            HttpProblem: 403; names the first of them.
        """
        if names is None:
            raise HttpProblem(403, _OTHERS)
        for name in names:
            full_name, _uuid, tags = await self._find("instance", name)
            if not _covers(grants, full_name, tags):
                raise HttpProblem(403, f"Your rights do not extend to instance '{name}'")

    async def _find(self, kind: str, name: str) -> Found:
        """Return the object that a name or UUID means, as jobs do; one to come has the name given.

        Where the name is a short one of several, no job finds any of them.
        """
        try:
            return _meant(name, await self._query(kind, [name])) or _unknown(name)
        except GenericError as err:
            if as_problem(err).status != 404:
                raise
            return _unknown(name)

    async def _query(self, kind: str, names: list[str]) -> list[Found]:
        """Return the objects of some names, or all."""
        args = [names, ["name", "uuid", "tags"], False]
        rows = await self._luxi.ask(f"Query{kind.capitalize()}s", args)
        return loads_as(list[Found], bytes(rows))

    async def _check_job(self, grants: Grants, job_id: str) -> None:
        [[ops]] = _rows.decode(await self._luxi.ask("QueryJobs", [[job_id], ["ops"]]))
        if bytes(ops) == b"null":
            return  # there is no such job, and he will be told so
        names = instances_in(loads_as(list[Wire], bytes(ops)))
        if names is None:
            raise HttpProblem(403, f"Your rights do not extend to all that job {job_id} is about")
        await self.check_instances(grants, names)

    async def instances(self, grants: Grants, action: Question, inputs: Inputs) -> bytes:
        """List the instances that grants extend to."""
        rows = await self._query("instance", [])
        visible = [name for name, _uuid, tags in rows if _covers(grants, name, tags)]
        if not visible:
            return b"[]"
        _, *rest = action.args(inputs)
        return action.shape(await self._luxi.ask(action.method, [visible, *rest]), inputs)

    async def jobs(self, grants: Grants, action: Question, inputs: Inputs) -> bytes:
        """List the jobs that are about instances that grants extend to."""
        fields: Any = action.args(inputs)[1]
        limit, before = inputs.query.get("limit"), inputs.query.get("before")
        known = _by_key(await self._query("instance", []))
        found: list[Sequence[Raw]] = []
        is_more = True
        while is_more and (limit is None or len(found) < limit):
            args = [None, ["id", "ops", *fields], _PAGE, before]
            page = _rows.decode(await self._luxi.ask(action.method, args))
            found[:0] = [row[2:] for row in page if _is_visible(grants, row[1], known)]
            is_more = len(page) == _PAGE
            before = int(bytes(page[0][0])) if page else before
        wanted = found if limit is None else found[max(0, len(found) - limit) :]
        return action.shape(Raw(dumps(wanted)), inputs)


def _meant(name: str, rows: Iterable[Found]) -> Found | None:
    """Return the object that a name or UUID means; None if it means none, or several."""
    by_name: dict[str, Found] = {}
    for row in rows:
        if row[1] == name:
            return row
        by_name[row[0]] = row
    try:
        return meant_by(name, by_name)
    except OpPrereqError:
        return None


def _by_key(rows: Iterable[Found]) -> dict[str, list[Found]]:
    """Return objects by UUID, and by the first component of their names."""
    found: dict[str, list[Found]] = {}
    for row in rows:
        found.setdefault(_first(row[0]), []).append(row)
        found[row[1]] = [row]
    return found


def _first(name: str) -> str:
    return name.partition(".")[0].lower()


def _is_visible(grants: Grants, ops: Raw, known: Mapping[str, list[Found]]) -> bool:
    """Tell whether all that a job is about is instances that grants extend to."""
    names = instances_in(loads_as(list[Wire], bytes(ops)))
    return names is not None and all(
        _covers(grants, full_name, tags)
        for full_name, _uuid, tags in (
            _meant(name, known.get(_first(name), ())) or _unknown(name) for name in names
        )
    )


def _unknown(name: str) -> Found:
    """Return what stands for an object that does not exist: one of the name given."""
    return name, "", []


def _covers(grants: Grants, name: str, tags: Sequence[str]) -> bool:
    return any(grant.covers(name, tags) for grant in grants)
