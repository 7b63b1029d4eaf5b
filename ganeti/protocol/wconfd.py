"""What WConfD understands: one table of methods, and the words used in it.

The server checks arguments and fencing from this table, the client stub is generated from it
(`ganeti.protocol.wconfd_stub`), and the manual page lists it.  Fifty-four methods are those of
Ganeti 3.0; the others are our own, marked ``since=OWN``: they name the client first whenever they
change something, and touch single objects only.

Source: wconfd.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from ganeti.base.errors import ErrorCode, OpPrereqError

V3: Final = "3.0"
OWN: Final = "own"

MESSAGE_BYTES_MAX: Final = 32 << 20  # a whole configuration of 20,000 instances is 12 MB
SOCKET_MODE: Final = 0o600


class LockMode(StrEnum):
    """How a lock is held or wanted; ``release`` only in requests."""

    SHARED = "shared"
    EXCLUSIVE = "exclusive"
    RELEASE = "release"


# Structs, not dataclasses: every job process pays for making these classes and their values.
class ClientId(msgspec.Struct, frozen=True, eq=False):
    """Who owns locks and reservations: (identifier, lock file); the pid is only for signals.

    `identifier` is the job id, or any text of a client that is no job.
    """

    identifier: int | str
    livelock: str
    pid: int

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ClientId)
            and self.identifier == other.identifier
            and self.livelock == other.livelock
        )

    def __ne__(self, other: object) -> bool:
        return not self == other  # a Struct does not take this from __eq__ by itself

    def __hash__(self) -> int:
        return hash((self.identifier, self.livelock))

    @classmethod
    def from_wire(cls, value: object) -> ClientId:
        """Decode ``[identifier, lock file path, pid]``.

        Raises:
            OpPrereqError: the value is not of that form.
        """
        match value:
            case [int() | str() as identifier, str(livelock), int(pid)] if not isinstance(
                identifier, bool
            ):
                return cls(identifier, livelock, pid)
        raise OpPrereqError(
            f"client must be [identifier, lock file path, pid], not {value!r:.200}", ErrorCode.INVAL
        )

    def to_wire(self) -> list[object]:
        """Encode as ``[identifier, lock file path, pid]``."""
        return [self.identifier, self.livelock, self.pid]

    def __str__(self) -> str:
        if isinstance(self.identifier, int):
            return f"job {self.identifier}"
        return f"client {self.identifier!r} (pid {self.pid})"


class Effect(StrEnum):
    """What a method may change, which decides what is written before it is answered."""

    READ = "read"
    LOCKS = "locks"  # locks.data
    RESERVE = "reserve"  # tempres.data
    CONFIG = "config"  # config.data, perhaps tempres.data as well


class Need(StrEnum):
    """The lock that the owner of a change has to hold; BGL exclusive is always enough."""

    NONE = "nothing"
    BGL = "cluster/BGL shared"
    NODE = "the exclusive lock of the node"
    GROUP = "the exclusive lock of the node group"
    INSTANCE = "the exclusive lock of the instance"
    NETWORK = "the exclusive lock of the network"
    DISK = "the exclusive lock of the instance that the disk belongs to"
    KIND = "the exclusive lock of the object named by kind and uuid"
    OBJECTS = "the exclusive locks of all objects named"


class Argument(msgspec.Struct, frozen=True):
    """One argument: its name on the Python side and its kind (see `KINDS`)."""

    name: str
    kind: str


class Method(msgspec.Struct, frozen=True):
    """One row of the table.

    `needs` says which lock a change needs; the object meant is named by the argument after the
    client.  `repeatable` methods may be sent again when the connection broke before the answer:
    done twice they leave the same state, as everything is owned by the client.
    """

    name: str
    args: tuple[Argument, ...]
    result: str
    effect: Effect
    since: str
    needs: Need = Need.NONE
    repeatable: bool = True

    @property
    def client_index(self) -> int | None:
        """Index of the argument that names the client, or None."""
        for index, argument in enumerate(self.args):
            if argument.kind == "client":
                return index
        return None


class Kind(msgspec.Struct, frozen=True):
    """How a kind of value is written in Python annotations of the generated stub."""

    annotation: str
    text: str


# The kinds of values in the table.  Objects cross the wire as JSON objects.
KINDS: Final[Mapping[str, Kind]] = {
    "client": Kind("ClientId", "[identifier, lock file path, pid]"),
    "str": Kind("str", "text"),
    "str?": Kind("str | None", "text or null"),
    "strs": Kind("Sequence[str]", "[text]"),
    "keys?": Kind("Sequence[str] | None", "[name or uuid], null for all"),
    "int": Kind("int", "int"),
    "int?": Kind("int | None", "int or null"),
    "ints": Kind("list[int]", "[int]"),
    "float": Kind("float", "seconds"),
    "bool": Kind("bool", "bool"),
    "bool?": Kind("bool | None", "bool or null"),
    "object": Kind("WireObject", "object"),
    "objects": Kind("Sequence[WireObject]", "[object]"),
    "object?": Kind("dict[str, Any] | None", "object or null"),
    "changes": Kind("Mapping[str, object]", "{field: new value, null removes it}"),
    "many_changes": Kind(
        "Sequence[tuple[str, str, Mapping[str, object]]]", "[[kind, uuid, changes]]"
    ),
    "request": Kind("LockRequest", "[[lock, shared|exclusive|release]]"),
    "held": Kind("list[tuple[str, str]]", "[[lock, shared|exclusive]]"),
    "names": Kind("list[str]", "[text]"),
    "clients": Kind("list[ClientId]", "[client]"),
    "void": Kind("None", "[]"),
    "serial": Kind("tuple[int, float]", "[serial number, mtime]"),
    "serial?": Kind("tuple[int, float] | None", "[serial number, mtime], or null = retry"),
    "any": Kind("Any", "any"),
    "cluster": Kind("Cluster", "cluster object"),
    "nodes": Kind("list[Node | None]", "[node object or null]"),
    "nodegroups": Kind("list[NodeGroup | None]", "[nodegroup object or null]"),
    "instances": Kind("list[Instance | None]", "[instance object or null]"),
    "disks": Kind("list[Disk | None]", "[disk object or null]"),
    "networks": Kind("list[Network | None]", "[network object or null]"),
    "filters": Kind("list[FilterRule | None]", "[filter object or null]"),
    "instance_context": Kind(
        "InstanceContext", "{cluster, instance, disks, nodes, groups, networks}"
    ),
    "expanded": Kind("list[tuple[str, str] | None]", "[[uuid, full name] or null]"),
    "wait_result": Kind("tuple[str, list[ClientId]]", '["granted"|"timeout", [blocking client]]'),
    "uuid_lists": Kind("list[tuple[list[str], list[str]] | None]", "[[[uuid], [uuid]] or null]"),
    "node_amounts": Kind("Sequence[tuple[str, int, int]]", "[[node uuid, memory MiB, disk MiB]]"),
    "node_limits": Kind(
        "Sequence[tuple[str, int | None, int | None]]",
        "[[node uuid, free memory MiB or null, free disk MiB or null]]",
    ),
    "pool_result": Kind("dict[str, list[str]]", '{"promoted": [uuid], "demoted": [uuid]}'),
}


def _row(
    name: str, args: str, result: str, effect: Effect, since: str, needs: Need, *, repeatable: bool
) -> Method:
    pairs = [text.split(":") for text in args.split()]
    for _, kind in pairs:
        assert kind in KINDS, (name, kind)
    assert result in KINDS, (name, result)
    arguments = tuple(Argument(argument, kind) for argument, kind in pairs)
    return Method(name, arguments, result, effect, since, needs, repeatable)


def _v3(
    name: str, args: str, result: str, effect: Effect, *, repeatable: bool = True
) -> tuple[str, Method]:
    return name, _row(name, args, result, effect, V3, Need.NONE, repeatable=repeatable)


def _own(
    name: str,
    args: str,
    result: str,
    effect: Effect,
    needs: Need = Need.NONE,
    *,
    repeatable: bool = True,
) -> tuple[str, Method]:
    return name, _row(name, args, result, effect, OWN, needs, repeatable=repeatable)


_READ, _LOCKS, _RESERVE, _CONFIG = Effect.READ, Effect.LOCKS, Effect.RESERVE, Effect.CONFIG

WCONFD_METHODS: Final[Mapping[str, Method]] = dict(
    [
        # --- 3.0: whole configuration
        _v3("echo", "text:str", "str", _READ),
        _v3("readConfig", "", "any", _READ),
        _v3("writeConfig", "client:client config:object", "void", _CONFIG),
        _v3("verifyConfig", "", "void", _READ),
        _v3("lockConfig", "client:client shared:bool", "object?", _LOCKS),
        _v3("unlockConfig", "client:client", "void", _LOCKS),
        _v3("writeConfigAndUnlock", "client:client config:object", "bool", _CONFIG),
        _v3("flushConfig", "", "void", _READ),
        _v3("flushConfigGroup", "group:str", "void", _READ),
        # --- 3.0: reservations
        _v3("dropAllReservations", "client:client", "void", _RESERVE),
        _v3("computeDRBDMap", "", "any", _READ),
        _v3("allocateDRBDMinor", "disk:str nodes:strs", "ints", _RESERVE),
        _v3("releaseDRBDMinors", "disk:str", "void", _RESERVE),
        _v3("reserveMAC", "client:client mac:str", "void", _RESERVE),
        _v3("generateMAC", "client:client network:str?", "str", _RESERVE),
        _v3("generateDRBDSecret", "client:client", "str", _RESERVE),
        _v3("reserveLV", "client:client lv:str", "void", _RESERVE),
        _v3(
            "reserveIp",
            "client:client network:str address:str check_external:bool",
            "void",
            _RESERVE,
        ),
        _v3("releaseIp", "client:client network:str address:str", "void", _RESERVE),
        _v3("generateIp", "client:client network:str", "str", _RESERVE),
        _v3("commitTemporaryIps", "client:client", "void", _CONFIG),
        _v3("commitReleaseTemporaryIp", "network:str address:str", "void", _CONFIG),
        _v3("listReservedIps", "client:client", "any", _READ),
        # --- 3.0: locks
        _v3("listLocks", "client:client", "held", _READ),
        _v3("listAllLocks", "", "names", _READ),
        _v3("listAllLocksOwners", "", "any", _READ),
        _v3("listLocksWaitingStatus", "", "any", _READ),
        _v3("tryUpdateLocks", "client:client request:request", "clients", _LOCKS),
        _v3("updateLocksWaiting", "client:client priority:int request:request", "clients", _LOCKS),
        _v3("freeLocks", "client:client", "void", _LOCKS),
        _v3("freeLocksLevel", "client:client level:str", "void", _LOCKS),
        _v3("downGradeLocksLevel", "client:client level:str", "void", _LOCKS),
        _v3("intersectLocks", "client:client keep:strs", "void", _LOCKS),
        _v3("opportunisticLockUnion", "client:client request:request", "names", _LOCKS),
        _v3(
            "guardedOpportunisticLockUnion",
            "count:int client:client request:request",
            "names",
            _LOCKS,
        ),
        _v3("hasPendingRequest", "client:client", "bool", _READ),
        _v3("cleanupLocks", "", "void", _LOCKS),
        _v3("prepareClusterDestruction", "client:client", "void", _CONFIG),
        # --- 3.0: single changes
        _v3("allocatePort", "", "int?", _CONFIG, repeatable=False),
        _v3("addTcpUdpPort", "port:int", "bool", _CONFIG),
        _v3(
            "setInstanceStatus",
            "instance:str admin_state:str? disks_active:bool? admin_state_source:str?",
            "object?",
            _CONFIG,
        ),
        _v3("setInstancePrimaryNode", "instance:str node:str", "bool", _CONFIG),
        _v3("addInstance", "instance:object client:client replace:bool", "bool", _CONFIG),
        _v3("removeInstance", "instance:str", "bool", _CONFIG, repeatable=False),
        _v3("attachInstanceDisk", "instance:str disk:str index:int?", "bool", _CONFIG),
        _v3("detachInstanceDisk", "instance:str disk:str", "bool", _CONFIG, repeatable=False),
        _v3("addInstanceDisk", "instance:str disk:object index:int? replace:bool", "bool", _CONFIG),
        _v3("removeInstanceDisk", "instance:str disk:str", "bool", _CONFIG, repeatable=False),
        _v3("updateCluster", "cluster:object", "serial?", _CONFIG, repeatable=False),
        _v3("updateNode", "node:object", "serial?", _CONFIG, repeatable=False),
        _v3("updateInstance", "instance:object", "serial?", _CONFIG, repeatable=False),
        _v3("updateNodeGroup", "group:object", "serial?", _CONFIG, repeatable=False),
        _v3("updateNetwork", "network:object", "serial?", _CONFIG, repeatable=False),
        _v3("updateDisk", "disk:object", "serial?", _CONFIG, repeatable=False),
        # --- our own: reads of single objects
        _own("getSerial", "", "serial", _READ),
        _own("getCluster", "", "cluster", _READ),
        _own("getNodes", "keys:keys?", "nodes", _READ),
        _own("getNodeGroups", "keys:keys?", "nodegroups", _READ),
        _own("getInstances", "keys:keys?", "instances", _READ),
        _own("getDisks", "keys:keys?", "disks", _READ),
        _own("getNetworks", "keys:keys?", "networks", _READ),
        _own("getFilters", "keys:keys?", "filters", _READ),
        _own("expandNames", "kind:str names:strs", "expanded", _READ),
        _own("getInstanceContext", "key:str", "instance_context", _READ),
        # per node: [uuids of primary instances, uuids of secondary instances]
        _own("getNodeInstances", "keys:keys?", "uuid_lists", _READ),
        # per group: [uuids of nodes, uuids of instances with their primary node there]
        _own("getGroupMembers", "keys:keys?", "uuid_lists", _READ),
        _own("getSsconf", "", "any", _READ),
        _own("snapshot", "", "any", _READ),
        _own("getReplicationStatus", "", "any", _READ),
        # every node gets everything again; flushConfig waits for it
        _own("redistributeConfig", "", "void", _READ),
        # --- our own: changes of single objects
        _own("modifyCluster", "client:client changes:changes", "serial", _CONFIG, Need.BGL),
        # the whole cluster, refused if somebody else has changed it since it was read
        _own("replaceCluster", "client:client cluster:object", "serial", _CONFIG, Need.BGL),
        _own("createNode", "client:client node:object", "serial", _CONFIG, Need.BGL),
        _own("modifyNode", "client:client uuid:str changes:changes", "serial", _CONFIG, Need.NODE),
        _own(
            "deleteNode", "client:client uuid:str", "serial", _CONFIG, Need.NODE, repeatable=False
        ),
        _own("createNodeGroup", "client:client group:object", "serial", _CONFIG, Need.BGL),
        _own(
            "modifyNodeGroup",
            "client:client uuid:str changes:changes",
            "serial",
            _CONFIG,
            Need.GROUP,
        ),
        _own(
            "deleteNodeGroup",
            "client:client uuid:str",
            "serial",
            _CONFIG,
            Need.GROUP,
            repeatable=False,
        ),
        _own(
            "createInstance",
            "client:client instance:object disks:objects",
            "serial",
            _CONFIG,
            Need.INSTANCE,
        ),
        _own(
            "modifyInstance",
            "client:client uuid:str changes:changes",
            "serial",
            _CONFIG,
            Need.INSTANCE,
        ),
        _own(
            "putInstance",
            "client:client uuid:str instance:object disks:objects",
            "serial",
            _CONFIG,
            Need.INSTANCE,
        ),
        _own(
            "deleteInstance",
            "client:client uuid:str",
            "serial",
            _CONFIG,
            Need.INSTANCE,
            repeatable=False,
        ),
        _own(
            "addDisk",
            "client:client instance:str disk:object index:int?",
            "serial",
            _CONFIG,
            Need.INSTANCE,
        ),
        _own(
            "removeDisk",
            "client:client instance:str disk:str",
            "serial",
            _CONFIG,
            Need.INSTANCE,
            repeatable=False,
        ),
        _own(
            "attachDisk",
            "client:client instance:str disk:str index:int?",
            "serial",
            _CONFIG,
            Need.INSTANCE,
        ),
        _own(
            "detachDisk",
            "client:client instance:str disk:str",
            "serial",
            _CONFIG,
            Need.INSTANCE,
            repeatable=False,
        ),
        _own("modifyDisk", "client:client uuid:str changes:changes", "serial", _CONFIG, Need.DISK),
        _own("createNetwork", "client:client network:object", "serial", _CONFIG, Need.BGL),
        _own(
            "modifyNetwork",
            "client:client uuid:str changes:changes",
            "serial",
            _CONFIG,
            Need.NETWORK,
        ),
        _own(
            "deleteNetwork",
            "client:client uuid:str",
            "serial",
            _CONFIG,
            Need.NETWORK,
            repeatable=False,
        ),
        # several objects in one step: all or nothing; kinds as in `ObjectKind`
        _own(
            "modifyObjects", "client:client changes:many_changes", "serial", _CONFIG, Need.OBJECTS
        ),
        _own("addTags", "client:client kind:str uuid:str tags:strs", "serial", _CONFIG, Need.KIND),
        _own(
            "removeTags", "client:client kind:str uuid:str tags:strs", "serial", _CONFIG, Need.KIND
        ),
        _own(
            "setCandidateCert",
            "client:client node_uuid:str digest:str?",
            "serial",
            _CONFIG,
            Need.BGL,
        ),
        _own("createFilter", "client:client rule:object", "serial", _CONFIG),
        _own("modifyFilter", "client:client uuid:str changes:changes", "serial", _CONFIG),
        _own("deleteFilter", "client:client uuid:str", "serial", _CONFIG, repeatable=False),
        _own(
            "maintainCandidatePool", "client:client exempt:strs", "pool_result", _CONFIG, Need.BGL
        ),
        # --- our own: reservations
        _own("allocateInstancePort", "client:client", "int", _RESERVE),
        _own("releaseInstancePort", "client:client port:int", "void", _RESERVE),
        _own("reserveDrbdMinors", "client:client disk:str nodes:strs", "ints", _RESERVE),
        _own("generateUniqueId", "client:client", "str", _RESERVE),
        _own(
            "reserveNodeResources",
            "client:client wanted:node_amounts free:node_limits",
            "void",
            _RESERVE,
        ),
        _own("releaseNodeResources", "client:client", "void", _RESERVE),
        _own("listNodeReservations", "", "any", _READ),
        # --- our own: locks
        _own(
            "waitLocks",
            "client:client priority:int request:request timeout_s:float",
            "wait_result",
            _LOCKS,
        ),
        _own("changeWaitPriority", "client:client priority:int", "bool", _LOCKS),
        _own(
            "waitOpportunisticUnion",
            "client:client priority:int count:int request:request timeout_s:float",
            "names",
            _LOCKS,
        ),
    ]
)


class ObjectKind(StrEnum):
    """Kinds of objects in ``expandNames``, ``addTags`` and ``modifyObjects``."""

    CLUSTER = "cluster"
    NODE = "node"
    NODEGROUP = "nodegroup"
    INSTANCE = "instance"
    DISK = "disk"
    NETWORK = "network"
    FILTER = "filter"


GRANTED: Final = "granted"
TIMEOUT: Final = "timeout"
GONE: Final = "gone"  # an object was removed whose lock was asked for
