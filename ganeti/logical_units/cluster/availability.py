"""High availability is switched on and off, and follows the nodes.

The settings are the same file on all nodes; that of the master counts.  The cluster's own etcd has
an authority of its own, whose key only the master candidates have; it issues one certificate for
each member, and one for all clients.

Source: design.md, "A node is dead when it is proved, not when it is silent".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from ganeti.availability.disk import place_nodes, slots_for
from ganeti.availability.electorate import Obstacle, obstacle
from ganeti.availability.members import SIZE, choose, next_change
from ganeti.availability.proof import CONFIRM_COMMAND
from ganeti.availability.records import (
    ACTING,
    GUARDS,
    LOSSES,
    MASTER_KEY,
    NODES,
    Guard,
    Loss,
    Mastership,
    keys_of_others,
)
from ganeti.availability.restarts import LIMIT_NAMES, Limits, objection
from ganeti.availability.timing import Timing
from ganeti.base.errors import GenericError, OpExecError, OpPrereqError, TransportError, wrong_state
from ganeti.base.json import dumps
from ganeti.base.text import shown
from ganeti.clients.node_rpc import target_of
from ganeti.logical_units import lookup, node_files
from ganeti.logical_units.base import SimpleUnit
from ganeti.logical_units.context import JobContext, alone
from ganeti.logical_units.locks import LockLevel, LockNeed, exclusive
from ganeti.objects.fill import fill_ndparams
from ganeti.objects.model import Cluster, Node
from ganeti.opcodes.cluster import OpClusterSetAvailability
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc_values import CompressedText
from ganeti.store import availability
from ganeti.store.availability import Member, Settings, SharedDisk
from ganeti.system import clock, files
from ganeti.system.filelock import FileLock

if TYPE_CHECKING:
    from ganeti.clients.etcd import EtcdClient, Snapshot

T = TypeVar("T")

CLIENT_PORT: Final = 1818
PEER_PORT: Final = 1819
PEM_BYTES_MAX: Final = 1 << 20
_SERIAL_BITS: Final = 64
AUTHORITY_DAYS: Final = 3650
_ETCD_S: Final = 5.0
_UP_S: Final = 120.0  # all members, and then all agents
_MEMBER_S: Final = 20.0
_PAUSE_S: Final = 0.3
_HEARD_S: Final = 10.0  # agents look at their files every two seconds
_COMMAND: Final = "gnt-cluster ha-enable"
_RULE: Final = "when a node is added or removed, most nodes have to be there for high availability"


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be: nodes, and the settings; None for off."""

    nodes: Sequence[Node]
    before: Settings | None
    after: Settings | None


