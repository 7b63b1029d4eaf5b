"""From a LUXI request to the function that answers it, by the table of methods.

Source: luxi.json.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping

from ganeti.luxid.cluster_methods import ClusterMethods
from ganeti.luxid.config_view import ConfigView
from ganeti.luxid.job_methods import JobMethods
from ganeti.luxid.query_methods import QueryMethods
from ganeti.protocol.envelope import Request
from ganeti.protocol.luxi import LUXI_METHODS, check_args, find_method
from ganeti.transport.unix_connection import Connection

logger = logging.getLogger(__name__)

Method = Callable[..., object]
"""Returns the answer, or a coroutine that does."""


def method_table(
    jobs: JobMethods, queries: QueryMethods, cluster: ClusterMethods
) -> Mapping[str, Method]:
    """Return the function behind each LUXI method."""
    table: Mapping[str, Method] = {
        "SubmitJob": jobs.submit_job,
        "SubmitJobToDrainedQueue": jobs.submit_job_to_drained_queue,
        "SubmitManyJobs": jobs.submit_many_jobs,
        "WaitForJobChange": jobs.wait_for_job_change,
        "QueryJobs": jobs.query_jobs,
        "CancelJob": jobs.cancel_job,
        "ChangeJobPriority": jobs.change_job_priority,
        "ArchiveJob": jobs.archive_job,
        "AutoArchiveJobs": jobs.auto_archive_jobs,
        "PickupJob": jobs.pickup_job,
        "SetDrainFlag": jobs.set_drain_flag,
        "Query": queries.query,
        "QueryFields": queries.query_fields,
        "QueryNodes": queries.query_nodes,
        "QueryInstances": queries.query_instances,
        "QueryGroups": queries.query_groups,
        "QueryNetworks": queries.query_networks,
        "QueryFilters": queries.query_filters,
        "QueryExports": queries.query_exports,
        "QueryTags": cluster.query_tags,
        "QueryClusterInfo": cluster.query_cluster_info,
        "QueryConfigValues": cluster.query_config_values,
        "SetWatcherPause": cluster.set_watcher_pause,
        "ReplaceFilter": cluster.replace_filter,
        "DeleteFilter": cluster.delete_filter,
    }
    assert table.keys() == LUXI_METHODS.keys()
    return table


class Dispatch:
    """Answers requests; made for `ganeti.transport.unix_server`."""

    def __init__(self, table: Mapping[str, Method], view: ConfigView) -> None:
        self._table = table
        self._view = view

    def __call__(self, request: Request, connection: Connection) -> object:
        """Answer one request, or return the coroutine that does.

        Raises:
            RequestError: unknown method or wrong arguments; the connection is closed after it.
        """
        method = find_method(request.method)
        args = check_args(method, request.args)
        if method.changes:
            logger.info("%s asks for %s", connection, method.name)
        self._view.refresh()
        answer = self._table[method.name](*args)
        if method.waits and isinstance(answer, Coroutine):
            return _while_connected(answer, connection)
        return answer


async def _while_connected(
    answer: Coroutine[object, object, object], connection: Connection
) -> object:
    """Wait for an answer, but not on behalf of a client that is gone."""
    with connection.canceled_when_gone():
        return await answer
