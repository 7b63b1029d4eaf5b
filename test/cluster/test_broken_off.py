"""Long jobs that are canceled or killed on a virtual cluster: real processes, nothing left of them."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from fakes.shell_scripts import write_script
from fakes.virtual_cluster import TestCluster
from fakes.waiting import wait_until

from ganeti.system import daemon_control, process

NAME = "stuck.example.com"
ADD = "instance add --no-name-check --no-ip-check -t file --disk 0:size=8 -H fake -o stuck -n node2"
# Says that it is there, and does not end.
STUCK = """#!/bin/sh
echo $$ > "{place}/{kind}.new"
mv "{place}/{kind}.new" "{place}/{kind}"
while :; do sleep 1; done
"""


@pytest.fixture
def place(cluster: TestCluster, tmp_path: Path) -> Iterator[Path]:
    """An operating system whose scripts never end, and where they say that they have begun."""
    directories = [
        Path(cluster.paths_of(node).os_search_path[0]) / "stuck" for node in cluster.nodes
    ]
    for directory in directories:
        directory.mkdir()
        (directory / "ganeti_api_version").write_text("10\n")
        for kind in ("create", "import", "export", "rename"):
            script = directory / kind
            script.write_text(STUCK.format(place=tmp_path, kind=kind))
            script.chmod(0o755)
    yield tmp_path
    for directory in directories:
        shutil.rmtree(directory)


def begun(place: Path, kind: str) -> int:
    """Wait until a script has begun; returns its process."""
    told = place / kind
    wait_until(told.exists, f"the {kind} script")
    pid = int(told.read_text())
    told.unlink()
    return pid


def wait_gone(pid: int) -> None:
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), f"the end of process {pid}")


def cancel(cluster: TestCluster, job_id: int) -> None:
    cluster.gnt(f"job cancel {job_id}")
    wait_until(lambda: cluster.job_status(job_id) == "canceled", f"the end of job {job_id}")


def kill(cluster: TestCluster, job_id: int) -> None:
    cluster.gnt(f"job cancel --kill --yes-do-it {job_id}")
    ended = ("error", "canceled")  # the latter before its work has begun
    wait_until(lambda: cluster.job_status(job_id) in ended, f"the end of job {job_id}")
    # Whoever died holds nothing any more; a moment passes until that is seen.
    wait_until(lambda: not locks(cluster), "the locks to be free")


def locks(cluster: TestCluster) -> list[str]:
    return cluster.gnt("debug locks --no-headers -o name").lines


def nothing_left(cluster: TestCluster) -> None:
    assert NAME not in cluster.instance_names()
    for node in cluster.nodes:
        assert not [p for p in cluster.files_below(node, "/srv/ganeti/file-storage") if NAME in p]
        assert not cluster.files_below(node, "/var/run/ganeti/import-export")
    assert locks(cluster) == []


def test_a_canceled_installation_leaves_nothing(cluster: TestCluster, place: Path) -> None:
    job_id = cluster.submit(f"{ADD} {NAME}")
    script = begun(place, "create")
    assert cluster.instance_field(NAME, "forthcoming") == "Y"
    cancel(cluster, job_id)
    wait_gone(script)
    nothing_left(cluster)


@pytest.mark.shows("2.0/locking-library/clean-up")
def test_a_killed_installation_is_not_taken_for_an_instance(
    cluster: TestCluster, place: Path
) -> None:
    job_id = cluster.submit(f"{ADD} {NAME}")
    script = begun(place, "create")
    kill(cluster, job_id)
    cluster.refused(f"instance startup {NAME}", f"'gnt-instance remove {NAME}'")
    assert "is not complete" in cluster.run("gnt-cluster verify").out
    again = cluster.submit(f"instance reinstall -f {NAME}")
    other = begun(place, "create")
    wait_gone(script)
    cancel(cluster, again)
    wait_gone(other)
    cluster.gnt(f"instance remove -f {NAME}")
    nothing_left(cluster)


@pytest.fixture
def thinker(cluster: TestCluster, tmp_path: Path) -> Iterator[Path]:
    """An allocator that thinks for ever, with a process below it, and where it says so."""
    program = Path(cluster.paths.iallocator_search_path[0]) / "thinker"
    # The process below it says that it is there: whoever ends must end them both.
    write_script(
        program,
        f"""sh -c 'echo $$ >{tmp_path}/new; mv {tmp_path}/new {tmp_path}/thinks
    while :; do sleep 1; done'
    :""",
    )
    yield tmp_path
    program.unlink()


@pytest.mark.parametrize("end", [cancel, kill])
def test_an_allocator_ends_with_the_job_that_asked_it(
    cluster: TestCluster, thinker: Path, end: Callable[[TestCluster, int], None]
) -> None:
    add = f"{ADD.replace('-n node2', '-I thinker')} --opportunistic-locking"
    job_id = cluster.submit(f"{add} {NAME}")
    below = begun(thinker, "thinks")
    allocator = psutil.Process(below).ppid()
    assert "thinker" in " ".join(psutil.Process(allocator).cmdline())
    end(cluster, job_id)
    wait_gone(below)
    wait_gone(allocator)
    questions = Path(cluster.paths.run_dir).glob("iallocator-request-*")
    wait_until(lambda: not list(questions), "the question to be gone")
    nothing_left(cluster)


def test_an_export_that_is_broken_off_costs_no_data(cluster: TestCluster, place: Path) -> None:
    cluster.gnt(f"{ADD} --no-install {NAME}")
    cluster.gnt(f"instance startup {NAME}")
    job_id = cluster.submit(f"backup export -n node3 {NAME}")
    script = begun(place, "export")
    cancel(cluster, job_id)
    wait_gone(script)
    assert cluster.instance_field(NAME, "status") == "running"

    job_id = cluster.submit(f"backup export -n node3 {NAME}")
    script = begun(place, "export")
    kill(cluster, job_id)
    assert cluster.instance_field(NAME, "status") == "ERROR_down"
    assert f"'gnt-instance startup {NAME}'" in cluster.run("gnt-cluster verify").out
    cluster.gnt(f"instance startup {NAME}")
    wait_gone(script)
    assert cluster.instance_field(NAME, "status") == "running"

    for node in cluster.nodes:  # what was left of both goes with the next one
        good = Path(cluster.paths_of(node).os_search_path[0]) / "stuck" / "export"
        good.write_text('#!/bin/sh\ncat "$EXPORT_DEVICE"\n')
    cluster.gnt(f"backup export -n node3 {NAME}")
    listed = cluster.gnt("backup list --no-headers").lines
    assert [line.split()[1] for line in listed] == ["?", "?", NAME]
    cluster.gnt(f"backup remove {NAME}")
    cluster.gnt(f"instance remove -f --shutdown-timeout=1 {NAME}")
    nothing_left(cluster)


def test_a_node_daemon_killed_while_it_installs_leaves_nothing(
    cluster: TestCluster, place: Path
) -> None:
    job_id = cluster.submit(f"{ADD} {NAME}")
    script = begun(place, "create")
    node = next(name for name in cluster.nodes if name.startswith("node2"))
    paths = cluster.paths_of(node)
    pid = daemon_control.running_pid(paths, "ganeti-noded")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert process.wait_gone(pid, 60)
    daemon_control.start_daemon(paths, "ganeti-noded", hostname=node)
    wait_until(lambda: cluster.job_status(job_id) == "error", f"the end of job {job_id}")
    wait_gone(script)
    nothing_left(cluster)