class LUClusterSetAvailability(SimpleUnit[OpClusterSetAvailability, Change]):
    """Switch high availability on or off, or bring the nodes up to date."""

    def resolve(self) -> Change:
        before = availability.read(self.context.paths)
        return Change(lookup.all_nodes(self.config), before, before)

    def locks(self, found: Change) -> LockNeed:
        """Lock all nodes: none comes, goes or changes its role meanwhile."""
        return exclusive(LockLevel.NODE, [node.uuid for node in found.nodes])

    def plan(self, found: Change) -> Change:
        """Choose members, and ask all nodes whether they can take part."""
        op, before = self.op, found.before
        if op.enabled is False:
            return replace(found, after=None)
        if op.enabled is None and before is None:
            raise wrong_state(f"high availability is off; '{_COMMAND}' switches it on")
        after = self._settings(found)
        offline = [node.name for node in found.nodes if node.offline]
        if before is None and offline:
            raise OpPrereqError(
                f"node {offline[0]} is offline: nobody could tell whether it is dead; bring it"
                " back, or remove it"
            )
        asked = [node for node in found.nodes if not node.offline]
        answers = self.context.nodes.call_each(
            NodeCalls.ha_look,
            {
                target_of(node): (
                    "" if node.name == after.witness else after.watchdog,
                    node.name in after.members,
                )
                for node in asked
            },
        )
        problems = [
            f"node {name}: {problem}"
            for name, answer in answers.items()
            for problem in ([answer.error] if answer.error else answer.payload)
            if before is None or answer.error  # a watchdog is in use, then
        ]
        if problems:
            raise OpPrereqError("high availability cannot be switched on: " + "; ".join(problems))
        return replace(found, after=after)

    def _settings(self, found: Change) -> Settings:
        op, paths = self.op, self.context.paths
        old = found.before or Settings(endpoints=[], prefix=f"/ganeti/{self.cluster.uuid}/")
        is_own = not op.endpoints and (found.before is None or bool(old.members or op.members))
        changed: dict[str, object] = {
            "timing": _timing(old.timing, op.timing),
            "limits": _limits(old.limits, op.limits),
            "helpers": _helpers(self.context, found.nodes),
        }
        if op.watchdog is not None:
            changed["watchdog"] = op.watchdog
        witness = old.witness
        if op.witness is not None:
            witness = self._witness(op.witness)
            changed |= {"witness": witness, "adopted": op.adopted and bool(witness)}
        changed["disk"] = disk = self._disk(found, old.disk, witness)
        if disk is not None and not changed.get("watchdog", old.watchdog):
            raise OpPrereqError(
                "a lease on a disk proves nothing without a watchdog, which resets the node that"
                " has lost it: name one with --watchdog, or leave out --lease-disk"
            )
        if not is_own:
            changed["endpoints"] = op.endpoints or old.endpoints
        elif found.before is None:
            members = self._members(found.nodes, witness)
            changed |= {
                "members": [node.name for node in members],
                "endpoints": [client_url(node) for node in members],
                "certificate": paths.ha_certificate,
                "authority": paths.ha_authority,
            }
        elif op.members:
            raise wrong_state(
                "the members of etcd follow the master candidates; to choose others, switch high"
                " availability off first"
            )
        if op.endpoints and any(url.startswith("https:") for url in op.endpoints):
            changed |= {"certificate": paths.ha_certificate, "authority": paths.ha_authority}
        return msgspec.structs.replace(old, **changed)

    def _witness(self, given: str) -> str:
        """Return the name of a node that may be the witness; "" if there is to be none.

        Raises:
            OpPrereqError: it may not.
        """
        if not given:
            return ""
        [node] = lookup.require_nodes(self.config, [given])
        modify = f"type 'gnt-node modify --vm-capable=no --master-candidate=yes {node.name}'"
        if node.uuid == self.cluster.master_node:
            raise OpPrereqError(f"node {node.name} is the master, which is no witness")
        if node.vm_capable:
            raise OpPrereqError(
                f"node {node.name} may run instances, so it is no witness; {modify}"
            )
        if not node.master_candidate or node.offline:
            raise OpPrereqError(f"node {node.name} is no master candidate; {modify}")
        return node.name

    def _disk(self, found: Change, old: SharedDisk | None, witness: str) -> SharedDisk | None:
        """Return the lease disk that is to be: a new lease if one is named, or else as before."""
        path = self.op.lease_disk
        names = [node.name for node in found.nodes if node.name != witness]
        if path is None:
            return None if old is None else _with_slots(old, names)
        if not path:
            return None
        self.context.paths.localize(path)  # is it a path?
        size = slots_for(len(names))
        known = {} if old is None else old.slots
        return SharedDisk(
            path=path,
            cluster=self.cluster.uuid,
            lease=clock.new_uuid(),
            size=size,
            slots=place_nodes(known, names, size),
        )

    def _members(self, nodes: Sequence[Node], witness: str) -> Sequence[Node]:
        usable = {n.name: n for n in nodes if n.master_candidate and not n.offline}
        master = self.master.name
        if self.op.members:
            named = lookup.require_nodes(self.config, self.op.members)
            wrong = [node.name for node in named if node.name not in usable]
            if wrong:
                raise OpPrereqError(
                    f"node {wrong[0]} is no master candidate, and only those are members of etcd"
                )
            if len(named) != SIZE:
                raise OpPrereqError(f"an etcd that may lose a member has {SIZE}; name {SIZE} nodes")
            return named
        names = choose(sorted(usable, key=lambda name: (name != master, name != witness, name)))
        if not names:
            raise OpPrereqError(
                f"etcd needs {SIZE} master candidates, and there are {len(usable)}; make more nodes"
                " candidates, or take a third machine as a witness, with --witness"
            )
        return [usable[name] for name in names]

    def execute(self, plan: Change) -> None:
        """Carry it out; what fails when it is switched on is taken back."""
        with members_alone(self.context):
            self._change(plan)

    def _change(self, plan: Change) -> None:
        if plan.after is None:
            off = Settings(endpoints=[], prefix="")
            _switch_off(self.context, self.cluster, plan.nodes, plan.before or off)
        elif plan.before is None:
            with ExitStack() as undo:
                undo.callback(self._take_back, plan.nodes, plan.after)
                _prepare_disk(self.context, plan)
                self._switch_on(plan.nodes, plan.after)
                undo.pop_all()
        else:
            _prepare_disk(self.context, plan)
            settings = follow(self.context, plan.nodes, plan.after)
            send_settings(self.context, settings, plan.nodes)
            old, new = plan.before.disk, settings.disk
            if old is not None and (new is None or new.path != old.path):
                _clear_disk(self.context, old)

    def _take_back(self, nodes: Sequence[Node], settings: Settings) -> None:
        self.context.warn("high availability could not be switched on; everything is taken back")
        _switch_off(self.context, self.cluster, nodes, settings)

    def _switch_on(self, nodes: Sequence[Node], settings: Settings) -> None:
        context = self.context
        # Agents of an attempt that was cut off would be without etcd for a while, and too few.
        online = [node for node in nodes if not node.offline]
        _tell(context, NodeCalls.ha_stop, online, self.cluster.drbd_usermode_helper or "")
        if settings.members:
            _make_authority(context, self.cluster)
            members = [node for node in nodes if node.name in settings.members]
            initial = {node.name: peer_url(node) for node in members}
            context.info(f"starting etcd on {', '.join(initial)}")
            _start_members(context, settings, members, initial)
        wait_for_etcd(context, settings)
        ask_etcd(settings, _erase)  # etcd may not have answered when it was switched off last
        context.info("starting the agents")
        # The master's first: to agents that found no master's lease it would be a lost one.
        master = _master(context)
        send_settings(context, settings, [master])
        _wait(
            context,
            settings,
            lambda shelf: set() if MASTER_KEY in shelf.entries else {master.name},
            "the agent of the master {} has not taken its lease; see /var/log/ganeti/ha-agent.log",
        )
        send_settings(context, settings, nodes)
        names = {node.name for node in online}
        _wait(
            context,
            settings,
            lambda shelf: {name for name in names if f"{NODES}{name}" not in shelf.entries},
            "the agent has not shown itself on {}; see /var/log/ganeti/ha-agent.log there",
        )
        context.info("all nodes show that they live: high availability is on")


