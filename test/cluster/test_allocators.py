"""Allocators at work: small ones of this test, and the one of Debian's package ganeti-htools."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.shell_scripts import write_script
from fakes.virtual_cluster import TestCluster, own_cluster
from fakes.waiting import wait_until

DEBIAN_HAIL = "/usr/lib/ganeti/iallocators/hail"
NEW = "--no-name-check --no-ip-check -o test -B memory=16 --disk 0:size=8m -t sharedfile"

# Takes the node with the fewest instances, and moves with migrations.
GOOD = """#!{python}
import json, sys

question = json.load(open(sys.argv[1]))
wanted, nodes, instances = (question[key] for key in ("request", "nodes", "instances"))
load = {{name: 0 for name, node in nodes.items() if not (node["offline"] or node["drained"])}}
for each in instances.values():
    if each["nodes"][0] in load:
        load[each["nodes"][0]] += 1

def pick(but=(), groups=None):
    fit = [n for n in load if n not in but and (not groups or nodes[n]["group"] in groups)]
    node = min(sorted(fit), key=load.get)
    load[node] += 1
    return node

def move(name, node):
    group = question["nodegroups"][nodes[node]["group"]]["name"]
    op = {{"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": name, "target_node": node,
          "allow_failover": True}}
    return [name, group, [node]], [op]

def moves(but, groups):
    pairs = [move(name, pick(but(name), groups)) for name in wanted["instances"]]
    return [[moved for moved, _ in pairs], [], [job for _, job in pairs]]

kind = wanted["type"]
if kind == "allocate":
    result = [pick()]
elif kind == "multi-allocate":
    result = [[[each["name"], [pick()]] for each in wanted["instances"]], []]
elif kind == "relocate":
    result = [pick(wanted["relocate_from"], [nodes[n]["group"] for n in wanted["relocate_from"]])]
elif kind == "node-evacuate":
    result = moves(lambda name: instances[name]["nodes"], None)
else:
    result = moves(lambda name: instances[name]["nodes"], wanted["target_groups"])
