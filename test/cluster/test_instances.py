"""The life of instances, by the real commands on real daemons."""

from __future__ import annotations

import json
import os
import re
import shutil

import pytest
from fakes.virtual_cluster import TestCluster
from fakes.waiting import wait_until

from ganeti.bootstrap.virtual import lifecycle

HAS_QEMU = lifecycle.find_qemu() is not None
NEEDS_QEMU = pytest.mark.skipif(not HAS_QEMU, reason="no QEMU binary is installed")
HYPERVISORS = ["fake", pytest.param("kvm", marks=[NEEDS_QEMU, pytest.mark.qemu])]
NO_CHECKS = "--no-name-check --no-ip-check"


def add(cluster: TestCluster, name: str, words: str) -> None:
    """Create an instance of 32 MiB on the first node, if no other is named."""
    node = "" if " -n " in f" {words} " else "-n node1"
    cluster.gnt(f"instance add {NO_CHECKS} -B memory=32 {node} {words} {name}")


def nothing_left(cluster: TestCluster, name: str) -> None:
    """Check that no process and no disk of an instance is left anywhere."""
    assert not [found for found in cluster.processes() if f"={name}" in found.command]
    for node in cluster.nodes:
        for directory in ("/srv/ganeti/file-storage", "/var/run/ganeti/instance-disks"):
            left = [path for path in cluster.files_below(node, directory) if name in path]
            assert not left
    assert not os.path.exists(os.path.join(cluster.layout.shared_directory, name))


@pytest.mark.shows(
    "backend/overview/kvm", "2.0/background/mixed", "2.0/disks/no-lvm", "2.0/gnt-instance/add"
)
@pytest.mark.parametrize("hypervisor", HYPERVISORS)
@pytest.mark.parametrize("template", ["diskless", "file", "sharedfile"])
def test_life_of_an_instance(cluster: TestCluster, hypervisor: str, template: str) -> None:
    name = "life.example.com"
    disks = "" if template == "diskless" else "--disk 0:size=16 --disk 1:size=8,name=swap"
    add(cluster, name, f"-t {template} {disks} -H {hypervisor} -o bootsector+default")
    assert cluster.instance_field(name, "status,hypervisor,disk_template,pnode") == (
        f"running|{hypervisor}|{template}|node1.example.com"
    )
    cluster.gnt(f"instance reboot --shutdown-timeout=2 {name}")
    assert cluster.instance_field(name, "status") == "running"
    cluster.gnt(f"instance shutdown --timeout=2 {name}")
    assert cluster.instance_field(name, "status,oper_ram") == "ADMIN_down|-"
    cluster.gnt(f"instance startup {name}")
    info = cluster.gnt(f"instance info {name}").out
    assert "State: configured to be up, actual state is up" in info
    assert ("disk/1" in info) == (template != "diskless")
    cluster.gnt(f"instance remove -f --shutdown-timeout=2 {name}")
    assert name not in cluster.instance_names()
    nothing_left(cluster, name)


@pytest.mark.shows("backend/templates/sharedfile", "2.0/disks/any-node", "2.0/any-node/shared")
@pytest.mark.parametrize("hypervisor", HYPERVISORS)
def test_failover_and_migration_keep_one_copy(cluster: TestCluster, hypervisor: str) -> None:
    name = "moving.example.com"
    add(cluster, name, f"-t sharedfile --disk 0:size=16 -H {hypervisor} -o bootsector+default")
    cluster.gnt(f"instance migrate -f -n node2 {name}")
    assert cluster.instance_field(name, "pnode,status") == "node2.example.com|running"
    cluster.gnt(f"instance migrate -f --non-live -n node3 {name}")
    assert cluster.instance_field(name, "pnode,status") == "node3.example.com|running"
    cluster.gnt(f"instance failover -f --shutdown-timeout=5 -n node1 {name}")
    assert cluster.instance_field(name, "pnode,status") == "node1.example.com|running"
    guests = [found for found in cluster.processes() if f"-name {name} " in found.command]
    assert len(guests) == (1 if hypervisor == "kvm" else 0)


