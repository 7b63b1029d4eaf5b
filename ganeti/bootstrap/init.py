"""Making a cluster out of one machine.

A straight recipe: look at everything first, then write the files, then start the daemons.  Each
step pushes its undo, so a failure leaves the machine as it was.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from ganeti.base import json
from ganeti.base.daemons import Place
from ganeti.base.errors import ErrorCode, GenericError, OpPrereqError, ResolverError, wrong_state
from ganeti.base.paths import Paths
from ganeti.bootstrap import cluster_config, cluster_files, keys
from ganeti.bootstrap.cluster_config import Birth, ClusterRequest, FirstNode
from ganeti.bootstrap.node_setup import start_daemons, watcher_kept_away
from ganeti.config.ssconf_values import ssconf_values
from ganeti.config.state import ConfigState
from ganeti.logical_units.cluster import block_storage
from ganeti.logical_units.cluster.settings import allocator_names
from ganeti.logical_units.lookup import check_ip_version
from ganeti.storage.drbd.status import usermode_helper
from ganeti.storage.lvm_reports import volume_groups
from ganeti.store import config_file, ssconf
from ganeti.store.job_files import JobFiles
from ganeti.system import certificates, clock, daemon_control, environment, files, ssh
from ganeti.system.programs import allocator_directories, find_plugin
from ganeti.transport.addresses import serves

logger = logging.getLogger(__name__)

EVERYWHERE: Final = frozenset(Place)
NODED_PORT: Final = 1811  # constants.json, DEFAULT_NODED_PORT
PING_TIMEOUT_S: Final = 2.0
PUBLIC_KEYS_MODE: Final = 0o600
OWN_ALLOCATOR: Final = "hail"

Feedback = Callable[[str], None]


def init_cluster(paths: Paths, request: ClusterRequest, feedback: Feedback) -> None:
    """Make a cluster with this machine as its master and only node; its daemons run then.

    Raises:
        OpPrereqError, ResolverError: it cannot be made; nothing was changed.
        GenericError: a step failed; the steps before it were undone.
    """
    cluster_config.check_request(request)
    node, cluster_name, master_ip = _look_around(paths, request)
    allocator = find_allocator(paths, request.default_iallocator)
    request = replace(request, cluster_name=cluster_name, default_iallocator=allocator)
    with ExitStack() as undo:
        feedback("Making directories, keys and certificates")
        _make_directories(paths, request, undo)
        undo.callback(cluster_files.remove_cluster_files, paths, keeps_access=True)
        node = replace(node, certificate_digest=_make_keys(paths, node.name))
        host_key = keys.host_key(paths, request.ssh_key_type)
        birth = Birth(
            now=clock.now(),
            cluster_uuid=clock.new_uuid(),
            group_uuid=clock.new_uuid(),
            master_ip=master_ip,
            host_key=host_key.key,
        )
        known_hosts = keys.known_hosts(request.cluster_name, host_key)
        files.write_durable(paths.known_hosts, known_hosts, cluster_files.READABLE_MODE)
        _write_configuration(paths, request, node, birth)
        if request.modify_ssh_setup:
            bits = cluster_config.key_bits_of(request)
            public_key = keys.set_up_user_key(
                ssh.directory_of(paths), request.ssh_key_type, bits, host=node.name
            )
            keys.let_keys_be_managed(paths)
            files.write_durable(
                paths.ssh_pub_keys, f"{node.uuid} {public_key}\n".encode(), PUBLIC_KEYS_MODE
            )
        if request.modify_etc_hosts:
            _add_to_etc_hosts(paths, node.name, node.primary_ip, undo)
        feedback("Starting the daemons")
        start_daemons(paths, EVERYWHERE, undo, lambda text: feedback(f"  {text}"))
        undo.pop_all()


def _look_around(paths: Paths, request: ClusterRequest) -> tuple[FirstNode, str, str]:
    """Check the machine and its names; returns the first node and the cluster's name, address."""
    if config_file.has_config(paths) or ssconf.read_key_or_none(paths, "master_node") is not None:
        name = ssconf.read_key_or_none(paths, "cluster_name") or "?"
        raise wrong_state(
            f"this node already belongs to a cluster ({name}); 'gnt-cluster destroy' removes it"
        )
    hostname, version = environment.own_hostname(), request.primary_ip_version
    node_name, primary_ip = environment.resolve(hostname, paths, ip_version=version)
    _check_own_address(paths, f"the name of this node, {hostname},", primary_ip)
    secondary_ip = request.secondary_ip or primary_ip
    if secondary_ip != primary_ip:
        _check_own_address(paths, "the secondary address", secondary_ip)
    try:
        cluster_name, master_ip = environment.resolve(
            request.cluster_name, paths, ip_version=version
        )
    except ResolverError as err:
        raise OpPrereqError(
            f"the cluster's name must resolve: {err.message}", ErrorCode.RESOLVER
        ) from err
    for name, address in ((node_name, primary_ip), (cluster_name, master_ip)):
        check_ip_version(f"the name {name}", address, version)
    if cluster_name == node_name:
        raise OpPrereqError("the cluster needs a name of its own, not that of its first node")
    if master_ip in (primary_ip, secondary_ip):
        raise OpPrereqError(
            f"the cluster's name stands for {master_ip}, which is an address of this node; the"
            " cluster needs one of its own",
            ErrorCode.NOTUNIQUE,
        )
    if serves(master_ip, NODED_PORT, PING_TIMEOUT_S):
        raise OpPrereqError(
            f"the cluster's address {master_ip} is in use: a node daemon answers there",
            ErrorCode.NOTUNIQUE,
        )
    _check_device(paths, request.master_netdev)
    check_block_storage(request)
    return FirstNode(node_name, clock.new_uuid(), primary_ip, secondary_ip), cluster_name, master_ip


