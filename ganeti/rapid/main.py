"""The daemon of the remote API: HTTPS for everybody, on the master node.

It asks LuxiD on this node and nobody else, and LuxiD runs only on a node that is sure to be the
master; so whether this is the master is asked of LuxiD, not of all nodes once more.

Source: rapi.json, "transport"; cli.json, "daemons".
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from typing import Annotated, Final

from ganeti.base.errors import ConfigurationError, GenericError, NotMasterError
from ganeti.base.text import utc
from ganeti.daemon.audit import AuditLog
from ganeti.daemon.context import DaemonContext, listen_address
from ganeti.daemon.follow import follow_certificate, follow_files
from ganeti.daemon.main import DaemonSpec
from ganeti.daemon.options import Port, TlsOptions, option
from ganeti.protocol.rapi.values import CLIENTS_MAX_DEFAULT, DEFAULT_PORT
from ganeti.rapid.access import Access
from ganeti.rapid.documents import MAKERS
from ganeti.rapid.luxi_pool import LuxiPool
from ganeti.rapid.server import AccessLog, RapiServer, refuse
from ganeti.store import ssconf
from ganeti.system import certificates, clock, files
from ganeti.transport import tls
from ganeti.transport.http_server import HttpLimits, serve_http

logger = logging.getLogger(__name__)

_DIRECTORY_MODE: Final = 0o750
_LIMITS: Final = HttpLimits(
    body_bytes_max=16 << 20,  # thousands of instances in one request
    bodies_bytes_max=128 << 20,
    origin_bytes_max=32 << 20,
    answers_bytes_max=288 << 20,
    origin_answers_bytes_max=144 << 20,  # two lists of 20,000 instances in full
    body_s_max=60.0,
    idle_s_max=120.0,
    connections_max=1024,
    origin_connections_max=256,  # a dashboard in a browser has six
)


class Options(TlsOptions, frozen=True, kw_only=True):
    """The options of RapiD."""

    port: Port = DEFAULT_PORT
    require_authentication: Annotated[
        bool, option("answer nothing to clients without a user and a password")
    ] = False


# Its certificate.  The server goes on with one that is not valid: that is better than silence, and
# clients report the problem as well.

_DAY_S: Final = 24 * 3600.0
_WARN_S: Final = 30 * _DAY_S
_FILE_BYTES_MAX: Final = 1 << 20
_CURE: Final = "write a new one there, it is taken up without a restart"


def certificate_problem(not_before: float, not_after: float, now: float) -> tuple[int, str] | None:
    """Return the severity, as a level of the log, and the problem of a certificate."""
    if now >= not_after:
        return logging.ERROR, f"expired on {utc(not_after)}, clients refuse it; {_CURE}"
    if now < not_before:
        text = f"is valid from {utc(not_before)} only, clients refuse it; look at the clock"
        return logging.ERROR, text
    if now >= not_after - _WARN_S:
        return logging.WARNING, f"expires on {utc(not_after)}; {_CURE}"
    return None


def check_certificate(path: str) -> None:
    """Log the problems of the certificate in a file; an unreadable one is reported elsewhere."""
    try:
        facts = certificates.facts(files.read_bytes(path, _FILE_BYTES_MAX), path)
    except (OSError, GenericError):
        return
    found = certificate_problem(facts.not_before, facts.not_after, clock.now())
    if found is not None:
        level, text = found
        logger.log(level, "The certificate in %s %s", path, text)


async def check_certificate_daily(path: str) -> None:
    """Look at the certificate each day, for as long as the daemon runs."""
    while True:
        await asyncio.sleep(_DAY_S)
        check_certificate(path)


def _certificate_paths(context: DaemonContext) -> tuple[str, str | None]:
    options = context.options_as(Options)
    return options.ssl_cert or context.paths.rapi_pem, options.ssl_key


def _tls_context(context: DaemonContext) -> ssl.SSLContext:
    certificate, key = _certificate_paths(context)
    made = tls.server_context(certificate, key_path=key)
    check_certificate(certificate)
    return made


def _check_master(context: DaemonContext) -> None:
    """Refuse to start where another node is known to be the master.

    Raises:
        NotMasterError: names it.
    """
    try:
        master = ssconf.master_node(context.paths)
    except ConfigurationError as err:
        raise NotMasterError(f"this node is not part of a cluster: {err.message}") from err
    if master != context.hostname:
        raise NotMasterError(f"this node is not the master, {master} is", master)


async def serve(context: DaemonContext) -> None:
    """Answer requests until told to stop."""
    paths, options = context.paths, context.options_as(Options)
    _check_master(context)
    files.ensure_directory(paths.rapi_dir, _DIRECTORY_MODE)
    access = Access(paths, always=options.require_authentication)
    luxi = LuxiPool(paths, options.max_clients or CLIENTS_MAX_DEFAULT)
    audit = AuditLog(f"{paths.log_dir}/rapi-audit.log")
    context.on_reload.append(audit.reopen)
    rapi = RapiServer(luxi, access, MAKERS, paths.root, audit)
    address = listen_address(context)
    log = AccessLog(paths, context)
    access_files = (paths.rapi_users, paths.rapi_roles, paths.rapi_tokens)
    tls_context = None if options.no_ssl else _tls_context(context)
    try:
        async with serve_http(
            address,
            options.port,
            rapi.handle,
            tls=tls_context,
            authorize=rapi.authorize,
            refuse=refuse,
            on_answered=log.on_answered,
            limits=_LIMITS,
        ) as server:
            with contextlib.ExitStack() as followed:
                followed.enter_context(follow_files(access_files, access.reload))
                if tls_context is not None:
                    certificate = [path for path in _certificate_paths(context) if path]
                    context.spawn(
                        check_certificate_daily(certificate[0]), "look at the certificate"
                    )
                    followed.enter_context(
                        follow_certificate(
                            context, server, certificate, lambda: _tls_context(context)
                        )
                    )
                access.reload()
                logger.info("Listening on %s port %d", address, server.port)
                context.ready()
                await context.stopping.wait()
    finally:
        luxi.close()


SPEC: Final = DaemonSpec(
    name="ganeti-rapi",
    description="Serves the remote API of the cluster, on the master node.",
    serve=serve,
    options=Options,
)
