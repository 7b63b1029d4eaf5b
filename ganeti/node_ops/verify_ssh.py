"""Logging in to other nodes, as `verify` tries it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ganeti.base.errors import CommandError
from ganeti.node_ops.context import NodeContext
from ganeti.store import ssconf
from ganeti.system import process, ssh

_TIMEOUT_S: Final = 60.0
_AT_ONCE_MAX: Final = 16
# Behind a mark, as a login may print a greeting.
_MARK: Final = "is-host="
_COMMAND: Final = ("sh", "-c", f'echo "{_MARK}$(hostname --fqdn 2>/dev/null || hostname)"')
_SAID: Final = re.compile(rf"^{_MARK}(\S*)$", re.MULTILINE)


def log_in(context: NodeContext, names: Sequence[str], candidates: Sequence[str]) -> dict[str, str]:
    """Try to log in to nodes as root; returns {node: what was wrong}.

    Only candidates try, as only they are let in.  A virtual node has no SSH server.
    """
    if context.paths.root or context.hostname not in candidates:
        return {}
    ports = _ports(context)
    cluster_name = ssconf.cluster_name(context.paths)

    def one(name: str) -> str | None:
        argv = ssh.command_line(
            name,
            _COMMAND,
            known_hosts=context.paths.known_hosts,
            alias=cluster_name,
            port=ports.get(name, ssh.SSH_PORT),
        )
        return _problem(name, argv)

    with ThreadPoolExecutor(min(_AT_ONCE_MAX, max(len(names), 1))) as pool:
        answers = zip(names, pool.map(one, names), strict=True)
        return {name: text for name, text in answers if text is not None}


def _problem(name: str, argv: Sequence[str]) -> str | None:
    try:
        result = process.run(argv, timeout_s=_TIMEOUT_S).check()
    except CommandError as err:
        return err.output or err.message
    return problem_with_answer(name, result.stdout.decode("utf-8", "replace"))


def problem_with_answer(name: str, output: str) -> str | None:
    """Say what is wrong with what a machine printed, or return None.

    >>> problem_with_answer("node2.example.com", "hello\\nis-host=node3\\n")
    "the machine calls itself 'node3'"
    """
    found = _SAID.search(output)
    if found is None:
        return f"the machine did not tell its name, but printed {output[:200]!r}"
    said = found.group(1).lower()
    if said not in (name, name.partition(".")[0]):
        return f"the machine calls itself {said!r}"
    return None


def _ports(context: NodeContext) -> dict[str, int]:
    """Return the SSH ports of the nodes that are known to have one."""
    text = ssconf.read_key_or_none(context.paths, "ssh_ports") or ""
    rows = (line.partition("=") for line in text.splitlines())
    return {name: int(port) for name, _, port in rows if port.isdecimal()}
