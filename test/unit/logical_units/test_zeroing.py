"""Free space filled with zeroes before an export, by a machine that is started for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes.cuts import every_kill
from fakes.fake_cluster import FakeCluster
from msgspec.structs import replace

from ganeti.base.errors import GenericError, NotSupportedError, OpExecError, OpPrereqError
from ganeti.objects.hypervisors import Hypervisor

NAME, IMAGE, MIB = "web1.example.com", "/srv/zeroing.img", 1 << 20


@pytest.fixture
def zeroing(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """A running instance on node1, and an image; a machine with it powers itself off."""
    traits = Hypervisor.FAKE.traits
    monkeypatch.setattr(Hypervisor.FAKE, "traits", replace(traits, boots_disks=True))
    return with_image(cluster)


def with_image(cluster: FakeCluster) -> FakeCluster:
    cluster.add_instance(disks=[{"size": 1000}, {"size": 24}], disk_template="file")
    cluster.config.cluster["zeroing_image"] = IMAGE
    cluster.rpc.images[IMAGE] = 5 * MIB + 1
    cluster.rpc.ends_by_itself = lambda instance: len(instance.disks_info) == 3
    return cluster


def export(cluster: FakeCluster, **params: Any) -> Any:
    return cluster.execute(
        "OP_BACKUP_EXPORT",
        **{"instance_name": "web1", "target_node": "node3", "zero_free_space": True, **params},
    )


def machine(cluster: FakeCluster) -> dict[str, Any]:
    """Return the first machine that was started."""
    _node, args = cluster.rpc.called("instance_start")[0]
    found: dict[str, Any] = args[0]
    return found


def test_a_machine_with_the_image_and_the_disks_runs_before_the_export(
    zeroing: FakeCluster,
) -> None:
    disks = list(zeroing.config.instance(NAME)["disks"])
    before = set(zeroing.rpc.node("node1").disks)
    assert export(zeroing) == (True, [True, True])
    names = zeroing.rpc.names()
    order = ("instance_shutdown", "blockdev_image", "instance_start", "export_start")
    assert [names.index(name) for name in order] == sorted(names.index(name) for name in order)
    helper = machine(zeroing)
    image, *rest = helper["disks_info"]
    assert [disk["uuid"] for disk in rest] == disks
    assert (image["size"], helper["name"], helper["nics"]) == (6, NAME, [])
    [(_node, args)] = zeroing.rpc.called("blockdev_image")
    assert (args[0]["uuid"], args[1:]) == (image["uuid"], [IMAGE, 6])
    assert zeroing.rpc.node("node1").disks == before, "the copy of the image is gone"
    assert zeroing.rpc.node("node1").running[NAME] == 0
    assert zeroing.config.instance(NAME)["disks"] == disks
    assert len(zeroing.rpc.called("instance_start")) == 2


def test_an_image_is_read_from_a_url(zeroing: FakeCluster) -> None:
    url = "https://images.example.com/zeroing.img"
    zeroing.config.cluster["zeroing_image"] = url
    zeroing.rpc.images[url] = 2 * MIB
    export(zeroing)
    [(_node, args)] = zeroing.rpc.called("blockdev_image")
    assert args[1:] == [url, 2]


def test_a_machine_that_goes_on_is_ended_and_nothing_is_exported(zeroing: FakeCluster) -> None:
    before = set(zeroing.rpc.node("node1").disks)
    zeroing.rpc.ends_by_itself = lambda _instance: False
    with pytest.raises(OpExecError, match="did not power itself off within 61 seconds; give it"):
        export(zeroing, zeroing_timeout_fixed=10, zeroing_timeout_per_mib=0.05)
    assert zeroing.rpc.node("node1").disks == before
    assert zeroing.rpc.node("node1").running[NAME] == 0, "the instance runs again"
    assert len(machine(zeroing)["disks_info"]) == 3
    _node, args = zeroing.rpc.called("instance_start")[-1]
    assert len(args[0]["disks_info"]) == 2
    assert not zeroing.rpc.called("finalize_export")


def test_a_node_daemon_that_is_restarted_ends_no_machine(zeroing: FakeCluster) -> None:
    """The machine goes on; it was ended, and the export failed."""
    silent = ["connection refused"] * 5

    def failure(_node: str, call: str, _args: Any) -> str | None:
        is_due = call == "instance_info" and zeroing.rpc.called("blockdev_image")
        return silent.pop() if is_due and silent else None

    zeroing.rpc.failure = failure
    assert export(zeroing) == (True, [True, True])
    assert not silent


def test_a_failure_at_any_call_leaves_the_instance_running(zeroing: FakeCluster) -> None:
    before = set(zeroing.rpc.node("node1").disks)
    for number in range(60):
        seen = iter(range(10**6))

        def failure(_n: str, _call: str, _a: Any, number: int = number, seen: Any = seen) -> Any:
            return "it broke" if next(seen) == number else None

        zeroing.rpc.failure = failure
        try:
            export(zeroing)
        except GenericError as err:
            zeroing.messages.append(str(err))
        zeroing.rpc.failure = lambda *_args: None
        left = zeroing.rpc.node("node1").disks - before
        assert not left or zeroing.said("it broke"), (number, left)
        zeroing.rpc.node("node1").disks -= left
        if zeroing.rpc.node("node1").running.get(NAME) != 0:
            assert zeroing.said("the instance is down") or zeroing.said("it broke"), number
            zeroing.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
        zeroing.messages.clear()


def remove(cluster: FakeCluster) -> None:
    cluster.execute("OP_INSTANCE_REMOVE", instance_name="web1", ignore_failures=False)


@pytest.mark.usefixtures("zeroing")
@pytest.mark.parametrize("then", [export, remove])
def test_killed_anywhere_it_leaves_a_disk_that_the_next_job_removes(
    tmp_path: Path, then: Callable[[FakeCluster], object]
) -> None:
    own: set[str] = set()
    left = []

    def make() -> FakeCluster:
        cluster = with_image(FakeCluster(str(tmp_path)))
        own.clear()
        own.update(cluster.rpc.node("node1").disks)
        return cluster

    for cluster in every_kill(make, export):
        node = cluster.rpc.node("node1")
        left.append(len(node.disks - own))
        then(cluster)
        assert node.disks == (own if then is export else set())
    assert set(left) == {0, 1}


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"shutdown": False}, "leave --noshutdown and --snapshot out"),
        ({"snapshot": "s1"}, "leave --noshutdown and --snapshot out"),
        ({"zero_free_space": False, "zeroing_timeout_fixed": 1}, "for --zero-free-space only"),
        ({"zero_free_space": False, "zeroing_timeout_per_mib": 0.1}, "for --zero-free-space only"),
    ],
)
def test_options_that_contradict(zeroing: FakeCluster, params: dict[str, Any], text: str) -> None:
    with pytest.raises(OpPrereqError, match=text):
        export(zeroing, **params)
    assert zeroing.rpc.node("node1").running[NAME] == 0


def test_without_an_image_nothing_is_stopped(zeroing: FakeCluster) -> None:
    zeroing.rpc.images.clear()
    with pytest.raises(OpPrereqError, match=f"'node1.*' has no zeroing image {IMAGE}; copy"):
        export(zeroing)
    zeroing.config.cluster["zeroing_image"] = ""
    with pytest.raises(OpPrereqError, match="gnt-cluster modify --zeroing-image=PATH"):
        export(zeroing)
    assert "instance_shutdown" not in zeroing.rpc.names()


def test_a_hypervisor_without_machines_says_so(cluster: FakeCluster) -> None:
    cluster.add_instance()
    with pytest.raises(NotSupportedError, match="'fake' starts no machine from a disk"):
        export(cluster)
