"""Installing an operating system whose script must not run on a node: in a machine of its own.

The cluster's image for installations boots with the disks of the instance, and one more: the
package.  It holds the operating system definition, its environment, and room for an answer; the
layout is in ganeti-os-interface(7).  The system on the image runs the script, tells there how far
it is and how it ended, and powers the machine off.  The node reads the answer from the disk, so
nothing of the guest reaches the node but bytes that are shown.

Source: hooks_os_ext.json, "create_untrusted"; constants.json, HELPER_VM_STARTUP and
HELPER_VM_SHUTDOWN; opcodes.json, OP_INSTANCE_CREATE.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import NotSupportedError, OpExecError, OpPrereqError
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance import guest, helper
from ganeti.logical_units.instance.helper import Beside
from ganeti.logical_units.instance.storage import disks
from ganeti.logical_units.instance.storage.copying import ask_patiently
from ganeti.logical_units.instance.view import InstanceView
from ganeti.logical_units.undo import Undo
from ganeti.objects.fill import fill_osparams_all
from ganeti.objects.hypervisors import Hypervisor
from ganeti.objects.model import Cluster, Disk, Node
from ganeti.objects.record import PrivateParams
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc_values import PACKAGE_DISK_MIB

STARTUP_S: Final = 300
SHUTDOWN_S: Final = 7200


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a machine may take until it tells something, and from then on (seconds)."""

    startup_s: float = STARTUP_S
    shutdown_s: float = SHUTDOWN_S


def limits_of(startup_s: int | None, shutdown_s: int | None) -> Limits:
    """Return the limits that an opcode gives.

    Raises:
        OpPrereqError: one is no time.
    """
    given = (startup_s, shutdown_s)
    for name, value in zip(("startup", "shutdown"), given, strict=True):
        if value is not None and value <= 0:
            raise OpPrereqError(f"--helper-{name}-timeout must be more than 0, got {value}")
    return Limits(startup_s or STARTUP_S, shutdown_s or SHUTDOWN_S)


def is_needed(
    context: JobContext, cluster: Cluster, node: Node, hypervisor: str, os_name: str
) -> bool:
    """Tell whether an operating system is installed by a machine of its own.

    Nobody asks where the cluster has no image for that; `guest.check_os` has refused it then.

    Raises:
        OpPrereqError: it is, and that is not possible.
        NotSupportedError: it is, and the hypervisor starts no machine from a disk.
    """
    if not cluster.install_image:
        return False
    name = os_name.partition("+")[0]
    rows = context.nodes.check(node, "look at its operating systems").os_diagnose()
    is_trusted = next((row[7] for row in rows if row[0] == name), True)
    if is_trusted:
        return False
    if not Hypervisor(hypervisor).traits.boots_disks:
        raise NotSupportedError(
            f"OS {os_name!r} is installed by a machine of its own, as its create script must not"
            f" run on a node; hypervisor {hypervisor!r} starts no machine from a disk"
        )
    helper.image_mib(context, cluster, node, Beside.INSTALL)
    return True


def install_os(
    context: JobContext,
    view: InstanceView,
    osparams: PrivateParams,
    debug_level: int | None,
    *,
    reinstall: bool,
    isolated: Limits | None,
    reason: guest.Reason,
) -> None:
    """Run the create script of the operating system, on the node or in a machine of its own.

    Raises:
        OpExecError: it failed.
        JobCanceled: canceled while it ran; it does not run any more.
    """
    debug = debug_level or 0
    if isolated is not None:
        _install(context, view, osparams, isolated, reason, reinstall=reinstall, debug=debug)
        return
    wire, call = view.wire(view.primary, osp=osparams), NodeCalls.instance_os_add
    doing = _doing(view)
    failure = guest.why_failed(context, view, doing, call, wire, reinstall=reinstall, debug=debug)
    if failure is not None:
        raise OpExecError(failure)


def _doing(view: InstanceView) -> str:
    return f"install operating system {view.instance.os!r} for instance {view.name!r}"


