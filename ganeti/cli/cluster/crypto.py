"""``gnt-cluster renew-crypto``."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from ganeti.base.errors import ErrorCode, OpExecError, OpPrereqError, wrong_state
from ganeti.base.paths import Paths
from ganeti.bootstrap import keys, node_setup
from ganeti.bootstrap.node_transport import transport_to
from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, Context, Options, command, confirm, opt
from ganeti.cli.run.failures import explain
from ganeti.cli.run.jobs import FINAL_STATUSES, execute, make_opcode
from ganeti.cli.run.listing import rows_of_nodes
from ganeti.clients import pauses
from ganeti.jobs import votes
from ganeti.opcodes.cluster import OpClusterRedistConf, OpClusterRenewCrypto
from ganeti.opcodes.opcode import OpCode
from ganeti.protocol.luxi import DrainedBy
from ganeti.protocol.remote_move import SECRET_BYTES_MAX
from ganeti.store import master_facts, ssconf
from ganeti.store.job_files import JobFiles
from ganeti.store.notes import renewal as note
from ganeti.system import certificates, files, ssh
from ganeti.system.environment import own_hostname
from ganeti.system.filelock import FileLock

FILE_BYTES_MAX: Final = 1 << 20
# well-known path of a secret or certificate -> option for a new one, option for a given one
_FILES: Final = {
    "rapi_pem": ("new_rapi_certificate", "rapi_certificate"),
    "spice_pem": ("new_spice_certificate", "spice_certificate"),
    "spice_ca_pem": ("new_spice_certificate", "spice_ca_certificate"),
    "cluster_domain_secret": ("new_cluster_domain_secret", "cluster_domain_secret"),
    "hmac_key": ("new_confd_hmac_key", None),
}
_WITH_KEY: Final = frozenset({"rapi_pem", "spice_pem"})
_JOBS_SHOWN_MAX: Final = 10
# All daemons stop and start; each node is reached, told, started anew, and makes a certificate.
_PAUSE_S: Final = 600.0
_PAUSE_PER_NODE_S: Final = 30.0


def renew_crypto(context: Context, options: Options, _args: list[str]) -> int:
    """Replace keys and certificates."""
    if (options.ssh_key_type or options.ssh_key_bits) and not options.new_ssh_keys:
        raise OpPrereqError("--ssh-key-type and --ssh-key-bits need --new-ssh-keys")
    lock = FileLock(f"{context.paths.renewal_note}.lock")
    with lock.taken(0.0, "another 'gnt-cluster renew-crypto' is at work here; wait for its end"):
        act = _go_on if note.is_cut_off(context.paths) else _begin
        return act(context, options)


def _begin(context: Context, options: Options) -> int:
    contents = new_contents(context, options)
    stops = options.new_cluster_certificate or options.new_node_certificates
    if not (contents or stops or options.new_ssh_keys or options.new_etcd_certificates):
        raise OpPrereqError("say with --new-... or a file what is to be replaced")
    if not options.force:
        what = " and all daemons are stopped for a while" if stops else ""
        confirm(context, f"Keys or certificates of all nodes are replaced{what}.  Go on?")
    if options.new_ssh_keys:  # a refusal would come after all else was replaced
        _renew_ssh_keys(context, options, dry_run=True)
    peers = reachable_peers(context, options) if contents or stops else []
    if options.verbose:
        for name in contents:
            context.write(f"Replacing {getattr(context.paths, name)}")
    status, jobs = EXIT_SUCCESS, [make_opcode(OpClusterRedistConf)] if contents else []
    if stops:
        _check_pause(context, peers)
        node_setup.check_reachable(peers)
        missed = _replace_identity(context, options, contents, peers)
        status = _complete(context, options, missed, jobs)
    elif contents:
        node_setup.write_files(context.paths, contents)
        execute(context, options, *jobs)
    _renew_others(context, options)
    return status


def _check_pause(context: Context, peers: Sequence[node_setup.Peer]) -> None:
    """Refuse where high availability is on, and not paused until all nodes will have been told.

    Raises:
        OpPrereqError: names the command that pauses it.
    """
    wanted_s = _PAUSE_S + _PAUSE_PER_NODE_S * len(peers)
    hours = math.ceil(2 * wanted_s / 3600)
    hint = f"'gnt-cluster ha-pause --for={hours}h --reason=renew-crypto'"
    pauses.check(context.paths, "the replacement of certificates", wanted_s=wanted_s, hint=hint)


def _renew_others(context: Context, options: Options) -> None:
    """Replace what jobs replace while all daemons go on."""
    if options.new_etcd_certificates:
        _renew(context, options, etcd_certificates=True)
    if options.new_ssh_keys:
        _renew_ssh_keys(context, options)


def _renew_ssh_keys(context: Context, options: Options, *, dry_run: bool = False) -> None:
    kind = {"ssh_key_type": options.ssh_key_type, "ssh_key_bits": options.ssh_key_bits}
    _renew(context, options, renew_ssh_keys=True, dry_run=dry_run, **kind)


def _renew(context: Context, options: Options, **params: object) -> None:
    opcode = make_opcode(OpClusterRenewCrypto, verbose=options.verbose, **params)
    execute(context, options, opcode)


def _complete(
    context: Context, options: Options, missed: Sequence[str], jobs: Iterable[OpCode]
) -> int:
    """Run these jobs, and let candidates make certificates of their own; returns the exit status.

    A job that fails is told, and ends the replacement all the same: each node that was reached has
    certificates by now, and the error names the others.

    Raises:
        GenericError: it is not known how a job ended; the replacement is cut off.
    """
    for name in missed:
        context.terminal.error(f"Node {name} was not told; run: gnt-node add --readd {name}")
    status = EXIT_FAILURE if missed else EXIT_SUCCESS
    try:
        for job in jobs:
            execute(context, options, job)
        _renew(context, options, node_certificates=True)
    except (OpExecError, OpPrereqError) as err:
        text, status = explain(err)
        context.terminal.error(text)
    note.end(context.paths)
    return status


def _go_on(context: Context, options: Options) -> int:
    """Complete a renewal that was cut off, before any new one.

    LuxiD may not run, so the nodes are those in the files of the last master.
    """
    paths, own_name = context.paths, own_hostname()
    _check_master(own_name, ssconf.master_node(paths))
    if not options.force:
        confirm(
            context,
            "The replacement of certificates that was cut off goes on, and all daemons are stopped"
            " for a while.  Go on?",
        )
    context.write("Going on with the replacement of certificates that was cut off")
    running = master_facts.running_jobs(paths)
    if running:
        raise wrong_state(
            f"jobs are running: {', '.join(map(str, running))}; wait for them, or cancel them"
        )
    peers = _peers(context, options, _nodes_in_files(paths))
    followers = _followers(context, own_name, peers)
    _check_pause(context, peers)
    told = [peer for peer in peers if peer.name in followers]
    missed = [peer.name for peer in peers if peer.name not in followers]
    missed += node_setup.replace_identity(paths, own_name, told, server_pem=None, say=context.write)
    if JobFiles(paths).drained_by() is DrainedBy.RENEWAL:
        context.client.set_drain_flag(False)
    status = _complete(context, options, missed, [make_opcode(OpClusterRedistConf)])
    context.write("That replacement is over; for anything else run the command again.")
    return status


def _check_master(own_name: str, master: str) -> None:
    """Refuse what only the master may do once a node names another one."""
    if own_name != master:
        raise wrong_state(
            f"certificates were being replaced here when {own_name} was master, which is {master}"
            f" now; take this node in again there: gnt-node add --readd {own_name}"
        )


def _followers(
    context: Context, own_name: str, peers: Sequence[node_setup.Peer]
) -> Collection[str]:
    """Return the names of the nodes that answer, and say which are left out.

    The others do not trust this node any more, so nobody has told it of another master.

    Raises:
        OpPrereqError: one names another master, or too few answer for this node to be the master.
    """
    named, silent = node_setup.ask_masters(peers)
    for master in filter(None, named.values()):
        _check_master(own_name, master)
    count = len(ssconf.node_list(context.paths))
    reached, needed = 1 + len(named), votes.votes_needed(count)
    if silent and reached < needed:
        raise OpPrereqError(
            f"{reached} of {count} nodes are reached, {needed} are needed for a master; cannot ask"
            f" {'; '.join(silent.values())}. Put that right; or, if these nodes are lost for good"
            f" and no other master runs: 'daemon-util start ganeti-wconfd {votes.OVERRIDE}', the"
            " same for ganeti-luxid, 'gnt-cluster queue undrain', 'gnt-node modify --offline=yes"
            " NODE' for all of them, then 'gnt-node remove NODE', and this command once more",
            ErrorCode.ENVIRON,
        )
    for text in silent.values():
        context.terminal.error(f"Going on without {text}")
    return named.keys()


def _nodes_in_files(paths: Paths) -> list[tuple[str, bool, int]]:
    """Return name, whether it is offline, and SSH port of all nodes, as the last master knew."""
    ports = ssconf.parse_map("ssh_ports", ssconf.read_key_or_none(paths, "ssh_ports") or "", "=")
    offline = ssconf.offline_nodes(paths)
    return [
        (name, name in offline, int(ports.get(name, ssh.SSH_PORT)))
        for name in ssconf.node_list(paths)
    ]


def new_contents(context: Context, options: Options) -> dict[str, bytes]:
    """Return the new secrets and certificates by names of well-known paths.

    Raises:
        OpPrereqError: options contradict each other, or a file cannot be used.
    """
    if bool(options.spice_certificate) != bool(options.spice_ca_certificate):
        raise OpPrereqError("give both --spice-certificate and --spice-ca-certificate, or none")
    found: dict[str, bytes] = {}
    made: Mapping[str, bytes] = {}
    for name, (new, given) in _FILES.items():
        path = options.get(given) if given else None
        if options.get(new) and path:
            raise OpPrereqError(f"give either {_flag(new)} or {_flag(str(given))}, not both")
        if path:
            found[name] = _given(name, str(path))
        elif options.get(new):
            made = made or (_made(context, options))
            found[name] = made[name]
    return found


def _made(context: Context, options: Options) -> dict[str, bytes]:
    made = {
        "rapi_pem": keys.make_certificate(),
        "cluster_domain_secret": keys.make_secret(),
        "hmac_key": keys.make_secret(),
    }
    if options.new_spice_certificate:
        made.update(keys.make_spice_certificates(context.paths))
    return made


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _given(name: str, path: str) -> bytes:
    try:
        content = files.read_bytes(path, FILE_BYTES_MAX)
    except OSError as err:
        raise OpPrereqError(f"cannot read {path}: {err.strerror}") from err
    if name in _WITH_KEY:
        certificates.check_key_fits(content, path)
    elif name == "spice_ca_pem":
        content = certificates.certificate_only(content, path)
    elif not content.strip():
        raise OpPrereqError(f"{path} is empty")
    elif len(content) > SECRET_BYTES_MAX:
        raise OpPrereqError(
            f"{path} is no cluster domain secret: it has {len(content)} bytes, more than"
            f" {SECRET_BYTES_MAX}"
        )
    return content


def reachable_peers(context: Context, options: Options) -> list[node_setup.Peer]:
    """Return the other nodes that are not offline; says which are left out."""
    rows = rows_of_nodes(context, [], ["name", "offline", "ndp/ssh_port"])
    nodes = [(str(name), bool(offline), int(str(port))) for name, offline, port in rows]
    return _peers(context, options, nodes)


def _peers(
    context: Context, options: Options, nodes: Sequence[tuple[str, bool, int]]
) -> list[node_setup.Peer]:
    own_name = ssconf.master_node(context.paths)
    cluster_name = ssconf.cluster_name(context.paths)
    peers = []
    for name, offline, port in nodes:
        if offline:
            context.terminal.error(
                f"Node {name} is offline and keeps what it has; take it in again by"
                f" 'gnt-node add --readd {name}'"
            )
        elif name != own_name:
            transport = transport_to(
                context.paths,
                name,
                cluster_name=cluster_name,
                port=port,
                check_host_key=options.ssh_key_check,
            )
            peers.append(node_setup.Peer(name, transport))
    return peers


def _replace_identity(
    context: Context, options: Options, contents: Mapping[str, bytes], peers: list[node_setup.Peer]
) -> list[str]:
    """Replace the certificates while no job runs; returns the nodes that did not get theirs."""
    queue = JobFiles(context.paths)
    was_drained = queue.is_drained() and queue.drained_by() is not DrainedBy.RENEWAL
    if not was_drained:
        context.client.set_drain_flag(True, DrainedBy.RENEWAL)
    try:
        _check_idle(context)
        node_setup.write_files(context.paths, contents)
        return node_setup.replace_identity(
            context.paths,
            ssconf.master_node(context.paths),
            peers,
            server_pem=keys.make_certificate() if options.new_cluster_certificate else None,
            say=context.write,
        )
    finally:
        if not was_drained:
            context.reconnect()
            context.client.set_drain_flag(False)


def _check_idle(context: Context) -> None:
    rows = context.client.query_jobs(None, ["id", "status"])
    busy = [str(job_id) for job_id, status in rows if status not in FINAL_STATUSES]
    if busy:
        shown = ", ".join(busy[:_JOBS_SHOWN_MAX])
        raise OpPrereqError(
            f"{len(busy)} job(s) have not ended: {shown}; wait for them ('gnt-job wait'), or cancel"
            " them",
            ErrorCode.STATE,
        )


COMMANDS: Final = (
    command(
        renew_crypto,
        "--force --no-ssh-key-check --ssh-key-bits --ssh-key-type --verbose",
        opt.option("--cluster-domain-secret", "file with the new secret"),
        opt.flag("--new-cluster-certificate", "a new cluster certificate"),
        opt.flag("--new-cluster-domain-secret", "a new secret between clusters"),
        opt.flag("--new-confd-hmac-key", "a new key for the configuration daemon"),
        opt.flag("--new-etcd-certificates", "new ones for the etcd of high availability"),
        opt.flag("--new-node-certificates", "new certificates for all nodes"),
        opt.flag("--new-rapi-certificate", "a new certificate for the remote API"),
        opt.flag("--new-spice-certificate", "a new certificate for SPICE"),
        opt.flag("--new-ssh-keys", "new SSH keys for root of the nodes"),
        opt.option("--rapi-certificate=RAPI_CERT", "file with the certificate"),
        opt.option("--spice-ca-certificate=SPICE_CACERT", "file with the authority"),
        opt.option("--spice-certificate=SPICE_CERT", "file with the certificate"),
        description="""A new secret, or a certificate for the remote API or for SPICE, is put on the
