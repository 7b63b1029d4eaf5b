"""Installing and renaming the operating system of an instance: running its scripts.

Source: hooks_os_ext.json, "os_api".
"""

import os
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.node_ops import drivers, os_definitions, scripts
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.leftovers import alone, can_be_ended
from ganeti.node_ops.os_environment import instance_environment
from ganeti.objects.rpc_instance import RpcInstance
from ganeti.system import clock, files

_LOG_DIRECTORY_MODE: Final = 0o750


def instance_os_add(
    context: NodeContext, instance_osp: RpcInstance, reinstall: bool, debug: int
) -> None:
    """Run the create script of an instance's OS.

    Raises:
        GenericError: the OS is not valid, or the script failed; with its last output.
    """
    extra = {"INSTANCE_REINSTALL": "1"} if reinstall else {}
    _run_script(context, instance_osp, os_definitions.CREATE, "add", debug, extra)


def instance_run_rename(
    context: NodeContext, instance: RpcInstance, old_name: str, debug: int
) -> None:
    """Run the rename script of an instance's OS, after the instance was renamed.

    Raises:
        GenericError: the OS is not valid, or the script failed; with its last output.
    """
    extra = {"OLD_INSTANCE_NAME": old_name}
    _run_script(context, instance, os_definitions.RENAME, "rename", debug, extra)


def os_environment(
    context: NodeContext, definition: os_definitions.OsDefinition, instance: RpcInstance, debug: int
) -> dict[str, str]:
    """Return the variables for a script that works on an instance; assembles its disks."""
    core = os_definitions.core_environment(
        definition, instance.os, instance.osparams.reveal(), debug
    )
    return core | instance_environment(instance, drivers.assemble_disks(context, instance))


def _run_script(
    context: NodeContext,
    instance: RpcInstance,
    kind: str,
    log_kind: str,
    debug: int,
    extra_env: dict[str, str],
) -> None:
    """Run one script of the OS of an instance."""
    drivers.check_instance_name(instance.name)
    definition = os_definitions.load(context.paths, instance.os)
    definition.check_hypervisor(instance.hypervisor)
    script = definition.script(kind)
    env = os_environment(context, definition, instance, debug) | extra_env
    with alone(context, instance.name), can_be_ended(context, instance.name):
        outcome = scripts.run_logged(
            [script],
            log_path(context, log_kind, definition.name, instance.name),
            env=env,
            cwd=definition.path,
            timeout_s=context.script_timeout_s(),
        )
    if outcome.status != 0:
        what = f"{kind} script of OS {instance.os!r} for instance {instance.name!r}"
        raise GenericError(f"{what} on node {context.hostname}: {outcome.failure('it')}")


def log_path(context: NodeContext, kind: str, os_name: str, instance_name: str) -> str:
    """Return a new log file for one run of a script."""
    directory = context.paths.log_os_dir
    files.ensure_directory(directory, _LOG_DIRECTORY_MODE)
    stamp = clock.now()
    return os.path.join(directory, f"{kind}-{os_name}-{instance_name}-{stamp:.3f}.log")
