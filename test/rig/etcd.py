"""An etcd of three members on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rig.ceph import free_ports

from ganeti.base.errors import GenericError
from ganeti.base.json import dumps
from ganeti.base.paths import Paths
from ganeti.clients.etcd import EtcdClient, Snapshot
from ganeti.store import availability
from ganeti.system import certificates, clock, files
from ganeti.transport.curl_pool import TlsIdentity

CLIENT_PORT: Final = 2379


def is_there() -> bool:
    """Tell whether this machine has etcd."""
    return shutil.which("etcd") is not None


@dataclass(frozen=True, slots=True)
class Member:
    """One member: its URL for clients, and its process."""

    url: str
    process: subprocess.Popen[bytes]

    def stop(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()

    def hang(self) -> None:
        """Let it stand still."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)


class Reader:
    """Looks into an etcd from outside."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls

    def read(self, prefix: str) -> Snapshot:
        """Return everything below a prefix."""

        async def read() -> Snapshot:
            async with EtcdClient(self._urls, None, prefix, 10.0) as client:
                return await client.read()

        return asyncio.run(read())

    def is_up(self) -> bool:
        """Tell whether it answers."""
        try:
            self.read("/")
        except GenericError:
            return False
        return True


@contextlib.contextmanager
def members(directory: Path, count: int = 3) -> Iterator[Sequence[Member]]:
    """Run an etcd; it answers a moment later."""
    first = free_ports(2 * count)
    ports = [(first + 2 * turn, first + 2 * turn + 1) for turn in range(count)]
    names = [f"member{number}" for number in range(count)]
    peers = [f"http://127.0.0.1:{peer}" for _, peer in ports]
    cluster = ",".join(f"{name}={url}" for name, url in zip(names, peers, strict=True))
    found = []
    try:
        for name, (port, _), peer in zip(names, ports, peers, strict=True):
            url = f"http://127.0.0.1:{port}"
            options = {
                "name": name,
                "data-dir": str(directory / name),
                "listen-client-urls": url,
                "advertise-client-urls": url,
                "listen-peer-urls": peer,
                "initial-advertise-peer-urls": peer,
                "initial-cluster": cluster,
                "initial-cluster-state": "new",
                "initial-cluster-token": directory.name,
            }
            words = [f"--{option}={value}" for option, value in options.items()]
            with (directory / f"{name}.log").open("wb") as log:
                process = subprocess.Popen(["etcd", *words], stdout=log, stderr=log)
            found.append(Member(url, process))
        yield found
    finally:
        for member in found:
            member.go_on()
            member.stop()


def write_member(paths: Paths, authority_pem: bytes, address: str, name: str, **more: Any) -> str:
    """Make a virtual node a member of a new etcd of its own, if nothing else is said.

    Returns:
        Its URL for clients.
    """
    pem = certificates.issue_member_certificate(
        name, [address], authority_pem, now=clock.now(), serial=2
    )
    files.write_atomic(f"{paths.data_dir}/etcd.pem", pem, 0o440)
    public = certificates.certificate_only(authority_pem, "authority")
    files.write_atomic(f"{paths.data_dir}/etcd-ca.pem", public, 0o440)
    url = f"https://{address}:{CLIENT_PORT}"
    fields = {
        "name": name,
        "client_url": url,
        "peer_url": peer_url(address),
        "initial_cluster": {name: peer_url(address)},
        "token": "one",
        "certificate": "/var/lib/ganeti/etcd.pem",
        "authority": "/var/lib/ganeti/etcd-ca.pem",
    }
    settings = availability.Member(**{**fields, **more})
    files.write_atomic(paths.ha_member, dumps(settings))
    return url


def peer_url(address: str) -> str:
    """Return the URL of a virtual node for other members."""
    return f"https://{address}:{CLIENT_PORT + 1}"


def identity_of(paths: Paths) -> TlsIdentity:
    """Return the certificates with which a virtual node speaks to etcd."""
    return TlsIdentity(f"{paths.data_dir}/etcd.pem", f"{paths.data_dir}/etcd-ca.pem")