def _install(
    context: JobContext,
    view: InstanceView,
    osparams: PrivateParams,
    limits: Limits,
    reason: guest.Reason,
    *,
    reinstall: bool,
    debug: int,
) -> None:
    """Install the operating system of a stopped instance; nothing of the machine is left.

    Raises:
        OpExecError: the machine could not be started, did not end in time, or told a failure.
        JobCanceled: canceled meanwhile.
    """
    doing = _doing(view)
    nodes = context.nodes.on(view.primary, doing)
    with Undo(context) as undo:
        image = helper.make_image(context, view, Beside.INSTALL, undo)
        package = helper.make_beside(context, view, Beside.PACKAGE, PACKAGE_DISK_MIB, undo)
        nodes.os_package_write(
            view.wire(view.primary, osp=osparams),
            view.disk_wire(package, view.primary),
            reinstall=reinstall,
            debug=debug,
        )
        machine = helper.machine(view, [image, *view.disks, package])
        context.feedback(f"* starting a machine that installs {view.instance.os}...")
        helper.start(context, machine, reason, undo, _secret(view, osparams))
        said = _Follower(context, machine, package, limits).run()
        wire = view.disk_wire(package, view.primary)
        log, tail = nodes.os_package_log(view.name, view.instance.os, wire)
        undo.carry_out()
    if said != "exit 0":
        how = f"said {said!r}" if said else "powered itself off without saying how it ended"
        words = f"; its last output:\n{tail}" if tail else "; it printed nothing"
        raise OpExecError(
            f"cannot {doing}: the machine {how} (log file {log} on node"
            f" {view.primary.name!r}){words}"
        )
    # As they were: a machine that ends closes its disks.
    disks.open_for_script(context, view)


def _secret(view: InstanceView, osparams: PrivateParams) -> dict[str, object]:
    """Return the parameters that were given for this installation alone."""
    instance = view.instance
    kept = fill_osparams_all(
        view.cluster, instance.os, instance.osparams, instance.osparams_private
    ).reveal()
    return {
        name: value
        for name, value in osparams.reveal().items()
        if name not in kept or kept[name] != value
    }


class _Follower:
    """Follows a machine until it has powered itself off."""

    def __init__(
        self, context: JobContext, machine: InstanceView, package: Disk, limits: Limits
    ) -> None:
        self._context = context
        self._machine = machine
        self._package = machine.disk_wire(package, machine.primary)
        self._limits = limits

    def run(self) -> str:
        """Return the last line that the machine told, "" if it has told nothing.

        Raises:
            OpExecError: it takes longer than it may.
        """
        context, said = self._context, ""
        begun_s = context.monotonic()
        deadline_s = begun_s + self._limits.startup_s
        while True:
            runs = helper.runs(context, self._machine)  # before the answer: that is its last then
            line = self._answer()
            if line and not said:
                deadline_s = context.monotonic() + self._limits.shutdown_s
            if line != said:
                said = line
                context.feedback(f"* the machine says: {line}")
            if not runs:
                return said
            context.check_canceled()
            if context.monotonic() >= deadline_s:
                raise OpExecError(self._too_slow(said))
            context.wait(helper.LOOK_S)

    def _answer(self) -> str:
        doing = f"read the answer of the machine for instance {self._machine.name!r}"
        node, call = self._machine.primary, NodeCalls.os_package_answer
        return ask_patiently(self._context, doing, call, node, self._package)

    def _too_slow(self, said: str) -> str:
        who = f"the machine that installs instance {self._machine.name!r}"
        if not said:
            return (
                f"{who} has told nothing within {self._limits.startup_s:.0f} seconds; is its image"
                " one that installs operating systems? (--helper-startup-timeout gives it more"
                " time)"
            )
        return (
            f"{who} did not power itself off within {self._limits.shutdown_s:.0f} seconds; give it"
            " more time with --helper-shutdown-timeout"
        )
