"""The calls of the node daemon, as one table: what is asked, how long it may take, where it runs.

The client takes names, time limits and encoders from here, the daemon the arguments and the place
where the handler runs, ``doc/status.md`` what is served.  How values look on the wire is in
``node_rpc_values``; what a call does is in ``node_ops``.

A request is ``POST /<name>`` with a JSON list of the arguments in order as its body (one call sends
an object, see ``instance_console_info``); an answer is ``[true, payload]`` or ``[false, text]`` and
a newline.

Source: node_rpc.json (calls, transport, timeout_classes_seconds).
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from ganeti.base.errors import ProtocolError
from ganeti.base.json import dumps, loads

DEFAULT_PORT = 1811
CONNECT_TIMEOUT_S = 5.0
CLIENTS_MAX_DEFAULT = 20

# Optional request header with the id of the job that asks; 3.0 peers neither send nor read it.
JOB_HEADER = "X-Ganeti-Job"

# The biggest body is config.data: 5 MB at 11,000 instances, less when compressed.  Ten times that.
BODY_BYTES_MAX = 64 * 1024 * 1024

PROMPT_S = 5.0  # ours, for small questions that nobody waits for longer
URGENT_S = 60.0
FAST_S = 300.0
NORMAL_S = 900.0
SLOW_S = 3600.0
FOUR_HOURS_S = 14400.0
ONE_DAY_S = 86400.0

# test_delay may take as long as it was told to sleep and this much more.
DELAY_MARGIN_S = 5.0


class Place(StrEnum):
    """Where the node daemon runs a call."""

    DAEMON = "daemon"  # a quick read or a file write: a thread of the daemon, no fork
    CHILD = "child"  # disks, hypervisors, scripts: a child of the helper process


class Encoder(StrEnum):
    """How the caller's value becomes the value on the wire.

    Source: node_rpc.json, encoders.
    """

    OBJECT = "ED_OBJECT_DICT"
    OBJECT_LIST = "ED_OBJECT_DICT_LIST"
    INSTANCE = "ED_INST_DICT"
    INSTANCE_HVP_BEP = "ED_INST_DICT_HVP_BEP_DP"
    INSTANCE_OSP = "ED_INST_DICT_OSP_DP"
    NODE_TO_DISK = "ED_NODE_TO_DISK_DICT_DP"
    DISKS = "ED_DISKS_DICT_DP"
    MULTI_DISKS = "ED_MULTI_DISKS_DICT_DP"
    SINGLE_DISK = "ED_SINGLE_DISK_DICT_DP"
    NIC = "ED_NIC_DICT"
    DEVICE = "ED_DEVICE_DICT"
    IMPORT_EXPORT_IO = "ED_IMPEXP_IO"
    FILE_DETAILS = "ED_FILE_DETAILS"
    FINALIZE_EXPORT_DISKS = "ED_FINALIZE_EXPORT_DISKS"
    COMPRESS = "ED_COMPRESS"
    BLOCKDEV_RENAME = "ED_BLOCKDEV_RENAME"


# Structs, not dataclasses: every job process pays for making these classes and their values.
class Argument(msgspec.Struct, frozen=True):
    """One argument of a call; without an encoder it is sent as it is."""

    name: str
    encoder: Encoder | None


class NodeCall(msgspec.Struct, frozen=True):
    """One call of the node daemon.

    ``many``: meant for several nodes at once.  ``per_node_args``: each node gets arguments of its
    own.  ``sent_to_offline``: asked even of nodes marked offline.  ``changes``: the call changes
    something on the node, so it is logged there.  ``supported``: this node daemon serves it; the
    others it refuses by name.  ``object_body``: the body is the one argument itself, not a list of
    arguments.  ``stops_daemon``: the daemon ends once it has answered.
    """

    name: str
    timeout_s: float
    arguments: tuple[Argument, ...]
    many: bool
    runs_in: Place
    changes: bool
    supported: bool = True
    per_node_args: bool = False
    sent_to_offline: bool = False
    object_body: bool = False
    stops_daemon: bool = False

    @property
    def argument_names(self) -> tuple[str, ...]:
        """The names of the arguments in order."""
        return tuple(argument.name for argument in self.arguments)

    @property
    def timeout_is_computed(self) -> bool:
        """Whether the time limit depends on the arguments."""
        return self.name == "test_delay"

    def deadline_s(self, args: Sequence[object]) -> float:
        """Return the seconds that the call may take with these arguments."""
        if self.timeout_is_computed and args and isinstance(args[0], int | float):
            return max(0.0, float(args[0])) + DELAY_MARGIN_S
        return self.timeout_s


def _arguments(text: str) -> tuple[Argument, ...]:
    """Read ``"instance:ED_INST_DICT info target"``."""
    pairs = (word.partition(":") for word in text.split())
    return tuple(
        Argument(name, Encoder(encoder) if encoder else None) for name, _, encoder in pairs
    )


def _reads(
    name: str,
    timeout_s: float,
    arguments: str = "",
    *,
    many: bool = False,
    runs_in: Place = Place.CHILD,
    supported: bool = True,
    per_node_args: bool = False,
    sent_to_offline: bool = False,
    object_body: bool = False,
) -> NodeCall:
    """A row for a call that only looks."""
    return NodeCall(
        name,
        timeout_s,
        _arguments(arguments),
        many,
        runs_in,
        changes=False,
        supported=supported,
        per_node_args=per_node_args,
        sent_to_offline=sent_to_offline,
        object_body=object_body,
    )


def _changes(
    name: str,
    timeout_s: float,
    arguments: str = "",
    *,
    many: bool = False,
    runs_in: Place = Place.CHILD,
    supported: bool = True,
    sent_to_offline: bool = False,
    stops_daemon: bool = False,
) -> NodeCall:
    """A row for a call that changes the node."""
    return NodeCall(
        name,
        timeout_s,
        _arguments(arguments),
        many,
        runs_in,
        changes=True,
        supported=supported,
        sent_to_offline=sent_to_offline,
        stops_daemon=stops_daemon,
    )


_DAEMON = Place.DAEMON

_QUEUE_CALLS = (
    _changes("jobqueue_purge", NORMAL_S, runs_in=_DAEMON),
    _changes("jobqueue_rename", URGENT_S, "rename", many=True, runs_in=_DAEMON),
    _changes("jobqueue_set_drain_flag", URGENT_S, "flag", many=True, runs_in=_DAEMON),
    _changes(
        "jobqueue_update", URGENT_S, "file_name content:ED_COMPRESS", many=True, runs_in=_DAEMON
    ),
)

_FILE_CALLS = (
    _changes("upload_file", NORMAL_S, "file_name:ED_FILE_DETAILS", many=True, runs_in=_DAEMON),
    _changes(
        "upload_file_single",
        NORMAL_S,
        "file_name content:ED_COMPRESS mode uid gid atime mtime",
        many=True,
        runs_in=_DAEMON,
    ),
    _changes("write_ssconf_files", NORMAL_S, "values", many=True, runs_in=_DAEMON),
    _changes("etc_hosts_modify", NORMAL_S, "mode name ip", runs_in=_DAEMON),
    _reads("get_file_info", FAST_S, "file_path"),
    _reads("get_watcher_pause", URGENT_S, runs_in=_DAEMON),
    _changes("set_watcher_pause", URGENT_S, "until", many=True, runs_in=_DAEMON),
)

# Ours: Ganeti 3.0 answers that there is no such call.
_MASTER_CALLS = (
    _reads("master_facts", PROMPT_S, many=True, runs_in=_DAEMON),
    _changes(
        "master_claim", PROMPT_S, "known_serial serial_no master_name", many=True, runs_in=_DAEMON
    ),
    _changes("master_accept", URGENT_S, "serial_no values", many=True, runs_in=_DAEMON),
    _changes("master_drain", FAST_S, "timeout_s"),
    _reads("config_read", FAST_S, runs_in=_DAEMON),
    _reads("jobqueue_list", FAST_S, many=True, runs_in=_DAEMON),
    _reads("jobqueue_read", FAST_S, "job_ids", runs_in=_DAEMON),
)
_SSH_CALLS = (
    _changes("ssh_root_key", FAST_S, "kind bits"),
    _changes("ssh_authorize", FAST_S, "add remove", many=True),
    _changes("ssh_next_key", FAST_S, "kind bits", many=True),
    _changes("ssh_take_key", FAST_S, "kind public_key"),
)
# Ours: what all disks of a running instance hold at one instant, and exports made of that.
_SNAPSHOT_CALLS = (
    _reads("instance_snapshot_supported", FAST_S, "instance:ED_INST_DICT"),
    _changes("instance_snapshot", NORMAL_S, "instance:ED_INST_DICT"),
    _changes("instance_snapshot_drop", NORMAL_S, "instance:ED_INST_DICT"),
    _changes("export_note", FAST_S, "export method"),
)

OWN_CALLS = frozenset(call.name for call in (*_MASTER_CALLS, *_SSH_CALLS, *_SNAPSHOT_CALLS))

_NODE_CALLS = (
    _reads("version", URGENT_S, many=True, runs_in=_DAEMON, sent_to_offline=True),
    _reads("master_node_name", URGENT_S, many=True, runs_in=_DAEMON),
    _reads("node_has_ip_address", FAST_S, "address", runs_in=_DAEMON),
    _reads("node_info", URGENT_S, "storage_units hv_specs", many=True, per_node_args=True),
    _reads("node_verify", NORMAL_S, "checkdict cluster_name all_hvparams", many=True),
    _reads("node_verify_light", NORMAL_S, "checkdict cluster_name hvparams", many=True),
    _changes("node_crypto_tokens", SLOW_S, "token_request"),
    _changes("node_start_master_daemons", FAST_S, "no_voting"),
    _changes("node_stop_master", FAST_S),
    _changes("node_ensure_daemon", URGENT_S, "daemon run", many=True),
    _changes("node_leave_cluster", NORMAL_S, "modify_ssh_setup", stops_daemon=True),
    _changes("node_demote_from_mc", FAST_S),
    _changes(
        "node_activate_master_ip", FAST_S, "master_params:ED_OBJECT_DICT use_external_mip_script"
    ),
    _changes(
        "node_deactivate_master_ip", FAST_S, "master_params:ED_OBJECT_DICT use_external_mip_script"
    ),
    _changes("node_change_master_netmask", FAST_S, "old_netmask netmask master_ip master_netdev"),
    _changes("node_powercycle", NORMAL_S, "hypervisor hvparams", sent_to_offline=True),
    _changes("node_configure_ovs", NORMAL_S, "ovs_name ovs_link"),
    _changes(
        "node_ssh_key_add",
        FAST_S,
        "node_uuid node_name potential_master_candidates to_authorized_keys to_public_keys"
        " get_public_keys",
        many=True,
        supported=False,
    ),
    _changes(
        "node_ssh_key_remove",
        FAST_S,
        "node_uuid node_name master_candidate_uuids potential_master_candidates"
        " from_authorized_keys from_public_keys clear_authorized_keys clear_public_keys readd",
        many=True,
        supported=False,
    ),
    _changes(
        "node_ssh_keys_renew",
        FOUR_HOURS_S,
        "node_uuids node_names master_candidate_uuids potential_master_candidates old_key_type"
        " new_key_type new_key_bits",
        many=True,
        supported=False,
    ),
    _reads("bridges_exist", URGENT_S, "bridges_list"),
    _reads("test_delay", DELAY_MARGIN_S, "duration", many=True),
)

_SCRIPT_CALLS = (
    _changes("hooks_runner", NORMAL_S, "hpath phase env", many=True),
    _reads("iallocator_runner", NORMAL_S, "name idata default_iallocator_params"),
    _changes("restricted_command", SLOW_S, "cmd", many=True),
    _changes("run_oob", NORMAL_S, "oob_program command remote_node timeout"),
    _reads("os_diagnose", FAST_S, many=True),
    _reads("os_validate", FAST_S, "required name checks params force_variant", many=True),
    _changes("os_export", FAST_S, "instance:ED_INST_DICT override_env", supported=False),
    _reads("extstorage_diagnose", FAST_S, many=True),
    _changes("x509_cert_create", NORMAL_S, "validity"),
    _changes("x509_cert_remove", NORMAL_S, "name"),
)

_INSTANCE_CALLS = (
    _reads("all_instances_info", URGENT_S, "hypervisor_list all_hvparams", many=True),
    _reads("instance_list", URGENT_S, "hypervisor_list hvparams", many=True),
    _reads("instance_info", URGENT_S, "instance hname hvparams"),
    # The body is one object {instance name: {instance, node, group, hvParams, beParams}}.
    _reads("instance_console_info", URGENT_S, "instances", many=True, object_body=True),
    _reads("hypervisor_validate_params", NORMAL_S, "hvname hvfull", many=True),
    _changes(
        "instance_start",
        NORMAL_S,
        "instance_hvp_bep:ED_INST_DICT_HVP_BEP_DP startup_paused reason",
    ),
    _changes("instance_shutdown", NORMAL_S, "instance:ED_INST_DICT timeout reason"),
    _changes("instance_reboot", NORMAL_S, "inst:ED_INST_DICT reboot_type shutdown_timeout reason"),
    _changes("instance_os_add", ONE_DAY_S, "instance_osp:ED_INST_DICT_OSP_DP reinstall debug"),
    _changes("instance_run_rename", SLOW_S, "instance:ED_INST_DICT old_name debug"),
    _changes("instance_balloon_memory", NORMAL_S, "instance:ED_INST_DICT memory"),
    _changes("instance_metadata_modify", URGENT_S, "instance", supported=False),
    _changes(
        "hotplug_device",
        NORMAL_S,
        "instance:ED_INST_DICT action dev_type device:ED_DEVICE_DICT extra seq",
    ),
    _reads("hotplug_supported", NORMAL_S, "instance:ED_INST_DICT"),
)

_MIGRATION_CALLS = (
    _reads("instance_migratable", NORMAL_S, "instance:ED_INST_DICT"),
    _reads("migration_info", NORMAL_S, "instance:ED_INST_DICT"),
    _changes("accept_instance", NORMAL_S, "instance:ED_INST_DICT info target"),
    _changes("instance_migrate", SLOW_S, "cluster_name instance:ED_INST_DICT target live"),
    _reads("instance_get_migration_status", SLOW_S, "instance:ED_INST_DICT"),
    _changes("instance_finalize_migration_src", SLOW_S, "instance:ED_INST_DICT success live"),
    _changes("instance_finalize_migration_dst", NORMAL_S, "instance:ED_INST_DICT info success"),
)

_DISK = "ED_SINGLE_DISK_DICT_DP"
_DISKS = "ED_DISKS_DICT_DP"

_DISK_CALLS = (
    _changes(
        "blockdev_create",
        NORMAL_S,
        f"bdev:{_DISK} size owner on_primary info exclusive_storage",
    ),
    _changes("blockdev_remove", NORMAL_S, f"bdev:{_DISK}"),
    _changes("blockdev_assemble", NORMAL_S, f"disk:{_DISK} instance:ED_INST_DICT on_primary idx"),
    _changes("blockdev_shutdown", NORMAL_S, f"disk:{_DISK}"),
    _reads("blockdev_find", NORMAL_S, f"disk:{_DISK}"),
    _changes("blockdev_open", NORMAL_S, f"instance_name disks:{_DISKS} exclusive"),
    _changes("blockdev_close", NORMAL_S, f"instance_name disks:{_DISKS}"),
    _changes("blockdev_grow", NORMAL_S, f"cf_bdev:{_DISK} amount dryrun backingstore es_flag"),
    _reads("blockdev_getdimensions", NORMAL_S, "disks:ED_MULTI_DISKS_DICT_DP"),
    _reads("blockdev_getmirrorstatus", NORMAL_S, f"disks:{_DISKS}"),
    _reads(
        "blockdev_getmirrorstatus_multi",
        NORMAL_S,
        "node_disks:ED_NODE_TO_DISK_DICT_DP",
        many=True,
        per_node_args=True,
    ),
    _changes("blockdev_setinfo", NORMAL_S, f"disk:{_DISK} info"),
    _changes("blockdev_rename", NORMAL_S, "devlist:ED_BLOCKDEV_RENAME"),
    _changes("blockdev_wipe", SLOW_S, f"bdev:{_DISK} offset size"),
    _changes("blockdev_image", SLOW_S, f"bdev:{_DISK} image size", supported=False),
    _changes("blockdev_snapshot", NORMAL_S, f"cf_bdev:{_DISK} snap_name snap_size"),
    _changes("blockdev_convert", SLOW_S, f"bdev_src:{_DISK} bdev_dest:{_DISK}", supported=False),
    _changes("blockdev_addchildren", NORMAL_S, f"bdev:{_DISK} ndevs:{_DISKS}", supported=False),
    _changes("blockdev_removechildren", NORMAL_S, f"bdev:{_DISK} ndevs:{_DISKS}", supported=False),
    _changes("blockdev_pause_resume_sync", NORMAL_S, f"disks:{_DISKS} pause", supported=False),
    _reads("bdev_sizes", URGENT_S, "devices", many=True),
    _changes(
        "drbd_attach_net", NORMAL_S, f"disks:{_DISKS} multimaster", many=True, supported=False
    ),
    _changes("drbd_disconnect_net", NORMAL_S, f"disks:{_DISKS}", many=True, supported=False),
    _reads("drbd_helper", URGENT_S, many=True, supported=False),
    _reads("drbd_needs_activation", NORMAL_S, "disks:ED_MULTI_DISKS_DICT_DP", supported=False),
    _reads("drbd_wait_sync", SLOW_S, f"disks:{_DISKS}", many=True, supported=False),
)

_STORAGE_CALLS = (
    _changes("file_storage_dir_create", FAST_S, "file_storage_dir"),
    _changes("file_storage_dir_remove", FAST_S, "file_storage_dir"),
    _changes("file_storage_dir_rename", FAST_S, "old_file_storage_dir new_file_storage_dir"),
    _reads("storage_list", NORMAL_S, "su_name su_args name fields", many=True),
    _changes("storage_modify", NORMAL_S, "su_name su_args name changes"),
    _changes("storage_execute", NORMAL_S, "su_name su_args name op"),
    _reads("lv_list", URGENT_S, "vg_name", many=True, supported=False),
    _reads("vg_list", URGENT_S, many=True, supported=False),
    _reads("node_volumes", FAST_S, many=True, supported=False),
)

_EXPORT_CALLS = (
    _reads("export_list", FAST_S, many=True),
    _reads("export_info", FAST_S, "path"),
    _changes("export_remove", FAST_S, "export"),
    _changes(
        "export_start",
        NORMAL_S,
        "opts:ED_OBJECT_DICT host port instance:ED_INST_DICT component source:ED_IMPEXP_IO",
    ),
    _changes(
        "import_start",
        NORMAL_S,
        "opts:ED_OBJECT_DICT instance:ED_INST_DICT component dest:ED_IMPEXP_IO",
    ),
    _changes(
        "finalize_export",
        NORMAL_S,
        "instance:ED_INST_DICT snap_disks:ED_FINALIZE_EXPORT_DISKS",
    ),
    _reads("impexp_status", FAST_S, "names"),
    _changes("impexp_abort", NORMAL_S, "name"),
    _changes("impexp_cleanup", NORMAL_S, "name"),
)

NODE_RPC: Mapping[str, NodeCall] = {
    call.name: call
    for family in (
        _QUEUE_CALLS,
        _FILE_CALLS,
        _MASTER_CALLS,
        _SSH_CALLS,
        _SNAPSHOT_CALLS,
        _NODE_CALLS,
        _SCRIPT_CALLS,
        _INSTANCE_CALLS,
        _MIGRATION_CALLS,
        _DISK_CALLS,
        _STORAGE_CALLS,
        _EXPORT_CALLS,
    )
    for call in family
}


def encode_arguments(call: NodeCall, args: Sequence[object]) -> bytes:
    """Return the request body for a call.

    Raises:
        ProtocolError: the number of arguments is not the table's.
    """
    _check_count(call, args)
    return dumps(args[0] if call.object_body else list(args))


def decode_arguments(call: NodeCall, body: bytes) -> list[object]:
    """Return the arguments from a request body.

    Raises:
        ProtocolError: not JSON, not a list, or not as many arguments as the call takes.
    """
    value = loads(body)
    if call.object_body:
        if not isinstance(value, dict):
            raise ProtocolError(f"{call.name}: the body must be a JSON object")
        return [value]
    if not isinstance(value, list):
        raise ProtocolError(f"{call.name}: the body must be a JSON list of the arguments")
    _check_count(call, value)
    return value


def encode_result(payload: object) -> bytes:
    """Return the answer to a call that succeeded."""
    return dumps([True, payload]) + b"\n"


def encode_failure(text: str) -> bytes:
    """Return the answer to a call that failed."""
    return dumps([False, text]) + b"\n"


def decode_answer(body: bytes) -> tuple[bool, object]:
    """Return (success, payload or error text) from an answer.

    Raises:
        ProtocolError: the answer is not of the form ``[bool, value]``.
    """
    value = loads(body)
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[0], bool):
        raise ProtocolError("node daemon's answer is not of the form [bool, value]")
    return value[0], value[1]


def _check_count(call: NodeCall, args: Sequence[object]) -> None:
    """Raise when a call gets too few or too many arguments."""
    if len(args) != len(call.arguments):
        names = ", ".join(call.argument_names) or "none"
        raise ProtocolError(
            f"{call.name}: takes {len(call.arguments)} arguments ({names}), got {len(args)}"
        )
