"""The master's address: the one under which the cluster is reached, whoever is master.

On a virtual node the addresses of the loopback network are there without being set up, so there is
nothing to do; a real node adds the address to its device and removes it again.

Source: node_rpc.json, "MasterNetworkParameters_sent"; config.json, "well_known_paths".
"""

import logging
import os
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.node_ops import scripts
from ganeti.node_ops.context import NodeContext, NodeHandler
from ganeti.objects.model import IpFamily, MasterNetworkParameters
from ganeti.protocol.node_rpc import DEFAULT_PORT
from ganeti.system import environment, process, programs
from ganeti.transport.addresses import serves

logger = logging.getLogger(__name__)

_COMMAND_TIMEOUT_S: Final = 20.0
_SCRIPT_NAME: Final = "master-ip-setup"
_PING_TIMEOUT_S: Final = 10.0


class MasterIp(NodeHandler):
    """The master's address."""

    def node_activate_master_ip(
        self, master_params: MasterNetworkParameters, *, use_external_mip_script: bool
    ) -> None:
        if use_external_mip_script:
            _run_external(self.context, master_params, "start")
            return
        if environment.is_own_address(master_params.ip):
            logger.info("the master address %s is here already", master_params.ip)
            return
        _refuse_virtual(self.context, master_params.ip)
        if serves(master_params.ip, DEFAULT_PORT, _PING_TIMEOUT_S):
            raise GenericError(f"another machine answers on the master address {master_params.ip}")
        _ip(["address", "add", _with_netmask(master_params), "dev", master_params.netdev])
        _announce(master_params)

    def node_deactivate_master_ip(
        self, master_params: MasterNetworkParameters, *, use_external_mip_script: bool
    ) -> None:
        if use_external_mip_script:
            _run_external(self.context, master_params, "stop")
            return
        if self.paths.root or not environment.is_own_address(master_params.ip):
            logger.info("the master address %s is not set up here", master_params.ip)
            return
        _ip(["address", "del", _with_netmask(master_params), "dev", master_params.netdev])

    def node_change_master_netmask(
        self, old_netmask: int, netmask: int, master_ip: str, master_netdev: str
    ) -> None:
        if old_netmask == netmask or self.paths.root:
            return
        if not environment.is_own_address(master_ip):
            raise GenericError(f"the master address {master_ip} is not on node {self.hostname}")
        _ip(["address", "add", f"{master_ip}/{netmask}", "dev", master_netdev])
        _ip(["address", "del", f"{master_ip}/{old_netmask}", "dev", master_netdev])


def _refuse_virtual(context: NodeContext, ip: str) -> None:
    """A virtual node adds no addresses to its machine.

    Raises:
        GenericError: this is one.
    """
    if context.paths.root:
        raise GenericError(
            f"a virtual node takes no address outside the loopback network, and {ip} is one"
        )


def _with_netmask(params: MasterNetworkParameters) -> str:
    return f"{params.ip}/{params.netmask}"


def _ip(arguments: list[str]) -> None:
    """Run the ip command."""
    process.run(["ip", *arguments], timeout_s=_COMMAND_TIMEOUT_S).check()


def _announce(params: MasterNetworkParameters) -> None:
    """Tell neighbours of the address; they would find out by themselves, later."""
    if params.ip_family is not IpFamily.IPV4:
        return
    argv = ["arping", "-q", "-U", "-c", "3", "-I", params.netdev, "-s", params.ip, params.ip]
    try:
        process.run(argv, timeout_s=_COMMAND_TIMEOUT_S).check()
    except GenericError as err:
        logger.warning("cannot announce the master address: %s; ignoring", err.message)


def _run_external(context: NodeContext, params: MasterNetworkParameters, verb: str) -> None:
    """Let the administrator's script set the address up or take it down.

    Raises:
        GenericError: there is no such script.
        CommandError: it failed.
    """
    path = os.path.join(context.paths.user_scripts_dir, _SCRIPT_NAME)
    if not programs.is_runnable(path):
        raise GenericError(f"the script {path} is missing or not executable")
    env = {
        "PATH": scripts.PATH,
        "MASTER_NETDEV": params.netdev,
        "MASTER_IP": params.ip,
        "MASTER_NETMASK": str(params.netmask),
        "CLUSTER_IP_VERSION": "6" if params.ip_family is IpFamily.IPV6 else "4",
    }
    process.run([path, verb], timeout_s=context.script_timeout_s(), env=env, cwd="/").check()
