"""Job filters at work: rules in the configuration hold jobs back, let them go and refuse them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest
from fakes.luxid_node import DEADLINE_S, LuxidNode, delay, is_final, wait_status

from ganeti.base.errors import GenericError, OpPrereqError, ParameterError
from ganeti.clients.luxi import LuxiClient

UUID = "11111111-2222-3333-4444-555555555555"


@pytest.fixture(scope="module")
def running_node() -> Iterator[LuxidNode]:
    with LuxidNode() as started:
        started.start()
        yield started
        assert started.stop() == 0, started.log()


@pytest.fixture
def node(running_node: LuxidNode) -> Iterator[LuxidNode]:
    set_rules(running_node)
    yield running_node
    set_rules(running_node)


@pytest.fixture
def client(node: LuxidNode) -> Iterator[LuxiClient]:
    with node.client() as connected:
        yield connected


def set_rules(node: LuxidNode, *rules: tuple[Any, list[list[Any]]]) -> None:
    """Write rules into the configuration and wait until LuxiD has seen them."""
    node.config["filters"] = {
        f"{UUID}-{number}": {
            "uuid": f"{UUID}-{number}",
            "watermark": 0,
            "priority": number,
            "predicates": predicates,
            "action": action,
            "reason_trail": [],
        }
        for number, (action, predicates) in enumerate(rules)
    }
    node.write_config()
    deadline = time.monotonic() + DEADLINE_S
    with node.client() as client:
        while len(client.query_filters(None, ["uuid"])) != len(rules):
            assert time.monotonic() < deadline


def of(comment: str) -> list[list[Any]]:
    """Match jobs by their comment."""
    return [["opcode", ["=", "comment", comment]]]


@pytest.mark.shows("2.12/steps/filtering")
def test_a_paused_job_starts_when_the_rule_goes(node: LuxidNode, client: LuxiClient) -> None:
    set_rules(node, ("PAUSE", of("late")))
    late = client.submit_job([delay(comment="late")])
    other = client.submit_job([delay()])
    assert wait_status(client, other, is_final) == "success"
    assert client.query_jobs([late], ["status"]) == [["queued"]]
    set_rules(node)
    assert wait_status(client, late, is_final) == "success"


@pytest.mark.shows("2.12/steps/filtering")
def test_a_rejected_job_is_refused_or_canceled(node: LuxidNode, client: LuxiClient) -> None:
    set_rules(node, ("PAUSE", of("bad")))
    waiting = client.submit_job([delay(comment="bad")])
    set_rules(node, ("REJECT", of("bad")))
    assert wait_status(client, waiting, is_final) == "canceled"
    with pytest.raises(GenericError, match=UUID):
        client.submit_job([delay(comment="bad")])
    assert wait_status(client, client.submit_job([delay()]), is_final) == "success"


@pytest.mark.shows("2.12/steps/filtering")
def test_a_rate_limit_lets_so_many_run(node: LuxidNode, client: LuxiClient) -> None:
    set_rules(node, (["RATE_LIMIT", 1], of("slow")))
    answers = client.submit_many_jobs([[delay(0.3, comment="slow")] for _ in range(3)])
    ids = [int(value) for _, value in answers]
    assert [wait_status(client, job_id, is_final) for job_id in ids] == ["success"] * 3
    times = sorted(client.query_jobs(ids, ["start_ts", "end_ts"]))
    for (_, end), (start, _) in itertools.pairwise(times):
        assert start >= end, "two ran at the same time"


def test_a_reason_limits_how_many_run(node: LuxidNode, client: LuxiClient) -> None:
    reason = [["gnt:user", "rate-limit:2:hello", 1]]
    job = [{**delay(0.5), "reason": reason}]
    answers = client.submit_many_jobs([job] * 5)
    ids = [int(value) for _, value in answers]
    assert client.query_jobs([ids[2]], ["status", "held_by"]) == [["queued", "rate-limit:hello"]]
    other = client.submit_job([delay(0)])
    assert wait_status(client, other, is_final) == "success"
    assert client.query_jobs([ids[4]], ["status"]) == [["queued"]]
    assert [wait_status(client, job_id, is_final) for job_id in ids] == ["success"] * 5
    times = client.query_jobs(ids, ["start_ts", "end_ts"])
    for start, _ in times:
        assert sum(begun <= start < end for begun, end in times) <= 2


@pytest.mark.parametrize(
    ("predicates", "action"),
    [([["nonsense", ["=", "id", 1]]], "PAUSE"), ([], "NONSENSE"), ([], ["RATE_LIMIT", 0])],
)
def test_wrong_rules_are_refused(
    client: LuxiClient, predicates: list[list[Any]], action: Any
) -> None:
    with pytest.raises((OpPrereqError, ParameterError)):
        client.replace_filter(None, priority=0, predicates=predicates, action=action, reason=[])
    with pytest.raises(OpPrereqError, match="not found"):
        client.delete_filter("nonsense")


@pytest.mark.parametrize("uuid", ["", "0d32d3ea", "rate-limit:hello"])
def test_a_rule_is_replaced_by_its_whole_uuid(client: LuxiClient, uuid: str) -> None:
    with pytest.raises(OpPrereqError, match="is not the UUID of a job filter"):
        client.replace_filter(uuid, priority=0, predicates=[], action="PAUSE", reason=[])
    assert client.query_filters(None, ["uuid"]) == []
