"""The project's own client of the remote API against a live daemon."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fakes.rapi import RapiClient as Asker
from fakes.rapi import create_instance, rapi_of
from fakes.virtual_cluster import TIMEOUT_S, TestCluster
from fakes.waiting import wait_until

from ganeti.base.errors import TransportError
from ganeti.clients.rapi import (
    JobFailedError,
    JobStillRunsError,
    LogEntry,
    Password,
    RapiClient,
    RapiRefusedError,
    Token,
)
from ganeti.objects.tags import TagKind
from ganeti.opcodes.instance import OpInstanceStartup
from ganeti.opcodes.tags import OpTagsSet
from ganeti.opcodes.test import OpTestJqueue
from ganeti.transport.curl_pool import TlsTrust

WEB = "web1.example.com"


@pytest.fixture(scope="module")
def asker(cluster: TestCluster) -> Iterator[Asker]:
    with rapi_of(cluster) as found:
        yield found


def trust(cluster: TestCluster) -> TlsTrust:
    """The daemon's own certificate is the one to believe; it is not for an address."""
    return TlsTrust(cluster.paths.rapi_pem, checks_name=False)


@pytest.fixture
def client(cluster: TestCluster, asker: Asker) -> Iterator[RapiClient]:
    login = Password("writer", "secret")
    with RapiClient(asker.address, login=login, trust=trust(cluster), timeout_s=TIMEOUT_S) as found:
        yield found


@pytest.mark.shows("2.0/rapi-design/questions")
def test_reading(cluster: TestCluster, client: RapiClient) -> None:
    assert client.get_version() == 2
    assert client.get_user()["name"] == "writer"
    assert sorted(each["id"] for each in client.get_nodes()) == sorted(cluster.nodes)
    [row] = [each for each in client.get_nodes(bulk=True) if each["name"] == cluster.master]
    assert row["role"] == "M"
    assert client.put_query("node", fields=["name"])["data"]
    assert client.get_query("node", fields=["name", "role"])["data"]
    assert "<html" in client.get_docs()


@pytest.mark.shows("2.12/overview/rapi-door", "2.0/rapi/read-write", "2.0/rapi-design/jobs")
def test_changing_with_a_job(cluster: TestCluster, asker: Asker, client: RapiClient) -> None:
    create_instance(asker, cluster, WEB)
    tags = OpTagsSet(kind=TagKind.INSTANCE, name=WEB, tags=["a:1", "b"])
    tagged = client.submit(tags, reason="to find it")
    client.wait_for_job(tagged, timeout_s=TIMEOUT_S)
    assert sorted(client.get_instance_tags(WEB)) == ["a:1", "b"]
    started = client.wait_for_job(
        client.submit(OpInstanceStartup(instance_name=WEB)), timeout_s=TIMEOUT_S
    )
    assert started.status == "success"
    assert client.get_instance(WEB)["oper_state"] is True
    client.wait_for_job(client.put_instance_shutdown(WEB, timeout=1, comment="enough"))


@pytest.mark.shows("2.0/rapi-caveats/poll")
def test_logs_and_failures(client: RapiClient) -> None:
    log: list[LogEntry] = []
    job_id = client.submit(OpTestJqueue(log_messages=["one", "two"], fail=True))
    with pytest.raises(JobFailedError, match=f"Job {job_id} ") as caught:
        client.wait_for_job(job_id, timeout_s=TIMEOUT_S, on_log=log.append)
    assert caught.value.job.status == "error"
    assert {"TESTMSG=one", "TESTMSG=two"} <= {entry.message for entry in log}
    waiting = client.post_opcode_test_delay(duration=600.0, on_master=True)
    with pytest.raises(JobStillRunsError, match=f"Job {waiting} did not end within 0"):
        client.wait_for_job(waiting, timeout_s=0)
    wait_until(lambda: client.delete_job(waiting, kill=True)[0], "its end")


def test_refusals(cluster: TestCluster, asker: Asker, client: RapiClient) -> None:
    with pytest.raises(RapiRefusedError, match=r"none\.example\.com") as caught:
        client.get_instance("none.example.com")
    assert caught.value.status == 404
    with RapiClient(asker.address, login=Token("wrong"), trust=trust(cluster)) as nobody:
        with pytest.raises(RapiRefusedError) as caught:
            nobody.get_info()
        assert caught.value.status == 401


def test_only_a_known_certificate_is_believed(cluster: TestCluster, asker: Asker) -> None:
    problem = pytest.raises(TransportError, match="certificate")
    with RapiClient(asker.address) as careful, problem:
        careful.get_version()
    with RapiClient(asker.address, trust=TlsTrust(cluster.paths.rapi_pem)) as named, problem:
        named.get_version()
    with RapiClient(asker.address, trust=TlsTrust(checks_certificate=False)) as careless:
        assert careless.get_version() == 2


def test_nobody_there(asker: Asker) -> None:
    problem = pytest.raises(TransportError, match="connection refused")
    with RapiClient(asker.address, 1) as client, problem:
        client.get_version()
