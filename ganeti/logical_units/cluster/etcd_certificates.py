"""New certificates for the etcd of high availability, from a new authority, while it goes on.

In three steps, between which everybody trusts everybody: members and clients trust the new
authority beside the old one; they get certificates of the new one; they trust the old one no more.
A member reads its authorities when it starts, so members are started anew, one after the other,
each when all of them answer and follow a leader: two of three are there at every moment.  Cut off
anywhere it can be run again, as what is trusted then is more than is needed, and never less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from ganeti.base.errors import OpExecError, wrong_state
from ganeti.logical_units.cluster.availability import (
    PEM_BYTES_MAX,
    ask_etcd,
    issue,
    members_alone,
    new_authority,
    send_settings,
)
from ganeti.logical_units.context import JobContext
from ganeti.objects.model import Cluster, Node
from ganeti.protocol.node_rpc_values import CompressedText
from ganeti.store import availability
from ganeti.store.availability import Settings
from ganeti.system import clock, files

if TYPE_CHECKING:
    from ganeti.clients.etcd import EtcdClient, MemberHealth

_WELL_S: Final = 60.0  # a member that starts reads all of its log
_LOOK_S: Final = 0.3


def renew(context: JobContext, cluster: Cluster, nodes: Sequence[Node]) -> None:
    """Replace them.

    Raises:
        OpPrereqError: the cluster runs no etcd.
        OpExecError: a member is away, or does not come back; the others work on.
    """
    with members_alone(context):
        settings = availability.read(context.paths)
        if settings is None or not settings.members:
            raise wrong_state(
                "the cluster runs no etcd of its own; the certificates for one of the site are"
                " given by 'gnt-cluster ha-enable', with --endpoints"
            )
        _Renewal(context, cluster, nodes, settings).run()


class _Renewal:
    """One renewal; the caller holds the locks of all nodes."""

    def __init__(
        self, context: JobContext, cluster: Cluster, nodes: Sequence[Node], settings: Settings
    ) -> None:
        self._context, self._nodes, self._settings = context, nodes, settings
        self._members = [node for node in nodes if node.name in settings.members]
        self._new, self._certificate = new_authority(cluster)

    def run(self) -> None:
        """Take the three steps."""
        context, paths = self._context, self._context.paths
        self._wait()
        new = self._certificate
        old = files.read_bytes(paths.ha_authority, PEM_BYTES_MAX)
        context.info("etcd is told to trust a new authority beside the old one")
        self._trust(old + new)
        context.info("etcd gets new certificates")
        files.write_durable(paths.ha_authority_key, self._new, 0o600)
        for node in self._members:
            self._give(node, issue(context, node.name, [node.primary_ip]), old + new, restart=False)
        files.write_durable(paths.ha_certificate, issue(context, "client", []), 0o600)
        self._tell_clients()
        context.info("etcd is told to trust the old authority no more")
        self._trust(new)

    def _trust(self, authorities: bytes) -> None:
        """Let all members, and all clients, trust these authorities."""
        paths = self._context.paths
        files.write_durable(paths.ha_authority, authorities, 0o600)
        self._tell_clients()
        for node in self._members:
            self._give(node, b"", authorities, restart=True)
            self._wait()

    def _give(self, node: Node, certificate: bytes, authorities: bytes, *, restart: bool) -> None:
        calls = self._context.nodes.on(node, "give etcd other certificates")
        texts = (CompressedText(certificate), CompressedText(authorities))
        calls.ha_renew_member(*texts, restart)

    def _tell_clients(self) -> None:
        """Send all nodes what they need as clients; agents read it as the settings differ."""
        self._settings = msgspec.structs.replace(self._settings, renewed=clock.new_uuid())
        send_settings(self._context, self._settings, self._nodes)

    def _wait(self) -> None:
        """Wait until all members are well.

        Raises:
            OpExecError: they are not.
        """

        async def look(etcd: EtcdClient) -> Mapping[str, MemberHealth]:
            return await etcd.health()

        until_s = clock.monotonic() + _WELL_S
        while True:
            self._context.check_canceled()
            health = ask_etcd(self._settings, look)
            troubles = [
                f"{url}: {each.trouble or 'it follows no leader'}"
                for url, each in health.items()
                if each.trouble or not each.leader
            ]
            if not troubles:
                return
            if clock.monotonic() > until_s:
                raise OpExecError(
                    "no member of etcd is started anew while another one is away:"
                    f" {'; '.join(troubles)}; put that right and run 'gnt-cluster renew-crypto"
                    " --new-etcd-certificates' again"
                )
            clock.pause(_LOOK_S)
