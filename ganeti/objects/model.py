"""The objects of the configuration: cluster, groups, nodes, networks, disks, instances.

Source: config.json, "objects"; constants.json; node_rpc.json, "InstanceConsole".
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import ClassVar, Final, NamedTuple, Self

from msgspec import field

from ganeti.base.ids import DiskUuid, GroupUuid, InstanceUuid, NetworkUuid, NodeUuid
from ganeti.base.json import JsonValue
from ganeti.objects.disk_templates import (
    DiskFormat,
    DiskMode,
    DiskTemplate,
    Traits,
    file_templates,
    format_of,
    traits_of,
)
from ganeti.objects.hypervisors import ConsoleKind, Hypervisor
from ganeti.objects.nic import NIC
from ganeti.objects.record import PrivateParams, Record

# The cluster: everything that is set once for all.
#
# Source: config.json, objects "Cluster", "DataCollectorConfig" and "MasterNetworkParameters".


DEFAULTS: Final = "default"  # the one key of Cluster.beparams and Cluster.nicparams


class DataCollector(NamedTuple):
    """One data collector; ``target`` is the ``module:class`` that the monitoring daemon loads.

    The collectors of 3.0 are always in the configuration, switched on or off; ours are on without
    being named, and get into it once somebody changes one.
    """

    target: str
    in_3_0: bool = False


# Source: mond.json, "collectors"; constants.json, "mond".
DATA_COLLECTORS: Final[Mapping[str, DataCollector]] = {
    "cpu-avg-load": DataCollector("ganeti.collectors.cpu_load:CpuLoad", in_3_0=True),
    "xen-cpu-avg-load": DataCollector("ganeti.collectors.xen:XenInstanceLoad", in_3_0=True),
    "kvm-cpu-avg-load": DataCollector("ganeti.collectors.kvm:KvmInstanceLoad"),
    "diskstats": DataCollector("ganeti.collectors.diskstats:Diskstats", in_3_0=True),
    "drbd": DataCollector("ganeti.collectors.drbd:Drbd", in_3_0=True),
    "lv": DataCollector("ganeti.collectors.lv:LogicalVolumes", in_3_0=True),
    "inst-status-xen": DataCollector("ganeti.collectors.xen:XenInstanceStatus", in_3_0=True),
    "inst-status-kvm": DataCollector("ganeti.collectors.kvm:KvmInstanceStatus"),
    "diagnose": DataCollector("ganeti.collectors.diagnose:Diagnose"),
}
COLLECTORS_OF_3_0: Final = tuple(sorted(key for key, row in DATA_COLLECTORS.items() if row.in_3_0))
COLLECTOR_INTERVAL_US: Final = 5_000_000  # constants.json, MOND_TIME_INTERVAL


class IpFamily(IntEnum):
    """Address family of the cluster, as the operating system numbers it."""

    IPV4 = 2
    IPV6 = 10

    @property
    def version(self) -> int:
        """IP version, 4 or 6."""
        return 4 if self is IpFamily.IPV4 else 6


class SshKeyType(StrEnum):
    """Kinds of SSH keys."""

    DSA = "dsa"
    ECDSA = "ecdsa"
    RSA = "rsa"


class DataCollectorConfig(Record, frozen=True, kw_only=True):
    """Whether a collector of the monitoring daemon runs; interval in microseconds."""

    active: bool
    interval: int


class Cluster(Record, frozen=True, kw_only=True):
    """Cluster-wide settings and defaults."""

    LEFT_OUT: ClassVar[Mapping[str, object]] = {
        **dict.fromkeys(("dsahostkeypub", "volume_group_name", "drbd_usermode_helper")),
        "hv_state_static": {},
        "disk_state_static": {},
        "diagnose_data_collector_filename": "",
        "max_disk_transfers": 0,
        "default_iallocators": {},
        "silent_node_tries": 0,
    }
    OURS: ClassVar[frozenset[str]] = frozenset(
        {
            *("diagnose_data_collector_filename", "max_disk_transfers", "default_iallocators"),
            "silent_node_tries",
        }
    )

    rsahostkeypub: str
    dsahostkeypub: str | None = None
    highest_used_port: int
    tcpudp_port_pool: list[int]
    mac_prefix: str
    volume_group_name: str | None = None
    reserved_lvs: list[str]
    drbd_usermode_helper: str | None = None
    master_node: NodeUuid
    master_ip: str
    master_netdev: str
    master_netmask: int
    use_external_mip_script: bool
    cluster_name: str
    file_storage_dir: str
    shared_file_storage_dir: str
    gluster_storage_dir: str
    enabled_hypervisors: list[Hypervisor]
    hvparams: Mapping[str, Mapping[str, JsonValue]]
    os_hvp: Mapping[str, Mapping[str, Mapping[str, JsonValue]]]
    beparams: Mapping[str, Mapping[str, JsonValue]]
    osparams: Mapping[str, Mapping[str, JsonValue]]
    osparams_private_cluster: Mapping[str, PrivateParams] = field(default_factory=dict)
    nicparams: Mapping[str, Mapping[str, JsonValue]]
    ndparams: Mapping[str, JsonValue]
    diskparams: Mapping[str, Mapping[str, JsonValue]]
    candidate_pool_size: int
    modify_etc_hosts: bool
    modify_ssh_setup: bool
    maintain_node_health: bool
    uid_pool: list[tuple[int, int]]
    default_iallocator: str
    default_iallocator_params: Mapping[str, JsonValue]
    hidden_os: list[str]
    blacklisted_os: list[str]
    primary_ip_family: IpFamily
    prealloc_wipe_disks: bool
    ipolicy: Mapping[str, JsonValue]
    hv_state_static: Mapping[str, JsonValue] = {}
    disk_state_static: Mapping[str, JsonValue] = {}
    enabled_disk_templates: list[DiskTemplate]
    candidate_certs: Mapping[NodeUuid, str]
    max_running_jobs: int
    max_tracked_jobs: int
    install_image: str
    instance_communication_network: str
    zeroing_image: str
    compression_tools: list[str]
    enabled_user_shutdown: bool
    data_collectors: Mapping[str, DataCollectorConfig]
    diagnose_data_collector_filename: str = ""
    max_disk_transfers: int = 0  # at once on each node; 0 for any number
    default_iallocators: Mapping[str, list[str]] = {}  # by kind of request; see `allocation_modes`
    silent_node_tries: int = 0  # of the watcher, before it sets a node offline; 0 for never
    ssh_key_type: SshKeyType
    ssh_key_bits: int
    uuid: str
    ctime: float = 0.0
    mtime: float = 0.0
    serial_no: int
    tags: list[str] = []


class MasterNetworkParameters(Record, frozen=True, kw_only=True):
    """Where the cluster's own address lives; sent to the node daemon."""

    uuid: NodeUuid
    ip: str
    netmask: int
    netdev: str
    ip_family: IpFamily


