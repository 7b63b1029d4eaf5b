"""Operations for tests: a delay, messages and notifications of a job, secret parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ganeti.base.errors import OpExecError
from ganeti.base.secret import REDACTED
from ganeti.logical_units import lookup
from ganeti.logical_units.base import NamelessUnit, SimpleUnit
from ganeti.logical_units.locks import LockLevel, LockNeed, exclusive
from ganeti.objects.model import Node
from ganeti.opcodes.test import OpTestDelay, OpTestJqueue, OpTestOsParams
from ganeti.opcodes.values import SecretParams
from ganeti.protocol.node_calls import NodeCalls
from ganeti.transport.rendezvous import Rendezvous

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


class LUTestDelay(SimpleUnit[OpTestDelay, Sequence[Node]]):
    """Wait on the master, on nodes, or both; can be canceled all the while."""

    def resolve(self) -> list[Node]:
        names = self.op.on_node_uuids or self.op.on_nodes
        return lookup.require_nodes(self.config, names) if names else []

    def locks(self, found: Sequence[Node]) -> LockNeed:
        """Lock the nodes, if that is asked for."""
        if self.op.no_locks:
            return {}
        return exclusive(LockLevel.NODE, [node.uuid for node in found])

    def execute(self, plan: Sequence[Node]) -> None:
        """Wait, once or as often as asked."""
        if self.op.repeat == 0:
            self._wait(plan)
            return
        for number in range(self.op.repeat):
            self.context.info(f"Test delay iteration {number}/{self.op.repeat - 1}")
            self._wait(plan)

    def _wait(self, nodes: Sequence[Node]) -> None:
        if self.op.interruptible:
            self._wait_for_visitor()
        elif self.op.on_master and self.op.duration > 0:
            self.context.wait(self.op.duration)
        with self.context.interruptible():
            answers = self.context.nodes.call_all(NodeCalls.test_delay, nodes, self.op.duration)
        for name, result in answers.items():
            if result.error is not None:
                raise OpExecError(f"cannot wait on node {name!r}, call test_delay: {result.error}")

    def _wait_for_visitor(self) -> None:
        """Wait for a client at the socket that the log names, at most the duration."""
        with Rendezvous() as rendezvous:
            self.context.feedback([rendezvous.path], LOG_DELAY)
            with self.context.interruptible():
                rendezvous.wait(self.op.duration)


class LUTestJqueue(SimpleUnit[OpTestJqueue, bool]):
    """Log the messages asked for, then succeed or fail as asked.

    A notification is a log entry [socket, kind, argument]; the job waits there until a client has
    come and gone, so that the client can look at the job in just that state.
    """

    def resolve(self) -> bool:
        """Tell whether to notify a client that the job waits for its locks."""
        return self.op.notify_waitlock

    def place(self, found: bool, earlier: bool | None) -> bool:
        """Notify at the first look only, before there are locks."""
        if found and earlier is None:
            self._notify(NOTIFY_EXPAND_NAMES)
        return found

    def execute(self, plan: bool) -> bool:
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
        with Rendezvous() as rendezvous:
            self.context.feedback([rendezvous.path, kind, argument], LOG_NOTIFICATION)
            with self.context.interruptible():
                try:
                    came = rendezvous.wait(CLIENT_COMES_S, CLIENT_LEAVES_S)
                except TimeoutError as err:
                    raise OpExecError(f"the client of {kind!r} stays too long") from err
        if not came:
            raise OpExecError(f"no client came for notification {kind!r}")


class LUTestOsParams(NamelessUnit[OpTestOsParams]):
    """Show that secret parameters arrive, and do not show themselves."""

    def execute(self, plan: None) -> None:
        """Log them as any log would show them."""
        secrets = self.op.osparams_secret or SecretParams()
        values = secrets.reveal()
        lost = [name for name in secrets if values[name] == REDACTED]
        if lost:
            raise OpExecError(f"the values of these parameters are lost: {', '.join(lost)}")
        self.context.info(f"secret parameters that arrived: {secrets!r}")
