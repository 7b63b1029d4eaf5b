"""Running the hooks of one phase on this node.

Source: hooks_os_ext.json, "hooks".
"""

import os
from collections.abc import Mapping
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.node_ops import scripts
from ganeti.node_ops.context import NodeContext, NodeHandler
from ganeti.protocol.node_rpc_values import HookResult
from ganeti.system import programs
from ganeti.system.process import CommandResult, describe_end

PHASES: Final = frozenset({"pre", "post"})


class Hooks(NodeHandler):
    """Hooks of opcodes."""

    def hooks_runner(
        self, hpath: str, phase: str, env: Mapping[str, str]
    ) -> list[tuple[str, int, str]]:
        if phase not in PHASES:
            raise GenericError(f"unknown hooks phase {phase!r}")
        programs.check_plugin_name(hpath, "hooks path")
        directory = f"{hpath}-{phase}.d"
        results = scripts.run_parts(
            os.path.join(self.paths.hooks_dir, directory),
            env=env,
            timeout_s=self.context.script_timeout_s(),
        )
        return [(f"{directory}/{name}", *_outcome(result)) for name, result in results]


def is_nothing_to_run(
    context: NodeContext, hpath: str, phase: str, _env: Mapping[str, str]
) -> bool:
    """Tell whether there is no script for a hook path and phase on this node."""
    if phase not in PHASES:
        return False
    programs.check_plugin_name(hpath, "hooks path")
    return scripts.is_without_parts(os.path.join(context.paths.hooks_dir, f"{hpath}-{phase}.d"))


def _outcome(result: CommandResult | None) -> tuple[int, str]:
    """Return the code and the output of one script."""
    if result is None:
        return HookResult.SKIP, ""
    output = result.output.strip()
    if result.status == 0 and not result.timed_out:
        return HookResult.SUCCESS, output
    return HookResult.FAIL, output or describe_end(result)