def master_network_parameters(cluster: Cluster) -> MasterNetworkParameters:
    """Return the facts by which a node takes or gives up the cluster's address."""
    return MasterNetworkParameters(
        uuid=cluster.master_node,
        ip=cluster.master_ip,
        netmask=cluster.master_netmask,
        netdev=cluster.master_netdev,
        ip_family=cluster.primary_ip_family,
    )


def listed_directories(cluster: Cluster) -> dict[DiskTemplate, str]:
    """Return those of `storage_directories` whose files can be listed at any time."""
    return {
        template: path
        for template, path in storage_directories(cluster).items()
        if not template.traits.is_mounted
    }


def storage_directories(cluster: Cluster) -> dict[DiskTemplate, str]:
    """Return the directories of disks in files, by the enabled disk templates."""
    return {
        template: str(getattr(cluster, template.traits.directory_setting))
        for template in file_templates()
        if template in cluster.enabled_disk_templates
    }


SSH_KEY_BITS: Final = {SshKeyType.DSA: 1024, SshKeyType.ECDSA: 256, SshKeyType.RSA: 2048}
"""The usual lengths of SSH keys."""
_SSH_LENGTHS: Final[Mapping[SshKeyType, tuple[int, ...] | range]] = {
    SshKeyType.DSA: (1024,),
    SshKeyType.ECDSA: (256, 384, 521),
    SshKeyType.RSA: range(1024, 16385),
}


def ssh_key_problem(kind: SshKeyType, bits: int) -> str | None:
    """Return the fault of a length of SSH keys, or None."""
    known = _SSH_LENGTHS[kind]
    if bits in known:
        return None
    wanted = f"{known[0]} to {known[-1]}" if len(known) > 3 else ", ".join(map(str, known))
    return f"an SSH key of type {kind} cannot have {bits} bits, but {wanted}"


_NETMASK_MAX: Final = {IpFamily.IPV4: 32, IpFamily.IPV6: 128}


