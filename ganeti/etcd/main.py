"""Runs a member of the etcd of high availability, on each node that the master chose for one.

Etcd is a child of the daemon, which hands its words to the log, and ends with it: a member that
dies is started again by systemd or the watcher, as any daemon.

A member that has lost its data must not begin anew under its old number, since it has forgotten
what it promised to the others.  So it is written down twice which member this is: in the directory
of the data before etcd starts, and beside it once etcd has run.  Data of another member, which was
removed, are deleted.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections import deque
from typing import IO, Final
from urllib.parse import urlsplit

from ganeti.base.daemons import MEMBER
from ganeti.base.errors import (
    ConfigurationError,
    GenericError,
    OpPrereqError,
    ProtocolError,
    failing_as,
)
from ganeti.base.json import dumps, loads
from ganeti.base.paths import Paths
from ganeti.daemon.context import DaemonContext
from ganeti.daemon.main import DaemonSpec
from ganeti.store import availability
from ganeti.store.availability import Member
from ganeti.system import certificates, clock, environment, files, process
from ganeti.transport.async_curl_pool import AsyncCurlPool
from ganeti.transport.curl_pool import CurlRequest, TlsIdentity

logger = logging.getLogger(__name__)

_PROGRAM: Final = "etcd"
_WHO: Final = "member.json"  # in the directory of the data
_BYTES_MAX: Final = 1 << 16
_LOOK_S: Final = 0.1
_ANSWER_S: Final = 2.0
_END_S: Final = 8.0
_BEATS_PER_ELECTION: Final = 10  # as etcd advises
_OK: Final = 200
_REMEMBERED: Final = 100  # lines; the reason may be followed by words about each peer
_SHOWN: Final = 5
_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING}
_DISK_FULL: Final = "no space left on device"
_REMOVED: Final = "permanently removed"
_STACK: Final = "goroutine "
_PLAIN: Final = ("ts", "caller", "stacktrace")  # fields that are not shown
_BLOCK_KEY: Final = b"PRIVATE KEY-----"


async def serve(context: DaemonContext) -> None:
    """Run etcd until told to stop.

    Raises:
        OpPrereqError: this node is no member, or etcd is not installed, or has lost its data.
        ConfigurationError: the settings cannot be used.
        GenericError: etcd ended.
    """
    paths = context.paths
    member = availability.read_member(paths)
    if member is None:
        raise OpPrereqError("this node is no member of etcd (see 'gnt-cluster ha-status')")
    check(member, clock.now())
    program = shutil.which(_PROGRAM)
    if program is None:
        raise OpPrereqError("etcd is not installed on this node (Debian: etcd-server)")
    with failing_as(GenericError, f"cannot use {paths.etcd_dir}"):
        prepare(paths, member)
    env = {"PATH": os.environ.get("PATH", os.defpath)}
    if paths.root:
        env |= environment.node_environment(paths, context.hostname)
    level = "info" if context.options.debug else "warn"
    argv = [program, *words(paths, member), f"--log-level={level}"]
    reading, writing = os.pipe2(os.O_CLOEXEC)
    with os.fdopen(reading, "rb", 0) as output:
        try:
            # Whatever ends the daemon ends etcd: two would meet at the data otherwise.
            tied = ["setpriv", "--pdeathsig", "KILL", *argv]
            child = process.spawn(tied, env=env, stdout=writing, stderr=writing, cwd="/")
        finally:
            os.close(writing)
        said: deque[str] = deque(maxlen=_REMEMBERED)
        relay = context.spawn(_relay(output, said), "words of etcd")
        stopping = asyncio.create_task(context.stopping.wait())
        try:
            starting = context.spawn(_report(context, member), "the start of etcd")
            await asyncio.wait([relay, stopping], return_when=asyncio.FIRST_COMPLETED)
            starting.cancel()
            if not context.stopping.is_set():
                raise GenericError(reason(paths, said))
        finally:
            stopping.cancel()
            await asyncio.to_thread(process.terminate, child.pid, _END_S)
            child.wait()


def check(member: Member, now_s: float) -> None:
    """Refuse settings with which etcd would not start, or not find the others.

    Raises:
        ConfigurationError: they are wrong.
        X509CertError: a certificate cannot be used.
    """
    if member.initial_cluster.get(member.name) != member.peer_url:
        raise ConfigurationError(f"{member.peer_url} is not the URL of {member.name} in the list")
    for url in (member.client_url, member.peer_url):
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname or not parts.port:
            raise ConfigurationError(f"{url} is not https://ADDRESS:PORT")
    with failing_as(ConfigurationError, "cannot read the certificates of etcd"):
        own = files.read_bytes(member.certificate, _BYTES_MAX)
        authority = files.read_bytes(member.authority, _BYTES_MAX)
    certificates.check_key_fits(own, member.certificate)
    if certificates.facts(own, member.certificate).not_after < now_s:
        raise ConfigurationError(f"{member.certificate}: the certificate has expired")
    certificates.facts(authority, member.authority)
    if _BLOCK_KEY in authority:
        raise ConfigurationError(f"{member.authority}: etcd takes certificates without keys only")


def words(paths: Paths, member: Member) -> list[str]:
    """Return the options of etcd."""
    cluster = ",".join(f"{name}={url}" for name, url in member.initial_cluster.items())
    options = {
        "name": member.name,
        "data-dir": paths.etcd_dir,
        "listen-client-urls": member.client_url,
        "advertise-client-urls": member.client_url,
        "listen-peer-urls": member.peer_url,
        "initial-advertise-peer-urls": member.peer_url,
        "initial-cluster": cluster,
        "initial-cluster-state": member.state,
        "initial-cluster-token": member.token,
        "cert-file": member.certificate,
        "key-file": member.certificate,
        "trusted-ca-file": member.authority,
        "client-cert-auth": "true",
        "peer-cert-file": member.certificate,
        "peer-key-file": member.certificate,
        "peer-trusted-ca-file": member.authority,
        "peer-client-cert-auth": "true",
        "heartbeat-interval": str(max(member.election_ms // _BEATS_PER_ELECTION, 1)),
        "election-timeout": str(member.election_ms),
        "auto-compaction-mode": "periodic",
        "auto-compaction-retention": "1h",
        "logger": "zap",
        "log-outputs": "stderr",
    }
    return [f"--{name}={value}" for name, value in options.items()]


def prepare(paths: Paths, member: Member) -> None:
    """Make the directory for the data of this member, unless it has data there.

    Raises:
        OpPrereqError: it had, and they are lost.
        OSError: the directory cannot be used.
    """
    who = dumps([member.token, member.name, member.id])
    inside = f"{paths.etcd_dir}/{_WHO}"
    has_run = files.read_bytes_or_none(paths.etcd_member, _BYTES_MAX) == who
    has_data = not has_run or os.path.isdir(f"{paths.etcd_dir}/member/wal")
    if has_data and files.read_bytes_or_none(inside, _BYTES_MAX) == who:
        return
    if has_run:
        raise OpPrereqError(
            f"the data of this member of etcd in {paths.etcd_dir} are lost; it cannot begin anew"
            " under its old number: let it be removed and added again"
            " ('gnt-node modify --master-candidate=no NODE', later '=yes')"
        )
    if os.path.isdir(paths.etcd_dir):
        logger.info("Deleting what another member left in %s", paths.etcd_dir)
        shutil.rmtree(paths.etcd_dir)
    files.ensure_directory(paths.etcd_dir, 0o700)
    files.write_durable(inside, who, 0o600)


def reason(paths: Paths, said: deque[str]) -> str:
    """Say why etcd has ended."""
    text = "; ".join(said)
    if _DISK_FULL in text:
        return f"etcd ended: the disk with {paths.etcd_dir} is full"
    if _REMOVED in text:
        return "etcd ended: this node is no member any more"
    return f"etcd ended: {'; '.join(list(said)[-_SHOWN:]) or 'it said nothing'}"


async def _report(context: DaemonContext, member: Member) -> None:
    """Say that the member runs once it answers the other members.

    Clients are answered only while most members run, and nobody could start them one by one if
    each start waited for that.
    """
    paths = context.paths
    pool = AsyncCurlPool(TlsIdentity(member.certificate, member.authority))
    url = f"{member.peer_url}/version"
    try:
        while True:
            [response] = await pool.perform([CurlRequest(url, b"", _ANSWER_S, method="GET")])
            if response.error is None and response.status == _OK:
                break
            await asyncio.sleep(_LOOK_S)
    finally:
        pool.close()
    who = files.read_bytes(f"{paths.etcd_dir}/{_WHO}", _BYTES_MAX)
    files.write_durable(paths.etcd_member, who, 0o600)
    context.ready()


async def _relay(output: IO[bytes], said: deque[str]) -> None:
    """Log the words of etcd until it ends; remember the last ones."""
    reader = asyncio.StreamReader(limit=_BYTES_MAX)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), output)
    has_crashed = False  # then its stack is printed, which is nothing to tell
    while True:
        try:
            line = await reader.readline()
        except ValueError:  # longer than the limit, as stacks of goroutines are not
            continue
        if not line:
            return
        level, text = understand(line.decode("utf-8", "replace").strip())
        has_crashed |= text.startswith(_STACK)
        if text:
            logger.log(level, "etcd: %s", text)
        if text and not has_crashed:
            said.append(text)


def understand(line: str) -> tuple[int, str]:
    """Return level and text of a line of etcd's log.

    >>> understand('{"level":"warn","ts":"2026","caller":"x.go:1","msg":"slow","took":"2s"}')
    (30, 'slow, took: 2s')
    >>> understand("panic: x")
    (40, 'panic: x')
    """
    try:
        found = loads(line)
    except ProtocolError:
        found = None
    if not isinstance(found, dict) or not {"level", "msg"} <= found.keys():
        return logging.ERROR, line
    level, text = found.pop("level"), found.pop("msg")
    more = [f"{key}: {each}" for key, each in found.items() if key not in _PLAIN]
    return _LEVELS.get(level, logging.ERROR), ", ".join([text, *more])


SPEC: Final = DaemonSpec(
    name=MEMBER, description="runs a member of the etcd of high availability", serve=serve
)
