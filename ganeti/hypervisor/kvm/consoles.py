"""The ways to an instance's console.

Source: node_rpc.json, "InstanceConsole".
"""

from __future__ import annotations

import sys
from typing import Final

from ganeti.hypervisor.interface import NodeEnv
from ganeti.hypervisor.kvm.console_address import bound_by, reached_at
from ganeti.hypervisor.kvm.files import MachineFiles
from ganeti.hypervisor.kvm.params import VNC_BASE_PORT, KvmParams
from ganeti.objects.console import InstanceConsole
from ganeti.objects.hypervisors import ConsoleKind
from ganeti.objects.rpc_instance import RpcInstance

_CONSOLE_USER: Final = "root"


def consoles(
    instance: RpcInstance, env: NodeEnv, *, node_name: str, node_address: str
) -> list[InstanceConsole]:
    """Return every way to the console: serial, graphical, or a message that there is none."""
    params = KvmParams(instance.hvparams)
    found = []
    if params.flag("serial_console"):
        found.append(_serial(instance.name, env, node_name))
    _parameter, bind = bound_by(params)
    if bind.startswith("/"):
        path = MachineFiles(env.paths, instance.name).link("vnc")
        text = f"instance {instance.name}: VNC listens on the socket {path} of node {node_name}"
        found.append(
            InstanceConsole(instance=instance.name, kind=ConsoleKind.MESSAGE, message=text)
        )
    elif bind and instance.network_port is not None:
        found.append(
            InstanceConsole(
                instance=instance.name,
                kind=ConsoleKind.VNC if params.has_vnc else ConsoleKind.SPICE,
                host=reached_at(params, env, node_address),
                port=instance.network_port,
                display=instance.network_port - VNC_BASE_PORT if params.has_vnc else None,
            )
        )
    text = f"instance {instance.name} has no console: no serial one, no VNC, no SPICE"
    return found or [
        InstanceConsole(instance=instance.name, kind=ConsoleKind.MESSAGE, message=text)
    ]


def _serial(name: str, env: NodeEnv, node_name: str) -> InstanceConsole:
    files = MachineFiles(env.paths, name)
    command = [
        *(sys.executable, "-m", "ganeti.hypervisor.serial_console"),
        *(name, files.socket_path("serial"), files.serial_log),
    ]
    return InstanceConsole(
        instance=name,
        kind=ConsoleKind.SSH,
        host=node_name,
        user=_CONSOLE_USER,
        command=command,
    )
