"""The part of the watcher that runs on every node: daemons, scripts of the administrator, health.

A node that the cluster has given up stops its instances, where ``maintain_node_health`` is on.  A
master candidate has to say so, signed, and the newest configuration counts.  Without an answer
nothing is done.

Source: hooks_os_ext.json, "special_paths", "watcher"; confd.json, CONFD_NODE_ROLE_OFFLINE.
"""

from __future__ import annotations

import logging
import os
import re
from typing import Final

from ganeti.base.daemons import DAEMONS, MASTER_DAEMONS, Place
from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.clients.confd import ConfdClient
from ganeti.node_ops import scripts
from ganeti.node_ops.context import NodeContext
from ganeti.protocol.confd_queries import NodeRole, QueryType
from ganeti.storage.drbd import drbdsetup
from ganeti.store import ssconf
from ganeti.system import daemon_control, environment
from ganeti.system.process import describe_end

logger = logging.getLogger(__name__)

_SCRIPTS_S: Final = 60.0  # for all scripts together: they are meant to be light
_HOOKS: Final = "watcher"  # HOOKS_NAME_WATCHER
_ANSWER_S: Final = 5.0
_OURS: Final = re.compile(r"resource[0-9]+")  # names of DRBD's resources


def look_after_node(paths: Paths) -> bool:
    """Do the work of every node; returns whether all went well."""
    is_well = start_daemons(paths, Place.NODE)
    is_well &= _run_scripts(paths)
    if ssconf.read_key_or_none(paths, "maintain_node_health") == "True":
        is_well &= _stop_if_offline(paths)
    return is_well


def start_daemons(paths: Paths, place: Place) -> bool:
    """Start the daemons of this node that have died; returns whether all run."""
    is_well = True
    for daemon in daemon_control.wanted(paths, frozenset({place})):
        try:
            if daemon_control.start_daemon(paths, daemon.name, hostname=environment.own_hostname()):
                logger.warning("Started %s, which did not run", daemon.name)
        except GenericError as err:
            logger.warning("%s", err.message)
            is_well = False
    return is_well


def stop_master_daemons(paths: Paths) -> bool:
    """Stop what a former master left running; returns whether all of it ended.

    LuxiD and WConfD ask for the master themselves, and end.  The remote API does not: it is left
    where a master stood still while another node took over.
    """
    is_well = True
    for daemon in DAEMONS:
        if daemon.place is not Place.MASTER or daemon.name in MASTER_DAEMONS:
            continue
        try:
            if daemon_control.stop_daemon(paths, daemon.name):
                logger.warning("Stopped %s: this node is not the master", daemon.name)
        except GenericError as err:
            logger.warning("%s", err.message)
            is_well = False
    return is_well


def _run_scripts(paths: Paths) -> bool:
    """Run the scripts of the hooks directory; returns whether all went well."""
    directory = os.path.join(paths.hooks_dir, _HOOKS)
    env = {"PATH": scripts.PATH}
    if paths.root:
        env |= environment.node_environment(paths, environment.own_hostname())
    is_well = True
    try:
        for name, result in scripts.run_parts(directory, env=env, timeout_s=_SCRIPTS_S):
            if result is None:
                logger.debug("Passed over %s/%s: no script", directory, name)
            elif result.status or result.timed_out:
                said = result.output_tail()
                logger.warning("Script %s %s: %s", name, describe_end(result), said)
                is_well = False
            else:
                logger.debug("Script %s: %s", name, result.output_tail())
    except (GenericError, OSError) as err:
        logger.warning("Cannot run the scripts in %s: %s", directory, err)
        return False
    return is_well


def _stop_if_offline(paths: Paths) -> bool:
    """Stop what runs here if this node is offline for the others; returns whether all went well."""
    hostname = environment.own_hostname()
    try:
        with ConfdClient.of_node(paths, timeout_s=_ANSWER_S) as client:
            role = client.value(QueryType.NODE_ROLE, hostname)
    except GenericError as err:
        logger.info("Cannot ask whether this node is offline: %s; doing nothing", err.message)
        return True
    if role != NodeRole.OFFLINE:
        return True
    logger.warning("This node is offline for the cluster: stopping what runs here")
    are_stopped = _stop_instances(NodeContext(paths, hostname))
    return _stop_mirrors() and are_stopped


def _stop_instances(node: NodeContext) -> bool:
    is_well = True
    for name in (ssconf.read_key_or_none(node.paths, "hypervisor_list") or "").split():
        try:
            text = ssconf.read_key_or_none(node.paths, f"hvparams_{name}") or ""
            # A line without a name goes on with the value of the one before: nothing needs that.
            rows = (line.partition("=") for line in text.split("\n"))
            params = {key: value for key, is_named, value in rows if is_named}
            hypervisor = node.hypervisor(name, params)
            found = hypervisor.list_instances()
        except (GenericError, OSError) as err:
            logger.warning("Cannot find the instances of hypervisor %s: %s", name, err)
            is_well = False
            continue
        for instance in found:  # one that does not stop keeps no other one running
            try:
                hypervisor.stop(instance, force=True)
                node.unlink_disks(instance)
            except (GenericError, OSError) as err:
                logger.warning("Cannot stop instance %s: %s", instance, err)
                is_well = False
            else:
                logger.warning("Stopped instance %s", instance)
    return is_well


def _stop_mirrors() -> bool:
    """Take down the DRBD devices."""
    if not drbdsetup.is_loaded():
        return True
    try:
        found = [each.name for each in drbdsetup.resources() if _OURS.fullmatch(each.name)]
    except GenericError as err:
        logger.warning("Cannot find the devices of DRBD: %s", err.message)
        return False
    is_well = True
    for name in found:
        try:
            drbdsetup.run(("drbdsetup", "down", name))
        except GenericError as err:
            logger.warning("Cannot take %s of DRBD down: %s", name, err.message)
            is_well = False
        else:
            logger.warning("Took %s of DRBD down", name)
    return is_well
