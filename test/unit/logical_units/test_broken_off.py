"""Long jobs that are canceled or killed, at every place: nothing half done, and a way on.

Canceled, a job leads back to what was before it.  Killed, it undoes nothing: at most one copy of the
instance runs, no data is lost, and the next command makes it whole.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fakes.cuts import CUTS_MAX, NotCut, cut_off, every_cancel, every_kill, state_of
from fakes.fake_cluster import FakeCluster, uuid_of
from fakes.pairs import pair_cluster

from ganeti.base.errors import GenericError, OpExecError, OpPrereqError
from ganeti.node_ops.disks.chains import points_of
from ganeti.protocol.export_description import DumpedDisk, ExportDescription, format_description

NAME = "web1.example.com"
NEW_NAME = "web2.example.com"
DATA = "what the guest wrote"

EXPORT = format_description(
    ExportDescription(
        name=NAME,
        os="debian",
        source_node="node3",
        timestamp=1,
        hypervisor="fake",
        disk_template="sharedfile",
        disks=[DumpedDisk(size_mib=100, dump="a.dump", name="data", sha256="ab" * 32)],
        nics=[{"mac": "aa:00:00:11:22:33", "mode": "bridged", "link": "br7"}],
        tags=[],
        hvparams={},
        beparams={},
    )
)

CREATION = {
    "instance_name": NAME,
    "mode": "create",
    "disk_template": "file",
    "disks": [{"size": 64}, {"size": 8}],
    "nics": [{}],
    "os_type": "debian",
    "pnode": "node1",
    "name_check": False,
    "ip_check": False,
}
IMPORT = {
    **CREATION,
    "mode": "import",
    "os_type": None,
    "disk_template": None,
    "disks": [],
    "nics": [],
    "src_node": "node3",
    "src_path": NAME,
    "instance_name": NEW_NAME,
    "start": False,
}


@dataclass(frozen=True)
class Job:
    """One long job, and the instance that it finds; ``made`` is None when it finds none."""

    op_id: str
    params: Mapping[str, Any] = field(default_factory=dict)
    made: Mapping[str, Any] | None = field(default_factory=lambda: {"disk_template": "file"})
    is_stopped: bool = False
    loses_disks: bool = False
    wipes: bool = False
    has_chain: bool = False

    def make(self, root: Path) -> FakeCluster:
        """Return a cluster on which the job can be run."""
        (root / "etc").mkdir(exist_ok=True)
        (root / "etc/hosts").write_text("192.0.2.1 node1.example.com node1\n")
        if self.made == VOLUMES:
            cluster = pair_cluster(str(root), 3)
        else:
            cluster = FakeCluster(str(root), prealloc_wipe_disks=self.wipes)
        for number in (1, 2, 3):
            node = cluster.rpc.node(f"node{number}")
            if self.params.get("mode") == "import":
                node.add_export(NAME, EXPORT)
        if self.made is not None:
            nics = [{"mac": "aa:00:00:00:00:01"}]  # the same in each cluster
            cluster.add_instance(NAME, disks=[{"size": 64}, {"size": 8}], nics=nics, **self.made)
            fill(cluster)
        if self.has_chain:
            cluster.execute(self.op_id, **self.params, instance_name=NAME)
        if self.is_stopped:
            cluster.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME)
        if self.loses_disks:
            cluster.rpc.node("node1").disks.clear()
            cluster.rpc.node("node1").directories.clear()
        return cluster

    def run(self, cluster: FakeCluster) -> None:
        """Run the job."""
        wanted = {"instance_name": NAME, **self.params}
        given = {name: value for name, value in wanted.items() if value is not None}
        cluster.execute(self.op_id, **given)


def fill(cluster: FakeCluster) -> None:
    for node in cluster.rpc.nodes.values():
        node.data = dict.fromkeys({*node.data, *node.disks, *cluster.rpc.shared}, DATA)


SHARED = {"disk_template": "sharedfile"}
VOLUMES = {"disk_template": "plain"}
TARGET = {"target_node": "node2"}

JOBS = {
    "create": Job("OP_INSTANCE_CREATE", CREATION, made=None, wipes=True),
    "import": Job("OP_INSTANCE_CREATE", IMPORT),
    "export": Job("OP_BACKUP_EXPORT", {"target_node": "node3"}),
    "export of volumes": Job("OP_BACKUP_EXPORT", {"target_node": "node3"}, VOLUMES),
    "live export": Job("OP_BACKUP_EXPORT", {"target_node": "node3", "shutdown": False}),
    "incremental export": Job(
        "OP_BACKUP_EXPORT",
        {"target_node": "node3", "shutdown": False, "incremental": True},
        has_chain=True,
    ),
    "move": Job("OP_INSTANCE_MOVE", TARGET),
    "migrate": Job("OP_INSTANCE_MIGRATE", TARGET, SHARED),
    "failover": Job("OP_INSTANCE_FAILOVER", TARGET, SHARED),
    "convert": Job("OP_INSTANCE_SET_PARAMS", {"disk_template": "sharedfile"}, is_stopped=True),
    "add a disk": Job(
        "OP_INSTANCE_SET_PARAMS", {"disks": [["add", -1, {"size": 16}]]}, is_stopped=True
    ),
    "recreate disks": Job("OP_INSTANCE_RECREATE_DISKS", is_stopped=True, loses_disks=True),
    "grow": Job("OP_INSTANCE_GROW_DISK", {"disk": 0, "amount": 36}, is_stopped=True, wipes=True),
    "rename": Job(
        "OP_INSTANCE_RENAME",
        {"new_name": NEW_NAME, "name_check": False, "ip_check": False},
        is_stopped=True,
    ),
    "reinstall": Job("OP_INSTANCE_REINSTALL", is_stopped=True),
    "start": Job("OP_INSTANCE_STARTUP", is_stopped=True),
    "stop": Job("OP_INSTANCE_SHUTDOWN"),
    "reboot": Job("OP_INSTANCE_REBOOT", {"reboot_type": "full", "ignore_secondaries": False}),
    "remove": Job("OP_INSTANCE_REMOVE", {"ignore_failures": False}),
}


# How jobs that are heavy on disks take the resource locks of their nodes; others take none.
RESOURCES = dict.fromkeys(
    ("create", "import", "move", "convert", "recreate disks", "grow"), "exclusive"
) | dict.fromkeys(
    ("export", "export of volumes", "live export", "incremental export", "migrate"), "shared"
)


@pytest.mark.shows("2.0/scalability/long-jobs", "backend/locks/node-res")
@pytest.mark.parametrize("name", JOBS)
def test_a_long_job_locks_nothing_but_its_own_objects(name: str, tmp_path: Path) -> None:
    job = JOBS[name]
    cluster = job.make(tmp_path)
    cluster.config.lock_history.clear()
    job.run(cluster)
    for request in cluster.config.lock_history:
        assert ("cluster/BGL", "shared") in request
        resources = {lock: mode for lock, mode in request if lock.startswith("node-res/")}
        assert set(resources.values()) == ({RESOURCES[name]} if name in RESOURCES else set())
        exclusive = {lock for lock, mode in request if mode == "exclusive"} - resources.keys()
        assert exclusive <= {f"instance/{each}" for each in (NAME, NEW_NAME)}
        shared = {lock for lock, mode in request if mode == "shared"} - resources.keys()
        shared.discard("cluster/BGL")
        assert resources.keys() <= {lock.replace("node/", "node-res/") for lock in shared}
        assert shared <= {f"node/{uuid_of(node)}" for node in ("node1", "node2", "node3")}
        assert len(shared) <= 2


@pytest.mark.parametrize("name", JOBS)
def test_a_canceled_job_leads_back(name: str, tmp_path: Path) -> None:
    job = JOBS[name]
    before = state_of(job.make(tmp_path))
    for cluster in every_cancel(lambda: job.make(tmp_path), job.run):
        assert state_of(cluster) == before
        assert not cluster.said("ignoring")


def copies(cluster: FakeCluster) -> list[str]:
    """Return the short names of the nodes on which the instance runs."""
    running = [name for name, node in cluster.rpc.nodes.items() if node.running.get(NAME) == 0]
    return [name.partition(".")[0] for name in running]


def primary(cluster: FakeCluster) -> str:
    """Return the short name of the node that the configuration names."""
    found = cluster.config.nodes[cluster.config.instance(NAME)["primary_node"]]
    return str(found["name"]).partition(".")[0]


def names(cluster: FakeCluster) -> set[str]:
    return {instance["name"] for instance in cluster.config.instances.values()}


def check_disks(cluster: FakeCluster, *, data: bool = True) -> None:
    """Check that the disks are where the configuration says, with what was on them."""
    for uuid in cluster.config.instance(NAME)["disks"]:
        disk = cluster.config.disks[uuid]
        is_volume, (group, name) = disk["dev_type"] == "plain", disk["logical_id"]
        path = f"{group}/{name}" if is_volume else name
        node = cluster.rpc.node(primary(cluster))
        assert path in (cluster.rpc.shared if disk["dev_type"] == "sharedfile" else node.disks)
        if data:
            assert DATA in (each.data.get(path) for each in cluster.rpc.nodes.values())


def start(cluster: FakeCluster) -> None:
    cluster.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
    assert copies(cluster) == [primary(cluster)]


def remove(cluster: FakeCluster, name: str = NAME) -> None:
    cluster.execute("OP_INSTANCE_REMOVE", instance_name=name, ignore_failures=False)


@contextlib.contextmanager
def perhaps_refused(why: str) -> Iterator[None]:
    """Let something be refused, for that reason only."""
    try:
        yield
    except OpPrereqError as err:
        if why not in err.message:
            raise


def start_again(cluster: FakeCluster, job: Job) -> None:
    start(cluster)
    check_disks(cluster, data="disks" not in job.params)


def repeat(cluster: FakeCluster, job: Job) -> None:
    """Give the same order again; whole is also what was done just before the end."""
    with perhaps_refused("already"):
        job.run(cluster)
    start(cluster)
    check_disks(cluster)


def make_again(cluster: FakeCluster, job: Job) -> None:
    """Remove what is not complete, and make it again."""
    name = str(job.params["instance_name"])
    if name in names(cluster):
        is_incomplete = cluster.config.instance(name).get("forthcoming")
        if not is_incomplete:
            cluster.execute("OP_INSTANCE_STARTUP", instance_name=name)
            return
        with pytest.raises(OpPrereqError, match=f"not complete.*'gnt-instance remove {name}'"):
            cluster.execute("OP_INSTANCE_STARTUP", instance_name=name)
        remove(cluster, name)
    job.run(cluster)
    assert not cluster.config.instance(name).get("forthcoming")


def export_again(cluster: FakeCluster, job: Job) -> None:
    start(cluster)
    job.run(cluster)
    assert copies(cluster) == ["node1"]
    check_disks(cluster)


def export_volumes_again(cluster: FakeCluster, job: Job) -> None:
    """No snapshot is left by the next export, whatever this one left, of a running instance or not."""
    job.run(cluster)
    assert len(cluster.rpc.node("node1").disks) == 2
    export_again(cluster, job)
    assert len(cluster.rpc.node("node1").disks) == 2
    snapshots = [args[0]["logical_id"][1] for _, args in cluster.rpc.called("blockdev_remove")]
    assert {name.partition(".")[2] for name in snapshots} == {"snap"}


def export_live_again(cluster: FakeCluster, job: Job) -> None:
    assert copies(cluster) == ["node1"], "it was never stopped"
    job.run(cluster)
    assert copies(cluster) == ["node1"]
    assert not cluster.rpc.node("node1").snapshots
    check_disks(cluster)


def export_what_changed_again(cluster: FakeCluster, job: Job) -> None:
    """The chain goes on from its newest point, with what was written since then on record."""
    known = len(chain_of(cluster))
    assert known in (1, 2)
    export_live_again(cluster, job)
    assert chain_of(cluster) == [*range(known + 1)]
    asked = [args[5][1][2] for _, args in cluster.rpc.called("export_start")]
    assert asked[-2:] == [True, True]
    assert len(cluster.rpc.node("node1").records[NAME]) == 1


def chain_of(cluster: FakeCluster) -> list[int]:
    directory = cluster.rpc.node("node3").localize(f"/var/lib/ganeti/export/{NAME}")
    return [point.number for point in points_of(directory)]


def move_on(cluster: FakeCluster, job: Job) -> None:
    """Start it, and move it wherever it was to go."""
    start(cluster)
    check_disks(cluster)
    if primary(cluster) == "node1":
        job.run(cluster)
        check_disks(cluster)
        assert copies(cluster) == ["node2"]


def clean_up(cluster: FakeCluster, job: Job) -> None:
    cluster.execute(job.op_id, instance_name=NAME, cleanup=True)
    assert not any(node.receiving for node in cluster.rpc.nodes.values())
    assert set(copies(cluster)) <= {primary(cluster)}
    assert sum(NAME in node.running for node in cluster.rpc.nodes.values()) <= 1
    start(cluster)
    check_disks(cluster)


def recreate_the_rest(cluster: FakeCluster, _job: Job) -> None:
    for index in range(2):
        with perhaps_refused("exists"):
            cluster.execute("OP_INSTANCE_RECREATE_DISKS", instance_name=NAME, disks=[index])
    check_disks(cluster, data=False)


def rename_again(cluster: FakeCluster, job: Job) -> None:
    if NAME in names(cluster):
        job.run(cluster)
    cluster.execute("OP_INSTANCE_STARTUP", instance_name=NEW_NAME)


def rename_back(cluster: FakeCluster) -> None:
    """Where the name has not changed, the directory may be put back instead."""
    back = {"instance_name": NAME, "new_name": NAME, "name_check": False, "ip_check": False}
    if is_misplaced(cluster):
        cluster.execute("OP_INSTANCE_RENAME", **back)
    tell_disks(cluster)
    cluster.execute("OP_INSTANCE_RENAME", **back)
    assert cluster.said("nothing to change")
    check_disks(cluster)
    start(cluster)


def tell_disks(cluster: FakeCluster) -> None:
    """Let nodes tell which files are there."""
    cluster.rpc.verify_answers["stored-disks"] = sorted(cluster.rpc.node("node1").disks)


def is_misplaced(cluster: FakeCluster) -> bool:
    paths = {disk["logical_id"][1] for disk in cluster.config.disks.values()}
    return not paths <= cluster.rpc.node("node1").disks


def install_again(cluster: FakeCluster, job: Job) -> None:
    job.run(cluster)
    start(cluster)


def remove_again(cluster: FakeCluster, job: Job) -> None:
    if names(cluster):
        job.run(cluster)
    if cluster.said("cannot remove directory"):  # an empty one, of which the job told
        cluster.rpc.node("node1").directories.clear()
    assert not cluster.leftovers()


WAY_ON: dict[str, Callable[[FakeCluster, Job], None]] = {
    "create": make_again,
    "import": make_again,
    "export": export_again,
    "export of volumes": export_volumes_again,
    "live export": export_live_again,
    "incremental export": export_what_changed_again,
    "move": move_on,
    "migrate": clean_up,
    "failover": clean_up,
    "convert": repeat,
    "add a disk": start_again,
    "recreate disks": recreate_the_rest,
    "grow": repeat,
    "rename": rename_again,
    "reinstall": install_again,
    "start": start_again,
    "stop": start_again,
    "reboot": start_again,
    "remove": remove_again,
}


@pytest.mark.shows("2.0/locking-library/clean-up")
@pytest.mark.parametrize("name", JOBS)
def test_a_killed_job_leaves_one_copy_and_a_way_on(name: str, tmp_path: Path) -> None:
    job = JOBS[name]
    for cluster in every_kill(lambda: job.make(tmp_path), job.run):
        assert len(copies(cluster)) <= 1
        WAY_ON[name](cluster, job)
        assert len(copies(cluster)) <= 1


@pytest.mark.parametrize("op_id", ["OP_INSTANCE_REMOVE", "OP_INSTANCE_MOVE"])
def test_snapshots_of_an_export_that_was_killed_hold_no_disk(tmp_path: Path, op_id: str) -> None:
    job, left = JOBS["export of volumes"], 0
    for cluster in every_kill(lambda: job.make(tmp_path), job.run):
        left += len(cluster.rpc.node("node1").disks) > 2
        target = {"target_node": "node2"} if op_id == "OP_INSTANCE_MOVE" else {}
        cluster.execute(op_id, instance_name=NAME, **target)
        assert not cluster.rpc.node("node1").disks
    assert left


def test_a_rename_that_was_killed_is_found_and_leads_back(tmp_path: Path) -> None:
    """There are two ways on where files and name disagree, and verification names both."""
    job = JOBS["rename"]
    disagreed = 0
    for cluster in every_kill(lambda: job.make(tmp_path), job.run):
        if NAME not in names(cluster):
            continue
        tell_disks(cluster)
        cluster.execute("OP_CLUSTER_VERIFY_GROUP", group_name="default")
        hint = f"'gnt-instance rename {NAME} {NEW_NAME}' completes it"
        assert cluster.said(hint) is is_misplaced(cluster)
        disagreed += is_misplaced(cluster)
        rename_back(cluster)
    assert disagreed


def test_a_creation_that_was_broken_off_is_completed_by_an_installation(tmp_path: Path) -> None:
    job = JOBS["create"]
    incomplete = 0
    for cluster in every_kill(lambda: job.make(tmp_path), job.run):
        if NAME in names(cluster) and cluster.config.instance(NAME).get("forthcoming"):
            incomplete += 1
            cluster.execute("OP_INSTANCE_REINSTALL", instance_name=NAME)
            start(cluster)
    assert incomplete > 1


@pytest.mark.parametrize("name", JOBS)
def test_a_node_that_vanishes_is_named_and_nothing_stays_half_done(
    name: str, tmp_path: Path
) -> None:
    job = JOBS[name]
    for cut in range(CUTS_MAX):
        cluster = job.make(tmp_path)
        error = ""
        try:
            with cut_off(cluster, "node1", cut, dies=False):
                try:
                    job.run(cluster)
                except GenericError as err:
                    error = err.message
        except NotCut:
            assert cut > 2
            return
        assert not cluster.config.held
        assert not error or "node 'node1.example.com'" in error
        if error and name in ("create", "import"):
            assert job.params["instance_name"] not in names(cluster)
        WAY_ON[name](cluster, job)
        assert len(copies(cluster)) <= 1
    raise AssertionError("it never got through")


@pytest.mark.parametrize("dies", [True, False], ids=["dies", "is cut off"])
@pytest.mark.parametrize("node_name", ["node1", "node2"], ids=["source", "target"])
@pytest.mark.parametrize("name", ["migrate", "failover", "move"])
def test_a_lost_node_leaves_one_copy_and_a_way_on(
    name: str, node_name: str, dies: bool, tmp_path: Path
) -> None:
    job = JOBS[name]
    for cut in range(CUTS_MAX):
        cluster = job.make(tmp_path)
        error = ""
        try:
            with cut_off(cluster, node_name, cut, dies=dies):
                try:
                    with perhaps_refused("node 'node"):  # nothing was begun
                        job.run(cluster)
                except OpExecError as err:
                    error = err.message
        except NotCut:
            assert cut > 4
            return
        assert len(copies(cluster)) <= 1
        assert not cluster.config.held
        if error:
            check_advice(cluster, error)
        WAY_ON[name](cluster, job)
        assert len(copies(cluster)) == 1
    raise AssertionError("it never got through")


def check_advice(cluster: FakeCluster, error: str) -> None:
    """An error names the node, and says what to do unless the instance is as it was."""
    said = "\n".join([error, *cluster.messages])
    assert "node 'node" in error
    if copies(cluster) != [primary(cluster)]:
        assert re.search(r"gnt-(instance|node) \w+|start it|nothing was changed", said), said
