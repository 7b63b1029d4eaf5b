"""Findings about high availability: the members of etcd, and the agents of the nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ganeti.availability.records import PAUSE_KEY, Pause
from ganeti.base.errors import GenericError
from ganeti.base.text import utc
from ganeti.logical_units.cluster.availability import ask_etcd, settings_text
from ganeti.logical_units.cluster.findings import Finding, Severity
from ganeti.logical_units.context import JobContext
from ganeti.objects.model import Node
from ganeti.objects.verify_errors import VerifyErrorCode
from ganeti.protocol.node_calls import NodeCalls
from ganeti.store import availability
from ganeti.store.availability import Settings

if TYPE_CHECKING:
    from ganeti.clients.etcd import EtcdClient, MemberHealth

# Etcd takes no more writes at 2 GiB; and each beat of a node has to fit into its time.
_SIZE_BYTES_MAX: Final = 1 << 30
_LATENCY_S_MAX: Final = 0.5
_SECONDS_PER_DAY: Final = 86400
_DAYS_WARN: Final = 60  # nobody would see it in etcd before it is over
_DAYS_ERROR: Final = 7


def availability_findings(context: JobContext, nodes: Sequence[Node]) -> list[Finding]:
    """Ask etcd and all agents; high availability is on."""
    settings = availability.read(context.paths)
    if settings is None:
        return []
    online = [node for node in nodes if not node.offline]
    answers = context.nodes.call_all(NodeCalls.ha_report, online)
    wanted = availability.digest(settings_text(context, settings))
    found = [*_judge_etcd(*ask_etcd(settings, _look_at_etcd), now=context.now())]
    for node in online:
        answer = answers[node.name]
        if answer.error is not None:
            found.append(_of_node(node.name, f"ha_report: {answer.error}"))
        else:
            found += judge_agent(node.name, answer.payload, wanted, settings, context.now())
    return found


async def _look_at_etcd(etcd: EtcdClient) -> tuple[Mapping[str, MemberHealth], Pause | None]:
    health = await etcd.health()
    try:
        pause = (await etcd.read()).one(PAUSE_KEY, Pause)
    except GenericError:
        pause = None
    return health, pause


def _judge_etcd(
    members: Mapping[str, MemberHealth], pause: Pause | None, *, now: float
) -> Iterator[Finding]:
    """Yield the problems of the members, by URL, and tell of a pause."""
    for url, member in members.items():
        if member.trouble:
            yield _of_cluster(f"etcd at {url} does not answer: {member.trouble}")
            continue
        if not member.leader:
            yield _of_cluster(f"etcd at {url} follows no leader")
        if member.size_bytes > _SIZE_BYTES_MAX:
            size_mib = member.size_bytes >> 20
            text = f"etcd at {url} holds {size_mib} MiB, and takes no more at 2048: defragment it"
            yield _of_cluster(text, Severity.WARNING)
        if member.latency_s > _LATENCY_S_MAX:
            text = f"etcd at {url} took {member.latency_s:.1f} s to answer; is its disk slow?"
            yield _of_cluster(text, Severity.WARNING)
    if pause is not None and pause.until > now:
        until = utc(pause.until)
        text = f"high availability is paused by {pause.by} until {until}: {pause.why}"
        yield _of_cluster(text, Severity.WARNING)


def judge_agent(
    name: str, report: Mapping[str, object], wanted: str, settings: Settings, now: float = 0.0
) -> Iterator[Finding]:
    """Yield the problems of a node's part in it.

    Args:
        report: the answer to ha_report.
        wanted: the digest of the settings.
        now: in seconds since the epoch.
    """
    if not report.get("settings"):
        yield _of_node(name, "has no settings of high availability; type 'gnt-cluster ha-enable'")
    elif report["settings"] != wanted:
        text = "has other settings of high availability than the master"
        yield _of_node(name, f"{text}; type 'gnt-cluster ha-enable'")
    if not report.get("agent"):
        yield _of_node(name, "runs no ganeti-ha: nobody would know that this node is dead")
    elif report["settings"] == wanted != report.get("taken", wanted):
        text = "has a ganeti-ha that works with earlier settings"
        yield _of_node(name, f"{text}; see /var/log/ganeti/ha-agent.log there")
    yield from _judge_certificates(name, report.get("ends"), settings, now)
    if trouble := report.get("disk"):
        text = f"does not hold its lease on {settings.disk.path if settings.disk else 'the disk'}"
        yield _of_node(name, f"{text}: {trouble}")
    if settings.disk is not None and name not in (*settings.disk.slots, settings.witness):
        text = f"has no slot on lease disk {settings.disk.path}; prepare it anew for more nodes"
        yield _of_node(name, f"{text}: gnt-cluster ha-enable --lease-disk={settings.disk.path}")
    member = report.get("member")
    if name in settings.members and member is not True:
        yield _of_node(name, "is to run a member of etcd, and runs none")
    if name not in settings.members and member is not None:
        yield _of_node(name, "runs a member of etcd that is none of the cluster's any more")


def _judge_certificates(
    name: str, ends: object, settings: Settings, now: float
) -> Iterator[Finding]:
    """Yield the certificates for etcd that end soon; without one no agent reaches it."""
    command = "gnt-cluster renew-crypto --new-etcd-certificates"
    if not settings.members:
        command = "gnt-cluster ha-enable --endpoints=... --certificate=... --authority=..."
    for path, end in ends.items() if isinstance(ends, dict) else ():
        left_days = (end - now) / _SECONDS_PER_DAY
        if left_days <= _DAYS_WARN:
            text = f"has certificate {path} for etcd, which ends in {left_days:.0f} days"
            severity = Severity.ERROR if left_days <= _DAYS_ERROR else Severity.WARNING
            yield _of_node(name, f"{text}; renew it: {command}", severity)


def _of_cluster(text: str, severity: Severity = Severity.ERROR) -> Finding:
    return Finding(VerifyErrorCode.ECLUSTERCFG, "", text, severity)


def _of_node(name: str, text: str, severity: Severity = Severity.ERROR) -> Finding:
    return Finding(VerifyErrorCode.ENODESETUP, name, text, severity)