def members_alone(context: JobContext) -> FileLock:
    """Keep two jobs from changing the members at the same time; errors as of `alone`."""
    return alone(context, "high-availability", "changes the members of etcd")


# The lease disk


def _with_slots(disk: SharedDisk, nodes: Sequence[str]) -> SharedDisk:
    """Return the disk with a slot for each node, as long as there are some."""
    return msgspec.structs.replace(disk, slots=place_nodes(disk.slots, nodes, disk.size))


def _prepare_disk(context: JobContext, plan: Change) -> None:
    """Prepare a lease disk that is another one now, and see that all nodes reach it.

    Raises:
        OpExecError: they do not, or somebody else uses it.
    """
    after, before = plan.after, plan.before
    disk = None if after is None else after.disk
    if disk is None or (before is not None and before.disk and before.disk.lease == disk.lease):
        return
    context.info(f"preparing {disk.path} for leases")
    words = (disk.path, disk.cluster, disk.lease)
    doing = "prepare the lease disk"
    context.nodes.on(_master(context), doing).ha_prepare_disk(*words, disk.size)
    online = [n for n in plan.nodes if not n.offline and n.name in disk.slots]
    answers = context.nodes.call_all(NodeCalls.ha_check_disk, online, *words)
    problems = [
        f"node {name}: {answer.error or answer.payload}"
        for name, answer in answers.items()
        if answer.error or answer.payload
    ]
    if problems:
        _clear_disk(context, disk)
        raise OpExecError("the lease disk is not the same on all nodes: " + "; ".join(problems))


def _clear_disk(context: JobContext, disk: SharedDisk) -> None:
    """Let a lease disk be empty again; a failure is only told."""
    _tell(context, NodeCalls.ha_clear_disk, [_master(context)], disk.path, disk.cluster)


def _master(context: JobContext) -> Node:
    return lookup.require_node(context.config, context.config.get_cluster().master_node)


