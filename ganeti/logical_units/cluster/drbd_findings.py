"""Problems of DRBD on nodes, and of copies of disks.  Pure, over the answers of the nodes.

Source: node_rpc.json, "node_verify_checks"; constants.json, "verify_error_codes_with_item_kind".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ganeti.base.text import shown
from ganeti.logical_units.cluster.findings import Finding, Severity
from ganeti.logical_units.cluster.group_findings import Guest
from ganeti.objects.model import Cluster, Node
from ganeti.objects.verify_errors import VerifyErrorCode
from ganeti.protocol.node_rpc_values import CopySide

_Code = VerifyErrorCode
_RELEASE: Final = "8.4."


def checks(cluster: Cluster) -> dict[str, object]:
    """Return the checks of DRBD that nodes are asked for; none on a cluster without it."""
    helper = cluster.drbd_usermode_helper
    if not helper:
        return {}
    return {"drbd-helper": helper, "drbd-list": None, "drbd-version": None}


def judge_helper(node: Node, wanted: str, answer: Mapping[str, object]) -> Iterator[Finding]:
    """Say whether the driver of a node runs another program at events than the cluster's."""
    match answer.get("drbd-helper"):
        case [True, found] if found == wanted:
            return
        case [True, found]:
            text = (
                f"the usermode helper of DRBD is {found}, that of the cluster {wanted}: load the"
                f" module with usermode_helper={wanted}, or type 'gnt-cluster modify"
                f" --drbd-usermode-helper={found}'"
            )
        case [False, reason]:
            text = f"cannot look at the usermode helper of DRBD: {reason}"
        case other:
            text = f"the usermode helper of DRBD is not known: the node's answer is {other!r:.80}"
    yield Finding(_Code.ENODEDRBDHELPER, node.name, text)


def judge_minors(
    node: Node,
    answer: Mapping[str, object],
    known: Mapping[int, str],
    guests: Sequence[Guest],
    *,
    is_busy: bool,
) -> Iterator[Finding]:
    """Say which minors of disks that are to be ready are not in use, and which others are.

    Args:
        known: the minors of disks and those that jobs have reserved, with the UUID of the disk.
        guests: instances that no job works on.
        is_busy: jobs work on instances, so a minor may just have been given back.
    """
    used = answer.get("drbd-list")
    if not isinstance(used, list):
        yield Finding(_Code.ENODEDRBD, node.name, f"cannot look at the devices of DRBD: {used}")
        return
    active = {
        str(disk.uuid): (guest.name, index)
        for guest in guests
        if guest.instance.disks_active
        for index, disk in enumerate(guest.disks)
    }
    for minor, uuid in sorted(known.items()):
        if uuid in active and minor not in used:
            name, index = active[uuid]
            text = (
                f"DRBD minor {minor}, of disk/{index} of instance {name}, is not active; type"
                f" 'gnt-instance activate-disks {name}'"
            )
            yield Finding(_Code.ENODEDRBD, node.name, text)
    for minor in sorted(set(used) - known.keys() if not is_busy else ()):
        text = (
            f"DRBD minor {minor} is in use by no disk of the cluster; see 'drbdsetup show {minor}'"
            " there; if nobody needs it: 'drbdsetup down RESOURCE'"
        )
        yield Finding(_Code.ENODEDRBD, node.name, text)


def judge_versions(answers: Mapping[str, Mapping[str, object]]) -> Iterator[Finding]:
    """Say which nodes have another version of the driver than the others, or than can be used.

    Args:
        answers: those of the nodes of a group, by their names.
    """
    versions = {name: said["drbd-version"] for name, said in answers.items() if _tells(said)}
    differ = shown(sorted(set(map(str, versions.values()))))
    for name, version in versions.items():
        if not str(version).startswith(_RELEASE):
            text = f"DRBD {version} can only be looked at: disks need version 8.4 of the driver"
            yield Finding(_Code.ENODEDRBDVERSION, name, text)
        elif len(set(versions.values())) > 1:
            text = f"DRBD has version {version}, in the node group there are {differ}"
            yield Finding(_Code.ENODEDRBDVERSION, name, text, Severity.WARNING)


def _tells(answer: Mapping[str, object]) -> bool:
    version = answer.get("drbd-version")
    return isinstance(version, str) and version[:1].isdigit()  # else it is why there is none


def judge_side(
    instance_name: str, index: int, node_name: str, side: CopySide | None
) -> Iterator[Finding]:
    """Say why a side has given its copy up for good, as after a split brain."""
    if side is not None and side.parting:
        reason = side.parting.replace("INSTANCE", instance_name)
        text = f"disk/{index} on {node_name}: {reason}"
        yield Finding(_Code.EINSTANCEFAULTYDISK, instance_name, text)
