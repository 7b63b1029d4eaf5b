"""The findings of a verification, from the answers of single nodes; and the report of them.

The functions are plain: they judge the answers of nodes.

Source: node_rpc.json, "node_verify_checks"; constants.json, "verify_error_codes_with_item_kind".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from ganeti.base.text import shown
from ganeti.base.versions import PROTOCOL_VERSION
from ganeti.clients.node_rpc import RpcResult
from ganeti.logical_units.context import JobContext
from ganeti.objects.disk_templates import LocalDiskStatus
from ganeti.objects.model import CLOCK_SKEW_S_MAX, AdminState, Disk, Instance, LiveState, Node
from ganeti.objects.verify_errors import VerifyErrorCode, item_kind
from ganeti.opcodes.cluster import OpClusterVerifyConfig, OpClusterVerifyGroup
from ganeti.protocol.node_rpc_values import STORED_DISKS_CHECK

_Code = VerifyErrorCode


class Severity(StrEnum):
    """Whether a finding makes the verification fail."""

    ERROR = "ERROR"
    WARNING = "WARNING"


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem; ``item`` is the name of its object ("" for the cluster)."""

    code: VerifyErrorCode
    item: str
    text: str
    severity: Severity = Severity.ERROR

    def line(self, *, with_code: bool) -> str:
        """Return the line for the operator, or the one for programs."""
        kind = item_kind(self.code)
        if with_code:
            text = " ".join(self.text.splitlines())  # the output of a command may have several
            return f"{self.severity.value}:{self.code.value}:{kind}:{self.item}:{text}"
        where = f"{kind} {self.item}" if self.item else kind
        return f"{self.severity.value}: {where}: {self.text}"


def softened(finding: Finding, ignored: Collection[str]) -> Finding:
    """Turn an error that is to be ignored into a warning."""
    if finding.code.value in ignored:
        return Finding(finding.code, finding.item, finding.text, Severity.WARNING)
    return finding


class Report:
    """Tells findings to the operator as they come, and remembers whether one is an error."""

    def __init__(
        self, context: JobContext, op: OpClusterVerifyConfig | OpClusterVerifyGroup
    ) -> None:
        self._context = context
        self._with_code = op.error_codes
        self._ignored = frozenset(code.value for code in op.ignore_errors)
        self.is_well = not op.debug_simulate_errors

    def section(self, text: str) -> None:
        """Name the next part of the work."""
        self._context.feedback(f"* {text}")

    def add_all(self, findings: Iterable[Finding]) -> None:
        """Tell findings."""
        for finding in findings:
            self.add(finding)

    def add(self, finding: Finding) -> None:
        """Tell one finding."""
        finding = softened(finding, self._ignored)
        self._context.feedback(f"  - {finding.line(with_code=self._with_code)}")
        if finding.severity is Severity.ERROR:
            self.is_well = False


def as_mapping(value: object) -> Mapping[str, object]:
    """Return a node's answer as a mapping; an answer of another shape says nothing."""
    return value if isinstance(value, Mapping) else {}


def as_sequence(value: object) -> Sequence[object]:
    """Return a node's answer as a sequence; an answer of another shape says nothing."""
    return value if isinstance(value, list) else ()


@dataclass(frozen=True, slots=True)
class Clock:
    """When the nodes were asked and had answered (seconds); the master's own clock."""

    before: float
    after: float


