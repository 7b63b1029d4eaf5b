"""What the cluster is set to, asked by a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.logical_units.base import LogicalUnit
from ganeti.opcodes.cluster import OpClusterConfigQuery, OpClusterQuery
from ganeti.query.cluster_values import Surroundings, cluster_fields, cluster_info, config_values
from ganeti.store import watcher_pause
from ganeti.store.job_files import JobFiles
from ganeti.system import environment

if TYPE_CHECKING:
    from ganeti.base.paths import Paths
    from ganeti.objects.cluster import Cluster


def _around(master_name: str, paths: Paths) -> Surroundings:
    return Surroundings(
        master_name=master_name,
        architecture=environment.architecture(),
        is_drained=JobFiles(paths).is_drained(),
        watcher_pause=watcher_pause.read(paths),
    )


def cluster_row(cluster: Cluster, master_name: str, paths: Paths) -> dict[str, object]:
    """Return the values of all query fields of the cluster.

    Source: query_fields.json, "cluster".
    """
    return cluster_fields(cluster, _around(master_name, paths))


class LUClusterQuery(LogicalUnit[OpClusterQuery]):
    """Answer the cluster's settings.

    Source: luxi.json, "cluster_info".
    """

    def exec(self) -> Mapping[str, object]:
        """Return them."""
        return cluster_info(self.cluster, self.master.name, environment.architecture())


class LUClusterConfigQuery(LogicalUnit[OpClusterConfigQuery]):
    """Answer values of the configuration by name.

    Source: query_fields.json, "cluster"; luxi.json, "config_values".
    """

    def exec(self) -> list[object]:
        """Return the values in the order asked."""
        known = config_values(self.cluster, _around(self.master.name, self.context.paths))
        unknown = [name for name in self.op.output_fields if name not in known]
        if unknown:
            raise OpPrereqError(
                f"unknown field(s) {', '.join(unknown)}; known are: {', '.join(sorted(known))}",
                ErrorCode.INVAL,
            )
        return [known[name] for name in self.op.output_fields]
