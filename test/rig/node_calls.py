"""Node calls on a machine of the rig, by the handlers of its node daemon.

The module runs on both sides: `NodeCaller` here, and the program that it starts there, which reads
[call, [arguments]] from each line of its input and prints [true, result] or [false, message].
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO, Any, Self, cast

PYTHON = "PYTHONPATH=/root/tree /opt/ganeti/bin/python"  # a tree of sources there comes first
_PROGRAM = "/root/node_calls.py"


class NodeCaller:
    """Makes node calls on a machine; a context, which ends the program there."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine

    def __enter__(self) -> Self:
        self.machine.run(f"cat > {_PROGRAM}", Path(__file__).read_text())
        self._child = subprocess.Popen(
            self.machine.ssh("--", f"{PYTHON} {_PROGRAM}"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._child.communicate()

    def ask(self, call: str, *args: object) -> tuple[bool, Any]:
        """Make a call and return [whether it succeeded, result or message]."""
        said, heard = (cast("IO[str]", pipe) for pipe in (self._child.stdin, self._child.stdout))
        said.write(json.dumps([call, args]) + "\n")
        said.flush()
        return cast("tuple[bool, Any]", tuple(json.loads(heard.readline())))

    def __call__(self, call: str, *args: object) -> Any:
        """Make a call that has to succeed, and return its result."""
        is_well, result = self.ask(call, *args)
        assert is_well, f"{self.machine.name}: {call}: {result}"
        return result


def main() -> None:
    """Serve calls until the input ends."""
    from ganeti.base.paths import Paths
    from ganeti.node_ops.context import NodeContext
    from ganeti.node_ops.dispatch import answer
    from ganeti.protocol.node_calls import NodeCalls

    for line in sys.stdin:
        name, args = json.loads(line)
        context = NodeContext(Paths(), socket.getfqdn(), name)
        body = answer(context, NodeCalls.calls[name], json.dumps(args).encode())
        print(body.decode().strip(), flush=True)


if __name__ == "__main__":
    main()
