"""Backups by schedule on a cluster: policies in tags, and the watcher that obeys them."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.schedule import age, watch
from fakes.virtual_cluster import TestCluster, own_cluster
from fakes.waiting import wait_until

NAME, OTHER, THIRD = "web.example.com", "db.example.com", "mail.example.com"
ADD = "instance add --no-name-check --no-ip-check --no-install --no-start -t file --disk 0:size=2"


@pytest.fixture(scope="module")
def scheduled() -> Iterator[TestCluster]:
    with own_cluster(without=("ganeti-mond",)) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _tidy(scheduled: TestCluster) -> Iterator[None]:
    yield
    scheduled.tidy_up()
    for name in {name for _, name in exports(scheduled)}:
        scheduled.gnt(f"backup remove {name}")


def exports(cluster: TestCluster) -> list[tuple[str, str]]:
    with cluster.client() as client:
        return [(str(node), str(name)) for node, name in client.query_exports([]) if name]


def points(cluster: TestCluster, name: str = NAME) -> object:
    with cluster.client() as client:
        rows = client.query("export", ["points", "export"]).rows()
    return next((numbers for numbers, export in rows if export == name), None)


def shown(cluster: TestCluster, name: str = NAME) -> list[str]:
    [line] = cluster.gnt(f"backup schedule --no-headers --separator=; {name}").lines
    return line.split(";")


def test_the_watcher_makes_the_backups_that_are_due(scheduled: TestCluster) -> None:
    cluster, (one, two, three) = scheduled, scheduled.nodes
    cluster.gnt(f"{ADD} -H fake -n {one} {NAME}")
    assert "to export it" not in watch(cluster), "nothing has a policy"
    cluster.gnt("cluster add-tags ganeti:backup:every:1w")
    words = f"--every=1d --to={two},{three.split('.')[0]} --keep=1"
    cluster.gnt(f"backup set-policy {words} {NAME.split('.')[0]}")
    policy = f"every 1d to {two}+{three} keep 1"
    assert shown(cluster) == [NAME, policy, "instance", "-", "-", f"now, to {two}", "-", "-"]
    said = watch(cluster)
    assert f"for {NAME}, to export it" in said
    assert exports(cluster) == [(two, NAME)]
    assert points(cluster) == [0]
    [job] = [
        line
        for line in cluster.gnt("job list --no-headers -o id,summary").lines
        if "BACKUP" in line
    ]
    assert (
        "backup by schedule: export it, web.example.com"
        in cluster.gnt(f"job info {job.split()[0]}").out
    )

    assert "Submitted" not in watch(cluster), "it is new"
    age(cluster, two, NAME, 86_400)
    assert f"for {NAME}, to export it" in watch(cluster)
    assert points(cluster) == [0, 1]
    assert f"for {NAME}, to remove the oldest points of its chain" in watch(cluster)
    assert points(cluster) == [1]
    assert "Submitted" not in watch(cluster)

    age(cluster, two, NAME, 3 * 86_400)
    said = watch(cluster)
    assert f"The newest exports of {NAME} are too old" in said
    assert points(cluster) == [1, 2]

    cluster.gnt(f"backup set-policy --none {NAME}")
    assert cluster.gnt(f"instance list-tags {NAME}").lines == ["ganeti:backup:none"]
    assert shown(cluster)[1:3] == ["none", "instance"]
    cluster.gnt(f"backup remove-policy {NAME}")
    assert shown(cluster)[1:3] == ["every 1w", "cluster"]
    age(cluster, two, NAME, 15 * 86_400)
    text = f"Warning: instance {NAME}: its newest export, on {two}, is 360 h old, which is too old"
    cluster.refused(f"backup schedule {NAME}", text)
    cluster.gnt("backup remove-policy --cluster")
    assert shown(cluster)[1:3] == ["-", "-"]
    cluster.refused("backup set-policy --every=1d", "name instances, or a node group")
    cluster.refused("backup set-policy --every=5m --cluster", "every 15 minutes at most")
    cluster.refused(
        "backup set-policy --every=1d --to=node9 --cluster", "node 'node9' is not known"
    )


def test_a_failure_is_not_repeated_at_each_run(scheduled: TestCluster) -> None:
    cluster, (one, two, _) = scheduled, scheduled.nodes
    cluster.gnt(f"{ADD} -H fake -n {one} {NAME}")
    cluster.gnt(f"instance startup {NAME}")  # the fake hypervisor has no snapshots
    cluster.gnt(f"instance add-tags {NAME} ganeti:backup:every:1d:to:{two}")
    assert "to export it" in watch(cluster)
    assert exports(cluster) == []
    assert "to export it" not in watch(cluster)
    cluster.gnt(f"{ADD} -H fake -n {one} {OTHER}")
    cluster.gnt(f"instance startup {OTHER}")
    cluster.gnt("backup set-policy --cluster --every=1d --stop")
    assert f"for {OTHER}, to export it" in watch(cluster)
    assert [name for _, name in exports(cluster)] == [OTHER]
    assert cluster.instance_field(OTHER, "status") == "running"
    cluster.gnt("backup remove-policy --cluster")


def test_a_rehearsal_leaves_nothing_and_touches_nothing(scheduled: TestCluster) -> None:
    cluster, (one, two, _) = scheduled, scheduled.nodes
    copy = f"rehearsal.{NAME}"
    cluster.refused(f"backup rehearse -n {one} web", "there is no export of 'web'")
    cluster.gnt(f"{ADD} -H fake --net 0:mode=bridged,link=br0 -n {one} {NAME}")
    cluster.gnt(f"backup export -n {two} {NAME}")
    cluster.gnt(f"instance add-tags {NAME} ganeti:backup:every:1d")
    before = cluster.gnt(f"instance list --no-headers -o serial_no,status,tags {NAME}").out
    said = cluster.gnt(f"backup rehearse -n {two} --seconds=1 web").out
    assert re.search(rf"Bringing back {NAME} from its export of .* on {two}, as {copy}", said), said
    assert re.search(
        rf"{NAME} comes back from its export of 20.* UTC on {two}: it ran for 1 s", said
    ), said
    assert cluster.instance_names() == [NAME]

    # One that fails is removed as well, and one that was interrupted.
    cluster.gnt(f"{ADD} -H fake -n {two} --tags=ganeti:rehearsal {copy}")
    fails = f"backup rehearse -n {two} --seconds=1 --agent {NAME}"
    said = cluster.refused(fails, "its guest agent has not answered within 1 s").out
    assert f"Removing {copy}, which an earlier rehearsal left" in said
    assert cluster.instance_names() == [NAME]
    cluster.gnt(f"{ADD} -H fake -n {two} {copy}")
    cluster.refused(f"backup rehearse -n {two} {NAME}", f"instance {copy} is no rehearsal")
    assert sorted(cluster.instance_names()) == [copy, NAME]
    assert cluster.gnt(f"instance list --no-headers -o serial_no,status,tags {NAME}").out == before


def test_rehearsals_by_schedule_and_their_results(scheduled: TestCluster) -> None:
    cluster, (one, two, _) = scheduled, scheduled.nodes
    cluster.gnt(f"{ADD} -H fake -B memory=64 -n {one} {THIRD}")
    cluster.gnt(f"backup set-policy --every=1d --to={two} --rehearse=1w {THIRD}")
    assert shown(cluster, THIRD)[1] == f"every 1d to {two} rehearse 1w"
    assert "to export it" in watch(cluster)
    assert shown(cluster, THIRD)[6:] == ["never", f"now, on {two}"]
    found = Path(cluster.paths_of(two).export_dir, THIRD).iterdir()
    [dump] = [path for path in found if path.suffix != ".ini"]
    content = dump.read_bytes()
    dump.unlink()
    assert f"for {THIRD}, to rehearse its newest export" in watch(cluster)
    assert cluster.instance_names() == [THIRD]
    assert shown_failing(cluster)[6].endswith(" failed")
    text = f"instance {THIRD}: the rehearsal of its export of "
    assert text in cluster.refused(f"backup schedule {THIRD}", "failed (job ").err
    assert text in cluster.gnt("cluster verify").out
    said = watch(cluster)
    assert f"Instance {THIRD}: the rehearsal of its export of " in said
    assert "to rehearse" not in said, "it is tried again a day later"

    dump.write_bytes(content)
    cluster.gnt(f"backup rehearse -n {two} --seconds=0 {THIRD}")
    assert shown(cluster, THIRD)[6].endswith(" ok")
    assert text not in cluster.gnt("cluster verify").out
    tags = cluster.gnt(f"instance list --no-headers -o tags {THIRD}").out
    assert "ganeti:rehearsal" not in tags
    cluster.refused(f"backup set-policy --every=1d --rehearse=1h {THIRD}", "once a day at most")


def shown_failing(cluster: TestCluster) -> list[str]:
    outcome = cluster.run(f"gnt-backup schedule --no-headers --separator=; {THIRD}")
    assert outcome.status == 1, outcome
    return outcome.lines[0].split(";")


def test_what_a_rehearsal_leaves_whose_job_dies_is_removed_and_nothing_else(
    scheduled: TestCluster,
) -> None:
    cluster, (one, two, _) = scheduled, scheduled.nodes
    copy, others = f"rehearsal.{NAME}", [f"rehearsal.{OTHER}", "rehearsal.x.example.com"]
    cluster.gnt(f"{ADD} -H fake -n {one} {NAME}")
    cluster.gnt(f"backup export -n {two} {NAME}")
    cluster.gnt(f"{ADD} -H fake -n {two} --tags=ganeti:rehearsal {others[0]}")
    cluster.gnt(f"{ADD} -H fake -n {two} {others[1]}")
    job_id = cluster.submit(f"backup rehearse -n {two} --seconds=600 {NAME}")
    log = f"job info {job_id}"
    wait_until(lambda: "It is started; looking" in cluster.gnt(log).out, "the rehearsal to run")
    assert "to remove what a rehearsal left" not in watch(cluster), "its job is not over"
    wire = json.loads(Path(cluster.paths.job_file(job_id)).read_bytes())
    os.kill(wire["process_id"], signal.SIGKILL)
    wait_until(lambda: cluster.job_status(job_id) == "error", "the job's error")
    assert sorted(cluster.instance_names()) == sorted([copy, NAME, *others])
    assert f"for {copy}, to remove what a rehearsal left" in watch(cluster)
    assert sorted(cluster.instance_names()) == sorted([NAME, *others])
    assert "to remove what a rehearsal left" not in watch(cluster)
