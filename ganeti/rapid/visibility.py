"""The jobs and instances that a user sees whose rights are for some instances only.

A job is his to see, or to cancel, if he has the right and each of its opcodes is about such
instances and nothing else: a job that he could have submitted himself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

from ganeti.base.errors import GenericError
from ganeti.base.json import dumps, loads_as
from ganeti.protocol.rapi.jobs import Inputs, Wire
from ganeti.protocol.rapi.routes import Question
from ganeti.protocol.rapi.users import Grant
from ganeti.protocol.rapi.values import HttpProblem, as_problem
from ganeti.rapid.luxi_pool import LuxiPool
from ganeti.rapid.planning import Target, instances_in, jobs_in

_PAGE: Final = 500  # jobs that are looked at together; some 20 ms of work
_OTHERS: Final = "Your rights are for some instances only, this is about others"

Grants = Sequence[Grant]
_rows = msgspec.json.Decoder(list[list[Raw]])


class Visibility:
    """Finds out which instances and jobs grants extend to."""

    def __init__(self, luxi: LuxiPool) -> None:
        self._luxi = luxi

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
            full_name, tags = await self._instance(name)
            if not _covers(grants, full_name, tags):
                raise HttpProblem(403, f"Your rights do not extend to instance '{name}'")

    async def _instance(self, name: str) -> tuple[str, list[str]]:
        """Return the full name and the tags of an instance; one to come has the name given."""
        try:
            rows = await self._luxi.ask("QueryInstances", [[name], ["name", "tags"], False])
        except GenericError as err:
            if as_problem(err).status != 404:
                raise
            return name, []
        found = loads_as(list[tuple[str, list[str]]], bytes(rows))
        return found[0] if found else (name, [])

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
        known = await self._instances()
        visible = [name for name, tags in known.items() if _covers(grants, name, tags)]
        if not visible:
            return b"[]"
        _, *rest = action.args(inputs)
        return action.shape(await self._luxi.ask(action.method, [visible, *rest]), inputs)

    async def jobs(self, grants: Grants, action: Question, inputs: Inputs) -> bytes:
        """List the jobs that are about instances that grants extend to."""
        fields: Any = action.args(inputs)[1]
        limit, before = inputs.query.get("limit"), inputs.query.get("before")
        known = await self._instances()
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

    async def _instances(self) -> Mapping[str, Sequence[str]]:
        """Return the tags of all instances by name."""
        rows = await self._luxi.ask("QueryInstances", [[], ["name", "tags"], False])
        return dict(loads_as(list[tuple[str, list[str]]], bytes(rows)))


def _is_visible(grants: Grants, ops: Raw, known: Mapping[str, Sequence[str]]) -> bool:
    """Tell whether all that a job is about is instances that grants extend to."""
    names = instances_in(loads_as(list[Wire], bytes(ops)))
    return names is not None and all(
        _covers(grants, full_name, known.get(full_name, ()))
        for full_name in (_full_name(name, known) for name in names)
    )


def _full_name(name: str, known: Mapping[str, Sequence[str]]) -> str:
    """Return the full name of an instance; jobs have it as it was typed."""
    if name in known:
        return name
    longer = [each for each in known if each.startswith(f"{name}.")]
    return longer[0] if len(longer) == 1 else name


def _covers(grants: Grants, name: str, tags: Sequence[str]) -> bool:
    return any(grant.covers(name, tags) for grant in grants)
