"""Operations that only exist to be watched: a delay, and a talk with the job queue."""

from __future__ import annotations

from functools import cached_property
from typing import Final, Self

from ganeti.base.errors import OpExecError
from ganeti.base.secret import REDACTED
from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.lock_plan import LockLevel, LockNeed, exclusive
from ganeti.logical_units.node_calls import call_nodes
from ganeti.objects.node import Node
from ganeti.opcodes.test import OpTestDelay, OpTestJqueue, OpTestOsParams
from ganeti.opcodes.values import SecretParams

# Source: constants.json, "JQT_*" and "ELOG_*".
MESSAGE_PREFIX: Final = "TESTMSG="
LOG_DELAY: Final = "delay-test"
LOG_NOTIFICATION: Final = "jqueue-test"
NOTIFY_EXPAND_NAMES: Final = "expandnames"
NOTIFY_EXEC: Final = "exec"
NOTIFY_START_MESSAGES: Final = "startmsg"
NOTIFY_MESSAGE: Final = "logmsg"
CLIENT_COMES_S: Final = 20.0  # a test that does not come is a test that died
CLIENT_LEAVES_S: Final = 60.0


class LUTestDelay(LogicalUnit[OpTestDelay]):
    """Wait on the master, on nodes, or both; can be canceled all the while."""

    @cached_property
    def nodes(self) -> list[Node]:
        """The nodes to wait on."""
        names = self.op.on_node_uuids or self.op.on_nodes
        return lookup.require_nodes(self.config, names) if names else []

    def expand_names(self) -> None:
        """Look the nodes up, so that an unknown one is refused."""
        _ = self.nodes

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock the nodes, if that is asked for."""
        if level is LockLevel.NODE and not self.op.no_locks:
            return exclusive(level, [node.uuid for node in self.nodes])
        return {}

    def exec(self) -> None:
        """Wait, once or as often as asked."""
        if self.op.repeat == 0:
            self._wait()
            return
        for number in range(self.op.repeat):
            self.context.info(f"Test delay iteration {number}/{self.op.repeat - 1}")
            self._wait()

    def _wait(self) -> None:
        if self.op.interruptible:
            self._wait_for_visitor()
        elif self.op.on_master and self.op.duration > 0:
            self.context.wait(self.op.duration)
        with self.context.interruptible():
            answers = call_nodes(self.context, self.nodes, "test_delay", self.op.duration)
        for name, result in answers.items():
            if result.error is not None:
                raise OpExecError(f"cannot wait on node {name!r}, call test_delay: {result.error}")

    def _wait_for_visitor(self) -> None:
        """Wait so long, or until somebody comes to the socket that the log names."""
        from ganeti.system.meeting import Meeting  # only tests need it

        with Meeting() as meeting:
            self.context.feedback([meeting.path], LOG_DELAY)
            with self.context.interruptible():
                meeting.wait(self.op.duration)


class LUTestJqueue(LogicalUnit[OpTestJqueue]):
    """Log the messages asked for, then succeed or fail as asked.

    A notification is a log entry [socket, kind, argument]; the job waits there until a client has
    come and gone, so that the client can look at the job in just that state.
    """

    has_notified = False

    def take_over(self, earlier: Self) -> None:
        """Notify once, before there are locks."""
        self.has_notified = earlier.has_notified

    def expand_names(self) -> None:
        """Notify that the job waits for its locks, if that is asked for."""
        if self.op.notify_waitlock and not self.has_notified:
            self.has_notified = True
            self._notify(NOTIFY_EXPAND_NAMES)

    def exec(self) -> bool:
        """Log and end."""
        if self.op.notify_exec:
            self._notify(NOTIFY_EXEC)
        if self.op.log_messages and self.op.notify_exec:
            self._notify(NOTIFY_START_MESSAGES, len(self.op.log_messages))
        for number, message in enumerate(self.op.log_messages, start=1):
            self.context.feedback(MESSAGE_PREFIX + message)
            if self.op.notify_exec:
                self._notify(NOTIFY_MESSAGE, number)
        if self.op.fail:
            raise OpExecError("Opcode failure was requested")
        return True

    def _notify(self, kind: str, argument: object = None) -> None:
        from ganeti.system.meeting import Meeting

        with Meeting() as meeting:
            self.context.feedback([meeting.path, kind, argument], LOG_NOTIFICATION)
            with self.context.interruptible():
                try:
                    came = meeting.wait(CLIENT_COMES_S, CLIENT_LEAVES_S)
                except TimeoutError as err:
                    raise OpExecError(f"the client of {kind!r} stays too long") from err
        if not came:
            raise OpExecError(f"no client came for notification {kind!r}")


class LUTestOsParams(LogicalUnit[OpTestOsParams]):
    """Show that secret parameters arrive, and do not show themselves."""

    def exec(self) -> None:
        """Log them as any log would show them."""
        secrets = self.op.osparams_secret or SecretParams()
        values = secrets.reveal()
        lost = [name for name in secrets if values[name] == REDACTED]
        if lost:
            raise OpExecError(f"the values of these parameters are lost: {', '.join(lost)}")
        self.context.info(f"secret parameters that arrived: {secrets!r}")
