"""What must be true of a cluster when nothing is broken any more."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from campaign.work import Groups, Lives, Worker, remove_instance
from campaign.world import World, processes_named
from fakes import lvm_programs
from fakes.campaign import all_records, check_nothing_left, check_promises, wait_settled
from fakes.linearizability import Call, check, locks, tags
from fakes.waiting import wait_until

from ganeti.base.errors import GenericError
from ganeti.hypervisor.fake import Phase
from ganeti.jobs.status import Status
from ganeti.store import ssconf
from ganeti.store.job_files import JobFiles
from ganeti.system import files


def check_world(world: World, workers: Sequence[Worker], ran_path: str) -> Iterator[str]:
    """Check everything; yields lines about it."""
    wait_settled(world.cluster)
    yield _check_jobs(world, workers, ran_path)
    yield _check_histories(workers)
    lives = [each for each in workers if isinstance(each, Lives)]
    yield from sorted({f"  {failure}"[:200] for each in lives for failure in each.failures})
    yield _check_instances(world, lives)
    check_nothing_left(world.cluster)
    _check_copies(world)
    _check_rest(world)
    verified = world.cluster.run("gnt-cluster verify")
    assert verified.status == 0, verified


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


def _check_histories(workers: Iterable[Worker]) -> str:
    histories: dict[str, list[Call]] = {}
    for worker in workers:
        for about, calls in worker.history.items():
            histories.setdefault(about, []).extend(calls)
    for about, calls in histories.items():
        try:
            check(calls, tags if about == "tags" else locks, frozenset())
        except AssertionError:
            if target := os.environ.get("GANETI_TEST_LOGS"):
                lines = map(str, sorted(calls, key=lambda call: call.begun))
                Path(target).mkdir(parents=True, exist_ok=True)
                Path(target, f"history of {about}").write_text("\n".join(lines))
            raise
    counts = Counter({about.split()[0]: 0 for about in histories})
    for about, calls in histories.items():
        counts[about.split()[0]] += len(calls)
    return "linearizable: " + ", ".join(f"{count} calls about {k}" for k, count in counts.items())


def _check_instances(world: World, lives: Sequence[Lives]) -> str:
    """Instances that were made are there until they are removed, run once, and leave nothing."""
    made = {name: is_removed for each in lives for name, is_removed in each.made.items()}
    names = set(world.cluster.instance_names())
    lost = {name for name, is_removed in made.items() if not is_removed} - names
    tried = {line.split()[1].rstrip(":") for each in lives for line in each.failures}
    assert not lost - tried, f"instances are gone: {lost}"
    back = {name for name, is_removed in made.items() if is_removed} & names
    assert not back, f"instances were removed, and are there: {back}"
    for name in names:
        where = [node for node in world.nodes if _runs(world, node, name)]
        assert len(where) <= 1, f"{name} runs on {where}"
    for name in sorted(names):
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
    told = world.cluster.run("gnt-cluster verify").out if volumes else ""
    for name in list(world.drivers.kernels[root].resources):
        assert world.cluster.run(["drbdsetup", "down", name], node=node).status == 0
    for name in volumes:
        assert name in told, f"verify does not tell of {name} on {node}: {told}"
        removed = world.cluster.run(["lvremove", "--force", name], node=node)
        assert removed.status == 0, removed
    return len(volumes)


def _runs(world: World, node: str, name: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        book = Path(world.cluster.paths_of(node).fake_dir, name).read_bytes()
        return Phase.DOWN.encode() not in book
    return False


def _check_copies(world: World) -> None:
    """All candidates have the same configuration, queue and simple configuration."""

    def of(node: str) -> object:
        paths = world.cluster.paths_of(node)
        queue = JobFiles(paths)
        jobs = {job_id: queue.read(job_id) for job_id in queue.ids()}
        return files.read_bytes(paths.config_data), jobs, ssconf.read_all(paths)

    def differing() -> list[str]:
        with contextlib.suppress(GenericError, OSError):
            wanted = of(world.master)
            return [node for node in world.nodes if of(node) != wanted]
        return ["?"]

    wait_until(lambda: not differing(), f"all copies are equal: {differing()}", step_s=0.2)


def _check_rest(world: World) -> None:
    """No process of a job, no rule and no temporary file is left."""
    for node in world.nodes:
        paths = world.cluster.paths_of(node)
        jobs = processes_named(world.cluster, node, "gnt-job-")
        known = sum(
            len(processes_named(world.cluster, node, name))
            for name in ("gnt-job-nursery", "gnt-job-warm")
        )
        assert len(jobs) == known, f"processes of jobs on {node}"
        assert world.cluster.run("ganeti-cleaner node", node=node).status == 0
        for directory in (paths.data_dir, paths.queue_dir, paths.run_dir, paths.livelock_dir):
            names = os.listdir(directory) if os.path.isdir(directory) else []
            left = [name for name in names if name.endswith(".tmp")]
            assert not left, f"{directory} has {left}"
