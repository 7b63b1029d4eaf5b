"""A rehearsal: does an instance come back from its export?

It is made beside the original under a name of its own, without network interfaces, started, looked
at and removed.  Each step is an opcode, carried out as if it stood alone, with locks of its own; so
nothing is held while the instance is looked at.  Tags mark the instance and name the job: if the
job dies in between, the watcher or the next rehearsal removes what is left, and nothing else ever
is.  Where the policy of backups wants rehearsals, the result is kept with the original.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import ErrorCode, GenericError, JobCanceled, OpExecError, OpPrereqError
from ganeti.base.text import meant_by, utc
from ganeti.logical_units import lookup
from ganeti.logical_units.backup.chains import points_of, require_point
from ganeti.logical_units.backup.exports import exports_on, policy_of
from ganeti.logical_units.base import SimpleUnit
from ganeti.logical_units.instance.guest import runs
from ganeti.logical_units.instance.view import InstanceView
from ganeti.logical_units.locks import LockLevel, exclusive
from ganeti.logical_units.processor import execute_opcode, holding
from ganeti.objects.model import Guest, Node, Rehearsal
from ganeti.objects.tags import BACKUP_TAGS, REHEARSAL_PREFIX, REHEARSAL_TAG, rehearsal_job_tag
from ganeti.opcodes.backup import OpBackupRehearse
from ganeti.opcodes.instance import (
    InstanceCreateMode,
    OpInstanceCreate,
    OpInstanceRemove,
    OpInstanceStartup,
)
from ganeti.opcodes.opcode import OpCode
from ganeti.protocol.wconfd import ObjectKind

_LOOK_S: Final = 2.0
_FAILURE_LENGTH_MAX: Final = 500  # of the text that is kept; the job has all of it


@dataclass(frozen=True, slots=True)
class Found:
    """An export, and the time of the point that is brought back, in seconds since 1970."""

    name: str
    node: Node
    made: int

    @property
    def copy(self) -> str:
        """The name of the instance that is made from it."""
        return REHEARSAL_PREFIX + self.name


class LUBackupRehearse(SimpleUnit[OpBackupRehearse, Found]):
    """Bring an instance back beside the original, look at it, remove it; it need not exist."""

    def resolve(self) -> Found:
        """Find the newest export, if several nodes have one.

        Raises:
            OpPrereqError: there is none, or it does not have the point (unknown_entity).
        """
        op, context = self.op, self.context
        if op.src_node is None:
            nodes = lookup.all_nodes(self.config)
        else:
            nodes = lookup.require_nodes(self.config, [op.src_node])
        exports = exports_on(context, nodes)
        name = meant_by(op.instance_name, {name: name for _, names in exports for name in names})
        if name is None:
            where = "" if op.src_node is None else f" on node {nodes[0].name!r}"
            text = f"there is no export of {op.instance_name!r}{where}; see 'gnt-backup list'"
            raise OpPrereqError(text, ErrorCode.NOENT)
        found = []
        for node in (node for node, names in exports if name in names):
            points = points_of(context, node, name)
            if op.src_point is not None:
                what = f"export {name!r} on node {node.name!r}"
                points = [require_point(points, op.src_point, what)]
            found.append(Found(name, node, max((each.timestamp for each in points), default=0)))
        return max(found, key=lambda each: each.made)

    def execute(self, plan: Found) -> str:
        """Make, start, look at and remove the instance.

        Raises:
            OpExecError: it does not come back.
        """
        context, name = self.context, plan.name
        if self._copy(plan) is not None:
            context.feedback(f"* Removing {plan.copy}, which an earlier rehearsal left")
            self._run(_removal(plan))
        what = f"its export of {utc(plan.made)} on {plan.node.name}"
        context.feedback(f"* Bringing back {name} from {what}, as {plan.copy}")
        try:
            self._run(self._creation(plan))
            self._run(OpInstanceStartup(instance_name=plan.copy))
            said = self._watch(plan)
        except JobCanceled:
            if self._copy(plan) is not None:  # this job gets no locks any more
                [job_id] = context.submit_jobs([[_removal(plan)]])
                context.info(f"job {job_id} removes {plan.copy}")
            raise
        except GenericError as err:
            if self._copy(plan) is not None:
                self._run(_removal(plan))
            self._remember(plan, str(err))
            raise OpExecError(f"{name} does not come back from {what}: {err}") from err
        self._run(_removal(plan))
        self._remember(plan, "")
        context.feedback(f"{name} comes back from {what}: {said}")
        return said

    def _run(self, op: OpCode) -> None:
        execute_opcode(self.context, op)

    def _remember(self, plan: Found, failure: str) -> None:
        """Keep the result with the original, if its policy wants rehearsals of the newest export.

        The job tells it as well, so a failure to keep it is no failure of the rehearsal.
        """
        if self.op.src_point is not None:
            return
        context, line = self.context, " ".join(failure.split())
        result = Rehearsal(
            ended=context.now(),
            job=context.job_id,
            node=plan.node.name,
            exported=plan.made,
            failure=line[:_FAILURE_LENGTH_MAX],
        )
        try:
            if self._is_wanted(plan.name):
                with holding(context, exclusive(LockLevel.INSTANCE, [plan.name])):
                    for each in lookup.present(self.config.get_instances([plan.name])):
                        fields = {"rehearsal": result.to_wire()}
                        self.config.modify_objects([(ObjectKind.INSTANCE, each.uuid, fields)])
        except JobCanceled:
            raise
        except GenericError as err:
            context.warn(f"cannot keep the result of the rehearsal: {err}; ignoring")

    def _is_wanted(self, name: str) -> bool:
        """Tell whether the policy of an instance, which may be gone, wants rehearsals."""
        if not lookup.present(self.config.get_instances([name])):
            return False
        view = InstanceView.of(lookup.require_instance_context(self.config, name, None))
        policy = policy_of(view)
        return policy is not None and bool(policy.rehearse_s)

    def _copy(self, plan: Found) -> InstanceView | None:
        """Return the instance of a rehearsal, if it is there.

        Raises:
            OpPrereqError: one of that name is there that is no rehearsal.
        """
        if not lookup.present(self.config.get_instances([plan.copy])):
            return None
        view = InstanceView.of(lookup.require_instance_context(self.config, plan.copy, None))
        if REHEARSAL_TAG not in view.instance.tags:
            text = f"instance {plan.copy} is no rehearsal: it does not have the tag {REHEARSAL_TAG}"
            raise OpPrereqError(text, ErrorCode.EXISTS)
        return view

    def _creation(self, plan: Found) -> OpInstanceCreate:
        op = self.op
        return OpInstanceCreate(
            instance_name=plan.copy,
            mode=InstanceCreateMode.IMPORT,
            src_node=plan.node.name,
            src_path=plan.name,
            src_point=op.src_point,
            pnode=op.pnode,
            snode=op.snode,
            iallocator=op.iallocator,
            disk_template=op.disk_template,
            hypervisor=op.hypervisor,
            hvparams=op.hvparams,
            beparams=op.beparams,
            disks=[],
            nics=[],
            no_nics=True,
            start=False,
            name_check=False,
            ip_check=False,
            tags=[REHEARSAL_TAG, rehearsal_job_tag(self.context.job_id), f"{BACKUP_TAGS}none"],
            reason=op.reason,
        )

    def _watch(self, plan: Found) -> str:
        """Watch the instance run; returns what was seen.

        Raises:
            OpExecError: it has stopped, or its agent does not answer; with the end of its console.
        """
        context, op = self.context, self.op
        context.feedback(f"* It is started; looking for {op.seconds} s")
        view = self._copy(plan)
        assert view is not None
        began = context.monotonic()
        guest = Guest()
        while True:
            passed_s = context.monotonic() - began
            if not runs(context, view):
                text = f"it stopped within {passed_s:.0f} s; {guest.end_of_console}"
                raise OpExecError(text)
            guest = self._guest(view)
            if op.agent and guest.agent:
                return f"its guest agent answered after {passed_s:.0f} s"
            if passed_s >= op.seconds:
                break
            context.wait(min(_LOOK_S, op.seconds - passed_s))
        if op.agent:
            text = f"its guest agent has not answered within {op.seconds} s"
            raise OpExecError(f"{text}; {guest.end_of_console}")
        line = guest.last_line
        said = f"; the last line of its console: {line}" if line else ""
        return f"it ran for {op.seconds} s{said}"

    def _guest(self, view: InstanceView) -> Guest:
        nodes = self.context.nodes.on(view.primary, f"look at the guest of {view.name!r}")
        wire = nodes.instance_guest_info({view.name: view.described()}).get(view.name)
        return Guest.from_wire(dict(wire)) if isinstance(wire, Mapping) else Guest()


def _removal(plan: Found) -> OpInstanceRemove:
    return OpInstanceRemove(instance_name=plan.copy, shutdown_timeout=0)
