"""hbal on a running cluster of mirrored pairs that were all put on two nodes: its jobs make it even.

Guests run all the time.  Each node has its own LVM and its own driver of DRBD, played by programs;
everything above these is real.  test/real/test_storage_balancing.py has real ones.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from fakes import drbd_programs, lvm_programs
from fakes.drbd_programs import Drivers
from fakes.virtual_cluster import TestCluster, own_cluster
from fakes.waiting import wait_until

from ganeti.hypervisor.fake import Phase

NODES = 3
ADD = "instance add -H fake -t drbd -o test -B memory=64 --disk 0:size=16m --no-name-check --no-ip-check"
ALL = "--enabled-disk-templates=drbd,plain,diskless --ipolicy-disk-templates=drbd,plain,diskless"
LOOK_S = 0.02


@dataclass(frozen=True)
class Pairs:
    cluster: TestCluster
    drivers: Drivers

    def nodes_of(self) -> dict[str, tuple[str, str]]:
        """Return the primary and the secondary node of each instance; all must run."""
        fields = "instance list --no-headers --separator=| -o name,status,pnode,snodes"
        rows = [line.split("|") for line in self.cluster.gnt(fields).lines]
        assert {status for _, status, *_ in rows} <= {"running"}
        return {name: (primary, secondary) for name, _, primary, secondary in rows}

    def counts(self) -> tuple[list[int], list[int]]:
        """Return how many instances each node is the primary and the secondary one of."""
        found = self.nodes_of().values()
        primary, secondary = (Counter(pair[index] for pair in found) for index in (0, 1))
        nodes = self.cluster.nodes
        return [primary[node] for node in nodes], [secondary[node] for node in nodes]

    def running(self, name: str) -> bool:
        """Tell whether some node runs a guest."""
        for node in self.cluster.nodes:
            try:
                with open(f"{self.cluster.paths_of(node).fake_dir}/{name}", "rb") as file:
                    book = file.read()
            except FileNotFoundError:
                continue
            if Phase.DOWN.encode() not in book:
                return True
        return False

    @contextmanager
    def always_running(self) -> Iterator[None]:
        """Look at all guests again and again: each has to run somewhere."""
        names, over, missing = list(self.nodes_of()), threading.Event(), []

        def look() -> None:
            while not over.wait(LOOK_S):
                # One that has moved between two looks is there at the second.
                missing.extend(
                    name for name in names if not (self.running(name) or self.running(name))
                )

        watcher = threading.Thread(target=look)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
        assert not missing

    def all_data_are_there(self) -> None:
        """Look at the copies: two of each disk, both up to date, with what was installed."""
        pairs = self.nodes_of()
        self.drivers.replicate()
        for node in self.cluster.nodes:
            root = self.cluster.paths_of(node).root
            states = self.drivers.devices(root)
            assert len(states) == sum(node in pair for pair in pairs.values())
            assert set(states.values()) <= {"UpToDate"}
            for name, each in lvm_programs._load(root)["volumes"].items():
                if name.endswith("_data"):
                    with open(f"{root}/dev/{name}", "rb") as file:
                        text = file.read(4096).decode()
                    (owner,) = (tag for tag in each["tags"] if tag.startswith("originstname+"))
                    assert f"INSTANCE_NAME={owner.partition('+')[2]}\n" in text


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pairs]:
    programs = tmp_path_factory.mktemp("programs")
    lvm_programs.install(programs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        without = ("ganeti-rapi", "ganeti-maintd", "ganeti-mond")
        with own_cluster(NODES, without=without) as cluster:
            roots = [cluster.paths_of(node).root for node in cluster.nodes]
            for root in roots:
                lvm_programs.make_group(root, "xenvg", {"/dev/none/sda1": 30000})
            with drbd_programs.installed(programs, roots) as drivers:
                helper = f"--drbd-usermode-helper={drbd_programs.HELPER}"
                cluster.gnt(f"cluster modify --vg-name=xenvg {helper} {ALL}")
                yield Pairs(cluster, drivers)


def add(pairs: Pairs, names: Sequence[str], *options: str) -> None:
    """Make instances at the same time."""
    jobs = [pairs.cluster.submit(f"{ADD} {' '.join(options)} {name}.example.com") for name in names]
    for job_id in jobs:
        watched = pairs.cluster.run(["gnt-job", "watch", str(job_id)])
        assert watched.status == 0, watched


def test_pairs_are_made_even_step_by_step(pairs: Pairs) -> None:
    first, second, *_ = pairs.cluster.nodes
    add(pairs, ["a", "b", "c"], f"-n {first}:{second}")
    assert pairs.counts() == ([3, 0, 0], [0, 3, 0])
    pairs.all_data_are_there()
    with pairs.always_running():
        done = pairs.cluster.run(["hbal", "-L", "-X"])
    assert done.status == 0, done
    assert "Executing jobset 1 of " in done.out
    assert pairs.counts() == ([1] * NODES, [1] * NODES)
    pairs.all_data_are_there()


@pytest.mark.shows("backend/opportunistic/rebalanced")
def test_what_was_made_beside_busy_nodes_is_made_even_by_a_plan(pairs: Pairs) -> None:
    cluster = pairs.cluster
    *free, busy = cluster.nodes
    before = pairs.nodes_of()
    delay = cluster.submit(f"debug delay --no-master -n {busy} 3600")
    wait_until(lambda: cluster.job_status(delay) == "running", "the delay has its locks")
    names = ["d", "e", "f"]
    for name in names:
        cluster.gnt(f"{ADD} --opportunistic-locking -I hail {name}.example.com")
    made = {name: pair for name, pair in pairs.nodes_of().items() if name not in before}
    assert len(made) == len(names)
    assert all(set(pair) == set(free) for pair in made.values())
    cluster.gnt(f"job cancel {delay}")
    with pairs.always_running():
        done = cluster.run(["hbal", "--plan", "-L", "-X"])
    assert done.status == 0, done
    assert "step by step" in done.out, "the plan is compared with it"
    assert pairs.counts() == ([2] * NODES, [2] * NODES)
    pairs.all_data_are_there()


@pytest.mark.shows("maintd/harep/harep-stays")
def test_harep_repairs_what_its_tags_allow(pairs: Pairs) -> None:
    cluster = pairs.cluster
    lost = cluster.nodes[-1]
    broken, *others = [name for name, pair in pairs.nodes_of().items() if pair[0] == lost]
    _, spare = pairs.nodes_of()[broken]
    prefix = "ganeti:watcher:autorepair:"
    cluster.gnt(f"instance add-tags {broken} {prefix}failover")
    pairs.drivers.switch_off(cluster.paths_of(lost).root)
    shutil.rmtree(cluster.paths_of(lost).fake_dir)
    cluster.gnt(f"node modify --offline=yes {lost}")
    for kind in ("failover", "fix-storage"):  # the other copy of its disk is lost as well
        done = cluster.run(["harep", "-L", "--job-delay=0"])
        assert done.status == 0, done
        assert f"Executing {kind} repair on {broken}" in done.out
        tags = cluster.gnt(f"instance list-tags {broken}").out
        assert f"{prefix}pending:{kind}:" in tags
        job_id = tags.strip().rpartition(":")[2]
        watched = cluster.run(["gnt-job", "watch", job_id])
        assert watched.status == 0, watched
        assert cluster.instance_field(broken, "status,pnode") == f"running|{spare}"
    done = cluster.run(["harep", "-L", "--job-delay=0"])
    assert done.status == 0, done
    tags = cluster.gnt(f"instance list-tags {broken}").out
    assert re.search(f"{prefix}result:fix-storage:.*:success:{job_id}\n", tags), tags
    assert cluster.instance_field(broken, "snodes") not in ("", lost)
    for name in others:
        assert cluster.instance_field(name, "pnode") == lost, "no tag allows anything"
