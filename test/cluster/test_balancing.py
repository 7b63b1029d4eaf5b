"""hbal on a running cluster: one that was skewed by hand is made even by its jobs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fakes.virtual_cluster import TestCluster, own_cluster

NEW = "--no-name-check --no-ip-check -o test -B memory=16 --disk 0:size=8m -t sharedfile"
COUNT = 6


@pytest.fixture(scope="module")
def four() -> Iterator[TestCluster]:
    """Four nodes, with all instances on the first."""
    with own_cluster(4, without=("ganeti-rapi", "ganeti-maintd", "ganeti-mond")) as made:
        for number in range(COUNT):
            made.gnt(f"instance add {NEW} -n {made.master} i{number}.example.com")
        yield made


def running_on(cluster: TestCluster) -> dict[str, int]:
    """Return how many instances run on each node; all of them must run."""
    command = "instance list --no-headers --separator=| -o status,pnode"
    rows = [line.split("|") for line in cluster.gnt(command).lines]
    assert [status for status, _ in rows] == ["running"] * COUNT
    nodes = [node for _, node in rows]
    return {node: nodes.count(node) for node in cluster.nodes}


def test_a_skewed_cluster_is_made_even_while_instances_run(four: TestCluster) -> None:
    assert running_on(four)[four.master] == COUNT
    plan = four.run(["hbal", "-L", "-C"])
    assert plan.status == 0, plan
    assert "gnt-instance migrate -f -n" in plan.out
    assert running_on(four)[four.master] == COUNT  # nothing was done
    # A set is what can be done side by side: everything leaves one node here.
    first = four.run(["hbal", "-L", "-X", "--first-job-group"])
    assert first.status == 0, first
    assert "Executing jobset 1 of " in first.out
    assert running_on(four)[four.master] == COUNT - 1
    words = ["hbal", f"--luxi={four.paths.query_socket}", "-X", "--priority=low", "--reason=even"]
    rest = four.run(words)
    assert rest.status == 0, rest
    assert sorted(running_on(four).values()) == [1, 1, 2, 2]
    job_id = int(rest.out.split("Got job IDs ")[1].split()[0])
    with four.client() as client:
        [[ops]] = client.query_jobs([job_id], ["ops"])
    assert [op["OP_ID"] for op in ops] == ["OP_INSTANCE_MIGRATE"]
    assert ops[0]["priority"] == 10
    assert [step[:2] for step in ops[0]["reason"]][:2] == [
        ["gnt:user", "even"],
        ["gnt:client:hbal", "hbal"],
    ]
    # The nodes are one machine, whose free memory changes from moment to moment.
    again = four.run(["hbal", "-L", "-X", "--min-gain=0.2", "--min-gain-limit=99"])
    assert again.status == 0, again
    assert "No solution found" in again.out or "already well balanced" in again.out


def test_a_drained_node_is_emptied(four: TestCluster) -> None:
    node = four.nodes[1]
    four.gnt(f"node modify --drained=yes {node}")
    done = four.run(["hbal", "-L", "-X", "-E"])
    assert done.status == 0, done
    assert running_on(four)[node] == 0
    four.gnt(f"node modify --drained=no {node}")


def test_a_queue_that_takes_no_jobs_is_told(four: TestCluster) -> None:
    before = running_on(four)  # the node that is empty would draw instances
    four.gnt("cluster queue drain")
    try:
        refused = four.run(["hbal", "-L", "-X"])
    finally:
        four.gnt("cluster queue undrain")
    assert refused.status == 1, refused
    assert "drain" in refused.err
    assert "Traceback" not in refused.err
    assert running_on(four) == before
