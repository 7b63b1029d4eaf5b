"""Instances of Xen in a cluster, with a played xl on each node: their whole life by commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import xl_program
from fakes.virtual_cluster import TestCluster, own_cluster

NAME, OTHER = "web1.example.com", "win1.example.com"
ADD = "instance add --no-name-check --no-ip-check --no-nics -o test --no-install"


@pytest.fixture(scope="module")
def xen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", xl_program.install(tmp_path_factory.mktemp("xl")))
        with own_cluster(2, hypervisor="xen-pvm") as cluster:
            xl_program.prepare([cluster.paths_of(node).root for node in cluster.nodes])
            cluster.gnt("cluster modify --enabled-hypervisors=xen-pvm,xen-hvm,fake")
            yield cluster


@pytest.fixture(autouse=True)
def _left_as_found(xen: TestCluster) -> Iterator[None]:
    yield
    xen.tidy_up()


def domains(cluster: TestCluster, node: str) -> list[str]:
    with xl_program.domains(Path(cluster.paths_of(node).root)) as found:
        return sorted(found)


def add(cluster: TestCluster, words: str) -> None:
    """Make an instance on the first node and start it."""
    cluster.gnt(f"{ADD} -n {cluster.nodes[0]} {words}")
    cluster.gnt(f"instance startup {words.split()[-1]}")


@pytest.mark.shows("backend/overview/xen")
def test_the_life_of_a_paravirtual_guest(xen: TestCluster) -> None:
    first, second = xen.nodes
    add(xen, f"-t diskless -B maxmem=128,minmem=64,vcpus=2 -H xen-pvm:cpu_weight=512 {NAME}")
    assert domains(xen, first) == [NAME]
    assert xen.instance_field(NAME, "status,oper_ram,oper_vcpus") == "running|128|2"
    text = Path(xen.paths_of(first).xen_config_dir, NAME).read_text()
    assert "cpu_weight = 512" in text
    xen.gnt(f"instance reboot {NAME}")
    xen.gnt(f"instance modify -m 96 {NAME}")
    assert xen.instance_field(NAME, "oper_ram") == "96"
    console = xen.gnt(f"instance console --show-cmd {NAME}").out
    assert f"xl console {NAME}" in console
    xen.gnt(f"instance shutdown {NAME}")
    assert domains(xen, first) == []
    assert xen.instance_field(NAME, "status") == "ADMIN_down"
    xen.gnt(f"instance startup {NAME}")
    xen.gnt(f"instance remove -f {NAME}")
    assert domains(xen, first) == domains(xen, second) == []
    assert xen.gnt("node list --no-headers --separator=| -o mtotal").lines == ["16384"] * 2


def test_a_full_machine_has_a_screen_beside_its_serial_console(xen: TestCluster) -> None:
    first, _second = xen.nodes
    add(xen, f"-t diskless -B memory=128 -H xen-hvm:boot_order=c {OTHER}")
    port = xen.instance_field(OTHER, "network_port")
    assert f":{port}" in xen.gnt(f"instance console {OTHER}").out
    assert domains(xen, first) == [OTHER]
    xen.gnt(f"instance remove -f {OTHER}")


@pytest.mark.parametrize("way", ["", "--non-live "])
def test_it_moves_while_it_runs(xen: TestCluster, way: str) -> None:
    first, second = xen.nodes
    add(xen, f"-t sharedfile --disk 0:size=16 -B memory=64 -H xen-pvm {NAME}")
    xen.gnt(f"instance migrate -f {way}-n {second} {NAME}")
    assert [domains(xen, node) for node in xen.nodes] == [[], [NAME]]
    assert xen.instance_field(NAME, "pnode,status") == f"{second}|running"
    assert not Path(xen.paths_of(first).xen_config_dir, NAME).exists()
    xen.gnt(f"instance modify -H kernel_args=moves=never {NAME}")
    xen.gnt(f"instance reboot -t full {NAME}")
    if not way:
        xen.refused(f"instance migrate -f -n {first} {NAME}", "resuming at sender")
    assert [domains(xen, node) for node in xen.nodes] == [[], [NAME]]
    xen.gnt(f"instance failover -f -n {first} {NAME}")
    assert [domains(xen, node) for node in xen.nodes] == [[NAME], []]
    xen.gnt(f"instance remove -f {NAME}")
