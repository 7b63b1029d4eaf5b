"""The guest of an instance on its node: whether it runs, its memory, its scripts, start and stop.

The free memory that a node reports does not consider the instances that other jobs are about to
start there, so the amount is also reserved with WConfD, which knows all reservations.

Scripts of the operating system may take hours.  A job that is canceled meanwhile does not wait for
the script: it has the node end it first, so that nothing works on the disks any more when the work
begun is undone.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Concatenate, Final, ParamSpec

from ganeti.base.errors import (
    ErrorCode,
    GenericError,
    JobCanceled,
    OpExecError,
    OpPrereqError,
    ReservationError,
    refuse,
    wrong_state,
)
from ganeti.clients.node_rpc import RpcResult
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance import metadata
from ganeti.logical_units.instance.storage import disks
from ganeti.logical_units.instance.view import InstanceView
from ganeti.objects.disk_templates import OS_IMAGE, disk_space_mib, image_problem, traits_of
from ganeti.objects.fill import fill_osparams_all
from ganeti.objects.model import AdminState, Instance, LiveState, Node
from ganeti.objects.record import PrivateParams
from ganeti.objects.rpc_instance import RpcInstance
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc_values import OS_CHECK_HYPERVISOR, OS_CHECK_IMAGE, OS_CHECK_SCRIPT
from ganeti.protocol.wconfd import ClientId, ObjectKind
from ganeti.store import lease

P = ParamSpec("P")
Reason = Sequence[object]

# Whether it runs.


def check_not_offline(view: InstanceView) -> None:
    """Refuse an instance that is marked offline.

    Raises:
        OpPrereqError: it is (wrong_state).
    """
    if view.instance.admin_state is AdminState.OFFLINE:
        name = view.name
        raise wrong_state(
            f"instance {name!r} is marked offline; use 'gnt-instance modify --online {name}' first"
        )


def running_info(context: JobContext, view: InstanceView) -> Mapping[str, object]:
    """Ask the primary node about the instance; returns an empty mapping when it is not there.

    Raises:
        OpPrereqError: the node does not answer.
    """
    nodes = context.nodes.check(view.primary, f"look at instance {view.name!r}")
    answer = nodes.instance_info(view.name, view.instance.hypervisor, view.own_hvparams)
    return answer if isinstance(answer, Mapping) else {}


def is_running(info: object) -> bool:
    """Tell whether an instance runs, from the answer of its node."""
    return isinstance(info, Mapping) and info.get("state") == LiveState.RUNNING


def runs(context: JobContext, view: InstanceView) -> bool:
    """Tell whether the instance runs on its primary node; errors as `running_info`."""
    return is_running(running_info(context, view))


def runs_here(context: JobContext, view: InstanceView) -> bool:
    """Tell whether the instance runs on its primary node; if not, it runs nowhere.

    A migration that was broken off may have left it on another node; the primary one has a note.

    Raises:
        OpPrereqError: it may run elsewhere (wrong_state), or its node does not answer.
    """
    if runs(context, view):
        return True
    result = departure(context, view)
    if result.error is not None:
        doing = f"find out where instance {view.name!r} runs"
        raise OpPrereqError(result.explain(doing), ErrorCode.ENVIRON)
    if address := result.payload:
        raise wrong_state(
            f"instance {view.name!r} may run on the node with the address {address}: its migration"
            f" there from node {view.primary.name!r} was broken off; 'gnt-instance migrate"
            f" --cleanup {view.name}' finds out where it belongs"
        )
    return False


def departure(context: JobContext, view: InstanceView) -> RpcResult[str]:
    """Ask the primary node, where the instance does not run, for what address it may have left.

    The answer is "" if it has not, or if the node is of a version that does not tell.
    """
    node = view.primary
    result = context.nodes.call_one(NodeCalls.instance_departed, node, view.wire(node))
    return RpcResult(node.name, "") if result.lacks_call else result


def check_runs_nowhere_else(context: JobContext, view: InstanceView) -> None:
    """Refuse to start or remove an instance that runs on a node of its copies.

    A migration that was killed after the guest had arrived leaves it there.  A node that does not
    answer is the business of the disks, whose copy there is made ready first.

    Raises:
        OpPrereqError: it runs there (wrong_state); names the node and the next command.
    """
    others = [each for each in view.nodes if each.uuid != view.primary.uuid and not each.offline]
    if not others:
        return
    answers = context.nodes.call_all(
        NodeCalls.instance_info, others, view.name, view.instance.hypervisor, view.own_hvparams
    )
    for name, answer in answers.items():
        if answer.error is None and is_running(answer.payload):
            raise wrong_state(
                f"instance {view.name!r} runs on node {name!r}, and not on its primary node"
                f" {view.primary.name!r}: a migration was broken off; 'gnt-instance migrate"
                f" --cleanup {view.name}' finds out where it belongs"
            )


def memory_of(info: Mapping[str, object]) -> int:
    """Return the memory (MiB) that an instance has now, from the answer of its node."""
    memory_mib = info.get("memory")
    return memory_mib if isinstance(memory_mib, int) else 0


def check_not_running(
    context: JobContext, view: InstanceView, hint: str = "shut it down first"
) -> None:
    """Refuse an instance that runs, or may run elsewhere.

    Raises:
        OpPrereqError: it does (wrong_state), or its node does not answer.
    """
    if runs_here(context, view):
        raise wrong_state(
            f"instance {view.name!r} is running on node {view.primary.name!r}; {hint}"
        )


# Start and stop.


def record(context: JobContext, instance: Instance, **fields: object) -> None:
    """Change fields of an instance in the configuration, unless all are so already."""
    now = instance.to_wire()
    if any(now.get(name) != value for name, value in fields.items()):
        context.config.modify(ObjectKind.INSTANCE, instance.uuid, fields)


def start_on(
    context: JobContext,
    view: InstanceView,
    node: Node,
    reason: Reason,
    *,
    wire: RpcInstance | None = None,
    paused: bool = False,
    ignore_secondaries: bool = False,
    secret: Mapping[str, object] | None = None,
) -> None:
    """Start the instance on a node, which makes the disks ready itself, after their copies.

    Args:
        ignore_secondaries: go on without copies that cannot be made ready.
        wire: the instance with parameters for this start alone.
        secret: parameters of the operating system that the guest is told, and nobody keeps.

    Raises:
        OpExecError: it did not start; its disks are closed again.
    """
    nodes = context.nodes.on(node, f"start instance {view.name!r}")
    if node.uuid != view.primary.uuid:
        # It has come from elsewhere since, if it ever left that node.  A hypervisor that migrates
        # nothing refuses, and has no notes.
        context.nodes.call_one(
            NodeCalls.instance_finalize_migration_dst, node, view.wire(node), "", success=False
        )
    try:
        disks.assemble_copies(context, view, node, ignore_secondaries=ignore_secondaries)
        metadata.bring(context, view, node, secret)
        nodes.instance_start(
            wire or view.wire(node, primary_node=node.uuid), startup_paused=paused, reason=reason
        )
    except GenericError:
        disks.deactivate(context, view, node)
        raise


def start_again(context: JobContext, view: InstanceView, reason: Reason) -> bool:
    """Start an instance that was stopped for a while; returns False if it runs already.

    Raises:
        OpExecError: it did not start; says how to start it once that is mended.
    """
    name = view.name
    try:
        if runs(context, view):
            return False
        start_on(context, view, view.primary, reason)
    except GenericError as err:
        raise OpExecError(
            f"{err}; the instance is down: start it with 'gnt-instance startup {name}' once that is"
            " mended"
        ) from err
    return True


def stop(context: JobContext, view: InstanceView, timeout_s: int, reason: Reason) -> None:
    """Stop the instance on its primary node and close its disks there.

    Raises:
        OpExecError: it could not be stopped.
    """
    nodes = context.nodes.on(view.primary, f"shut down instance {view.name!r}")
    nodes.instance_shutdown(view.wire(view.primary), timeout_s, reason)
    disks.deactivate(context, view, view.primary)


def why_not_stopped(
    context: JobContext, view: InstanceView, timeout_s: int, reason: Reason
) -> str | None:
    """Stop the instance on its primary node; return why that failed, if it did."""
    doing = f"shut down instance {view.name!r}"
    call, wire = NodeCalls.instance_shutdown, view.wire(view.primary)
    return context.failure(doing, call, view.primary, wire, timeout_s, reason)


# Scripts of the operating system.


def check_hvparams_on(
    context: JobContext, nodes: Sequence[Node], hypervisor: str, hvparams: Mapping[str, object]
) -> None:
    """Ask nodes whether they can use filled hypervisor parameters, whose files may not be there.

    Those that are marked offline are left out.

    Raises:
        OpPrereqError: one cannot, or does not answer.
    """
    asked = [node for node in nodes if not node.offline]
    method = NodeCalls.hypervisor_validate_params
    for name, result in context.nodes.call_all(method, asked, hypervisor, hvparams).items():
        if result.error is None:
            continue
        text = f"node {name!r} cannot use the hypervisor parameters: {result.error}"
        if result.address:
            text = result.explain("ask for the hypervisor parameters")
        raise OpPrereqError(text, ErrorCode.ENVIRON)


def check_os(
    context: JobContext,
    node: Node,
    os_name: str,
    osparams: PrivateParams,
    *,
    hypervisor: str = "",
    installs: bool = False,
    isolates: bool = False,
    force_variant: bool,
) -> None:
    """Refuse an operating system that the node does not have, or wrong parameters of it.

    Args:
        hypervisor: if given, the operating system must be able to run below it.
        installs: its image, if it has that parameter, must be there, and a script that may run.
        isolates: a script that must not run on the node will do, too.

    Raises:
        OpPrereqError: the node says why.
    """
    image = str(osparams.reveal().get(OS_IMAGE, "")) if installs else ""
    if image:
        refuse(image_problem(OS_IMAGE, image))
    checks = ["parameters", *([OS_CHECK_HYPERVISOR + hypervisor] if hypervisor else [])]
    checks += [OS_CHECK_IMAGE + image] if posixpath.isabs(image) else []
    checks += [OS_CHECK_SCRIPT + "create"] if installs and not isolates else []
    nodes = context.nodes.check(node, f"use operating system {os_name!r}")
    try:
        nodes.os_validate(True, os_name, checks, osparams.reveal(), force_variant)
    except OpPrereqError as err:
        of_cluster = fill_osparams_all(context.config.get_cluster(), os_name, {}, PrivateParams())
        if not of_cluster:
            raise
        names = ", ".join(sorted(of_cluster))
        raise OpPrereqError(
            f"{err.message} (these parameters are set by 'gnt-os modify': {names})", err.ecode
        ) from err


def check_os_scripts(context: JobContext, node: Node, os_name: str, *kinds: str) -> None:
    """Refuse what needs scripts that the operating system does not have on the node.

    Raises:
        OpPrereqError: the node names the script.
    """
    nodes = context.nodes.check(node, f"use operating system {os_name!r}")
    nodes.os_validate(True, os_name, [OS_CHECK_SCRIPT + kind for kind in kinds], {}, True)


def why_failed(
    context: JobContext,
    view: InstanceView,
    doing: str,
    script: Callable[Concatenate[NodeCalls, P], None],
    *args: P.args,
    **named: P.kwargs,
) -> str | None:
    """Run a script of a stopped instance; return the text of its failure, None if there is none.

    Raises:
        JobCanceled: canceled while it ran; it does not run any more.
    """
    try:
        with context.interruptible():
            failure = context.failure(doing, script, view.primary, *args, **named)
        if failure is not None:
            context.check_canceled()  # perhaps the request has broken the connection
    except JobCanceled:
        _end_script(context, view)
        raise
    return failure


def _end_script(context: JobContext, view: InstanceView) -> None:
    """Have the node end the script: stopping an instance ends all work on its disks."""
    name = view.name
    context.feedback(f"* canceled: ending the script of instance {name}")
    doing, call = f"end the script of instance {name!r}", NodeCalls.instance_shutdown
    context.attempt(doing, call, view.primary, view.wire(view.primary), 0, [])


def why_os_not_renamed(
    context: JobContext, view: InstanceView, old_name: str, debug_level: int | None
) -> str | None:
    """Run the rename script of the operating system; return why that failed, if it did.

    Raises:
        JobCanceled: canceled while it ran; it does not run any more.
    """
    wire, os_name, name = view.wire(view.primary), view.instance.os, view.name
    call, debug = NodeCalls.instance_run_rename, debug_level or 0
    doing = f"run the rename script of operating system {os_name!r} for {name!r}"
    return why_failed(context, view, doing, call, wire, old_name, debug)


# Memory.

ASKED_MAX: Final = 20  # each time again means that another job ended in between


def space_on_node_mib(disks: Iterable[tuple[str, int]]) -> int:
    """Return how much of a node's own disk space disks take.

    Args:
        disks: template and size (MiB) of each.
    """
    return disk_space_mib(each for each in disks if not traits_of(each[0]).shared)


def free_memory_mib(
    context: JobContext, node: Node, hypervisor: str, hvparams: Mapping[str, object]
) -> int:
    """Ask a node for its free memory.

    Raises:
        OpPrereqError: it does not answer, or does not know.
    """
    answer = context.nodes.check(node, "find the free memory").node_info(
        [], [(hypervisor, hvparams)]
    )
    match answer:
        case [_, _, [{"memory_free": int(free_mib)}, *_]]:
            return free_mib
    raise OpPrereqError(
        f"cannot find the free memory: node {node.name!r}, call node_info: the answer has no"
        f" 'memory_free' for hypervisor {hypervisor}",
        ErrorCode.ENVIRON,
    )


def reserve_memory(
    context: JobContext,
    nodes: Sequence[Node],
    what: str,
    needed_mib: int,
    hypervisor: str,
    hvparams: Mapping[str, object],
    *,
    disk_mib: int = 0,
) -> None:
    """Refuse an instance that may not start on a node, or does not fit; reserve its memory there.

    The amount is reserved before the node is asked, so that of two jobs the later one always knows
    of the earlier: by its reservation, or, when that was given back meanwhile, by asking again.

    Args:
        nodes: the primary node, then those that have copies of its disks.
        what: the purpose of the memory, as it reads after "not enough memory on node x for".
        disk_mib: reserved on each node as well, for allocators to see; it is not compared with
            anything.

    Raises:
        OpPrereqError: it does not fit (insufficient_resources), or only if other jobs did not need
            the rest (temp_insufficient_resources); high availability does not know the node in
            this boot (wrong_state).
    """
    node, *others_of_disks = nodes
    if not lease.covers(context.paths, node.name):
        raise wrong_state(
            f"node {node.name!r} is not present in high availability, which may take it for dead"
            " and start its instances elsewhere, or its loss is not dealt with yet: nothing starts"
            f" there for {what}; look at 'gnt-cluster ha-status', and at the daemon ganeti-ha of"
            " that node"
        )
    amounts = [(node.uuid, needed_mib, disk_mib)]
    amounts += [(each.uuid, 0, disk_mib) for each in others_of_disks]
    context.config.reserve_node_resources(amounts, [])
    for _ in range(ASKED_MAX):
        others = _others_before(context, node)
        free_mib = free_memory_mib(context, node, hypervisor, hvparams)
        try:
            context.config.reserve_node_resources(amounts, [(node.uuid, free_mib, None)])
        except ReservationError as err:
            raise _not_enough(node, what, needed_mib, free_mib, sum(others.values())) from err
        if set(others) <= set(_others_before(context, node)):
            return
    raise OpPrereqError(
        f"cannot find the free memory of node {node.name!r} for {what}: too many other jobs change"
        " it; try again",
        ErrorCode.TEMP_NORES,
    )


def reserve_for(context: JobContext, view: InstanceView, node: Node, needed_mib: int) -> None:
    """Reserve memory for an existing instance; errors as `reserve_memory`."""
    what, hypervisor = f"instance {view.name!r}", view.instance.hypervisor
    reserve_memory(context, [node], what, needed_mib, hypervisor, view.own_hvparams)


def memory_left_mib(context: JobContext, view: InstanceView, node: Node) -> int:
    """Ask a node for the memory (MiB) that nobody has or has reserved before this job."""
    free_mib = free_memory_mib(context, node, view.instance.hypervisor, view.own_hvparams)
    return free_mib - sum(_others_before(context, node).values())


def _others_before(context: JobContext, node: Node) -> dict[str, int]:
    """Return the memory (MiB) that others have reserved on a node before this job, by owner."""
    found: dict[str, int] = {}
    for client, uuid, memory_mib, _disk_mib in context.config.list_node_reservations():
        owner = ClientId.from_wire(client)
        if owner == context.config.owner:
            break
        if uuid == node.uuid:
            found[f"{owner.identifier} {owner.livelock}"] = memory_mib
    return found


def _not_enough(
    node: Node, what: str, needed_mib: int, free_mib: int, others_mib: int
) -> OpPrereqError:
    text = (
        f"not enough memory on node {node.name!r} for {what}: needed {needed_mib} MiB, available"
        f" {free_mib} MiB"
    )
    if needed_mib > free_mib:
        return OpPrereqError(text, ErrorCode.NORES)
    return OpPrereqError(
        f"{text}, of which other jobs have reserved {others_mib} MiB; try again when they have"
        " ended",
        ErrorCode.TEMP_NORES,
    )
