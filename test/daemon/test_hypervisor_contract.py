"""The promises that every hypervisor driver keeps, the fake one and those that run here.

A driver joins by a row of `RIGS`: what an instance of it needs, and what this machine must have.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from fakes import xl_program
from guests.instances import make_instance
from guests.nodes import QEMU, kvm_nodes
from guests.trees import container_disk, remove_groups, tree_disk

from ganeti.base.errors import GenericError, HypervisorError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.hypervisor.interface import (
    AssembledDisk,
    ConsoleNode,
    Hypervisor,
    InstanceState,
    MigrationState,
    NodeEnv,
    get_hypervisor,
)
from ganeti.objects.hypervisors import HVPARAMS, RebootType
from ganeti.objects.rpc_instance import RpcInstance


@dataclass(frozen=True)
class Rig:
    """Two nodes that see the same disk, and an instance for them."""

    nodes: tuple[NodeEnv, NodeEnv]
    instance: RpcInstance
    disks: list[AssembledDisk]

    def driver(self, index: int = 0) -> Hypervisor:
        """Return a new driver: nothing is remembered between calls."""
        name = self.instance.hypervisor
        return get_hypervisor(name, self.nodes[index], self.instance.hvparams)

    def start(self) -> None:
        self.driver().start(self.instance, self.disks)

    def running_on(self) -> list[int]:
        infos = [self.driver(index).instance_info(self.instance.name) for index in (0, 1)]
        return [
            index
            for index, info in enumerate(infos)
            if info is not None and info.state is InstanceState.RUNNING
        ]


def two_nodes(base: Path) -> tuple[NodeEnv, NodeEnv]:
    one, other = (
        NodeEnv(Paths(str(base / name)), f"{name}.example.com", "127.0.0.1")
        for name in ("node1", "node2")
    )
    return one, other


@contextmanager
def fake(base: Path) -> Iterator[Rig]:
    yield Rig(two_nodes(base), make_instance(hypervisor="fake"), [])


@contextmanager
def chroot(base: Path) -> Iterator[Rig]:
    rig = Rig(two_nodes(base), make_instance(hypervisor="chroot"), [tree_disk(base)])
    try:
        yield rig
    finally:
        for index in (0, 1):
            rig.driver(index).stop(rig.instance.name, force=True)


@contextmanager
def lxc(base: Path) -> Iterator[Rig]:
    rig = Rig(two_nodes(base), make_instance(hypervisor="lxc"), [container_disk(base)])
    try:
        yield rig
    finally:
        for index in (0, 1):
            rig.driver(index).stop(rig.instance.name, force=True)
        remove_groups(rig.instance.name)


@contextmanager
def kvm(_base: Path) -> Iterator[Rig]:
    with kvm_nodes(2) as found:
        one, other = (node.env for node in found.nodes)
        instance = make_instance(kernel_path="", kvm_flag="disabled")
        yield Rig((one, other), instance, [found.boot_disk()])


def xen(hypervisor: str, base: Path) -> Iterator[Rig]:
    """Domains of a played xl."""
    nodes = two_nodes(base / "nodes")
    xl_program.prepare([env.paths.root for env in nodes])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", xl_program.install(base / "bin"))
        yield Rig(nodes, make_instance(hypervisor=hypervisor), [])


xen_pvm = contextmanager(partial(xen, "xen-pvm"))
xen_hvm = contextmanager(partial(xen, "xen-hvm"))


RIGS: Mapping[str, Callable[[Path], AbstractContextManager[Rig]]] = {
    "chroot": chroot,
    "fake": fake,
    "kvm": kvm,
    "lxc": lxc,
    "xen-hvm": xen_hvm,
    "xen-pvm": xen_pvm,
}
NEEDS = {
    "chroot": (pytest.mark.root,),
    "fake": (),
    "kvm": (pytest.mark.qemu, pytest.mark.skipif(QEMU is None, reason="needs qemu-system-x86_64")),
    "lxc": (
        pytest.mark.root,
        pytest.mark.skipif(shutil.which("lxc-start") is None, reason="needs the programs of LXC"),
    ),
    "xen-hvm": (),
    "xen-pvm": (),
}


@pytest.fixture(params=[pytest.param(name, marks=NEEDS[name]) for name in RIGS])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    with RIGS[request.param](tmp_path) as made:
        yield made


def test_every_driver_is_here() -> None:
    assert set(RIGS) == set(HVPARAMS)


def test_what_is_not_there_is_no_error(rig: Rig) -> None:
    driver = rig.driver()
    assert driver.verify() is None
    assert driver.list_instances() == []
    assert driver.all_instances_info() == []
    assert driver.instance_info(rig.instance.name) is None
    driver.stop(rig.instance.name)
    if driver.snapshots is not None:
        driver.snapshots.drop(rig.instance.name)


def test_names_that_lead_elsewhere_are_refused(rig: Rig) -> None:
    for name in ("", "../x", ".hidden"):
        with pytest.raises(HypervisorError, match="cannot be the name"):
            rig.driver().instance_info(name)


@pytest.mark.shows("backend/overview/hypervisors")
def test_the_life_of_an_instance(rig: Rig) -> None:
    name = rig.instance.name
    rig.start()
    with pytest.raises(HypervisorError, match="already"):
        rig.start()
    [info] = rig.driver().all_instances_info()
    assert info.cpu_time_s >= 0
    assert (info.name, info.memory_mib, info.vcpus) == (name, 16, 1)
    assert info.state is InstanceState.RUNNING
    assert rig.driver().list_instances() == [name]
    assert rig.driver(1).list_instances() == []
    rig.driver().reboot(rig.instance, rig.disks, kind=RebootType.HARD, timeout_s=0)
    assert rig.running_on() == [0]
    rig.driver().stop(name, force=True)
    assert rig.driver().instance_info(name) is None
    assert rig.driver().list_instances() == []
    rig.start()  # nothing is left that is in the way
    rig.driver().stop(name, force=True)


def test_node_info_has_the_keys_of_the_wire(rig: Rig) -> None:
    assert set(rig.driver().node_info()) >= {
        *("memory_total", "memory_free", "memory_dom0"),
        *("cpu_total", "cpu_dom0", "cpu_nodes", "cpu_sockets"),
    }


def test_there_is_always_a_console_or_a_message(rig: Rig) -> None:
    consoles = rig.driver().consoles(rig.instance, ConsoleNode("n", "192.0.2.1"))
    assert consoles
    assert {console.instance for console in consoles} == {rig.instance.name}


@pytest.mark.shows("2.0/validation/on-node")
def test_wrong_parameters_are_found_and_named(rig: Rig) -> None:
    name, driver = rig.instance.hypervisor, rig.driver()
    defaults = {key: spec.default for key, spec in HVPARAMS[name].items()}
    assert list(driver.problems(defaults)) == []
    driver.check_params(defaults)
    for key, spec in HVPARAMS[name].items():
        wrong = [spec.least - 1] if spec.least is not None else []
        wrong += ["no such choice"] * bool(spec.choices or spec.form)
        for value in wrong:
            assert [each for each in driver.problems({**defaults, key: value}) if key in str(each)]
            with pytest.raises(OpPrereqError, match=key):
                driver.check_params({**defaults, key: value})
    with pytest.raises(OpPrereqError, match="turbo"):
        driver.check_params({**defaults, "turbo": True})


def test_optional_parts_refuse_what_does_not_run(rig: Rig) -> None:
    driver = rig.driver()
    parts = [part for part in (driver.migration, driver.hotplug, driver.snapshots) if part]
    for part in parts:
        with pytest.raises(GenericError):
            part.check(rig.instance)
    if parts:
        rig.start()
        for part in parts:
            part.check(rig.instance)
        driver.stop(rig.instance.name, force=True)


def test_at_every_cut_of_a_migration_at_most_one_copy_runs(rig: Rig) -> None:
    source, target, instance = rig.driver(0).migration, rig.driver(1).migration, rig.instance
    if source is None or target is None:
        pytest.skip("instances of this hypervisor cannot be migrated")
    address = rig.nodes[1].address
    decided = 1 if rig.driver().migration_hands_over else 2  # no way back after that cut
    for cut in range(4):
        rig.start()
        info = source.describe(instance)
        if cut > 0:
            address = target.accept(instance, info, rig.nodes[1].address, rig.disks)
        if cut > 1:
            source.send(instance, address, live=True)
            while (found := source.status(instance).status) is MigrationState.ACTIVE:
                assert len(rig.running_on()) <= 1
            assert found is MigrationState.COMPLETED
            assert len(rig.running_on()) <= 1
        if cut > 2:
            target.finish_target(instance, info, success=True)
            assert rig.running_on() == [1]
        moved = rig.driver(1).instance_info(instance.name) is not None
        assert moved == (cut > decided)
        target.finish_target(instance, info, success=False)
        source.finish_source(instance, success=moved, live=True)
        assert rig.running_on() == [int(moved)]
        rig.driver(int(moved)).stop(instance.name, force=True)
        assert rig.running_on() == []
