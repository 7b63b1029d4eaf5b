"""LuxiD over its real socket: queries of every resource."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fakes.luxid_node import LuxidNode, delay, wait_status

from ganeti.base.errors import OpPrereqError, ParameterError
from ganeti.clients.luxi import LuxiClient
from ganeti.objects.query_words import BY_JOB_ONLY, QueryResource

RESOURCES = sorted(set(QueryResource) - BY_JOB_ONLY)


@pytest.fixture(scope="module")
def node() -> Iterator[LuxidNode]:
    with LuxidNode() as started:
        # All nodes offline: nobody is asked, and nothing is waited for.
        for each in started.config["nodes"].values():
            each["offline"] = each["name"] != started.name
        started.write_config()
        started.start()
        yield started
        assert started.stop() == 0, started.log()


@pytest.fixture
def client(node: LuxidNode) -> Iterator[LuxiClient]:
    with node.client() as connected:
        yield connected


@pytest.mark.shows("2.12/luxid/queries")
@pytest.mark.parametrize("resource", RESOURCES)
def test_every_resource_answers_all_its_fields(client: LuxiClient, resource: str) -> None:
    fields = [field.name for field in client.query_fields(resource).fields]
    assert fields
    answer = client.query(resource, fields)
    assert [field.name for field in answer.fields] == fields
    assert all(len(row) == len(fields) for row in answer.data)


def test_unknown_fields_are_marked(client: LuxiClient) -> None:
    answer = client.query("node", ["name", "colour"])
    assert answer.fields[1].kind == "unknown"
    assert {row[1][0] for row in answer.data} == {1}


@pytest.mark.parametrize("resource", ["nonsense", *sorted(BY_JOB_ONLY)])
def test_what_cannot_be_asked_here(client: LuxiClient, resource: str) -> None:
    with pytest.raises(OpPrereqError, match=resource):
        client.query(resource, ["name"])


def test_wrong_filters_are_refused(client: LuxiClient) -> None:
    with pytest.raises(ParameterError):
        client.query("node", ["name"], ["==", "colour", "red"])


@pytest.mark.shows("2.0/luxi/query")
def test_jobs_are_filtered_by_id_and_status(client: LuxiClient) -> None:
    ids = [client.submit_job([delay()]) for _ in range(3)]
    for job_id in ids:
        wait_status(client, job_id, "success")
    found = client.query("job", ["id", "status"], ["|", ["==", "id", ids[0]], ["==", "id", ids[2]]])
    assert found.rows() == [[ids[0], "success"], [ids[2], "success"]]
    assert client.query("job", ["id"], ["==", "status", "error"]).rows() == []


@pytest.mark.shows("backend/life/archive-untouched", "2.0/queue-history/untouched")
def test_archived_jobs_are_found_when_asked_for(client: LuxiClient) -> None:
    job_id = client.submit_job([delay()])
    wait_status(client, job_id, "success")
    client.archive_job(job_id)
    assert [job_id] not in client.query("job", ["id"]).rows()
    assert [job_id] in client.query("job", ["id"], ["?", "archived"]).rows()
    named = client.query("job", ["id", "archived"], ["==", "id", job_id])
    assert named.rows() == [[job_id, True]]


def test_old_queries_by_name_and_short_name(node: LuxidNode, client: LuxiClient) -> None:
    full = client.query_nodes([], ["name"])
    assert [node.name] in full
    assert client.query_nodes(["node1"], ["name", "master"]) == [[node.name, True]]
    assert client.query_nodes(["nowhere"], ["name"]) == []
    with pytest.raises(OpPrereqError, match="colour"):
        client.query_nodes([], ["colour"])


@pytest.mark.shows("2.12/luxid/locks-elsewhere")
def test_the_locks_of_a_waiting_job_are_shown(node: LuxidNode, client: LuxiClient) -> None:
    i1 = ("instance/i1", "exclusive")
    node.wconfd.hold(i1, owner=7)
    node.wconfd.hold(i1, owner=9, wait=True)
    node.wconfd.hold(i1, ("node/n1", "shared"), owner=8, wait=True)
    answer = client.query("lock", ["name", "mode", "owner", "pending"])
    assert answer.rows() == [
        ["cluster/BGL", "shared", ["job7"], [["shared", ["job9", "job8"]]]],
        ["instance/i1", "exclusive", ["job7"], [["exclusive", ["job9", "job8"]]]],
        ["node/n1", None, None, [["shared", ["job8"]]]],
    ]
