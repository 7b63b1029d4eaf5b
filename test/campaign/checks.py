"""What must be true of a cluster when nothing is broken any more."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from campaign.work import Groups, Lives, Worker, remove_instance
from campaign.world import World
from fakes import lvm_programs
from fakes.campaign import all_records, check_nothing_left, check_promises, wait_settled
from fakes.linearizability import Call, check, check_tags, locks
from fakes.virtual_cluster import Outcome
from fakes.waiting import wait_until

from ganeti.base.daemons import DAEMONS, Place
from ganeti.base.errors import GenericError
from ganeti.hypervisor.fake import Phase
from ganeti.jobs.status import Status
from ganeti.store import ssconf
from ganeti.store.config_file import read_config
from ganeti.store.job_files import JobFiles
from ganeti.system import daemon_control, failpoints, process_facts


def check_world(world: World, workers: Sequence[Worker], ran_path: str) -> Iterator[str]:
    """Check everything; yields lines about it."""
    wait_settled(world.cluster)
    yield _check_jobs(world, workers, ran_path)
    yield _check_histories(workers, world.changes_of_master)
    lives = [each for each in workers if isinstance(each, Lives)]
    yield from sorted({f"  {failure}"[:200] for each in lives for failure in each.failures})
    yield _check_instances(world, lives)
    check_nothing_left(world.cluster)
    _check_copies(world)
    _check_rest(world)
    verified = _verify(world)
    assert verified.status == 0, verified


def _verify(world: World) -> Outcome:
    """Run ``gnt-cluster verify``, which makes a job for each group; the jobs before give room."""
    archived = world.cluster.run("gnt-job autoarchive all")
    assert archived.status == 0, archived
    return world.cluster.run("gnt-cluster verify")


def _check_jobs(world: World, workers: Sequence[Worker], ran_path: str) -> str:
    """No job whose id was returned is lost; none ran twice, or halfway and says success."""
    loads = [each.load for each in workers if isinstance(each, Groups)]
    accepted = {job_id: name for load in loads for job_id, name in load.accepted.items()}
    assert sum(len(load.accepted) for load in loads) == len(accepted), "an id was given twice"
    ran = Counter(Path(ran_path).read_text().split())
    records = all_records(world.cluster)
    failed = [number for number, job in records.items() if job.status is not Status.SUCCESS]
    ended = check_promises(world.cluster, accepted, ran, failed)
    assert ended[Status.SUCCESS] >= len(accepted) / 4, f"hardly any job succeeded: {ended}"
    how = ", ".join(f"{count} {status}" for status, count in ended.items())
    return f"{len(records)} jobs; of {len(accepted)} that add groups: {how}"


def _check_histories(workers: Iterable[Worker], changes_of_master: Sequence[Call]) -> str:
    histories: dict[str, list[Call]] = {}
    is_whole = True
    for worker in workers:
        for about, calls in worker.history.items():
            histories.setdefault(about, []).extend(calls)
    histories.setdefault("tags", []).extend(changes_of_master)
    for about, calls in histories.items():
        try:
            if about == "tags":
                is_whole = check_tags(calls)
            else:
                check(calls, locks, frozenset())
        except AssertionError:
            if target := os.environ.get("GANETI_TEST_LOGS"):
                lines = map(str, sorted(calls, key=lambda call: call.begun))
                Path(target).mkdir(parents=True, exist_ok=True)
                Path(target, f"history of {about}").write_text("\n".join(lines))
            raise
    counts = Counter({about.split()[0]: 0 for about in histories})
    for about, calls in histories.items():
        counts[about.split()[0]] += len(calls)
    how = "" if is_whole else " (each tag by itself: too many were not answered)"
    told = ", ".join(f"{count} calls about {k}" for k, count in counts.items())
    return f"linearizable: {told}{how}"


def _check_instances(world: World, lives: Sequence[Lives]) -> str:
    """Instances that were made are there until they are removed, run once, and leave nothing."""
    made = {name: is_removed for each in lives for name, is_removed in each.made.items()}
    names = set(world.cluster.instance_names())
    lost = {name for name, is_removed in made.items() if not is_removed} - names
    tried = {line.split()[1].rstrip(":") for each in lives for line in each.failures}
    assert not lost - tried, f"instances are gone: {lost}"
    back = {name for name, is_removed in made.items() if is_removed} & names
    assert not back, f"instances were removed, and are there: {back}"
    for name in sorted(names):
        _check_runs_once(world, name)
        with world.client() as client:
            assert remove_instance(client, name) == Status.SUCCESS, name
    left = sum(_clean_up(world, node, tried) for node in world.nodes)
    return f"{len(made)} instances made; volumes that broken jobs left: {left}"


def _clean_up(world: World, node: str, broken: set[str]) -> int:
    """Remove what broken jobs left on a node, as an operator does; returns how many volumes.

    Nothing else may be left.

    Args:
        broken: the instances whose jobs did not all succeed.
    """
    root = world.cluster.paths_of(node).root
    volumes = lvm_programs._load(root)["volumes"]
    for each in volumes.values():
        owners = {tag.partition("+")[2] for tag in each["tags"] if tag.startswith("originst")}
        assert owners <= broken, f"{node} has volumes of {owners}"
    told = str(_verify(world)) if volumes else ""
    for name in list(world.drivers.kernels[root].resources):
        assert world.cluster.run(["drbdsetup", "down", name], node=node).status == 0
    for name in volumes:
        assert name in told, f"verify does not tell of {name} on {node}: {told}"
        removed = world.cluster.run(["lvremove", "--force", name], node=node)
        assert removed.status == 0, removed
    return len(volumes)


def _check_runs_once(world: World, name: str) -> None:
    """An instance never runs on two nodes; a migration that was killed is put right by a command."""
    phases = _phases(world, name)
    assert Counter(phases.values())[Phase.RUNNING] <= 1, f"{name}: {phases}"
    if len(phases) > 1:
        world.cluster.gnt(f"instance migrate --force --cleanup {name}")
        assert len(_phases(world, name)) <= 1, f"{name}: {phases}, then {_phases(world, name)}"


def _phases(world: World, name: str) -> dict[str, Phase]:
    """Return how an instance is, on the nodes that have it."""
    found = {}
    for node in world.nodes:
        with contextlib.suppress(FileNotFoundError):
            book = Path(world.cluster.paths_of(node).fake_dir, name).read_text()
            # A book as 3.0 writes it says nothing: it runs.
            found[node] = next((each for each in Phase if f'"{each}"' in book), Phase.RUNNING)
    return found


def _check_copies(world: World) -> None:
    """All candidates have the same configuration, queue and simple configuration."""

    def of(node: str) -> dict[str, object]:
        paths = world.cluster.paths_of(node)
        queue = JobFiles(paths)
        jobs = {f"job {job_id}": queue.read(job_id) for job_id in queue.ids()}
        return {"configuration": read_config(paths), **jobs, **ssconf.read_all(paths)}

    def differing() -> list[str]:
        """Return which parts differ from the master's, by node."""
        with contextlib.suppress(GenericError, OSError):
            wanted = of(world.master)
            found = {node: of(node) for node in world.nodes}
            return [
                f"{node}: {part}"
                for node, parts in found.items()
                for part in sorted(wanted.keys() | parts)
                if wanted.get(part) != parts.get(part)
            ]
        return ["?"]

    with contextlib.suppress(AssertionError):
        wait_until(lambda: not differing(), "all copies are equal", step_s=0.2)
    left = differing()
    assert not left, f"copies differ: {left}"