def netmask_problem(length: int, family: IpFamily) -> str | None:
    """Return the fault of a prefix length of the cluster's own address, or None."""
    longest = _NETMASK_MAX[family]
    if 1 <= length <= longest:
        return None
    return (
        f"master_netmask: {length} is not the length of a prefix; IPv{family.version} has lengths"
        f" from 1 to {longest}"
    )


# Node groups.
#
# Source: config.json, object "NodeGroup".


INITIAL_GROUP_NAME: Final = "default"


class AllocPolicy(StrEnum):
    """Whether new instances may go to a group."""

    PREFERRED = "preferred"
    LAST_RESORT = "last_resort"
    UNALLOCABLE = "unallocable"


class NodeGroup(Record, frozen=True, kw_only=True):
    """Nodes that are alike; ``members`` is written as [], the nodes know their group."""

    LEFT_OUT: ClassVar[Mapping[str, object]] = {"hv_state_static": {}, "disk_state_static": {}}

    name: str
    members: list[str] = []
    ndparams: Mapping[str, JsonValue] = {}
    alloc_policy: AllocPolicy
    ipolicy: Mapping[str, JsonValue] = {}
    diskparams: Mapping[str, Mapping[str, JsonValue]] = {}
    networks: Mapping[str, Mapping[str, JsonValue]] = {}  # network UUID to NIC parameters
    hv_state_static: Mapping[str, JsonValue] = {}
    disk_state_static: Mapping[str, JsonValue] = {}
    uuid: GroupUuid
    ctime: float = 0.0
    mtime: float = 0.0
    serial_no: int
    tags: list[str] = []


# Nodes, and the role of a node in its cluster.
#
# Source: config.json, object "Node"; constants.json, "node_roles".


class Node(Record, frozen=True, kw_only=True):
    """A machine of the cluster; candidate, offline and drained exclude each other."""

    LEFT_OUT: ClassVar[Mapping[str, object]] = {"hv_state_static": {}, "disk_state_static": {}}

    name: str
    primary_ip: str
    secondary_ip: str
    master_candidate: bool
    offline: bool
    drained: bool
    group: GroupUuid
    master_capable: bool
    vm_capable: bool
    ndparams: Mapping[str, JsonValue] = {}
    powered: bool
    hv_state_static: Mapping[str, JsonValue] = {}
    disk_state_static: Mapping[str, JsonValue] = {}
    uuid: NodeUuid
    ctime: float = 0.0
    mtime: float = 0.0
    serial_no: int
    tags: list[str] = []


class NodeRole(StrEnum):
    """One letter as shown in lists."""

    MASTER = "M"
    CANDIDATE = "C"
    REGULAR = "R"
    DRAINED = "D"
    OFFLINE = "O"


CLOCK_SKEW_S_MAX: Final = 150


def role_of(cluster: Cluster, node: Node) -> NodeRole:
    """Tell the role of a node; flags exclude each other, the master has none of them."""
    if node.uuid == cluster.master_node:
        return NodeRole.MASTER
    if node.master_candidate:
        return NodeRole.CANDIDATE
    if node.drained:
        return NodeRole.DRAINED
    if node.offline:
        return NodeRole.OFFLINE
    return NodeRole.REGULAR


# Networks with their address pools.
#
# Source: config.json, object "Network".


NO_IPV4: Final = "0.0.0.0/30"  # of a network with IPv6 addresses alone; the shape is 3.0's


class Network(Record, frozen=True, kw_only=True):
    """A network; the maps are text of 0 and 1, the i-th character for the i-th address.

    ``reservations`` holds the addresses of instances, ``ext_reservations`` the rest (network,
    broadcast and gateway addresses, and addresses that the administrator reserved).  IPv6 has no
    map: ``ext_reservations6`` lists addresses and ranges that the administrator reserved.
    """

    LEFT_OUT: ClassVar[Mapping[str, object]] = dict.fromkeys(
        (
            *("mac_prefix", "network6", "gateway", "gateway6"),
            *("reservations", "ext_reservations", "ext_reservations6"),
        )
    )
    OURS: ClassVar[frozenset[str]] = frozenset({"ext_reservations6"})

    name: str
    mac_prefix: str | None = None
    network: str  # a.b.c.d/n
    network6: str | None = None
    gateway: str | None = None
    gateway6: str | None = None
    reservations: str | None = None
    ext_reservations: str | None = None
    ext_reservations6: list[str] | None = None
    uuid: NetworkUuid
    ctime: float = 0.0
    mtime: float = 0.0
    serial_no: int
    tags: list[str] = []

    @property
    def ipv4(self) -> str | None:
        """The IPv4 addresses; None for a network with IPv6 addresses alone."""
        return None if self.network == NO_IPV4 else self.network


