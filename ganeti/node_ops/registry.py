"""Which function serves which node call.

A handler is ``function(context, *arguments) -> payload``.  It declares the types of its arguments;
`dispatch` converts what came over the wire.  A failure is any error of ``ganeti.base.errors``.
"""

import importlib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from ganeti.base.errors import NotSupportedError
from ganeti.protocol.node_rpc import NODE_RPC, NodeCall, Place

Handler = Callable[..., Any]

_FAMILIES: Mapping[str, tuple[str, ...]] = {
    "basics": (
        "get_file_info",
        "get_watcher_pause",
        "master_node_name",
        "node_has_ip_address",
        "set_watcher_pause",
        "test_delay",
        "version",
    ),
    "block_devices": (
        "bdev_sizes",
        "blockdev_assemble",
        "blockdev_close",
        "blockdev_create",
        "blockdev_find",
        "blockdev_getdimensions",
        "blockdev_getmirrorstatus",
        "blockdev_getmirrorstatus_multi",
        "blockdev_grow",
        "blockdev_open",
        "blockdev_remove",
        "blockdev_rename",
        "blockdev_setinfo",
        "blockdev_shutdown",
        "blockdev_snapshot",
        "blockdev_wipe",
    ),
    "commands": ("iallocator_runner", "restricted_command", "run_oob"),
    "crypto": ("node_crypto_tokens", "x509_cert_create", "x509_cert_remove"),
    "daemons": (
        "node_demote_from_mc",
        "node_ensure_daemon",
        "node_leave_cluster",
        "node_start_master_daemons",
        "node_stop_master",
    ),
    "etc_hosts": ("etc_hosts_modify",),
    "exports": ("export_info", "export_list", "export_note", "export_remove", "finalize_export"),
    "external_storage": ("extstorage_diagnose",),
    "file_storage": (
        "file_storage_dir_create",
        "file_storage_dir_remove",
        "file_storage_dir_rename",
    ),
    "files": ("upload_file", "upload_file_single", "write_ssconf_files"),
    "hooks": ("hooks_runner",),
    "hotplug": ("hotplug_device",),
    "instance_os": ("instance_os_add", "instance_run_rename"),
    "instances": (
        "all_instances_info",
        "hotplug_supported",
        "hypervisor_validate_params",
        "instance_balloon_memory",
        "instance_console_info",
        "instance_info",
        "instance_list",
        "instance_reboot",
        "instance_shutdown",
        "instance_start",
        "node_powercycle",
    ),
    "job_queue": (
        "jobqueue_purge",
        "jobqueue_rename",
        "jobqueue_set_drain_flag",
        "jobqueue_update",
    ),
    "master_ip": (
        "node_activate_master_ip",
        "node_change_master_netmask",
        "node_deactivate_master_ip",
    ),
    "mastership": (
        "config_read",
        "master_accept",
        "master_claim",
        "master_drain",
        "master_facts",
    ),
    "migration": (
        "accept_instance",
        "instance_finalize_migration_dst",
        "instance_finalize_migration_src",
        "instance_get_migration_status",
        "instance_migratable",
        "instance_migrate",
        "migration_info",
    ),
    "os_definitions": ("os_diagnose", "os_validate"),
    "queue_copies": ("jobqueue_list", "jobqueue_read"),
    "snapshots": (
        "instance_snapshot",
        "instance_snapshot_drop",
        "instance_snapshot_supported",
    ),
    "ssh_keys": ("ssh_authorize", "ssh_next_key", "ssh_root_key", "ssh_take_key"),
    "switches": ("node_configure_ovs",),
    "storage_units": ("node_info", "storage_execute", "storage_list", "storage_modify"),
    "transfers.calls": (
        "export_start",
        "impexp_abort",
        "impexp_cleanup",
        "impexp_status",
        "import_start",
    ),
    "verify": ("node_verify", "node_verify_light"),
    "verify_network": ("bridges_exist",),
}

MODULES: Mapping[str, str] = {
    name: f"ganeti.node_ops.{module}" for module, names in _FAMILIES.items() for name in names
}


# Calls for a child that often have nothing to do: a function of the same arguments that tells so.
_SHORTCUTS: Mapping[str, tuple[str, str]] = {
    "hooks_runner": ("ganeti.node_ops.hooks", "is_nothing_to_run"),
}


@cache
def find_shortcut(name: str) -> Callable[..., bool] | None:
    """Return what tells whether a call has nothing to do, importing its module on first use."""
    if name not in _SHORTCUTS:
        return None
    module, attribute = _SHORTCUTS[name]
    shortcut: Callable[..., bool] = getattr(importlib.import_module(module), attribute)
    return shortcut


@cache
def find_handler(call: NodeCall) -> Handler:
    """Return the function that serves a call, importing its module on first use.

    Raises:
        NotSupportedError: this node daemon does not serve the call.
    """
    if not call.supported:
        raise NotSupportedError(f"not supported yet: {call.name}")
    module = importlib.import_module(MODULES[call.name])
    handler: Handler = getattr(module, call.name)
    return handler


def modules_for(place: Place) -> Iterable[str]:
    """Return the modules of all served calls that run in that place."""
    return {module for name, module in MODULES.items() if NODE_RPC[name].runs_in is place}