def judge_node(
    node: Node,
    answer: Mapping[str, object],
    clock: Clock,
    *,
    certificate: str | None,
    file_sums: Mapping[str, str],
) -> Iterator[Finding]:
    """Yield the problems of one node.

    Args:
        answer: its answer to node_verify.
        certificate: the digest that is on the list of candidates, for a candidate.
        file_sums: checksums of the files that it should have, as they are on the master.
    """
    yield from _version(node.name, answer.get("version"))
    yield from _time(node.name, answer.get("time"), clock)
    if node.master_candidate:
        yield from _certificate(node.name, answer.get("client-cert"), certificate)
    for check, code in UNTOLD.items():
        if isinstance(reason := answer.get(check), str):
            severity = Severity.WARNING if check == STORED_DISKS_CHECK else Severity.ERROR
            yield Finding(code, node.name, f"cannot make the check {check!r}: {reason}", severity)
    if not isinstance(answer.get("filelist"), str):
        yield from _files(node.name, answer.get("filelist"), file_sums)
    for check, code in _TEXT_CHECKS.items():
        if answer.get(check):
            yield Finding(code, node.name, str(answer[check]))
    for name, text in as_mapping(answer.get("hypervisor")).items():
        if text is not None:
            yield Finding(_Code.ENODEHV, node.name, f"hypervisor {name}: {text}")
    for check, code, text in _LIST_CHECKS:
        for entry in as_sequence(answer.get(check)):
            yield Finding(code, node.name, f"{text}{_words(entry)}")
    yield from _network(node.name, answer)


# Checks that never answer a text but where they cannot be made, which is the reason then.
UNTOLD: Final[Mapping[str, VerifyErrorCode]] = {
    "allowed-file-storage-paths": _Code.ENODEFILESTORAGEPATHS,
    "bridges": _Code.ENODENET,
    "exclusive-pvs": _Code.ENODELVM,
    "filelist": _Code.ENODEFILECHECK,
    "hvinfo": _Code.ENODEHV,
    "hvparms": _Code.ENODEHV,
    "hypervisor": _Code.ENODEHV,
    "master-ip": _Code.ENODENET,
    "node-net-test": _Code.ENODENET,
    "nodelist": _Code.ENODESSH,
    "nodesetup": _Code.ENODESETUP,
    "oob-paths": _Code.ENODEOOBPATH,
    "pvlist": _Code.ENODELVM,
    STORED_DISKS_CHECK: _Code.ENODEORPHANLV,
    "user-scripts": _Code.ENODEUSERSCRIPTS,
}
# Checks that answer a message when something is wrong.
_TEXT_CHECKS: Final[Mapping[str, VerifyErrorCode]] = {
    "file-storage-path": _Code.ENODEFILESTORAGEPATHUNUSABLE,
    "gluster-storage-path": _Code.ENODEGLUSTERSTORAGEPATHUNUSABLE,
    "shared-file-storage-path": _Code.ENODESHAREDFILESTORAGEPATHUNUSABLE,
}
# Checks that answer a list of problems, and the words before each entry.
_LIST_CHECKS: Final = (
    ("nodesetup", _Code.ENODESETUP, ""),
    ("ssh-clutter", _Code.ENODESSH, ""),
    ("bridges", _Code.ENODENET, "missing bridge "),
    ("hvparms", _Code.ENODEHV, "hypervisor parameters of "),
    ("user-scripts", _Code.ENODEUSERSCRIPTS, "missing or not executable: "),
    ("allowed-file-storage-paths", _Code.ENODEFILESTORAGEPATHS, "forbidden storage path "),
)


def _words(entry: object) -> str:
    if isinstance(entry, Sequence) and not isinstance(entry, str):
        return ", ".join(map(str, entry))
    return str(entry)


def _version(name: str, answer: object) -> Iterator[Finding]:
    match answer:
        case [int(protocol), str(release)]:
            if protocol != PROTOCOL_VERSION:
                text = f"speaks protocol {protocol} (release {release}), not {PROTOCOL_VERSION}"
                yield Finding(_Code.ENODEVERSION, name, text)
        case _:
            yield Finding(_Code.ENODERPC, name, f"answered no version, but {answer!r:.80}")


def _time(name: str, answer: object, clock: Clock) -> Iterator[Finding]:
    match answer:
        case [int(seconds), int(microseconds)]:
            now = seconds + microseconds / 1e6
            skew = max(clock.before - now, now - clock.after, 0.0)
            if skew > CLOCK_SKEW_S_MAX:
                text = f"its clock differs from the master's by {skew:.1f} s"
                yield Finding(_Code.ENODETIME, name, text)
        case _:
            yield Finding(_Code.ENODETIME, name, "did not tell its time")