def network_variables(network: Network) -> dict[str, str]:
    """Return the variables that scripts get about a network, for the values that it has.

    Source: hooks_os_ext.json, "network_env".
    """
    values = {
        "NETWORK_SUBNET": network.ipv4,
        "NETWORK_GATEWAY": network.gateway,
        "NETWORK_SUBNET6": network.network6,
        "NETWORK_GATEWAY6": network.gateway6,
        "NETWORK_MAC_PREFIX": network.mac_prefix,
    }
    return {
        "NETWORK_NAME": network.name,
        "NETWORK_UUID": str(network.uuid),
        "NETWORK_TAGS": " ".join(network.tags),
        **{name: value for name, value in values.items() if value},
    }


# Disks of instances.
#
# Source: config.json, object "Disk".


_UNDECIDED_DISK: Final[Mapping[str, object]] = {"logical_id": [], "dev_type": "", "size": 0}


class Disk(Record, frozen=True, kw_only=True):
    """One device, perhaps with children.

    ``logical_id`` tells the device apart, by type: plain [vg, lv]; drbd [node uuid A, node uuid B,
    port, minor A, minor B, secret]; file, sharedfile, gluster [driver, path]; blockdev ["manual",
    path]; rbd ["rbd", name]; ext [provider, name].  Sizes are MiB.
    """

    LEFT_OUT: ClassVar[Mapping[str, object]] = {
        **dict.fromkeys(("name", "spindles", "params")),
        "forthcoming": False,
    }

    logical_id: list[JsonValue]
    dev_type: str
    children: list[Disk] = []
    nodes: list[str] = []  # UUIDs of the nodes that hold the disk
    iv_name: str = ""  # name inside the instance: disk/0
    size: int
    mode: DiskMode = DiskMode.RW
    name: str | None = None
    spindles: int | None = None
    params: Mapping[str, JsonValue] | None = None
    uuid: DiskUuid
    ctime: float = 0.0
    mtime: float = 0.0
    serial_no: int
    forthcoming: bool = False  # planned only; fields not decided yet are empty

    @property
    def traits(self) -> Traits:
        """The traits of its template."""
        return traits_of(self.dev_type)

    @property
    def format(self) -> DiskFormat:
        """The format of its file; raw without one."""
        return format_of(self.params) if self.traits.is_file else DiskFormat.RAW

    def part(self, name: str) -> str:
        """Return one part of the logical id by its name, "" where there is none of that name."""
        named = dict(zip(self.traits.logical_id, self.logical_id, strict=False))
        return str(named.get(name, ""))

    @classmethod
    def from_wire(cls, wire: Mapping[str, object]) -> Self:
        """Make the disk from its JSON form; a forthcoming one may lack fields."""
        if wire.get("forthcoming") is True:
            wire = {**_UNDECIDED_DISK, **wire}
        return super().from_wire(wire)


# Instances: as stored, the states they are in, how to reach their consoles.
#
# Source: config.json, object "Instance"; constants.json, "instance_states"; node_rpc.json,
# "InstanceConsole".


class AdminState(StrEnum):
    """The state that an instance is meant to have."""

    UP = "up"
    DOWN = "down"
    OFFLINE = "offline"


class AdminStateSource(StrEnum):
    """The author of an admin state: an administrator, or the user from inside the instance."""

    ADMIN = "admin"
    USER = "user"


class InstanceStatus(StrEnum):
    """Value of the query field ``status``."""

    RUNNING = "running"
    ADMIN_DOWN = "ADMIN_down"
    ADMIN_OFFLINE = "ADMIN_offline"
    USER_DOWN = "USER_down"
    ERROR_DOWN = "ERROR_down"
    ERROR_UP = "ERROR_up"
    ERROR_NODEDOWN = "ERROR_nodedown"
    ERROR_NODEOFFLINE = "ERROR_nodeoffline"
    ERROR_WRONGNODE = "ERROR_wrongnode"


class LiveState:
    """State of an instance as the node daemon reports it, as numbers on the wire."""

    RUNNING = 0
    SHUTDOWN = 1


