"""Instances made at the same time, and the command that asks for many."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.shell_scripts import write_script
from fakes.virtual_cluster import TestCluster

NAMES = [f"meet{number}.example.com" for number in (1, 2, 3)]
# Each waits until all others are there: none would end if they came one after the other.
MEETING = """#!/bin/sh
set -eu
touch "{place}/$INSTANCE_NAME"
tries=0
while [ "$(ls "{place}" | wc -l)" -lt 3 ]; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || {{ echo "the others did not come"; exit 1; }}
    sleep 0.1
done
"""


@pytest.fixture
def meeting_os(cluster: TestCluster, tmp_path: Path) -> Iterator[str]:
    """An operating system whose installations meet."""
    place = tmp_path / "place"
    place.mkdir()
    directories = [
        Path(cluster.paths_of(node).os_search_path[0]) / "meeting" for node in cluster.nodes
    ]
    for directory in directories:
        directory.mkdir()
        (directory / "ganeti_api_version").write_text("10\n")
        for script, text in (("create", MEETING.format(place=place)), ("rename", "#!/bin/sh\n")):
            (directory / script).write_text(text)
            (directory / script).chmod(0o755)
    yield "meeting"
    for directory in directories:
        shutil.rmtree(directory)


def entry(name: str, node: str, os_name: str) -> dict[str, Any]:
    return {
        "instance_name": name,
        "pnode": node,
        "disk_template": "file",
        "disks": [{"size": "8m"}],
        "os_type": os_name,
        "hypervisor": "fake",
        "beparams": {"memory": 16},
        "name_check": False,
        "ip_check": False,
        "start": False,
    }


@pytest.mark.shows(
    "backend/opcodes/parallel",
    "backend/opportunistic/faster",
    "2.0/background/parallel",
    "2.0/queue/parallel",
)
def test_creations_on_different_nodes_run_at_the_same_time(
    cluster: TestCluster, meeting_os: str, tmp_path: Path
) -> None:
    wanted = tmp_path / "instances.json"
    pairs = zip(NAMES, cluster.nodes, strict=True)
    wanted.write_text(json.dumps([entry(name, node, meeting_os) for name, node in pairs]))
    cluster.gnt(f"instance batch-create {wanted}")
    assert set(NAMES) <= set(cluster.instance_names())
    for name in NAMES:
        cluster.gnt(f"instance remove -f {name}")


@pytest.mark.shows("backend/opportunistic/faster", "2.12/aims/finer", "2.0/scalability/two-people")
def test_creations_placed_on_one_node_run_at_the_same_time(
    cluster: TestCluster, meeting_os: str
) -> None:
    directory = Path(cluster.paths.iallocator_search_path[0])
    answer = json.dumps({"success": True, "info": "", "result": [cluster.nodes[1]]})
    write_script(directory / "always", f"echo '{answer}'")
    add = "-I always -t diskless -B memory=16 --no-name-check --no-ip-check --no-start"
    jobs = [cluster.submit(f"instance add {add} -H fake -o {meeting_os} {name}") for name in NAMES]
    for job_id in jobs:
        assert cluster.run(["gnt-job", "watch", str(job_id)]).status == 0
    assert {cluster.instance_field(name, "pnode") for name in NAMES} == {cluster.nodes[1]}
    (directory / "always").unlink()


def test_what_cannot_be_made_is_said_and_nothing_is_begun(
    cluster: TestCluster, tmp_path: Path
) -> None:
    wanted = tmp_path / "instances.json"
    wanted.write_text("nothing")
    cluster.refused(f"instance batch-create {wanted}", "instances.json")
    homeless = {**entry("a.example.com", "", "test"), "pnode": None}
    wanted.write_text(json.dumps([homeless]))
    cluster.refused(f"instance batch-create -I nix {wanted}", "iallocator 'nix' is not in")
    cluster.refused("instance change-group --to default a.example.com", "is not known")
    cluster.refused("group evacuate default", "there is no node group besides default")
    assert "a.example.com" not in cluster.instance_names()
