"""WConfD's calls: one typed class, of which table, client, checks and manual page are made.

Fifty-four calls are those of Ganeti 3.0, spelled and ordered as there.  The others are our own:
they touch single objects only, and name their owner first whenever they change something.  Of those
of 3.0 eighteen change something without an owner; they are refused unless WConfD was started with
``--changes-without-owner``.

The *owner* of locks and reservations is no argument of the methods here: a client fills itself in,
a server gets it as the first argument.  `Rules.owner` is its place among the arguments on the wire.

Source: wconfd.json.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec

from ganeti.base.errors import OpPrereqError
from ganeti.base.ids import JobId
from ganeti.objects.model import Cluster, Disk, FilterRule, Instance, Network, Node, NodeGroup
from ganeti.protocol.maintenance.stored import Incident, Maintenance
from ganeti.protocol.service import Call, Method, Service, declare

MESSAGE_BYTES_MAX: Final = 32 << 20  # a whole configuration of 20,000 instances is 12 MB
SOCKET_MODE: Final = 0o600
ITEMS_MAX: Final = 200_000  # of a list argument; all locks of 20,000 instances are 60,000
ANSWER_TIMEOUT_S: Final = 60.0  # wconfd.json, "recv_send_timeout_seconds"
FLUSH_TIMEOUT_S: Final = 900.0  # the node daemon's limit for writing a file

GRANTED: Final = "granted"
TIMEOUT: Final = "timeout"
GONE: Final = "gone"  # an object was removed whose lock was asked for

# Ahead of every job's own priority; waits for locks, but for no slot among those that may run.
PRIORITY_BEYOND_LIMIT: Final = -21


CLIENT_SHOWN: Final = "[identifier, lock file path, pid]"
PID_MAX: Final = 2**31 - 1  # a process id is a signed number of 32 bits for the kernel


class LockMode(StrEnum):
    """How a lock is held or wanted; ``release`` only in requests."""

    SHARED = "shared"
    EXCLUSIVE = "exclusive"
    RELEASE = "release"


class ObjectKind(StrEnum):
    """Kinds of objects in ``expandNames``, ``createObject``, ``addTags`` and the like."""

    CLUSTER = "cluster"
    NODE = "node"
    NODEGROUP = "nodegroup"
    INSTANCE = "instance"
    DISK = "disk"
    NETWORK = "network"
    FILTER = "filter"


class ClientId(
    msgspec.Struct, frozen=True, eq=False, array_like=True, forbid_unknown_fields=True, gc=False
):
    """An owner of locks and reservations: (identifier, lock file); the pid is only for signals.

    `identifier` is the job id, or any text of a client that is no job.
    """

    identifier: int | str
    livelock: str
    pid: Annotated[int, msgspec.Meta(ge=0, le=PID_MAX)]

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
        try:
            return msgspec.convert(value, cls)
        except msgspec.ValidationError as err:
            raise OpPrereqError(
                f"client must be {CLIENT_SHOWN}, with a pid from 0 to {PID_MAX}, not {value!r:.200}"
            ) from err

    def to_wire(self) -> list[object]:
        """Encode as ``[identifier, lock file path, pid]``."""
        return [self.identifier, self.livelock, self.pid]

    def __str__(self) -> str:
        if isinstance(self.identifier, int):
            return f"job {self.identifier}"
        return f"client {self.identifier!r} (pid {self.pid})"


class InstanceContext(msgspec.Struct, frozen=True):
    """An instance and all that it refers to, as of one instant.

    `nodes` begin with the primary node, then the secondary ones; `groups` are those of these
    nodes and `networks` those of the instance's network cards, each once.
    """

    cluster: Cluster
    instance: Instance
    disks: list[Disk]
    nodes: list[Node]
    groups: list[NodeGroup]
    networks: list[Network]


def _shown_as(text: str) -> msgspec.Meta:
    """Have manual page and messages describe a type in this way."""
    return msgspec.Meta(extra_json_schema={"description": text})


_Items = msgspec.Meta(max_length=ITEMS_MAX)
Names = Annotated[Sequence[str], _Items, _shown_as("[text]")]
Keys = Annotated[Sequence[str], _Items, _shown_as("[name or UUID]")]
Wire = Annotated[Mapping[str, Any], _shown_as("object")]
Changes = Annotated[Mapping[str, Any], _shown_as("{field: new value, null removes it}")]
Change = tuple[ObjectKind, str, Changes]  # kind, name or UUID, new fields
LockRequest = Annotated[
    Sequence[tuple[str, str]], _Items, _shown_as("[[lock, shared|exclusive|release]]")
]
Serial = Annotated[tuple[int, float], _shown_as("[serial number, mtime]")]
_Seconds = Annotated[float, _shown_as("seconds")]
_Amount = Annotated[int, msgspec.Meta(ge=0)]
UuidLists = Annotated[
    list[tuple[list[str], list[str]] | None], _shown_as("[[[UUID], [UUID]] or null]")
]


class Effect(StrEnum):
    """Which state a call may change, and so which file is written before it is answered."""

    READ = "reads"
    LOCKS = "changes locks"  # locks.data
    RESERVE = "changes reservations"  # tempres.data
    CONFIG = "changes the configuration"  # config.data, perhaps tempres.data as well


class Need(StrEnum):
    """The lock that the owner of a change has to hold; BGL exclusive is always enough."""

    NONE = "nothing"
    BGL = "cluster/BGL shared"
    INSTANCE = "the exclusive lock of the instance"  # of the first argument
    OBJECT = "the lock of the object, cluster/BGL shared if it has none"  # of kind and key, or new
    LIFE = "no lock, only an owner that lives"  # state of a daemon, written by nobody else
    OBJECTS = "the locks of all objects named, cluster/BGL shared for one that has none"


class Repeat(StrEnum):
    """Whether a client may ask again when the connection broke before the answer."""

    SAFE = "done twice it leaves the same state, as everything is owned by the client"
    DELETION = "may be repeated, and then an object that is not found was deleted before"
    NEVER = "only when it is known that it was not carried out"


class Rules(msgspec.Struct, frozen=True):
    """The facts of a call that its signature does not tell.

    Attributes:
        owner: place of the owner among the arguments on the wire; None for calls without one.
        is_own: ours; those of Ganeti 3.0 have other rules about locks.
        for_dead: gives back, and so is done for an owner that is dead as well.
        instead: for a change that names no owner, and so is done only where that is allowed: the
            call to use otherwise.
        waits: waits on behalf of a client, for the seconds of the last argument; the handler
            gets the connection after the owner.
        answer_s: how long the answer may take, a wait not counted.
    """

    effect: Effect
    owner: int | None = None
    is_own: bool = False
    needs: Need = Need.NONE
    repeat: Repeat = Repeat.SAFE
    for_dead: bool = False
    instead: str = ""
    waits: bool = False
    answer_s: float = ANSWER_TIMEOUT_S


_READ, _LOCKS, _RESERVE, _CONFIG = Effect.READ, Effect.LOCKS, Effect.RESERVE, Effect.CONFIG


def _v3(
    name: str, effect: Effect, owner: int | None = None, **facts: Any
) -> Callable[[Method], Method]:
    """Declare a call of Ganeti 3.0."""
    return declare(name, Rules(effect, owner, **facts))


def _own(
    name: str, effect: Effect, needs: Need = Need.NONE, **facts: Any
) -> Callable[[Method], Method]:
    """Declare a call of our own: it names its owner first if it changes something."""
    owner = None if effect is _READ else 0
    return declare(name, Rules(effect, owner, is_own=True, needs=needs, **facts))


def wire_names(call: Call[Rules]) -> list[str]:
    """Return the names of the arguments of a call as they stand on the wire."""
    names = list(call.names)
    if call.rules.owner is not None:
        names.insert(call.rules.owner, "client")
    return names


class WConfCalls(Service):
    """Configuration, locks and reservations of a cluster."""

    owner: ClientId

    # 3.0: whole configuration

    @_v3("echo", _READ)
    def echo(self, text: str) -> str:
        """Answer the same text."""

    @_v3("readConfig", _READ)
    def read_config(self) -> msgspec.Raw:
        """Answer the whole configuration."""

    @_v3("writeConfig", _CONFIG, 0)
    def write_config(self, config: Wire) -> None:
        """Replace the whole configuration; its owner must hold the lock on it exclusively."""

    @_v3("verifyConfig", _READ)
    def verify_config(self) -> None:
        """Check the whole configuration; raises ConfigVerifyError with all that is wrong."""

    @_v3("lockConfig", _LOCKS, 0)
    def lock_config(self, shared: bool) -> Wire | None:
        """Take the lock on the whole configuration and answer it, or null when that is not free."""

    @_v3("unlockConfig", _LOCKS, 0, for_dead=True)
    def unlock_config(self) -> None:
        """Give the lock on the whole configuration back."""

    @_v3("writeConfigAndUnlock", _CONFIG, 0)
    def write_config_and_unlock(self, config: Wire) -> bool:
        """Replace the whole configuration and give the lock on it back."""

    @_v3("flushConfig", _READ, answer_s=FLUSH_TIMEOUT_S)
    def flush_config(self) -> None:
        """Answer once the configuration is on enough master candidates."""

    @_v3("flushConfigGroup", _READ, answer_s=FLUSH_TIMEOUT_S)
    def flush_config_group(self, group: str) -> None:
        """Answer once the configuration is on the nodes of one node group."""

    # 3.0: reservations

    @_v3("dropAllReservations", _RESERVE, 0, for_dead=True)
    def drop_all_reservations(self) -> None:
        """Drop all reservations of the owner, save for DRBD minors without owner."""

    @_v3("computeDRBDMap", _READ)
    def compute_drbd_map(self) -> Any:
        """Answer the DRBD minors of all nodes."""

    @_v3("allocateDRBDMinor", _RESERVE, instead="reserveDrbdMinors")
    def allocate_drbd_minor(self, disk: str, nodes: Names) -> list[int]:
        """Reserve DRBD minors that nobody owns."""

    @_v3("releaseDRBDMinors", _RESERVE, instead="dropAllReservations")
    def release_drbd_minors(self, disk: str) -> None:
        """Free the reserved DRBD minors of a disk."""

    @_v3("reserveMAC", _RESERVE, 0)
    def reserve_mac(self, mac: str) -> None:
        """Reserve a MAC address."""

    @_v3("generateMAC", _RESERVE, 0)
    def generate_mac(self, network: str | None) -> str:
        """Reserve a random MAC address."""

    @_v3("generateDRBDSecret", _RESERVE, 0)
    def generate_drbd_secret(self) -> str:
        """Reserve a random secret."""

    @_v3("reserveLV", _RESERVE, 0)
    def reserve_lv(self, lv: str) -> None:
        """Reserve the name of a logical volume."""

    @_v3("reserveIp", _RESERVE, 0)
    def reserve_ip(self, network: str, address: str, check_external: bool) -> None:
        """Reserve an address of a network."""

    @_v3("releaseIp", _RESERVE, 0)
    def release_ip(self, network: str, address: str) -> None:
        """Have an address released at the next commit."""

    @_v3("generateIp", _RESERVE, 0)
    def generate_ip(self, network: str) -> str:
        """Reserve a free address of a network."""

    @_own("generateIp6", _RESERVE)
    def generate_ip6(self, network: str) -> str:
        """Reserve a free IPv6 address of a network."""

    @_v3("commitTemporaryIps", _CONFIG, 0, needs=Need.BGL)
    def commit_temporary_ips(self) -> None:
        """Carry out in the configuration the owner's pending changes of addresses."""

    @_v3("commitReleaseTemporaryIp", _CONFIG, instead="releaseIp")
    def commit_release_temporary_ip(self, network: str, address: str) -> None:
        """Free one address in the configuration."""

    @_v3("listReservedIps", _READ, 0)
    def list_reserved_ips(self) -> Any:
        """Answer the owner's pending changes of addresses."""

    # 3.0: locks

    @_v3("listLocks", _READ, 0)
    def list_locks(self) -> list[tuple[str, str]]:
        """Answer the locks that the owner holds."""

    @_v3("listAllLocks", _READ)
    def list_all_locks(self) -> list[str]:
        """Answer all locks that are held."""

    @_v3("listAllLocksOwners", _READ)
    def list_all_locks_owners(self) -> Any:
        """Answer all locks with their owners."""

    @_v3("listLocksWaitingStatus", _READ)
    def list_locks_waiting_status(self) -> Any:
        """Answer all locks with their owners, and all pending requests."""

    @_v3("tryUpdateLocks", _LOCKS, 0)
    def try_update_locks(self, request: LockRequest) -> list[ClientId]:
        """Update locks now or not at all; answers the owners in the way."""

    @_v3("updateLocksWaiting", _LOCKS, 0)
    def update_locks_waiting(self, priority: int, request: LockRequest) -> list[ClientId]:
        """Update locks now, or queue the request and signal the client later."""

    @_v3("freeLocks", _LOCKS, 0, for_dead=True)
    def free_locks(self) -> None:
        """Free all locks of the owner."""

    @_v3("freeLocksLevel", _LOCKS, 0, for_dead=True)
    def free_locks_level(self, level: str) -> None:
        """Free the owner's locks of one level."""

    @_v3("downGradeLocksLevel", _LOCKS, 0, for_dead=True)
    def down_grade_locks_level(self, level: str) -> None:
        """Make the owner's locks of one level shared."""

    @_v3("intersectLocks", _LOCKS, 0, for_dead=True)
    def intersect_locks(self, keep: Names) -> None:
        """Free all locks of the owner but some."""

    @_v3("opportunisticLockUnion", _LOCKS, 0)
    def opportunistic_lock_union(self, request: LockRequest) -> list[str]:
        """Take the locks of a request that can be had now."""

    @_v3("guardedOpportunisticLockUnion", _LOCKS, 1)
    def guarded_opportunistic_lock_union(self, count: int, request: LockRequest) -> list[str]:
        """Take the locks that can be had now if they are so many."""

    @_v3("hasPendingRequest", _READ, 0)
    def has_pending_request(self) -> bool:
        """Answer whether a request of the owner waits."""

    @_v3("cleanupLocks", _LOCKS)
    def cleanup_locks(self) -> None:
        """Free everything of dead owners."""

    @_v3("prepareClusterDestruction", _CONFIG, 0)
    def prepare_cluster_destruction(self) -> None:
        """Leave the cluster without master and keep everybody out."""

    # 3.0: single changes; false or null means that the configuration is locked: try again

    @_v3("allocatePort", _CONFIG, repeat=Repeat.NEVER, instead="allocateInstancePort")
    def allocate_port(self) -> int | None:
        """Take a port out of the pool for good."""

    @_v3("addTcpUdpPort", _CONFIG, instead="releaseInstancePort")
    def add_tcp_udp_port(self, port: int) -> bool:
        """Return a port to the pool."""

    @_v3("setInstanceStatus", _CONFIG, instead="modifyObjects")
    def set_instance_status(
        self,
        instance: str,
        admin_state: str | None,
        disks_active: bool | None,
        admin_state_source: str | None,
    ) -> Wire | None:
        """Set the state that an instance is to be in; answers the instance."""

    @_v3("setInstancePrimaryNode", _CONFIG, instead="modifyObjects")
    def set_instance_primary_node(self, instance: str, node: str) -> bool:
        """Give an instance another primary node."""

    @_v3("addInstance", _CONFIG, 1, needs=Need.INSTANCE)
    def add_instance(self, instance: Wire, replace: bool) -> bool:
        """Add an instance, with the addresses that the owner reserved."""

    @_v3("removeInstance", _CONFIG, repeat=Repeat.NEVER, instead="deleteObject")
    def remove_instance(self, instance: str) -> bool:
        """Remove an instance with its disks."""

    @_v3("attachInstanceDisk", _CONFIG, instead="attachDisk")
    def attach_instance_disk(self, instance: str, disk: str, index: int | None) -> bool:
        """Attach an existing disk to an instance."""

    @_v3("detachInstanceDisk", _CONFIG, repeat=Repeat.NEVER, instead="detachDisk")
    def detach_instance_disk(self, instance: str, disk: str) -> bool:
        """Detach a disk, which stays."""

    @_v3("addInstanceDisk", _CONFIG, instead="addDisk")
    def add_instance_disk(
        self, instance: str, disk: Wire, index: int | None, replace: bool
    ) -> bool:
        """Add a disk to an instance."""

    @_v3("removeInstanceDisk", _CONFIG, repeat=Repeat.NEVER, instead="removeDisk")
    def remove_instance_disk(self, instance: str, disk: str) -> bool:
        """Detach a disk and remove it."""

    @_v3("updateCluster", _CONFIG, repeat=Repeat.NEVER, instead="replaceCluster")
    def update_cluster(self, cluster: Wire) -> Serial | None:
        """Replace the cluster object."""

    @_v3("updateNode", _CONFIG, repeat=Repeat.NEVER, instead="modifyObjects")
    def update_node(self, node: Wire) -> Serial | None:
        """Replace a node."""

    @_v3("updateInstance", _CONFIG, repeat=Repeat.NEVER, instead="modifyObjects")
    def update_instance(self, instance: Wire) -> Serial | None:
        """Replace an instance."""

    @_v3("updateNodeGroup", _CONFIG, repeat=Repeat.NEVER, instead="modifyObjects")
    def update_node_group(self, group: Wire) -> Serial | None:
        """Replace a node group."""

    @_v3("updateNetwork", _CONFIG, repeat=Repeat.NEVER, instead="modifyObjects")
    def update_network(self, network: Wire) -> Serial | None:
        """Replace a network."""

    @_v3("updateDisk", _CONFIG, repeat=Repeat.NEVER, instead="modifyObjects")
    def update_disk(self, disk: Wire) -> Serial | None:
        """Replace a disk."""

    # Reads of single objects

    @_own("getSerial", _READ)
    def get_serial(self) -> Serial:
        """Answer serial number and time of the configuration."""

    @_own("getCluster", _READ)
    def get_cluster(self) -> Cluster:
        """Answer the cluster object."""

    @_own("getNodes", _READ)
    def get_nodes(self, keys: Keys | None = None) -> list[Node | None]:
        """Answer nodes; without keys all."""

    @_own("getNodeGroups", _READ)
    def get_node_groups(self, keys: Keys | None = None) -> list[NodeGroup | None]:
        """Answer node groups with their members; without keys all."""

    @_own("getInstances", _READ)
    def get_instances(self, keys: Keys | None = None) -> list[Instance | None]:
        """Answer instances; without keys all."""

    @_own("getDisks", _READ)
    def get_disks(self, keys: Keys | None = None) -> list[Disk | None]:
        """Answer disks; without keys all."""

    @_own("getNetworks", _READ)
    def get_networks(self, keys: Keys | None = None) -> list[Network | None]:
        """Answer networks; without keys all."""

    @_own("getFilters", _READ)
    def get_filters(self, keys: Keys | None = None) -> list[FilterRule | None]:
        """Answer job filter rules; without keys all."""

    @_own("expandNames", _READ)
    def expand_names(self, kind: ObjectKind, names: Names) -> list[tuple[str, str] | None]:
        """Answer [UUID, full name] of objects by full or short names or UUIDs."""

    @_own("getInstanceContext", _READ)
    def get_instance_context(self, key: str) -> InstanceContext:
        """Answer an instance with all that it refers to."""

    @_own("getNodeInstances", _READ)
    def get_node_instances(self, keys: Keys | None = None) -> UuidLists:
        """Answer the primary and the secondary instances of nodes."""

    @_own("getGroupMembers", _READ)
    def get_group_members(self, keys: Keys | None = None) -> UuidLists:
        """Answer the nodes of groups, and the instances with their primary node there."""

    @_own("getSsconf", _READ)
    def get_ssconf(self) -> Any:
        """Answer the simple configuration."""

    @_own("snapshot", _READ)
    def snapshot(self) -> Any:
        """Answer configuration, locks and reservations as of one instant."""

    @_own("getReplicationStatus", _READ)
    def get_replication_status(self) -> Any:
        """Answer which node has which version of the configuration."""

    @_own("getMetrics", _READ)
    def get_metrics(self) -> str:
        """Answer what WConfD has counted since it began, in the text format of Prometheus."""

    @_own("redistributeConfig", _READ)
    def redistribute_config(self) -> None:
        """Send everything to all nodes again; flushConfig waits for that."""

    # Changes of objects

    @_own("createObject", _CONFIG, Need.OBJECT)
    def create(self, kind: ObjectKind, new: Wire) -> Serial:
        """Add a node, node group, network or job filter rule."""

    @_own("modifyObjects", _CONFIG, Need.OBJECTS)
    def modify_objects(self, changes: Sequence[Change]) -> Serial:
        """Replace fields of objects in one step, given by [kind, key, changes]: all or nothing."""

    @_own("deleteObject", _CONFIG, Need.OBJECT, repeat=Repeat.DELETION)
    def delete(self, kind: ObjectKind, key: str) -> Serial:
        """Remove a node, node group, instance with its disks, network or job filter rule."""

    @_own("replaceCluster", _CONFIG, Need.BGL)
    def replace_cluster(self, cluster: Wire) -> Serial:
        """Replace the cluster object, unless somebody else has changed it since it was read."""

    @_own("createInstance", _CONFIG, Need.INSTANCE)
    def create_instance(self, instance: Wire, disks: Sequence[Wire]) -> Serial:
        """Add an instance with its disks."""

    @_own("putInstance", _CONFIG, Need.INSTANCE)
    def put_instance(self, key: str, instance: Wire, disks: Sequence[Wire]) -> Serial:
        """Replace an instance and its disks by a whole new one; its reservations become real."""

    @_own("addDisk", _CONFIG, Need.INSTANCE)
    def add_disk(self, instance: str, disk: Wire, index: int | None) -> Serial:
        """Add a disk to an instance."""

    @_own("removeDisk", _CONFIG, Need.INSTANCE, repeat=Repeat.NEVER)
    def remove_disk(self, instance: str, disk: str) -> Serial:
        """Detach a disk and remove it."""

    @_own("attachDisk", _CONFIG, Need.INSTANCE)
    def attach_disk(self, instance: str, disk: str, index: int | None) -> Serial:
        """Attach an existing disk to an instance."""

    @_own("detachDisk", _CONFIG, Need.INSTANCE, repeat=Repeat.NEVER)
    def detach_disk(self, instance: str, disk: str) -> Serial:
        """Detach a disk, which stays."""

    @_own("addTags", _CONFIG, Need.OBJECT)
    def add_tags(self, kind: ObjectKind, key: str, tags: Names) -> Serial:
        """Add tags to an object."""

    @_own("removeTags", _CONFIG, Need.OBJECT)
    def remove_tags(self, kind: ObjectKind, key: str, tags: Names) -> Serial:
        """Remove tags from an object."""

    @_own("setCandidateCert", _CONFIG, Need.BGL)
    def set_candidate_cert(self, node_uuid: str, digest: str | None) -> Serial:
        """Note or remove the digest of a master candidate's certificate."""

    @_own("maintainCandidatePool", _CONFIG, Need.BGL, repeat=Repeat.NEVER)
    def maintain_candidate_pool(self, exempt: Names, unfit: Names = ()) -> dict[str, list[str]]:
        """Promote or demote nodes; answers {"promoted": [UUID], "demoted": [UUID]}.

        Nodes that are unfit were chosen before, and could not be promoted.
        """

    # Reservations

    @_own("allocateInstancePort", _RESERVE)
    def allocate_instance_port(self) -> int:
        """Reserve a port of the pool."""

    @_own("releaseInstancePort", _RESERVE, for_dead=True)
    def release_instance_port(self, port: int) -> None:
        """Give a reserved port back."""

    @_own("reserveDrbdMinors", _RESERVE)
    def reserve_drbd_minors(self, disk: str, nodes: Names) -> list[int]:
        """Reserve DRBD minors that are freed with their owner."""

    @_own("generateUniqueId", _RESERVE)
    def generate_unique_id(self) -> str:
        """Reserve a random identifier."""

    @_own("reserveNodeResources", _RESERVE)
    def reserve_node_resources(
        self,
        wanted: Sequence[tuple[str, _Amount, _Amount]],
        free: Sequence[tuple[str, int | None, int | None]],
    ) -> None:
        """Reserve [node UUID, memory, disk space] in MiB; null: not compared with free amounts."""

    @_own("releaseNodeResources", _RESERVE, for_dead=True)
    def release_node_resources(self) -> None:
        """Give reserved memory and disk space back."""

    @_own("listNodeReservations", _READ)
    def list_node_reservations(self) -> Any:
        """Answer memory and disk space reserved: [[client, node, memory, disk space]]."""

    # Locks

    @_own("waitLocks", _LOCKS, waits=True)
    def wait_locks(
        self, priority: int, request: LockRequest, timeout_s: _Seconds
    ) -> tuple[str, list[ClientId]]:
        """Update locks, answering "granted", "timeout" or "gone", and the owners in the way.

        The request by which more jobs than ``max_running_jobs`` would hold cluster/BGL waits as
        well, unless its priority is -21.
        """

    @_own("changeWaitPriority", _LOCKS)
    def change_wait_priority(self, priority: int) -> bool:
        """Change the priority of a pending request."""

    @_own("waitOpportunisticUnion", _LOCKS, waits=True)
    def wait_opportunistic_union(
        self, priority: int, count: int, request: LockRequest, timeout_s: _Seconds
    ) -> list[str]:
        """Take the locks of a request that can be had, as soon as they are so many."""

    # The state of the maintenance daemon

    @_own("getMaintenance", _READ)
    def get_maintenance(self) -> Maintenance | None:
        """Answer all that the maintenance daemon keeps; null while maintenance is off."""

    @_own("maintenanceRoundDelay", _READ)
    def maintenance_round_delay(self) -> int:
        """Answer the seconds between two looks at the balance."""

    @_own("maintenanceJobs", _READ)
    def maintenance_jobs(self) -> list[JobId]:
        """Answer the jobs of the last round."""

    @_own("maintenanceBalancing", _READ)
    def maintenance_balancing(self) -> tuple[bool, float]:
        """Answer whether the cluster is balanced, and the least gain that is worth it."""

    @_own("maintenanceEvacuated", _READ)
    def maintenance_evacuated(self) -> list[str]:
        """Answer the names of instances that were moved away from nodes with an event."""

    @_own("maintenanceIncidents", _READ)
    def maintenance_incidents(self) -> list[Incident]:
        """Answer the incidents."""

    @_own("setMaintdRoundDelay", _CONFIG, Need.BGL)
    def set_maintd_round_delay(self, seconds: _Amount) -> bool:
        """Set the seconds between two rounds, which switches maintenance on; 0 switches it off."""

    @_own("clearMaintdJobs", _CONFIG, Need.LIFE)
    def clear_maintd_jobs(self) -> bool:
        """Forget the jobs of the last round."""

    @_own("appendMaintdJobs", _CONFIG, Need.LIFE)
    def append_maintd_jobs(self, jobs: Annotated[Sequence[JobId], _Items]) -> bool:
        """Add to the jobs of the last round."""

    @_own("setMaintdBalance", _CONFIG, Need.BGL)
    def set_maintd_balance(self, balance: bool) -> bool:
        """Set whether the cluster is balanced; switches maintenance on."""

    @_own("setMaintdBalanceThreshold", _CONFIG, Need.BGL)
    def set_maintd_balance_threshold(self, score: Annotated[float, msgspec.Meta(ge=0)]) -> bool:
        """Set the least gain for which the cluster is balanced; switches maintenance on."""

    @_own("setMaintdDuties", _CONFIG, Need.BGL)
    def set_maintd_duties(
        self, auto_repair: bool | None, use_load: bool | None, move_disks: bool | None
    ) -> bool:
        """Set what else maintenance does, as far as it is given; switches maintenance on."""

    @_own("addMaintdEvacuated", _CONFIG, Need.LIFE)
    def add_maintd_evacuated(self, names: Names) -> bool:
        """Note instances that are moved away."""

    @_own("rmMaintdEvacuated", _CONFIG, Need.LIFE)
    def rm_maintd_evacuated(self, name: str) -> bool:
        """Forget that an instance was moved away."""

    @_own("updateMaintdIncident", _CONFIG, Need.LIFE)
    def update_maintd_incident(self, incident: Incident) -> bool:
        """Add an incident, or replace one unless it was changed since it was read."""

    @_own("rmMaintdIncident", _CONFIG, Need.LIFE, repeat=Repeat.NEVER)
    def rm_maintd_incident(self, uuid: str) -> bool:
        """Remove an incident."""

    def modify(self, kind: ObjectKind, key: str, changes: Changes) -> Serial:
        """Replace fields of one object; the cluster needs no key."""
        return self.modify_objects([(kind, key, changes)])
