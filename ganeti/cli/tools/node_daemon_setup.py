"""``node-daemon-setup``: run on a machine that joins a cluster."""

from __future__ import annotations

import sys
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.bootstrap import node_setup
from ganeti.cli.command import Context, Options
from ganeti.cli.declaration.program import single_program

INPUT_BYTES_MAX: Final = 16 << 20  # certificate and ssconf, whose values have 128 KiB each at most


def set_up(context: Context, _options: Options, _args: list[str]) -> None:
    """Make this machine a node, with the data on the standard input."""
    data = sys.stdin.buffer.read(INPUT_BYTES_MAX + 1)
    if len(data) > INPUT_BYTES_MAX:
        raise GenericError(f"more than {INPUT_BYTES_MAX} bytes of set-up data")
    left = node_setup.set_up_here(context.paths, node_setup.decode_setup(data))
    context.terminal.write_lines(left)


PROGRAM: Final = single_program(
    "node-daemon-setup",
    "make this machine a node",
    """Makes this machine a node of a cluster: checks and stores the certificate and the simple
configuration that come as JSON on the standard input, and starts the node daemon.  It is called by
'gnt-node add' through SSH; there is nothing to do by hand.""",
    set_up,
    expected_errors=(GenericError, OSError),
)