master and sent to all nodes.  For --new-cluster-certificate and --new-node-certificates the queue
must be empty; all daemons stop, each node is told by SSH (nodes of a virtual cluster directly), and
the master candidates get new client certificates by a job.  Instances run on meanwhile.  Nodes that
are offline keep what they have and must be taken in again by 'gnt-node add --readd'.  For
--new-etcd-certificates members of the cluster's own etcd are started anew one after the other, for
new certificates of a new authority, while high availability goes on.  New SSH keys
are made and told by a job, of the type and length that --ssh-key-type and --ssh-key-bits say from
then on; nodes let in old and new ones until all have theirs.

A command that was interrupted, by a power failure too, is completed by running it again on the same
node, unless a node follows another master by then, which takes this one in again.  Nodes that are
down meanwhile are left out, if more than half of all nodes answer, and must be taken in again
as well.  Where high availability is on, it has to be paused before all daemons stop, for ten
minutes and half a minute for each node at least.""",
        examples="""
gnt-cluster renew-crypto --new-cluster-certificate  # before the old one ends
gnt-cluster renew-crypto --rapi-certificate=/root/rapi.pem  # one of your own
gnt-cluster renew-crypto --new-etcd-certificates  # while high availability is on
gnt-cluster renew-crypto --new-ssh-keys --ssh-key-type=ecdsa  # another kind""",
    ),
)