def check_block_storage(request: ClusterRequest) -> None:
    """Refuse a volume group that this machine lacks, and a helper that its DRBD does not call."""
    problems = []
    if name := cluster_config.volume_group_of(request):
        group = volume_groups().get(name)
        problems.append(block_storage.group_problem(name, group.size_mib if group else None))
    if helper := cluster_config.helper_of(request):
        problems.append(block_storage.helper_problem(helper, usermode_helper()))
    if any(problems):
        raise OpPrereqError("; ".join(filter(None, problems)), ErrorCode.ENVIRON)


def find_allocator(paths: Paths, asked: str | None) -> str:
    """Return the default allocators: those asked for, else our own where it is installed.

    Raises:
        OpPrereqError: one that is asked for is not there.
    """
    names = [OWN_ALLOCATOR] if asked is None else allocator_names(asked)
    searched = allocator_directories(paths)
    missing = [name for name in names if find_plugin(name, searched, "allocator") is None]
    if not missing:
        return ",".join(names)
    if asked is None:
        return ""
    raise OpPrereqError(
        f"allocator {missing[0]!r} is not in {', '.join(searched)}; -I takes the name of a program"
        " there"
    )


def _check_own_address(paths: Paths, what: str, address: str) -> None:
    problem = ""
    if not environment.is_own_address(address):
        problem = f"{address}, which is not an address of this machine"
    elif not paths.root and address.startswith("127."):
        problem = f"the loopback address {address}; other nodes could not reach it"
    if problem:
        raise OpPrereqError(f"{what} stands for {problem}", ErrorCode.ENVIRON)


def _check_device(paths: Paths, device: str) -> None:
    if paths.root:  # a virtual node takes no addresses
        return
    if "/" in device or not os.path.exists(f"/sys/class/net/{device}"):
        raise OpPrereqError(
            f"there is no network interface {device!r} for the master address;"
            " name one with --master-netdev",
            ErrorCode.ENVIRON,
        )


def _make_directories(paths: Paths, request: ClusterRequest, undo: ExitStack) -> None:
    try:
        cluster_files.ensure_directories(paths)
        for path in (request.file_storage_dir, request.shared_file_storage_dir):
            if path and not os.path.isdir(local := paths.localize(path)):
                files.ensure_directory(local, 0o750)
                undo.callback(os.rmdir, local)
    except OSError as err:
        raise GenericError(f"cannot make directory {err.filename}: {err.strerror}") from err


def _make_keys(paths: Paths, node_name: str) -> str:
    """Write every key and certificate; returns the digest of the node's client certificate."""
    server = keys.make_certificate()
    client = keys.make_client_certificate(node_name, server)
    contents = {
        "server_pem": server,
        "client_pem": client,
        "rapi_pem": keys.make_certificate(),
        **keys.make_spice_certificates(paths),
        "hmac_key": keys.make_secret(),
        "cluster_domain_secret": keys.make_secret(),
    }
    for name, content in contents.items():
        files.write_durable(getattr(paths, name), content, keys.mode_of(name))
    return certificates.facts(client, paths.client_pem).digest


def _write_configuration(
    paths: Paths, request: ClusterRequest, node: FirstNode, birth: Birth
) -> None:
    data = json.dumps(cluster_config.build_config(request, node, birth))
    JobFiles(paths).prepare()
    files.write_durable(paths.queue_serial, b"0\n", cluster_files.CONFIG_MODE)
    ssconf.write_values(paths, ssconf_values(ConfigState(data).durable))
    config_file.write_config(paths, data)


def _add_to_etc_hosts(paths: Paths, name: str, address: str, undo: ExitStack) -> None:
    """Add the node to the hosts file, unless it stands there already."""
    text = (files.read_bytes_or_none(paths.etc_hosts) or b"").decode()
    if environment.parse_hosts(text).get(name.lower()) == address:
        return
    short = name.partition(".")[0]
    line = f"{address}\t{name}" + (f" {short}" if short != name else "") + "\n"
    separator = "" if not text or text.endswith("\n") else "\n"
    content = (text + separator + line).encode()
    cluster_files.replace_file(undo, paths.etc_hosts, content, cluster_files.READABLE_MODE)


def destroy_here(paths: Paths, give_up: Callable[[], object], feedback: Feedback) -> None:
    """Destroy a cluster on its last node: stop its daemons, and remove its files.

    Args:
        give_up: has a job give the cluster up.

    Raises:
        GenericError: the job failed, or a daemon cannot be stopped; or a run of the watcher, which
            would start daemons meanwhile, does not end.
        OSError: a file cannot be removed.
    """
    with watcher_kept_away(paths):
        give_up()
        feedback("Stopping the daemons")
        daemon_control.stop_all(paths, EVERYWHERE, lambda text: feedback(f"  {text}"))
        removed = cluster_files.remove_cluster_files(paths)
    feedback(f"Removed {len(removed)} files")