_UNDECIDED_INSTANCE: Final[Mapping[str, object]] = {
    "name": "",
    "primary_node": "",
    "os": "",
    "hypervisor": "",
    "admin_state": "down",
    "admin_state_source": "admin",
    "disks_active": False,
}


class Rehearsal(Record, frozen=True, kw_only=True):
    """What came of the last rehearsal of an instance; times are in seconds since 1970.

    ``node`` had the export, which was made at ``exported``; ``failure`` is "" if it came back.
    """

    ended: float
    job: int
    node: str
    exported: float
    failure: str = ""


class Instance(Record, frozen=True, kw_only=True):
    """An instance as stored: only parameters that differ from the defaults.

    ``rehearsal`` is there once there was one that a policy of backups wanted.
    """

    LEFT_OUT: ClassVar[Mapping[str, object]] = {
        "network_port": None,
        "forthcoming": False,
        "rehearsal": None,
    }
    OURS: ClassVar[frozenset[str]] = frozenset({"rehearsal"})

    name: str
    primary_node: NodeUuid
    os: str
    hypervisor: str
    hvparams: Mapping[str, JsonValue] = {}
    beparams: Mapping[str, JsonValue] = {}
    osparams: Mapping[str, JsonValue] = {}
    osparams_private: PrivateParams = field(default_factory=PrivateParams)
    admin_state: AdminState
    admin_state_source: AdminStateSource = AdminStateSource.ADMIN
    nics: list[NIC] = []
    disks: list[DiskUuid] = []
    disks_active: bool
    network_port: int | None = None
    uuid: InstanceUuid
    ctime: float = 0.0
    mtime: float = 0.0
    serial_no: int
    tags: list[str] = []
    forthcoming: bool = False  # planned only; fields not decided yet are empty
    rehearsal: Rehearsal | None = None

    @classmethod
    def from_wire(cls, wire: Mapping[str, object]) -> Self:
        """Make the instance from its JSON form; a forthcoming one may lack fields."""
        if wire.get("forthcoming") is True:
            wire = {**_UNDECIDED_INSTANCE, **wire}
        return super().from_wire(wire)


class InstanceConsole(Record, frozen=True, kw_only=True):
    """One way to a console; ``kind`` says which of the other fields are set.

    msg: message.  ssh: host, user, command (a list of words).  vnc and spice: host, port, and
    for vnc the display.
    """

    LEFT_OUT: ClassVar[Mapping[str, object]] = dict.fromkeys(
        ("message", "host", "port", "user", "command", "display")
    )

    instance: str
    kind: ConsoleKind
    message: str | None = None
    host: str | None = None
    port: int | None = None
    user: str | None = None
    command: list[str] | None = None
    display: int | str | None = None


_CONSOLE_LINES: Final = 15  # of a guest, in the text of a failure


class Guest(Record, frozen=True, kw_only=True):
    """Signs of life of a guest; of ours, 3.0 has nothing like it.

    ``agent`` says whether QEMU's guest agent answers, ``addresses`` are those that it tells;
    ``forward`` is [address, port] where the node takes connections for the guest's SSH port,
    [] where the guest is reached at its own address; ``console`` is the end of what the serial
    console showed.
    """

    agent: bool = False
    addresses: list[str] = []
    forward: list[JsonValue] = []
    console: str = ""

    @property
    def last_line(self) -> str:
        """The last line that the console shows; "" if there is none."""
        return next(reversed(self._lines), "")

    @property
    def end_of_console(self) -> str:
        """The end of the console, as the text of a failure tells it."""
        lines = self._lines[-_CONSOLE_LINES:]
        if not lines:
            return "its console has shown nothing"
        return "\n  ".join(["the end of its console:", *lines])

    @property
    def _lines(self) -> list[str]:
        shown = "".join(each for each in self.console if each.isprintable() or each == "\n")
        return [line.rstrip() for line in shown.splitlines() if line.strip()]


# Job filters.
#
# Source: config.json, object "FilterRule"; luxi.json, "filter_rule".


class FilterRule(Record, frozen=True, kw_only=True):
    """A rule about which jobs may start.

    ``predicates`` are pairs of a name (jobid, opcode, reason) and a filter in prefix form, all of
    which must match; ``action`` is ACCEPT, PAUSE, REJECT, CONTINUE or [RATE_LIMIT, n]; rules are
    tried in the order of (priority, watermark, uuid).
    """

    watermark: int
    priority: int
    predicates: list[list[JsonValue]]
    action: str | list[JsonValue]
    reason_trail: list[list[JsonValue]] = []
    uuid: str