KEPT = ("noded-helper", "noded-spare", "gnt-job-nursery", "gnt-job-warm")


def _check_rest(world: World) -> None:
    """No process, no rule and no temporary file is left, and no daemon of a former master."""
    for node in world.nodes:
        if node != world.master:  # its timer would do that
            assert world.cluster.run("ganeti-watcher", node=node).status == 0
        wait_until(
            lambda: not _strangers(world, node),  # noqa: B023
            f"no process is left on {node}: {_strangers(world, node)}",
        )
        paths = world.cluster.paths_of(node)
        assert world.cluster.run("ganeti-cleaner node", node=node).status == 0
        assert os.listdir(f"{paths.root}/{failpoints.DIRECTORY}") == []
        for directory in (paths.data_dir, paths.queue_dir, paths.run_dir, paths.livelock_dir):
            names = os.listdir(directory) if os.path.isdir(directory) else []
            left = [name for name in names if name.endswith(".tmp") and not _is_spare(name)]
            assert not left, f"{directory} has {left}"


def _is_spare(name: str) -> bool:
    """Tell whether a daemon that lives keeps a file to write it anew."""
    return name.startswith(".spare.") and os.path.exists(f"/proc/{name.split('.')[2]}")


def _strangers(world: World, node: str) -> list[str]:
    """Return the processes of a node that are neither its daemons nor those that these keep."""
    paths = world.cluster.paths_of(node)
    places = {Place.NODE, *([Place.MASTER] if node == world.master else [])}
    daemons = [daemon.name for daemon in DAEMONS if daemon.place in places]
    known = {daemon_control.running_pid(paths, name) for name in daemons}
    found = [each for each in world.cluster.processes_of(node) if each.pid not in known]
    named = [(process_facts.name_of(each.pid), each) for each in found]
    return [f"{name} {each.command}" for name, each in named if name and name not in KEPT]