@pytest.mark.shows("backend/overview/live", "2.0/file-storage/live")
@NEEDS_QEMU
@pytest.mark.qemu
def test_live_migration_keeps_the_guest_running(cluster: TestCluster) -> None:
    name = "heart.example.com"
    add(cluster, name, "-t sharedfile --disk 0:size=16 -H kvm -o bootsector+default")

    def beats(node: str) -> list[int]:
        path = f"{cluster.paths_of(node).log_kvm_dir}/{name}.serial.log"
        try:
            with open(path, encoding="latin1") as file:
                return [int(found) for found in re.findall(r"beat (\d+)\s", file.read())]
        except FileNotFoundError:
            return []

    wait_until(lambda: len(beats(cluster.nodes[0])) >= 3, "the guest's heart beats")
    cluster.gnt(f"instance migrate -f -n node2 {name}")
    before = beats(cluster.nodes[0])
    wait_until(lambda: len(beats(cluster.nodes[1])) >= 3, "the heart beats on the other node")
    after = beats(cluster.nodes[1])
    # The counter goes on: the guest was not started anew.  Its first line may have been cut.
    assert after[-1] > before[-1] - 1
    assert min(after[1:]) >= before[-1] - 1


def test_hosts_and_disks_follow_an_instance_in_files_nowhere(cluster: TestCluster) -> None:
    name = "rooted.example.com"
    add(cluster, name, "-t file --disk 0:size=8 -H fake -o bootsector+default")
    cluster.refused(f"instance migrate -f -n node2 {name}", "file")
    assert cluster.instance_field(name, "pnode,status") == "node1.example.com|running"


def test_disks_are_activated_and_put_to_rest(cluster: TestCluster) -> None:
    name = "disks.example.com"
    add(cluster, name, "-t file --disk 0:size=8 -H fake -o bootsector+default --no-start")
    lines = cluster.gnt(f"instance activate-disks {name}").lines
    assert any(line.startswith("node1.example.com:disk/0:") for line in lines)
    cluster.gnt(f"instance deactivate-disks {name}")
    cluster.gnt(f"instance startup {name}")
    cluster.refused(f"instance deactivate-disks {name}", "running")


def test_tags_of_instances_select_them(cluster: TestCluster) -> None:
    for name in ("one.example.com", "two.example.com"):
        add(cluster, name, "-t diskless -H fake --no-install -o test --tags=web")
    assert cluster.gnt("instance list-tags one.example.com").lines == ["web"]
    cluster.gnt("instance shutdown --force-multiple --tags web")
    assert set(cluster.gnt("instance list --no-headers -o status").out.split()) == {"ADMIN_down"}
    outcome = cluster.gnt("instance startup one.example.com two.example.com")
    assert "Submitted jobs" in outcome.out
    assert set(cluster.gnt("instance list --no-headers -o status").out.split()) == {"running"}


@pytest.mark.shows("2.0/os/environment", "2.0/os-input/nic-count")
def test_operating_system_gets_its_environment(cluster: TestCluster) -> None:
    name = "env.example.com"
    add(cluster, name, "-t file --disk 0:size=8,mode=rw -H fake -o test --no-start")
    [disk] = [
        path
        for path in cluster.files_below(cluster.master, "/srv/ganeti/file-storage")
        if name in path
    ]
    with open(disk, "rb") as file:
        text = file.read(65536).rstrip(b"\0").decode()
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    assert values["INSTANCE_NAME"] == name
    assert values["OS_API_VERSION"] == "20"
    assert (values["OS_NAME"], values["OS_VARIANT"]) == ("test", "")
    assert (values["DISK_COUNT"], values["DISK_0_SIZE"]) == ("1", "8")
    assert values["DISK_0_ACCESS"] == "rw"
    assert values["HYPERVISOR"] == "fake"
    assert values["NIC_COUNT"] == "1"


def test_failed_creation_leaves_nothing(cluster: TestCluster) -> None:
    name = "broken.example.com"
    before = cluster.gnt("cluster info").out
    outcome = cluster.refused(
        f"instance add {NO_CHECKS} -t file --disk 0:size=8 -H fake -O fail=create -n node2"
        f" -o test {name}",
        "",
    )
    assert "create fails as it was told to" in outcome.err
    assert "node2.example.com" in outcome.err
    assert name not in cluster.instance_names()
    nothing_left(cluster, name)
    assert cluster.gnt("cluster info").out.count("\n") == before.count("\n")
    assert cluster.gnt("cluster verify").status == 0