def _timing(old: Timing, given: Mapping[str, float]) -> Timing:
    """Return the times with those that are given, by names without their unit.

    Raises:
        OpPrereqError: there is no such time, or the times contradict each other.
    """
    known = {each.name.removesuffix("_s"): each.name for each in fields(Timing)}
    if wrong := sorted(given.keys() - known.keys()):
        raise OpPrereqError(f"there is no time {wrong[0]!r}, but {', '.join(known)}")
    found = Timing(**(asdict(old) | {known[name]: value for name, value in given.items()}))
    if not 0 < 2 * found.beat_s <= found.lease_s or found.lease_s < 1 or found.watchdog_s < 1:
        raise OpPrereqError(
            "a node shows at least twice in the time of its lease that it lives, and lease and"
            " watchdog take a second at least"
        )
    return found


def _limits(old: Limits, given: Mapping[str, int]) -> Limits:
    """Return the limits with those that are given.

    Raises:
        OpPrereqError: there is no such limit.
    """
    if wrong := sorted(given.keys() - LIMIT_NAMES.keys()):
        raise OpPrereqError(f"there is no limit {wrong[0]!r}, but {', '.join(LIMIT_NAMES)}")
    return replace(old, **{LIMIT_NAMES[name]: value for name, value in given.items()})


def _helpers(context: JobContext, nodes: Sequence[Node]) -> dict[str, str]:
    """Return {node: its out-of-band program}, as nodes, their groups and the cluster say."""
    cluster, groups = context.config.get_cluster(), lookup.groups_of(context.config, nodes)
    found = {n.name: fill_ndparams(cluster, groups[n.group], n) for n in nodes}
    return {name: params["oob_program"] for name, params in found.items() if params["oob_program"]}


def client_url(node: Node) -> str:
    """Return the URL of a node's member of etcd for clients."""
    return _url(node, CLIENT_PORT)


def peer_url(node: Node) -> str:
    """Return its URL for the other members."""
    return _url(node, PEER_PORT)


def _url(node: Node, port: int) -> str:
    host = f"[{node.primary_ip}]" if ":" in node.primary_ip else node.primary_ip
    return f"https://{host}:{port}"


# Certificates


def new_authority(cluster: Cluster) -> tuple[bytes, bytes]:
    """Return a new authority of etcd: with its key, and its certificate alone."""
    from ganeti.system import certificates  # cryptography: many milliseconds

    name = f"etcd.{cluster.cluster_name}"
    pem = certificates.make_self_signed(name, now=clock.now(), days=AUTHORITY_DAYS)
    return pem, certificates.certificate_only(pem, name)


def _make_authority(context: JobContext, cluster: Cluster) -> None:
    """Make the authority, and the certificate of all clients, on the master."""
    paths = context.paths
    pem, certificate = new_authority(cluster)
    files.write_durable(paths.ha_authority_key, pem, 0o600)
    files.write_durable(paths.ha_authority, certificate, 0o600)
    files.write_durable(paths.ha_certificate, issue(context, "client", []), 0o600)


