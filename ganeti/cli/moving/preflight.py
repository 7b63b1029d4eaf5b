"""Looks whether a move can go through, before anything is touched, and tells all that is missing.

What can be read from both clusters is compared (`checks`).  What only the destination cluster can
know, such as whether both have the same domain secret, it says itself: the creation is submitted
there as a dry run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.cli.moving import checks
from ganeti.cli.moving.clusters import Cluster, is_not_found, run_job
from ganeti.cli.moving.wish import Overrides, Source, Wish, plan
from ganeti.clients.rapi import JobFailedError, RapiClient, failure_reason
from ganeti.opcodes.backup import ExportMode, OpBackupPrepare
from ganeti.opcodes.instance import OpInstanceCreate

_UNSIGNED: Final = "not signed"  # what is wrong whatever else is


@dataclass(frozen=True, slots=True)
class Ready:
    """A move that can begin; ``prepared`` is what the source handed out for it."""

    wish: Wish
    prepared: Mapping[str, Any]

    @property
    def creation(self) -> OpInstanceCreate:
        """The creation, with the proof of the sender."""
        return OpInstanceCreate(
            **self.wish.creation,
            source_handshake=self.prepared["handshake"],
            source_x509_ca=self.prepared["x509_ca"],
        )


class Preflight:
    """Collects what is wrong."""

    def __init__(self, source: Cluster, destination: Cluster) -> None:
        self.problems: list[str] = []
        self._clusters = (source, destination)

    def run(self, names: Mapping[str, str], wanted: Overrides) -> list[Ready]:
        """Look at all moves; what comes back is of use only if there are no `problems`.

        Args:
            names: of the instances, and the names that they get.
        """
        found = [self._reach(cluster) for cluster in self._clusters]
        clients = [client for client, _ in found if client is not None]
        try:
            if len(clients) < len(self._clusters):
                return []
            infos = [info for _, info in found]
            self.problems += checks.version_problems(*infos)
            there = self._destination(clients[1], infos[1])
            moves = [
                self._look_at(clients, there, name, new_name, wanted)
                for name, new_name in names.items()
            ]
            return [move for move in moves if move is not None]
        except GenericError as err:
            self.problems.append(err.message)
            return []
        finally:
            for client in clients:
                client.close()

    def _reach(self, cluster: Cluster) -> tuple[RapiClient | None, Mapping[str, Any]]:
        """Return a client and facts, if the cluster can be asked."""
        client = None
        try:
            client = cluster.client()
            info = client.get_info()
            self.problems += checks.rights_problems(cluster.label, _user(client, cluster))
        except GenericError as err:
            self.problems.append(cluster.explain(err))
            if client is not None:
                client.close()
            return None, {}
        return client, info

    def _destination(self, client: RapiClient, info: Mapping[str, Any]) -> checks.Destination:
        return checks.Destination(
            info=info,
            nodes=client.get_nodes(bulk=True),
            instances=[each["id"] for each in client.get_instances()],
            systems=client.get_os(),
            networks=[each["name"] for each in client.get_networks(bulk=True)],
        )

    def _look_at(
        self,
        clients: Sequence[RapiClient],
        there: checks.Destination,
        name: str,
        new_name: str,
        wanted: Overrides,
    ) -> Ready | None:
        here = clients[0]
        try:
            source = describe(here, name)
            wish = plan(source, new_name or source.name, wanted)
            found = [
                *checks.source_problems(source, here.get_nodes(bulk=True)),
                *checks.destination_problems(wish, there),
            ]
            prepare = OpBackupPrepare(instance_name=source.name, mode=ExportMode.REMOTE)
            ready = Ready(wish, run_job(here, here.submit(prepare)))
        except GenericError as err:
            self.problems.append(err.message)
            return None
        refusal = self._rehearse(clients[1], ready)
        if refusal and (not found or _UNSIGNED in refusal):
            found.append(refusal)
        self.problems += found
        return ready

    def _rehearse(self, client: RapiClient, ready: Ready) -> str:
        """Ask the destination cluster whether it would make the instance; returns why not."""
        try:
            run_job(client, client.submit(replace(ready.creation, dry_run=True)))
        except JobFailedError as err:
            return f"the {self._clusters[1].what} refuses it: {failure_reason(err.job)}"
        return ""


def _user(client: RapiClient, cluster: Cluster) -> Mapping[str, Any]:
    """Ask who we are; a server that does not know that question says so when it matters."""
    try:
        return client.read(dict[str, Any], "get_user")
    except GenericError as err:
        if not is_not_found(err):
            raise
        return {"name": cluster.user, "rights": ["write"]}


def describe(client: RapiClient, name: str) -> Source:
    """Return an instance as its cluster describes it.

    Raises:
        OpPrereqError: there is none, or nobody knows whether it runs.
    """
    try:
        row = client.get_instance(name)
    except GenericError as err:
        if not is_not_found(err):
            raise
        raise OpPrereqError(f"the source cluster has no instance {name!r}") from err
    if row["oper_state"] is None:
        raise OpPrereqError(
            f"the source cluster cannot tell whether instance {name!r} runs: node"
            f" {row['pnode']!r} does not answer"
        )
    facts = run_job(client, client.get_instance_info(name, static=True))
    return Source(row["name"], bool(row["oper_state"]), facts[row["name"]])
