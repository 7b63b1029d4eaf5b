"""Which storage of a node its cluster uses, in the form that ``node_info`` is asked with.

Source: node_rpc.json, "node_info".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ganeti.objects.disk_templates import REPORTING_STORAGE, STORAGE_TYPE, StorageType

if TYPE_CHECKING:
    from ganeti.objects.cluster import Cluster


def storage_units(cluster: Cluster, *, exclusive: bool) -> list[list[object]]:
    """Return [type, name, parameters] of the storage of the enabled disk templates, in order.

    Args:
        exclusive: whether the node gives whole physical volumes to its instances.
    """
    names: Mapping[StorageType, str | None] = {
        StorageType.LVM_VG: cluster.volume_group_name,
        StorageType.FILE: cluster.file_storage_dir,
        StorageType.SHAREDFILE: cluster.shared_file_storage_dir,
        StorageType.GLUSTER: cluster.gluster_storage_dir,
    }
    kinds = dict.fromkeys(STORAGE_TYPE[each] for each in cluster.enabled_disk_templates)
    return [
        [kind.value, names[kind], [exclusive] if kind is StorageType.LVM_VG else []]
        for kind in kinds
        if kind in REPORTING_STORAGE and names.get(kind)
    ]