def _certificate(name: str, answer: object, expected: str | None) -> Iterator[Finding]:
    code = _Code.ECLUSTERCLIENTCERT
    match answer:
        case [None, str(digest)]:
            if expected is None:
                text = f"the client certificate of candidate {name} is not on the list"
                yield Finding(code, "", f"{text}: run 'gnt-cluster renew-crypto'")
            elif digest != expected:
                text = f"the client certificate of candidate {name} is not the one on the list"
                yield Finding(code, "", text)
        case [str(severity), str(text)]:
            yield Finding(code, "", f"candidate {name}: {text}", Severity(severity))
        case _:
            yield Finding(code, "", f"candidate {name} did not tell its client certificate")


_REACHING_TOLD_MAX: Final = 10  # of each node; all nodes may be cut off from all others
# Checks that answer {other node: the failure}, and the attempt that failed.
_REACHING: Final = (
    ("node-net-test", _Code.ENODENET, "reach"),
    ("nodelist", _Code.ENODESSH, "log in by SSH to"),
)


def _network(name: str, answer: Mapping[str, object]) -> Iterator[Finding]:
    for check, code, doing in _REACHING:
        failures = sorted(as_mapping(answer.get(check)).items())
        for other, text in failures[:_REACHING_TOLD_MAX]:
            yield Finding(code, name, f"cannot {doing} node {other}: {text}")
        more = [other for other, _ in failures[_REACHING_TOLD_MAX:]]
        if more:
            yield Finding(code, name, f"cannot {doing} {len(more)} more nodes: {shown(more, 3)}")
    if answer.get("master-ip") is False:
        yield Finding(_Code.ENODENET, name, "cannot reach the cluster's address")


def judge_untold(
    results: Mapping[str, RpcResult[Any]], silent: Collection[str]
) -> Iterator[Finding]:
    """Say which nodes did not answer a question: what they have was not looked at.

    Args:
        silent: nodes that are named already; those that are offline are left out, too.
    """
    for name, result in sorted(results.items()):
        if result.error is not None and not result.offline and name not in silent:
            yield Finding(_Code.ENODERPC, name, f"{result.call}: {result.error}")


def judge_oob_programs(
    master_name: str, programs: Sequence[str], answer: object
) -> Iterator[Finding]:
    """Say which out-of-band programs the master lacks; only it runs them."""
    for program, text in zip(programs, as_sequence(answer), strict=False):
        if text is not None:
            yield Finding(_Code.ENODEOOBPATH, master_name, str(text or program))


def judge_leftover_files(
    name: str, answer: object, expected: Collection[str], asked: Collection[str]
) -> Iterator[Finding]:
    """Say which files of the cluster are on a node that should not have them."""
    for path in sorted(as_mapping(answer)):
        if path in asked and path not in expected:
            text = f"file {path} is on node {name}, which is not to have it"
            yield Finding(_Code.ECLUSTERFILECHECK, "", text, Severity.WARNING)


def judge_dangling(
    nodes: Collection[Node], instances: Collection[Instance], group_uuids: Collection[str]
) -> Iterator[Finding]:
    """Say which nodes are in no group there is, and which instances on no such node."""
    sound = {node.uuid for node in nodes if node.group in group_uuids}
    for node in nodes:
        if node.uuid not in sound:
            text = f"its group {node.group} does not exist"
            yield Finding(_Code.ECLUSTERDANGLINGNODES, node.name, text)
    names = {node.uuid: node.name for node in nodes}
    for instance in instances:
        uuid = instance.primary_node
        if uuid not in sound:
            text = f"instance {instance.name} is on this node, which is in no group"
            yield Finding(_Code.ECLUSTERDANGLINGINST, names.get(uuid, uuid), text)


def _files(name: str, answer: object, expected: Mapping[str, str]) -> Iterator[Finding]:
    sums = as_mapping(answer)
    for path, digest in sorted(expected.items()):
        if path not in sums:
            yield Finding(_Code.ENODEFILECHECK, name, f"file {path} is missing")
        elif sums[path] != digest:
            yield Finding(_Code.ENODEFILECHECK, name, f"file {path} differs from the master's")