@NEEDS_QEMU
@pytest.mark.qemu
def test_hypervisor_that_does_not_start_tells_its_own_words(cluster: TestCluster) -> None:
    name = "nostart.example.com"
    outcome = cluster.run(
        f"gnt-instance add {NO_CHECKS} -t diskless -o test --no-install -n node1"
        f" -H kvm:machine_version=commodore64 {name}"
    )
    assert outcome.status == 1, outcome
    assert "commodore64" in outcome.err
    nothing_left(cluster, name)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("-t file --disk 0:size=8 -o test -n node9", "node9"),
        ("-t file --disk 0:size=8 -o nosuchos -n node1", "nosuchos"),
        ("-t file --disk 0:size=0 -o test -n node1", "size"),
        ("-t file --disk 0:size=9999t -o test -n node1", ""),
        ("-t drbd --disk 0:size=8 -o test -n node1:node2", "drbd"),
        ("-t diskless -H xen-pvm -o test -n node1", "xen-pvm"),
        ("-t diskless -H fake:nonsense=1 -o test -n node1", "nonsense"),
        ("-t diskless -B vcpus=0 -o test -n node1", "vcpus"),
        ("-t diskless -B memory=99t -o test -n node1", ""),
        ("-t diskless --net 0:mac=zz -o test -n node1", "MAC address"),
        ("-t diskless --net 0:ip=1.2.3 -o test -n node1", "1.2.3"),
        ("-t diskless -o test -n node1 --net 1:mac=auto", "0 is missing"),
        ("-t diskless -o test -I nobody", "allocator 'nobody'"),
    ],
)
def test_wrong_creations_are_refused_with_a_reason(
    cluster: TestCluster, words: str, text: str
) -> None:
    cluster.refused(f"instance add {NO_CHECKS} {words} wrong.example.com", text)
    assert cluster.instance_names() == []


def test_name_that_does_not_resolve_or_is_taken(cluster: TestCluster) -> None:
    cluster.refused(
        "instance add -t diskless -H fake --no-install -o test -n node1 nowhere.example.com",
        "nowhere.example.com",
    )
    add(cluster, "taken.example.com", "-t diskless -H fake --no-install -o test")
    cluster.refused(
        f"instance add {NO_CHECKS} -t diskless -H fake --no-install -o test -n node1"
        " taken.example.com",
        "taken.example.com",
    )
    long = "x" * 300
    cluster.refused(
        f"instance add {NO_CHECKS} -t diskless -H fake --no-install -o test -n node1 {long}", ""
    )


@pytest.mark.shows("backend/locks/instance-made", "2.0/add-remove/added")
def test_name_can_be_used_again_as_soon_as_its_instance_is_gone(cluster: TestCluster) -> None:
    """A creation that waits for a removal of that name goes on after it."""
    name, words = "again.example.com", f"{NO_CHECKS} -t diskless -H fake -o test -n node1"
    add(cluster, name, "-t diskless -H fake -o test")
    hooks = f"{cluster.paths.hooks_dir}/instance-remove-pre.d"
    os.makedirs(hooks)
    waiting, go_on = f"{hooks}/waiting.txt", f"{hooks}/go-on.txt"
    with open(f"{hooks}/wait", "w", encoding="ascii") as file:
        file.write(f"#!/bin/sh\ntouch {waiting}\nuntil [ -e {go_on} ]; do sleep 0.05; done\n")
    os.chmod(file.name, 0o755)
    try:
        removal = cluster.submit(f"instance remove -f {name}")
        wait_until(lambda: os.path.exists(waiting), "the removal runs its hook")
        creation = cluster.submit(f"instance add {words} {name}")
        wait_until(lambda: cluster.job_status(creation) == "waiting", "the creation waits")
    finally:
        with open(go_on, "w", encoding="ascii"):
            pass
        cluster.run(f"gnt-job wait {removal}")
        cluster.run(f"gnt-job wait {creation}")
        shutil.rmtree(hooks)
    assert cluster.job_status(removal) == cluster.job_status(creation) == "success"
    assert cluster.instance_names() == [name]


def test_unknown_instances_are_named(cluster: TestCluster) -> None:
    for command in ("startup", "shutdown", "reboot", "info", "console", "remove -f", "migrate -f"):
        cluster.refused(f"instance {command} ghost.example.com", "ghost.example.com")


@pytest.mark.shows("2.1/allocator-dry/simulated")
def test_dry_run_changes_nothing(cluster: TestCluster) -> None:
    cluster.gnt(
        f"instance add --dry-run {NO_CHECKS} -t file --disk 0:size=8 -H fake -o test -n node1 dry"
    )
    assert cluster.instance_names() == []
    nothing_left(cluster, "dry")


