"""Operating systems whose script must not run on a node: installed by a machine of its own."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from fakes.cuts import every_kill
from fakes.fake_cluster import FakeCluster
from msgspec.structs import replace

from ganeti.base.errors import GenericError, NotSupportedError, OpExecError, OpPrereqError
from ganeti.objects.hypervisors import Hypervisor

NAME, IMAGE, MIB = "web1.example.com", "/srv/install.img", 1 << 20
NODE = "node1"


@pytest.fixture
def isolated(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """A cluster with an installation image, whose machines say that all is well."""
    traits = Hypervisor.FAKE.traits
    monkeypatch.setattr(Hypervisor.FAKE, "traits", replace(traits, boots_disks=True))
    return with_image(cluster)


def with_image(cluster: FakeCluster) -> FakeCluster:
    rows = [["debian", "/srv/ganeti/os/debian", True, "", [], [], [15], False]]
    cluster.rpc.os_list = {f"node{number}": rows for number in (1, 2, 3)}
    cluster.config.cluster["install_image"] = IMAGE
    cluster.rpc.images[IMAGE] = 5 * MIB + 1
    cluster.rpc.ends_by_itself = lambda instance: len(instance.disks_info) == 3
    cluster.rpc.package_answers = ["exit 0"]
    return cluster


def add(cluster: FakeCluster, **params: Any) -> None:
    cluster.add_instance(disk_template="file", **params)


def machine(cluster: FakeCluster) -> dict[str, Any]:
    """Return the machine that was started first."""
    _node, args = cluster.rpc.called("instance_start")[0]
    found: dict[str, Any] = args[0]
    return found


def test_a_machine_installs_with_image_disks_and_package(isolated: FakeCluster) -> None:
    isolated.rpc.calls.clear()
    params = {"osparams_secret": {"once": "never stored"}, "start": False}
    values = {"disk_template": "file", **params}
    isolated.execute(
        "OP_INSTANCE_CREATE",
        instance_name=NAME,
        mode="create",
        disks=[{"size": 1024}],
        nics=[{}],
        os_type="debian",
        pnode=NODE,
        name_check=False,
        ip_check=False,
        **values,
    )
    assert not isolated.rpc.called("instance_os_add")
    names = isolated.rpc.names()
    order = ("blockdev_image", "os_package_write", "instance_start", "os_package_log")
    assert [names.index(name) for name in order] == sorted(names.index(name) for name in order)
    helper = machine(isolated)
    image, own, package = helper["disks_info"]
    assert own["uuid"] == isolated.config.instance(NAME)["disks"][0]
    assert (image["size"], package["size"], helper["nics"]) == (6, 16, [])
    [(_node, args)] = isolated.rpc.called("os_package_write")
    assert args[0]["osparams"]["once"] == "never stored"
    assert [disk["uuid"] for disk in args[0]["disks_info"]] == [own["uuid"]]
    assert args[1]["uuid"] == package["uuid"]
    assert isolated.said("the machine says: exit 0")
    assert len(isolated.rpc.node(NODE).disks) == 1
    assert NAME not in isolated.rpc.node(NODE).running
    assert not isolated.config.instance(NAME).get("forthcoming")


def test_the_instance_starts_after_it(isolated: FakeCluster) -> None:
    add(isolated)
    assert isolated.rpc.node(NODE).running[NAME] == 0
    assert len(isolated.rpc.node(NODE).disks) == 1


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        (["exit 3"], "the machine said 'exit 3'.*its last output:\nlast words"),
        ([""], "powered itself off without saying how it ended"),
        (["progress 1"], "the machine said 'progress 1'"),
        (["exit 0 or so"], "the machine said 'exit 0 or so'"),
    ],
)
def test_failures_leave_nothing(isolated: FakeCluster, answers: list[str], text: str) -> None:
    isolated.rpc.package_answers = answers
    with pytest.raises(OpExecError, match=f"(?s){text}"):
        add(isolated)
    assert not isolated.leftovers()


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ([""], "has told nothing within 5 seconds.*--helper-startup-timeout"),
        (["progress 1"], "did not power itself off within 9 seconds.*--helper-shutdown-timeout"),
    ],
)
def test_a_machine_that_takes_too_long_is_ended(
    isolated: FakeCluster, answers: list[str], text: str
) -> None:
    isolated.rpc.ends_by_itself = lambda _instance: False
    isolated.rpc.package_answers = answers
    with pytest.raises(OpExecError, match=text):
        add(isolated, helper_startup_timeout=5, helper_shutdown_timeout=9)
    assert not isolated.leftovers()


def test_what_cannot_be_is_refused_before_anything_is_made(isolated: FakeCluster) -> None:
    for values, error, text in (
        ({"helper_startup_timeout": 0}, OpPrereqError, "--helper-startup-timeout must be more"),
        ({"helper_shutdown_timeout": -1}, OpPrereqError, "--helper-shutdown-timeout must be more"),
    ):
        with pytest.raises(error, match=text):
            add(isolated, **values)
    isolated.rpc.images.clear()
    with pytest.raises(OpPrereqError, match=f"has no install image {IMAGE}"):
        add(isolated)
    assert not isolated.leftovers()
    assert not isolated.rpc.called("blockdev_create")


def test_a_hypervisor_that_boots_no_disk_cannot(cluster: FakeCluster) -> None:
    with pytest.raises(NotSupportedError, match="'fake' starts no machine from a disk"):
        add(with_image(cluster))


def test_trusted_scripts_run_on_the_node_and_nobody_asks_without_an_image(
    isolated: FakeCluster,
) -> None:
    for rows in isolated.rpc.os_list.values():
        rows[0][7] = True
    add(isolated)
    assert not isolated.rpc.called("os_package_write")
    isolated.config.cluster["install_image"] = ""
    isolated.rpc.calls.clear()
    add(isolated, name="web2.example.com")
    assert not isolated.rpc.called("os_diagnose")


def test_reinstalling_leaves_the_instance_stopped_as_it_was(isolated: FakeCluster) -> None:
    add(isolated, start=False)
    isolated.rpc.calls.clear()
    isolated.execute("OP_INSTANCE_REINSTALL", instance_name="web1")
    [(_node, args)] = isolated.rpc.called("os_package_write")
    assert args[2] is True
    assert len(machine(isolated)["disks_info"]) == 3
    assert NAME not in isolated.rpc.node(NODE).running
    isolated.rpc.package_answers = ["exit 1"]
    with pytest.raises(OpExecError, match="the machine said 'exit 1'"):
        isolated.execute("OP_INSTANCE_REINSTALL", instance_name="web1")
    assert len(isolated.rpc.node(NODE).disks) == 1


@pytest.mark.parametrize("call", ["instance_info", "os_package_answer"])
def test_a_node_daemon_that_is_restarted_ends_no_installation(
    isolated: FakeCluster, call: str
) -> None:
    """The machine goes on; hours of its work, and the new instance with it, were thrown away."""
    silent = ["connection refused"] * 5

    def failure(_node: str, name: str, _args: Any) -> str | None:
        is_due = name == call and NAME in isolated.rpc.node(NODE).running
        return silent.pop() if is_due and silent else None

    isolated.rpc.failure = failure
    add(isolated)
    assert not silent
    assert isolated.rpc.node(NODE).running[NAME] == 0


def test_a_failure_at_any_call_leaves_nothing(isolated: FakeCluster) -> None:
    for number in range(60):
        seen = iter(range(10**6))

        def failure(_n: str, _call: str, _a: Any, number: int = number, seen: Any = seen) -> Any:
            return "it broke" if next(seen) == number else None

        isolated.rpc.failure = failure
        isolated.rpc.package_answers = ["exit 0"]
        try:
            add(isolated)
        except GenericError as err:
            isolated.messages.append(str(err))
        isolated.rpc.failure = lambda *_args: None
        if NAME in {each["name"] for each in isolated.config.instances.values()}:
            remove(isolated)
        assert not isolated.leftovers() or isolated.said("it broke"), number
        isolated.rpc.node(NODE).disks.clear()
        isolated.messages.clear()


def remove(cluster: FakeCluster) -> None:
    cluster.execute("OP_INSTANCE_REMOVE", instance_name="web1", ignore_failures=False)


@pytest.mark.usefixtures("isolated")
def test_killed_anywhere_it_leaves_disks_that_a_removal_finds(tmp_path: Path) -> None:
    def make() -> FakeCluster:
        cluster = with_image(FakeCluster(str(tmp_path)))
        add(cluster, start=False)
        cluster.rpc.package_answers = ["exit 0"]
        return cluster

    def reinstall(cluster: FakeCluster) -> None:
        cluster.execute("OP_INSTANCE_REINSTALL", instance_name="web1")

    left = set()
    for cluster in every_kill(make, reinstall):
        node = cluster.rpc.node(NODE)
        left.add(len(node.disks))
        cluster.execute("OP_INSTANCE_SHUTDOWN", instance_name="web1")
        remove(cluster)
        assert not node.disks
    assert left == {1, 2, 3}


@pytest.mark.usefixtures("isolated")
def test_a_creation_that_was_killed_while_its_machine_hangs_is_ended_and_completed(
    tmp_path: Path,
) -> None:
    def make() -> FakeCluster:
        cluster = with_image(FakeCluster(str(tmp_path)))
        cluster.rpc.ends_by_itself = lambda _instance: False
        cluster.rpc.package_answers = ["progress 1"]
        return cluster

    hangs = (each for each in every_kill(make, add) if NAME in each.rpc.node(NODE).running)
    for cluster in islice(hangs, 3):  # further ones look for its end again and again
        with pytest.raises(OpPrereqError, match="shut it down first"):
            cluster.execute("OP_INSTANCE_REINSTALL", instance_name=NAME)
        cluster.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME)
        with_image(cluster)
        cluster.execute("OP_INSTANCE_REINSTALL", instance_name=NAME)
        assert not cluster.config.instance(NAME).get("forthcoming")


def test_what_is_only_planned_cannot_be_shut_down(cluster: FakeCluster) -> None:
    cluster.add_instance(disk_template="file", forthcoming=True)
    with pytest.raises(OpPrereqError, match="only planned"):
        cluster.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME)