print(json.dumps({{"success": True, "info": "good", "result": result}}))
"""

# name -> what it does, and what is said of it
BAD = {
    "text": ("echo no JSON", "its answer cannot be used: invalid JSON"),
    "array": ("echo '[]'", "it is not a JSON object"),
    "empty": ("echo '{}'", "'success', 'info', 'result' is missing"),
    "full": (
        """echo '{"success": false, "info": "all full", "result": []}'""",
        "mode allocate: all full",
    ),
    "stranger": (
        """echo '{"success": true, "info": "", "result": ["nix"]}'""",
        "there is no node 'nix'",
    ),
    "two": (
        """echo '{"success": true, "info": "", "result": ["a", "b"]}'""",
        "1 node(s) are needed",
    ),
    "fails": ("echo out of luck >&2; exit 3", "failed with exit status 3: out of luck"),
    "talker": ("exec head -c 1000000000 /dev/zero", "printed too much and was killed"),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    """Two groups of two nodes, with the allocators of this file on every node."""
    with own_cluster(4) as made:
        for node in made.nodes:
            directory = Path(made.paths_of(node).iallocator_search_path[0])
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "good").write_text(GOOD.format(python=sys.executable))
            (directory / "good").chmod(0o755)
            for name, (body, _said) in BAD.items():
                write_script(directory / name, body)
            write_script(directory / "debian", f'exec {DEBIAN_HAIL} --no-capacity-checks "$@"')
            write_script(directory / "slow", "exec sleep 600")
        made.gnt("cluster modify --ipolicy-vcpu-ratio=64")  # machines may have one processor
        made.gnt("group add east")
        made.gnt(f"group assign-nodes east {made.nodes[2]} {made.nodes[3]}")
        yield made


def places(cluster: TestCluster) -> dict[str, str]:
    """Return the primary nodes of all instances."""
    lines = cluster.gnt("instance list --no-headers --separator=| -o name,pnode").lines
    return dict(line.split("|") for line in lines)


@pytest.mark.shows("backend/iallocator/external", "2.1/allocator-default/default")
@pytest.mark.parametrize(("allocator", "count"), [("good", 3), ("hail", 3), ("debian", 10)])
def test_instances_live_and_move_without_a_node_being_named(
    cluster: TestCluster, allocator: str, count: int, tmp_path: Path
) -> None:
    if allocator == "debian" and not os.path.exists(DEBIAN_HAIL):
        pytest.skip("Debian's package ganeti-htools is not installed")
    cluster.gnt(f"cluster modify -I {allocator}")
    cluster.gnt(f"instance add {NEW} a.example.com")
    batch = tmp_path / "batch.json"
    like = {
        "disk_template": "sharedfile",
        "disks": [{"size": "8m"}],
        "os_type": "test",
        "beparams": {"memory": 16},
        "name_check": False,
        "ip_check": False,
        "start": False,
    }
    entries = [{**like, "instance_name": f"b{number}.example.com"} for number in range(count)]
    batch.write_text(json.dumps(entries))
    cluster.gnt(f"instance batch-create {batch}")
    found = places(cluster)
    assert len(found) == count + 1
    if allocator == "good":  # the others weigh memory too, which this machine's programs change
        assert set(found.values()) == set(cluster.nodes)

    cluster.gnt("instance migrate -f a.example.com")
    after = places(cluster)["a.example.com"]
    assert after != found["a.example.com"]
    leaving = after
    cluster.gnt(f"node evacuate -f {leaving}")
    assert leaving not in places(cluster).values()

    west, east = cluster.nodes[:2], cluster.nodes[2:]
    is_in_west = places(cluster)["a.example.com"] in west
    cluster.gnt(f"instance change-group --to {'east' if is_in_west else 'default'} a.example.com")
    assert places(cluster)["a.example.com"] in (east if is_in_west else west)
    cluster.gnt("group evacuate --sequential --to default east")
    assert set(places(cluster).values()) <= set(west)


@pytest.mark.shows("2.1/allocator-dry/nodes", "2.1/allocator-dry/simulated")
def test_a_place_is_rehearsed_and_explained(cluster: TestCluster) -> None:
    said = cluster.gnt(f"instance add --dry-run --explain -I hail {NEW} dry.example.com").out
    assert "dry.example.com" not in cluster.instance_names()
    chosen = next(
        line.rpartition(" ")[2] for line in said.splitlines() if "would be made on" in line
    )
    assert chosen in cluster.nodes
    assert f"instance dry.example.com goes to {chosen} in group " in said
    assert all(node in said for node in cluster.nodes)
    job_id = cluster.submit(f"instance add --dry-run -I hail {NEW} dry.example.com")
    assert cluster.run(["gnt-job", "watch", str(job_id)]).status == 0
    results = cluster.gnt(f"job list --no-headers -o opresult {job_id}").out
    assert any(node in results for node in cluster.nodes)
    size = "--disks=1 --memory=16 -t file"
    ask = f"debug iallocator -I hail --dir=out {size}"
    lines = cluster.gnt(f"{ask} -m allocate --explain far.example.com").lines
    assert any(line.startswith("instance far.example.com goes to ") for line in lines)
    answer = json.loads(cluster.gnt(f"{ask} -m capacity --limit=3 far.example.com").lines[-1])
    assert (answer["success"], len(answer["result"])) == (True, 3)
    ask = "debug iallocator -I hail --dir=out -m balance default"
    answer = json.loads(cluster.gnt(ask).lines[-1])
    assert answer["success"]
    assert len(answer["result"]) == 3


@pytest.mark.parametrize("allocator", BAD)
def test_what_a_bad_allocator_does_is_said(cluster: TestCluster, allocator: str) -> None:
    said = cluster.refused(f"instance add -I {allocator} {NEW} x.example.com", BAD[allocator][1])
    assert f"allocator '{allocator}'" in said.err
    assert len(said.err) < 20_000
    assert cluster.instance_names() == []


def test_who_waits_for_an_allocator_can_be_canceled(cluster: TestCluster) -> None:
    job_id = cluster.submit(f"instance add -I slow {NEW} x.example.com")
    wait_until(lambda: "asking" in cluster.gnt(f"job info {job_id}").out, "it is asked")
    cluster.gnt(f"job cancel {job_id}")
    cluster.run(["gnt-job", "wait", str(job_id)])
    assert cluster.job_status(job_id) == "canceled"


def test_the_question_can_be_looked_at(cluster: TestCluster) -> None:
    words = "debug iallocator -m allocate -t file --disks=1g,2g --nics= -o test"
    question = json.loads(cluster.gnt(f"{words} new.example.com").out)
    assert question["request"]["disk_space_total"] == 3072
    assert set(question["nodes"]) == set(cluster.nodes)
    answer = json.loads(cluster.gnt(f"{words} --dir=out -I good new.example.com").lines[-1])
    assert answer["info"] == "good"
    cluster.refused("debug iallocator -m relocate nix", "instance 'nix' is not known")


def test_what_contradicts_itself(cluster: TestCluster) -> None:
    add = f"instance add {NEW}"
    cluster.refused(f"{add} -n {cluster.nodes[0]} -I good x.example.com", "not both")
    cluster.refused(f"{add} -I nix x.example.com", "iallocator 'nix' is not in")
    cluster.refused(f"{add} -I ../good x.example.com", "'../good' is not a valid name")
    cluster.gnt("cluster modify --default-iallocator=")
    cluster.refused(f"{add} x.example.com", "no default allocator; give one")
    cluster.refused("group evacuate --to default default", "is the one to leave")
    assert cluster.gnt("group evacuate -I good default").out.count("\n") < 4
