"""What LuxiD says about the cluster as a whole.

Source: luxi.json, "cluster_info" and "config_values".
"""

from __future__ import annotations

from collections.abc import Sequence

from ganeti.luxid.config_view import ConfigView
from ganeti.query import cluster_values
from ganeti.query.cluster_values import Surroundings
from ganeti.system import environment


def cluster_info(view: ConfigView) -> dict[str, object]:
    """Answer QueryClusterInfo."""
    return cluster_values.cluster_info(view.cluster, view.master.name, environment.architecture())


def config_values(
    view: ConfigView, names: Sequence[str], *, drained: bool, watcher_pause: float | None
) -> list[object]:
    """Answer QueryConfigValues; null for an unknown name."""
    around = Surroundings(
        master_name=view.master.name,
        architecture=environment.architecture(),
        is_drained=drained,
        watcher_pause=watcher_pause,
    )
    values = cluster_values.config_values(view.cluster, around)
    return [values.get(name) for name in names]
