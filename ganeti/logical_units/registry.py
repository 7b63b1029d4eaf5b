"""Which logical unit carries out which opcode.

A row names its module as text; it is imported when the first such opcode comes, so that a job
process loads only what its opcodes need.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from ganeti.base.errors import NotSupportedError

if TYPE_CHECKING:
    from ganeti.logical_units.base import LogicalUnit

_PACKAGE: Final = "ganeti.logical_units"

LOGICAL_UNITS: Final[Mapping[str, str]] = {
    "OP_BACKUP_EXPORT": "backup.export:LUBackupExport",
    "OP_BACKUP_PREPARE": "backup.others:LUBackupPrepare",
    "OP_BACKUP_REMOVE": "backup.others:LUBackupRemove",
    "OP_CLUSTER_ACTIVATE_MASTER_IP": "cluster.life:LUClusterActivateMasterIp",
    "OP_CLUSTER_CONFIG_QUERY": "cluster.query:LUClusterConfigQuery",
    "OP_CLUSTER_DEACTIVATE_MASTER_IP": "cluster.life:LUClusterDeactivateMasterIp",
    "OP_CLUSTER_DESTROY": "cluster.life:LUClusterDestroy",
    "OP_CLUSTER_POST_INIT": "cluster.life:LUClusterPostInit",
    "OP_CLUSTER_QUERY": "cluster.query:LUClusterQuery",
    "OP_CLUSTER_REDIST_CONF": "cluster.redistribute:LUClusterRedistConf",
    "OP_CLUSTER_RENAME": "cluster.rename:LUClusterRename",
    "OP_CLUSTER_RENEW_CRYPTO": "cluster.renew_crypto:LUClusterRenewCrypto",
    "OP_CLUSTER_REPAIR_DISK_SIZES": "cluster.disks:LUClusterRepairDiskSizes",
    "OP_CLUSTER_SET_PARAMS": "cluster.set_params:LUClusterSetParams",
    "OP_CLUSTER_VERIFY": "cluster.verify:LUClusterVerify",
    "OP_CLUSTER_VERIFY_CONFIG": "cluster.verify:LUClusterVerifyConfig",
    "OP_CLUSTER_VERIFY_DISKS": "cluster.disks:LUClusterVerifyDisks",
    "OP_CLUSTER_VERIFY_GROUP": "cluster.verify_group:LUClusterVerifyGroup",
    "OP_EXT_STORAGE_DIAGNOSE": "ext_storage_diagnose:LUExtStorageDiagnose",
    "OP_GROUP_ADD": "group.change:LUGroupAdd",
    "OP_GROUP_ASSIGN_NODES": "group.members:LUGroupAssignNodes",
    "OP_GROUP_EVACUATE": "allocator.groups:LUGroupEvacuate",
    "OP_GROUP_REMOVE": "group.change:LUGroupRemove",
    "OP_GROUP_RENAME": "group.change:LUGroupRename",
    "OP_GROUP_SET_PARAMS": "group.change:LUGroupSetParams",
    "OP_GROUP_VERIFY_DISKS": "cluster.disks:LUGroupVerifyDisks",
    "OP_INSTANCE_ACTIVATE_DISKS": "instance.activate:LUInstanceActivateDisks",
    "OP_INSTANCE_CHANGE_GROUP": "allocator.groups:LUInstanceChangeGroup",
    "OP_INSTANCE_CONSOLE": "instance.console:LUInstanceConsole",
    "OP_INSTANCE_CREATE": "instance.create:LUInstanceCreate",
    "OP_INSTANCE_DEACTIVATE_DISKS": "instance.activate:LUInstanceDeactivateDisks",
    "OP_INSTANCE_FAILOVER": "instance.failover:LUInstanceFailover",
    "OP_INSTANCE_GROW_DISK": "instance.grow_disk:LUInstanceGrowDisk",
    "OP_INSTANCE_MIGRATE": "instance.migrate:LUInstanceMigrate",
    "OP_INSTANCE_MOVE": "instance.move:LUInstanceMove",
    "OP_INSTANCE_MULTI_ALLOC": "instance.multi_alloc:LUInstanceMultiAlloc",
    "OP_INSTANCE_QUERY_DATA": "instance.query_data:LUInstanceQueryData",
    "OP_INSTANCE_REBOOT": "instance.power:LUInstanceReboot",
    "OP_INSTANCE_RECREATE_DISKS": "instance.recreate_disks:LUInstanceRecreateDisks",
    "OP_INSTANCE_REINSTALL": "instance.reinstall:LUInstanceReinstall",
    "OP_INSTANCE_REMOVE": "instance.remove:LUInstanceRemove",
    "OP_INSTANCE_RENAME": "instance.rename:LUInstanceRename",
    "OP_INSTANCE_REPLACE_DISKS": "instance.replace_disks:LUInstanceReplaceDisks",
    "OP_INSTANCE_SET_PARAMS": "instance.set_params:LUInstanceSetParams",
    "OP_INSTANCE_SHUTDOWN": "instance.power:LUInstanceShutdown",
    "OP_INSTANCE_STARTUP": "instance.power:LUInstanceStartup",
    "OP_NETWORK_ADD": "network.change:LUNetworkAdd",
    "OP_NETWORK_CONNECT": "network.connect:LUNetworkConnect",
    "OP_NETWORK_DISCONNECT": "network.connect:LUNetworkDisconnect",
    "OP_NETWORK_REMOVE": "network.change:LUNetworkRemove",
    "OP_NETWORK_SET_PARAMS": "network.change:LUNetworkSetParams",
    "OP_NODE_ADD": "node.add:LUNodeAdd",
    "OP_NODE_EVACUATE": "node.leaving:LUNodeEvacuate",
    "OP_NODE_MIGRATE": "node.leaving:LUNodeMigrate",
    "OP_NODE_MODIFY_STORAGE": "node.storage:LUNodeModifyStorage",
    "OP_NODE_POWERCYCLE": "node.power:LUNodePowercycle",
    "OP_NODE_QUERYVOLS": "node.storage:LUNodeQueryvols",
    "OP_NODE_QUERY_STORAGE": "node.storage:LUNodeQueryStorage",
    "OP_NODE_REMOVE": "node.remove:LUNodeRemove",
    "OP_NODE_SET_PARAMS": "node.set_params:LUNodeSetParams",
    "OP_OOB_COMMAND": "node.power:LUOobCommand",
    "OP_OS_DIAGNOSE": "os_diagnose:LUOsDiagnose",
    "OP_QUERY": "query:LUQuery",
    "OP_QUERY_FIELDS": "query:LUQueryFields",
    "OP_REPAIR_NODE_STORAGE": "node.storage:LURepairNodeStorage",
    "OP_RESTRICTED_COMMAND": "restricted:LURestrictedCommand",
    "OP_TAGS_DEL": "tags:LUTagsDel",
    "OP_TAGS_GET": "tags:LUTagsGet",
    "OP_TAGS_SEARCH": "tags:LUTagsSearch",
    "OP_TAGS_SET": "tags:LUTagsSet",
    "OP_TEST_ALLOCATOR": "allocator.testing:LUTestAllocator",
    "OP_TEST_DELAY": "testing:LUTestDelay",
    "OP_TEST_JQUEUE": "testing:LUTestJqueue",
    "OP_TEST_OS_PARAMS": "testing:LUTestOsParams",
}

# What is done with another cluster has units of its own: by opcode and mode.
_WITH_ANOTHER_CLUSTER: Final[Mapping[tuple[str, str], str]] = {
    ("OP_BACKUP_EXPORT", "remote"): "backup.remote_export:LUBackupExportRemote",
    ("OP_BACKUP_PREPARE", "remote"): "backup.remote_export:LUBackupPrepareRemote",
    ("OP_INSTANCE_CREATE", "remote-import"): "backup.remote_import:LUInstanceCreateRemote",
}


def logical_unit_class(op_id: str, mode: str = "") -> type[LogicalUnit[Any]]:
    """Return the class that carries out an opcode, perhaps a special one for its ``mode``.

    Raises:
        NotSupportedError: none does yet; the text names the opcode.
    """
    row = _WITH_ANOTHER_CLUSTER.get((op_id, mode)) or LOGICAL_UNITS.get(op_id)
    if row is None:
        raise NotSupportedError(f"opcode {op_id} is not supported by this version")
    module, _, name = row.partition(":")
    found: type[LogicalUnit[Any]] = getattr(import_module(f"{_PACKAGE}.{module}"), name)
    return found