def judge_forthcoming(instance: Instance, disks: Sequence[Disk]) -> Iterator[Finding]:
    """Yield the problems of an instance that is not made yet: none while it is only planned."""
    if any(not disk.forthcoming for disk in disks):
        name = instance.name
        text = (
            "is not complete: the job that was to make it ended before its disks were filled;"
            f" 'gnt-instance reinstall {name}' completes it,"
            f" 'gnt-instance remove {name}' removes it"
        )
        yield Finding(_Code.EINSTANCEDOWN, name, text)


def judge_instance(
    instance: Instance, primary: Node, seen_on: Mapping[str, int], *, answers: bool
) -> Iterator[Finding]:
    """Yield the problems of the place where an instance runs.

    Args:
        seen_on: its state by the names of the nodes that know it.
        answers: the primary node told its instances.
    """
    name, code = instance.name, _Code.EINSTANCEWRONGNODE
    if primary.offline and instance.admin_state is AdminState.UP:
        text = f"is meant to run on node {primary.name}, which is marked offline"
        yield Finding(_Code.EINSTANCEBADNODE, name, text)
    for node_name, state in sorted(seen_on.items()):
        if node_name != primary.name:
            what = "runs" if state == LiveState.RUNNING else "is left standing still"
            hint = f"put it right with 'gnt-instance migrate --cleanup {name}'"
            text = f"{what} on node {node_name}, not on {primary.name}; {hint}"
            yield Finding(code, name, text)
    runs = seen_on.get(primary.name) == LiveState.RUNNING
    if not answers:
        return
    if instance.admin_state is AdminState.UP and not runs:
        hint = f"start it with 'gnt-instance startup {name}'"
        text = f"does not run on its node {primary.name}; {hint}"
        yield Finding(_Code.EINSTANCEDOWN, name, text)
    if instance.admin_state is not AdminState.UP and runs:
        text = f"runs on node {primary.name} but is meant to be {instance.admin_state.value}"
        yield Finding(_Code.EINSTANCEDOWN, name, text, Severity.WARNING)


def judge_orphans(live: Mapping[str, Mapping[str, int]], known: Set[str]) -> Iterator[Finding]:
    """Say which instances run that are not in the configuration.

    Args:
        live: {node name: {instance name: state}}.
    """
    for node_name, instances in sorted(live.items()):
        for name in sorted(instances.keys() - known):
            text = f"runs the unknown instance {name}"
            yield Finding(_Code.ENODEORPHANINSTANCE, node_name, text)


_DISK_WORDS: Final = {
    LocalDiskStatus.OKAY: "ok",
    LocalDiskStatus.SYNC: "syncing",
    LocalDiskStatus.UNKNOWN: "unknown",
    LocalDiskStatus.FAULTY: "faulty",
}


def judge_disk(instance_name: str, index: int, node_name: str, answer: object) -> Iterator[Finding]:
    """Yield the problems of a disk, from a node's answer about it."""
    match answer:
        case [True, {"ldisk_status": int(state), "is_degraded": bool(is_degraded)}]:
            if is_degraded or state != LocalDiskStatus.OKAY:
                words = _DISK_WORDS.get(state, "unknown")
                degraded = " is degraded;" if is_degraded else ""
                text = f"disk/{index} on {node_name}{degraded} state is '{words}'"
                hint = (
                    f"replace it with 'gnt-instance replace-disks -a {instance_name}'"
                    if state == LocalDiskStatus.FAULTY
                    else "connect its sides with 'gnt-instance activate-disks --wait-for-sync"
                    f" {instance_name}'"
                )
                yield Finding(_Code.EINSTANCEFAULTYDISK, instance_name, f"{text}; {hint}")
        case [True, _]:
            return
        case [False, text]:
            text = f"disk/{index} on {node_name}: {text}"
            yield Finding(_Code.EINSTANCEMISSINGDISK, instance_name, text)
        case _:
            text = f"disk/{index} on {node_name}: the node's answer is {answer!r:.80}"
            yield Finding(_Code.EINSTANCEFAULTYDISK, instance_name, text)