def issue(context: JobContext, name: str, addresses: Sequence[str]) -> bytes:
    """Return key and certificate for one side of a connection.

    Raises:
        OpExecError: this node has no authority; a candidate gets it with the settings.
    """
    path = context.paths.ha_authority_key
    authority = files.read_bytes_or_none(path, PEM_BYTES_MAX)
    if authority is None:
        raise OpExecError(
            f"{path} is missing on the master, so no certificate of etcd can be issued; switch high"
            " availability off and on again"
        )
    from ganeti.system import certificates

    serial = int.from_bytes(clock.random_bytes(_SERIAL_BITS // 8), "big")
    return certificates.issue_member_certificate(
        name, addresses, authority, now=clock.now(), serial=serial, filename=path
    )


# Members


def _start_members(
    context: JobContext,
    settings: Settings,
    members: Sequence[Node],
    initial: Mapping[str, str],
    number: int | None = None,
) -> None:
    """Start members at the same time: they answer when most of them are there.

    Args:
        number: of the one that joins an etcd; None for those of a new one.

    Raises:
        OpExecError: one does not run.
    """
    paths = context.paths
    authority = files.read_bytes_or_none(paths.ha_authority, PEM_BYTES_MAX) or b""
    given, token = {}, clock.new_uuid()
    for node in members:
        member = Member(
            name=node.name,
            client_url=client_url(node),
            peer_url=peer_url(node),
            initial_cluster=dict(initial),
            state="new" if number is None else "existing",
            id="" if number is None else str(number),
            token=token,
            election_ms=settings.timing.election_ms,
            certificate=paths.globalize(paths.ha_member_certificate),
            authority=paths.globalize(paths.ha_member_authority),
        )
        pem = issue(context, node.name, [node.primary_ip])
        given[target_of(node)] = (
            CompressedText(dumps(member)),
            CompressedText(pem),
            CompressedText(authority),
        )
    answers = context.nodes.call_each(NodeCalls.ha_start_member, given)
    failed = [f"node {name}: {each.error}" for name, each in answers.items() if each.error]
    if failed:
        raise OpExecError(f"etcd does not run: {'; '.join(failed)}")


def follow(context: JobContext, nodes: Sequence[Node], settings: Settings) -> Settings:
    """Let the members of etcd follow the master candidates; returns the settings then.

    Raises:
        OpExecError, TransportError: a member cannot be changed; the others work on.
    """
    usable = [node.name for node in nodes if node.master_candidate and not node.offline]
    by_name = {node.name: node for node in nodes}
    while settings.members and (change := next_change(settings.members, usable)):
        members = list(settings.members)
        if change.remove:
            context.info(f"etcd gives up its member on {change.remove}")
            _change_members(settings, partial(_remove, name=change.remove))
            gone = by_name.get(change.remove)
            if gone is not None and not gone.offline:
                _tell(context, NodeCalls.ha_stop_member, [gone])
            members.remove(change.remove)
        if change.add:
            context.info(f"etcd gets a member on {change.add}")
            node = by_name[change.add]
            number, initial = _change_members(settings, partial(_add, node=node))
            members.append(change.add)
            _start_members(context, settings, [node], initial, number)
        endpoints = [client_url(by_name[name]) for name in members if name in by_name]
        settings = msgspec.structs.replace(settings, members=members, endpoints=endpoints)
    return settings


def ask_etcd(settings: Settings, act: Callable[[EtcdClient], Awaitable[T]]) -> T:
    """Ask etcd, and wait for the answer.

    Raises:
        TransportError, ProtocolError: it does not answer, or refuses.
    """
    import asyncio  # the template of all job processes has none of these

    from ganeti.clients.etcd import EtcdClient

    async def ask() -> T:
        async with EtcdClient.of(settings, max(_ETCD_S, settings.timing.command_s)) as etcd:
            return await act(etcd)

    return asyncio.run(ask())


async def _remove(etcd: EtcdClient, name: str) -> None:
    for each in await etcd.members():
        if each.name == name:
            await etcd.remove_member(each.ID)


async def _add(etcd: EtcdClient, node: Node) -> tuple[int, dict[str, str]]:
    """Expect a member on a node; returns its number, and the URL of each member by its name."""
    url = peer_url(node)
    for each in await etcd.members():
        # One that has joined before begins anew without its data: it has to be another.
        if url in each.peer_urls and each.name:
            await etcd.remove_member(each.ID)
    number = await etcd.add_member(url)
    members = await etcd.members()
    return number, {each.name or node.name: each.peer_urls[0] for each in members}


def _change_members(settings: Settings, act: Callable[[EtcdClient], Awaitable[T]]) -> T:
    """Change the members of etcd.

    Raises:
        TransportError, ProtocolError: it does not answer, or refuses.
    """

    # Etcd wants its members to have been connected for some seconds before it changes them.
    until_s = clock.monotonic() + _MEMBER_S
    while True:
        try:
            return ask_etcd(settings, act)
        except TransportError:
            if clock.monotonic() > until_s:
                raise
        clock.pause(_PAUSE_S)


def check_most_are_there(
    context: JobContext, nodes: Sequence[Node], leaving: Node | None = None
) -> None:
    """Refuse to add or remove a node while most of the present ones are not there.

    They have to know of the last change, too, which takes their agents a moment; the reason for all
    of it is in `ganeti.availability.electorate`.

    Args:
        leaving: the node that is removed; None for one that is added.

    Raises:
        OpPrereqError: too few nodes hold a lease and know the others (`electorate.obstacle`); or
            etcd does not answer: nodes live on by their number then, which is another one at once;
            or jobs of a master may still run on the one that is removed, and nobody else knows.
    """
    settings = availability.read(context.paths)
    if settings is None:
        return
    names = [node.name for node in nodes]
    until_s = clock.monotonic() + _HEARD_S
    while True:
        try:
            shelf = ask_etcd(settings, lambda etcd: etcd.read())
        except GenericError as err:
            why, may_end = f"{_RULE}, and this is not known: {err.message}", True
        else:
            found = _obstacle(shelf, names)
            if found is None:
                break
            why, may_end = _said_of(found), bool(found.behind)
        if not may_end or clock.monotonic() > until_s:
            raise wrong_state(f"{why}; or type 'gnt-cluster ha-disable' first")
        clock.pause(_PAUSE_S)
    if leaving is not None:
        _check_mark(context, shelf, leaving.name)


def _check_mark(context: JobContext, shelf: Snapshot, name: str) -> None:
    """Refuse to remove a node on which jobs of a master may run: its mark would go with it."""
    marks = {key: mark for key, mark in shelf.below(ACTING, Mastership).items() if key == name}
    if why := objection(marks, shelf.below(LOSSES, Loss), _master(context).name):
        raise wrong_state(why)


def _obstacle(shelf: Snapshot, names: Collection[str]) -> Obstacle | None:
    present = [key.removeprefix(NODES) for key in shelf.entries if key.startswith(NODES)]
    return obstacle(names, present, shelf.below(GUARDS, Guard), shelf.below(LOSSES, Loss))


def _said_of(found: Obstacle) -> str:
    text = _RULE
    if found.gone:
        text += (
            f"; these do not hold their lease: {shown(found.gone)} (bring them back, or type"
            f" '{CONFIRM_COMMAND} NODE' for those that are switched off)"
        )
    if found.behind:
        text += (
            f"; these do not know of the last change of nodes: {shown(found.behind)} ('gnt-cluster"
            " redist-conf' tells them)"
        )
    return text


def update(context: JobContext) -> None:
    """Let high availability know of nodes that came, went or changed; errors are told."""
    with members_alone(context):
        settings = availability.read(context.paths)
        if settings is not None:
            # Only now, as others may have come while this waited.
            _update(context, lookup.all_nodes(context.config), settings)


def _update(context: JobContext, nodes: Sequence[Node], settings: Settings) -> None:
    if settings.witness not in ("", *(node.name for node in nodes)):
        settings = msgspec.structs.replace(settings, witness="", adopted=False)
    names = [node.name for node in nodes if node.name != settings.witness]
    disk = settings.disk and _with_slots(settings.disk, names)
    settings = msgspec.structs.replace(settings, helpers=_helpers(context, nodes), disk=disk)
    try:
        settings = follow(context, nodes, settings)
    except GenericError as err:
        context.warn(
            f"the members of etcd do not follow the master candidates: {err.message}; type"
            f" '{_COMMAND}' when that is put right"
        )
    send_settings(context, settings, nodes, is_lenient=True)
    try:
        ask_etcd(settings, partial(_forget_others, nodes=[node.name for node in nodes]))
    except GenericError as err:
        context.warn(f"what etcd has of nodes that were removed stays: {err.message}")


def forget_boot(context: JobContext, name: str) -> None:
    """Let nobody miss the boot before of a node that is taken back, until its agent is there.

    It answers; its helper would switch it off before it has the settings of now.
    """
    settings = availability.read(context.paths)
    if settings is None:
        return
    try:
        ask_etcd(settings, partial(_forget_boot, name=name))
    except GenericError as err:
        context.warn(f"node {name} is missed until its agent has started: {err.message}")


async def _forget_boot(etcd: EtcdClient, name: str) -> None:
    await _delete(etcd, [GUARDS + name], absent=[NODES + name])


async def _forget_others(etcd: EtcdClient, nodes: Sequence[str]) -> None:
    """Take out what is there of nodes that were removed: nobody else would ever do so."""
    if keys := keys_of_others((await etcd.read()).entries, nodes):
        await _delete(etcd, keys)


async def _delete(etcd: EtcdClient, keys: Collection[str], absent: Collection[str] = ()) -> None:
    """Take keys out, if others are not there."""
    from ganeti.clients.etcd import Delete, Unchanged

    await etcd.change([Unchanged(key, 0) for key in absent], *map(Delete, keys))


# Settings


def send_settings(
    context: JobContext, settings: Settings, nodes: Sequence[Node], *, is_lenient: bool = False
) -> None:
    """Send the settings to all nodes that are online, and the authority's key to the candidates.

    Raises:
        OpExecError: some did not take them; unless it is lenient, and only warns.
    """
    paths = context.paths
    text = settings_text(context, settings)
    if settings.members:
        candidates = [n for n in nodes if n.master_candidate and not n.offline]
        node_files.send(context, paths.ha_authority_key, candidates)
    certificate, authority = (
        files.read_bytes_or_none(path, PEM_BYTES_MAX) or b"" if settings.certificate else b""
        for path in (paths.ha_certificate, paths.ha_authority)
    )
    online = [node for node in nodes if not node.offline]
    if settings.members:  # one that was away may still run a member that is none any more
        others = [node for node in online if node.name not in settings.members]
        _tell(context, NodeCalls.ha_stop_member, others)
    answers = context.nodes.call_all(
        NodeCalls.ha_start,
        online,
        CompressedText(text),
        CompressedText(certificate),
        CompressedText(authority),
    )
    failed = [f"node {name}: {each.error}" for name, each in answers.items() if each.error]
    if failed and not is_lenient:
        raise OpExecError(f"agents of high availability do not follow: {'; '.join(failed)}")
    for text_of_failure in failed:
        context.warn(f"no agent of high availability: {text_of_failure}")


def settings_text(context: JobContext, settings: Settings) -> bytes:
    """Return the content of the file, with paths as every node has them."""
    if settings.certificate:
        settings = msgspec.structs.replace(
            settings,
            certificate=context.paths.globalize(settings.certificate),
            authority=context.paths.globalize(settings.authority),
        )
    return dumps(settings)


def _switch_off(
    context: JobContext, cluster: Cluster, nodes: Sequence[Node], settings: Settings
) -> None:
    """Take everything away, agents first."""
    paths = context.paths
    online = [node for node in nodes if not node.offline]
    _tell(context, NodeCalls.ha_stop, online, cluster.drbd_usermode_helper or "")
    # All of them: the settings may be gone already, if an earlier attempt was cut off.
    _tell(context, NodeCalls.ha_stop_member, online)
    if settings.endpoints and not settings.members:
        try:
            ask_etcd(settings, _erase)
        except GenericError as err:
            context.warn(f"what etcd holds below {settings.prefix} stays: {err.message}")
    if settings.disk is not None:
        _clear_disk(context, settings.disk)
    for path in (paths.ha_authority_key, paths.ha_authority, paths.ha_certificate):
        files.remove_if_exists(path)
    for node in nodes:
        if node.offline:
            context.warn(
                f"node {node.name} is offline and keeps its settings: if it runs, its watchdog may"
                " reset it; run 'gnt-cluster ha-disable' again when it is back"
            )


async def _erase(etcd: EtcdClient) -> None:
    """Take out all that is ours: nothing of it is true while no agent runs."""
    await etcd.erase()


def _tell(
    context: JobContext, method: Callable[..., None], nodes: Sequence[Node], *args: object
) -> None:
    """Make a call whose failures are only told."""
    for name, answer in context.nodes.call_all(method, nodes, *args).items():
        if answer.error is not None:
            context.warn(f"node {name}: {answer.error}")


# Waiting


def wait_for_etcd(context: JobContext, settings: Settings) -> None:
    """Wait until etcd answers.

    Raises:
        OpExecError: it does not.
    """
    _wait(context, settings, lambda _shelf: set(), "")


def _wait(
    context: JobContext, settings: Settings, missing: Callable[[Snapshot], set[str]], complaint: str
) -> None:
    """Wait until etcd has something.

    Raises:
        OpExecError: it has not after some time; the complaint names what is missing.
    """
    until_s = clock.monotonic() + _UP_S

    async def read(etcd: EtcdClient) -> Snapshot:
        return await etcd.read()

    while True:
        context.check_canceled()
        try:
            left = missing(ask_etcd(settings, read))
            if not left:
                return
            trouble = complaint.format(", ".join(sorted(left)))
        except TransportError as err:
            trouble = err.message
        if clock.monotonic() > until_s:
            raise OpExecError(trouble)
        clock.pause(_PAUSE_S)