@pytest.mark.shows("backend/noded/stopped", "2.12/noded/restart-noded")
def test_guests_are_not_harmed_by_restarts_of_the_node_daemon(cluster: TestCluster) -> None:
    hypervisor = "kvm" if HAS_QEMU else "fake"
    name = "survivor.example.com"
    add(cluster, name, f"-t file --disk 0:size=16 -H {hypervisor} -o bootsector+default")
    guests = [found.pid for found in cluster.processes() if f"-name {name} " in found.command]
    lifecycle.daemon_control.stop_daemon(cluster.paths, "ganeti-noded")
    assert cluster.instance_field(name, "status") == "ERROR_nodedown"
    lifecycle.start(cluster.layout, lambda _text: None)
    assert cluster.instance_field(name, "status") == "running"
    assert guests == [
        found.pid for found in cluster.processes() if f"-name {name} " in found.command
    ]


@pytest.mark.shows("2.1/variants/listed")
def test_operating_system_that_is_missing_on_one_node_is_not_offered(cluster: TestCluster) -> None:
    place = f"{cluster.paths_of('node3.example.com').os_search_path[0]}/test"
    os.rename(place, place + ".away")
    try:
        assert "test" not in cluster.gnt("os list").lines
    finally:
        shutil.move(place + ".away", place)
    assert "test" in cluster.gnt("os list").lines


@pytest.mark.shows(
    "backend/instance/changed-instance", "2.0/gnt-instance/modify", "2.0/modify-hypervisor/modify"
)
def test_parameters_and_names_change(cluster: TestCluster) -> None:
    name = "changing.example.com"
    add(cluster, name, "-t file --disk 0:size=8 -H fake -o test --no-start")
    outcome = cluster.gnt(f"instance modify -B maxmem=64,vcpus=2 {name}")
    assert "next start" not in outcome.out
    assert "be/vcpus" in outcome.out
    assert cluster.instance_field(name, "be/maxmem,be/vcpus") == "64|2"
    cluster.gnt(f"instance modify -B -vcpus {name}")
    assert cluster.instance_field(name, "be/vcpus") == "1"
    cluster.refused(f"instance modify {name}", "nothing to change")
    cluster.refused(f"instance modify -B colour=red {name}", "colour")
    cluster.gnt(f"instance startup {name}")
    outcome = cluster.gnt(f"instance modify -B maxmem=65,auto_balance=no {name}")
    assert "the next start of the instance" in outcome.out
    assert outcome.lines[-1].endswith("restarts by itself: be/maxmem")
    cluster.gnt(f"instance shutdown {name}")
    cluster.gnt(f"instance reinstall -f -o bootsector+default {name}")
    assert cluster.instance_field(name, "os") == "bootsector+default"
    cluster.gnt(f"instance rename -f --no-name-check {name} changed.example.com")
    assert cluster.instance_names() == ["changed.example.com"]
    nothing_left(cluster, name)
    cluster.gnt("instance startup changed.example.com")


@pytest.mark.parametrize(
    "opcode", [{"OP_ID": "OP_TEST_DUMMY", "result": 1, "messages": [], "fail": False}]
)
def test_unbuilt_operations_say_so_and_name_themselves(
    cluster: TestCluster, opcode: dict[str, object], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("op") / "op.json"
    path.write_text(json.dumps(opcode))
    outcome = cluster.run(["gnt-debug", "submit-job", str(path)])
    assert outcome.status == 1
    assert str(opcode["OP_ID"]) in outcome.err
    assert "not supported" in outcome.err


@pytest.mark.shows("2.12/aims/special-instance")
def test_a_planned_instance_is_made_as_it_was_planned(cluster: TestCluster) -> None:
    name, fields = "planned.example.com", "uuid,pnode,disk.sizes,nic.mac/0,be/maxmem"
    settings = "-t file --disk 0:size=16 --disk 1:size=8,name=swap -H fake -o bootsector+default"
    settings += " --tags planned"
    add(cluster, name, f"--forthcoming {settings} -n node2")
    planned = cluster.instance_field(name, fields)
    assert cluster.instance_field(name, "forthcoming,status") == "Y|ADMIN_down"
    nothing_left(cluster, name)
    cluster.gnt("cluster verify")
    cluster.refused(f"instance startup {name}", f"gnt-instance add --commit {name}")
    cluster.refused("instance startup --tags planned", "the selection holds no instances")

    cluster.gnt(f"instance add --commit {name}")
    assert cluster.instance_field(name, fields) == planned
    assert cluster.instance_field(name, "forthcoming,status") == "N|running"
    cluster.gnt("cluster verify")
    cluster.refused(f"instance add --commit {name}", "made already")
    cluster.gnt(f"instance remove -f --shutdown-timeout=1 {name}")
    nothing_left(cluster, name)
