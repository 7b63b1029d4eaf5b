"""``gnt-cluster renew-crypto``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ganeti.base.errors import ErrorCode, NotSupportedError, OpPrereqError
from ganeti.bootstrap import keys, renewal
from ganeti.bootstrap.node_transport import transport_to
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.confirm import confirm
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_FAILURE, EXIT_SUCCESS
from ganeti.cli.run.jobs import FINAL_STATUSES, execute, make_opcode
from ganeti.cli.run.nodes import rows_of_nodes
from ganeti.store import ssconf
from ganeti.system import certificates, files

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


def renew_crypto(context: Context, options: Options, _args: list[str]) -> int:
    """Replace keys and certificates; the exit status tells whether all nodes have them."""
    if options.new_ssh_keys or options.ssh_key_type or options.ssh_key_bits:
        raise NotSupportedError("replacing SSH keys (--new-ssh-keys) is not supported yet")
    contents = new_contents(context, options)
    stops = options.new_cluster_certificate or options.new_node_certificates
    if not contents and not stops:
        raise OpPrereqError("say with --new-... or a file what is to be replaced")
    if not options.force:
        what = " and all daemons are stopped for a while" if stops else ""
        confirm(context, f"Keys or certificates of all nodes are replaced{what}.  Go on?")
    peers = reachable_peers(context, options)
    if options.verbose:
        for name in contents:
            context.write(f"Replacing {getattr(context.paths, name)}")
    if stops:
        renewal.check_reachable(peers)
        missed = _replace_identity(context, options, contents, peers)
    else:
        renewal.write_files(context.paths, contents)
        missed = []
    if contents:
        execute(context, options, make_opcode("OP_CLUSTER_REDIST_CONF"))
    if stops:
        opcode = make_opcode(
            "OP_CLUSTER_RENEW_CRYPTO", node_certificates=True, verbose=options.verbose
        )
        execute(context, options, opcode)
    for name in missed:
        context.terminal.error(f"Node {name} was not told; run: gnt-node add --readd {name}")
    return EXIT_FAILURE if missed else EXIT_SUCCESS


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
    return content


def reachable_peers(context: Context, options: Options) -> list[renewal.Peer]:
    """Return the other nodes that are not offline; says which are left out."""
    own_name = ssconf.master_node(context.paths)
    cluster_name = ssconf.cluster_name(context.paths)
    peers = []
    for name, offline, port in rows_of_nodes(context, [], ["name", "offline", "ndp/ssh_port"]):
        if offline:
            context.terminal.error(
                f"Node {name} is offline and keeps what it has; take it in again by"
                f" 'gnt-node add --readd {name}'"
            )
        elif name != own_name:
            transport = transport_to(
                context.paths,
                str(name),
                cluster_name=cluster_name,
                port=int(str(port)),
                check_host_key=options.ssh_key_check,
            )
            peers.append(renewal.Peer(str(name), transport))
    return peers


def _replace_identity(
    context: Context,
    options: Options,
    contents: Mapping[str, bytes],
    peers: list[renewal.Peer],
) -> list[str]:
    """Replace the certificates of nodes while nothing runs; returns who was not told."""
    [was_drained] = context.client.query_config_values(["drain_flag"])
    context.client.set_drain_flag(True)
    try:
        _check_idle(context)
        renewal.write_files(context.paths, contents)
        return renewal.replace_identity(
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
