"""Certificates of a cluster and of its nodes below a temporary directory."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from ganeti.base.paths import Paths
from ganeti.system import certificates, clock
from ganeti.transport import tls

_serials = itertools.count(2)
DAY_S = 86400.0


class TlsNode:
    """A node with its cluster's certificate and one of its own."""

    def __init__(self, base: Path, name: str = "node1", server_pem: bytes | None = None) -> None:
        self.name = name
        self.paths = Paths(str(base / name))
        os.makedirs(self.paths.data_dir)
        os.makedirs(self.paths.lock_dir)
        self.server_pem = server_pem or certificates.make_self_signed(now=clock.now())
        Path(self.paths.server_pem).write_bytes(self.server_pem)
        self.renew()

    def renew(self, *, age_days: float = 0.0, days: int = 1825) -> None:
        """Issue this node a certificate, as if so many days ago."""
        issued = clock.now() - age_days * DAY_S
        pem = certificates.issue(
            self.name, self.server_pem, now=issued, serial=next(_serials), days=days
        )
        Path(self.paths.client_pem).write_bytes(pem)

    @property
    def digest(self) -> str:
        return tls.digest_of_file(self.paths.client_pem)

    def trust(self, *nodes: TlsNode) -> None:
        """Accept requests of these nodes only."""
        lines = "".join(f"uuid-{node.name}={node.digest}\n" for node in nodes)
        path = Path(self.paths.ssconf_file("master_candidates_certs"))
        new = path.with_name("new")
        new.write_text(lines)
        new.rename(path)

    def trust_cluster_certificate(self) -> None:
        """Accept requests with the cluster's certificate, as before the first candidate."""
        Path(self.paths.ssconf_file("master_candidates_certs")).unlink(missing_ok=True)
