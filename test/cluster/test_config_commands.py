"""Commands about configuration and locks: verify, change, show, send; the manual that explains them."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.failing_cluster import FailingCluster, failing_cluster
from fakes.waiting import wait_until

from ganeti.base import json
from ganeti.store import ssconf
from ganeti.system import daemon_control, files, process

CHECKOUT = Path(__file__).resolve().parents[2]
NODED, WCONFD = "ganeti-noded", "ganeti-wconfd"
Wire = dict[str, Any]


@pytest.fixture(scope="module")
def own() -> Iterator[FailingCluster]:
    """Three nodes; tests undo what others could stumble over."""
    with failing_cluster(3) as made:
        yield made


def config_of(cluster: FailingCluster, node: str | None = None) -> Any:
    """Return the configuration as a node has it on its disk."""
    return json.loads(files.read_bytes(cluster.paths_of(node or cluster.master).config_data))


def info(cluster: FailingCluster) -> list[str]:
    return [line.strip() for line in cluster.gnt("cluster info").lines]


def modify(cluster: FailingCluster, *options: str) -> str:
    return cluster.gnt(["cluster", "modify", *options]).out


# verify-config.


def damage(config: Wire) -> None:
    """Bring in at least one error of each kind that a human hand makes."""
    nodes = sorted(config["nodes"].values(), key=lambda node: node["name"])
    nodes[2] |= {"group": "gone", "secondary_ip": nodes[1]["primary_ip"], "master_candidate": False}
    one, two = sorted(config["instances"].values(), key=lambda instance: instance["name"])
    two["nics"][0]["mac"] = one["nics"][0]["mac"]
    two |= {"network_port": 11111, "beparams": {"vcpus": "many"}, "disks": ["nowhere"]}
    one["network_port"] = 11111
    config["cluster"]["ipolicy"]["std"]["cpu-count"] = 99
    config["networks"]["net-1"] = {
        "name": "net1",
        "network": "10.9.0.0/28",
        "reservations": "0010000000000000",
        "ext_reservations": "1000000000000001",
        "uuid": "net-1",
        "serial_no": 1,
        "tags": [],
    }


def replace_config(cluster: FailingCluster, config: Wire, *options: str) -> None:
    """Put another configuration in place, as an administrator with an editor does."""
    daemon_control.stop_daemon(cluster.paths, WCONFD)
    files.write_durable(cluster.paths.config_data, json.dumps(config), 0o640)
    daemon_control.start_daemon(cluster.paths, WCONFD, options, hostname=cluster.master)


def test_a_sound_configuration_is_said_to_be_so(own: FailingCluster) -> None:
    outcome = own.gnt("cluster verify-config")
    assert outcome.lines[-1] == "The configuration has no errors."
    assert "ERROR" not in outcome.out


def test_errors_are_named_with_their_objects_and_new_ones_refused(own: FailingCluster) -> None:
    for name in ("bad1.example.com", "bad2.example.com"):
        own.gnt(
            "instance add -t diskless -H fake -o test+default --no-install --no-start"
            f" --no-name-check --no-ip-check -n node1 {name}"
        )
    good = config_of(own)
    bad = config_of(own)
    damage(bad)
    replace_config(own, bad, "--changes-without-owner")
    try:
        outcome = own.run("gnt-cluster verify-config")
        assert outcome.status == 1
        for text in (
            "too few master candidates: 2, wanted are 3",
            "node 'node3.example.com': its group gone does not exist",
            "node 'node3.example.com': address",
            "instance 'bad2.example.com': MAC address",
            "instance 'bad1.example.com': port 11111 is used by instance bad2.example.com",
            "instance 'bad2.example.com': backend parameter 'vcpus': expected an integer",
            "instance 'bad2.example.com': its disk nowhere does not exist",
            "instance policy: std (",
            "network 'net1': address 10.9.0.2 is marked as used",
        ):
            assert text in outcome.out, outcome
        assert "The configuration has errors" in outcome.err
        softened = "-I ECLUSTERCFG -I ECLUSTERDANGLINGNODES"
        assert own.gnt(f"cluster verify-config {softened}").status == 0
        assert own.run("gnt-cluster verify").status == 1
        _check_refusals(own)
        modify(own, "--max-running-jobs=17")  # what is wrong elsewhere keeps nobody from it
    finally:
        replace_config(own, good | {"serial_no": config_of(own)["serial_no"] + 1})
    assert own.gnt("cluster verify-config").status == 0
    for name in ("bad1.example.com", "bad2.example.com"):
        own.gnt(f"instance remove -f {name}")


def _check_refusals(own: FailingCluster) -> None:
    """No client gets an error in, whatever it is and whatever is wrong already."""
    before = config_of(own)
    by_name = {node["name"]: node for node in before["nodes"].values()}
    node = by_name["node2.example.com"]
    address = by_name["node1.example.com"]["primary_ip"]
    cluster = before["cluster"]
    for method, wire, text in (
        ("updateNode", node | {"primary_ip": address}, f"address {address} is used by node node1"),
        ("updateNode", node | {"group": "x"}, "its group x does not exist"),
        ("updateNode", node | {"offline": True, "drained": True}, "offline and drained at once"),
        ("updateNode", node | {"name": "node1.example.com"}, "name node1.example.com is used"),
        ("updateNode", node | {"offline": "perhaps"}, "offline"),
        ("updateCluster", cluster | {"mac_prefix": "zz"}, "'zz' is not a MAC prefix"),
        ("updateCluster", cluster | {"uid_pool": [[9, 1]]}, "9-1 is upside down"),
        ("updateCluster", cluster | {"master_node": "x"}, "master node x does not exist"),
    ):
        outcome = own.run(["gnt-debug", "wconfd", method, json.dumps(wire).decode()])
        assert outcome.status != 0, outcome
        assert text in outcome.err, outcome
    assert config_of(own) == before


# modify and info.


@pytest.mark.shows(
    "2.0/gnt-cluster/modify", "2.0/gnt-cluster/bridge", "2.0/hypervisor-defaults/form"
)
@pytest.mark.parametrize(
    ("options", "lines"),
    [
        (["-B", "memory=256,vcpus=2"], ["maxmem: 256", "minmem: 256", "vcpus: 2"]),
        (["-H", "fake:migration_mode=non-live"], ["migration_mode: non-live"]),
        (["-N", "link=br7"], ["link: br7"]),
        (["-D", "rbd:pool=swim,access=userspace"], ["pool: swim", "access: userspace"]),
        (["--node-parameters=spindle_count=3,ssh_port=2222"], ["spindle_count: 3"]),
        (["--max-running-jobs=30", "--max-tracked-jobs=40"],
         ["maximal number of jobs running simultaneously: 30"]),
        (["--reserved-lvs=a.*,vg/b"], ["lvm reserved volumes: a.*, vg/b"]),
        (["--reserved-lvs="], ["lvm reserved volumes: (none)"]),
        (["--file-storage-dir=/srv/ganeti//other/"], ["file storage path: /srv/ganeti/other"]),
        (["--file-storage-dir=/srv/ganeti/file-storage"],
         ["file storage path: /srv/ganeti/file-storage"]),
        (["--default-iallocator=", "--default-iallocator-params=a=1,b=x"],
         ["default instance allocator:", "a: 1", "b: x"]),
        (["-m", "AA:BB:CC"], ["mac prefix: aa:bb:cc"]),
        (["--master-netmask=24", "--master-netdev=eth7"],
         ["master netmask: 24", "master netdev: eth7"]),
        (["--compression-tools=gzip,xz"], ["compression tools:", "- gzip", "- xz"]),
        (["--enabled-data-collectors=lv=no", "--data-collector-interval=diskstats=2.5"],
         ["interval: 2.500s", "active: False"]),
        (["--user-shutdown=yes", "--prealloc-wipe-disks=yes", "--maintain-node-health=yes"],
         ["enabled user shutdown: True", "preallocation wipe disks: True"]),
        (["--modify-etc-hosts=yes"], ["Modify /etc/hosts: True"]),
        (["--modify-etc-hosts=no", "--use-external-mip-script=no"], ["Modify /etc/hosts: False"]),
        (["--hypervisor-state=fake:cpu_total=4"], ["cpu_total: 4"]),
        (["--disk-state=plain/vg:disk_total=10"], ["disk_total: 10"]),
        (["--ipolicy-std-specs=memory-size=1g", "--ipolicy-vcpu-ratio=2.5"],
         ["memory-size: 1024", "vcpu-ratio: 2.5"]),
        (["--enabled-disk-templates=file,diskless", "--ipolicy-disk-templates=file,diskless"],
         ["enabled disk templates: file, diskless"]),
        (["--install-image=/srv/i.img", "--zeroing-image=http://images.example.com/z"],
         ["install image: /srv/i.img", "zeroing image: http://images.example.com/z"]),
        (["--install-image=", "--zeroing-image="], ["install image:", "zeroing image:"]),
        (["--enabled-disk-templates=file,sharedfile,diskless"],
         ["enabled disk templates: file, sharedfile, diskless"]),
    ],
)  # fmt: skip
def test_settings_are_changed_and_shown(
    own: FailingCluster, options: list[str], lines: list[str]
) -> None:
    modify(own, *options)
    shown = info(own)
    assert [line for line in lines if line not in shown] == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("--vg-name=a/b", "'a/b' cannot be the name of a volume group"),
        ("--drbd-usermode-helper=true", "'true' is not an absolute path"),
        ("--zeroing-image=x", "'x' is neither an absolute path nor a URL"),
        ("--instance-communication-network=a/b", "cannot be the name of a network"),
        ("--enabled-hypervisors=nonsense", "enabled_hypervisors"),
        ("--enabled-disk-templates=file", "instance policy of the cluster allows"),
        ("-H fake:migration_mode=x", "migration_mode"),
        ("-H fake:colour=red", "unknown fake hypervisor parameter 'colour'"),
        ("-B minmem=4096", "larger than maxmem"),
        ("-N mode=pool", "is not one of bridged"),
        ("-N link=", "mode bridged needs a link"),
        ("-D ext:access=x", "one of kernelspace, userspace"),
        ("--node-parameters=ssh_port=0", "ssh_port"),
        ("--ipolicy-std-specs=cpu-count=99", "lies outside all limits"),
        ("--ipolicy-std-specs=wheels=4", "unknown specification of std 'wheels'"),
        ("--ipolicy-bounds-specs=min:cpu-count=1/max:cpu-count=2", "missing"),
        ("--ipolicy-vcpu-ratio=none", "no default to go back to"),
        ("-C 0", "candidate_pool_size"),
        ("--uid-pool=9-1", "upside down"),
        ("--remove-uids=77", "not in the pool: 77"),
        ("-m zz:00:00", "not a MAC prefix"),
        ("--master-netmask=33", "from 1 to 32"),
        ("--master-netdev=a/b", "not the name of a network device"),
        ("--compression-tools=xz", "gzip must be among them"),
        ("--enabled-data-collectors=lv=perhaps", "neither yes nor no"),
        ("--enabled-data-collectors=nix=yes", "unknown data collector 'nix'"),
        ("--data-collector-interval=lv=0", "above zero"),
        ("--default-iallocator=nix", "no allocator 'nix'"),
        ("--install-image=ftp:image", "'ftp:image' is neither an absolute path nor a URL"),
        ("--reserved-lvs=a(", "not a regular expression"),
        ("--file-storage-dir=", "needs a directory"),
    ],
)
def test_wrong_settings_change_nothing(own: FailingCluster, options: str, text: str) -> None:
    before = config_of(own)
    command = f"cluster modify --max-running-jobs=5 {options}"
    own.refused(command, text)
    assert config_of(own) == before


def test_a_dry_run_checks_and_changes_nothing(own: FailingCluster) -> None:
    before = config_of(own)
    modify(own, "--dry-run", "--max-running-jobs=5")
    own.refused("cluster modify --dry-run -m zz", "not a MAC prefix")
    assert config_of(own) == before


@pytest.mark.shows(
    "2.1/uid-storage/ssconf",
    "2.1/uid-change/replace",
    "2.1/uid-change/add-remove",
    "2.1/uid-change/distributed",
    "2.1/uid-info/info",
)
def test_the_pool_of_user_ids_is_on_every_node(own: FailingCluster) -> None:
    modify(own, "--uid-pool=1000-1010", "--add-uids=2000,1005-1020")
    modify(own, "--remove-uids=1003")
    assert "uid pool: 1000-1002,1004-1020,2000" in info(own)
    for node in own.nodes:
        wait_until(
            lambda node=node: (
                ssconf.read_key(own.paths_of(node), "uid_pool")  # type: ignore[misc]
                == "1000-1002\n1004-1020\n2000"
            ),
            f"the pool on {node}",
        )
    modify(own, "--uid-pool=")
    assert "uid pool:" in info(own)


def test_nodes_are_asked_whether_they_allow_a_directory(own: FailingCluster) -> None:
    said = modify(own, "--file-storage-dir=/srv/ganeti/forbidden")
    for node in own.nodes:
        assert f"node {node}: path /srv/ganeti/forbidden is not an allowed" in said
    assert "WARNING" not in modify(own, "--file-storage-dir=/srv/ganeti/file-storage")


def test_what_instances_use_stays_enabled(own: FailingCluster) -> None:
    own.gnt(
        "instance add -t diskless -H fake -o test+default --no-install --no-start --no-name-check"
        " --no-ip-check -n node1 uses.example.com"
    )
    own.refused("cluster modify --enabled-hypervisors=kvm", "use them: uses.example.com")
    own.refused(
        "cluster modify --enabled-disk-templates=file --ipolicy-disk-templates=file",
        "use them: uses.example.com",
    )
    own.refused("cluster modify -N mode=routed", "uses.example.com: nic/0 has no IP address")
    bounds = "min:memory-size=1g,disk-size=0,disk-count=0,cpu-count=1,nic-count=0,spindle-use=0"
    bounds += "/max:memory-size=32g,disk-size=1t,disk-count=9,cpu-count=8,nic-count=8,spindle-use=9"
    said = modify(own, f"--ipolicy-bounds-specs={bounds}", "--ipolicy-std-specs=memory-size=2g")
    assert "these instances violate it: uses.example.com" in said
    own.gnt("instance remove -f uses.example.com")


@pytest.mark.shows("2.0/gnt-cluster/disksize")
def test_the_policy_is_shown_as_the_command_that_makes_it(own: FailingCluster) -> None:
    words = shlex.split(own.gnt("cluster show-ispecs-cmd").out)
    assert words[:2] == ["gnt-cluster", "init"]
    assert words[-1] == "cluster.example.com"
    before = config_of(own)["cluster"]["ipolicy"]
    modify(own, *words[2:-1])
    assert config_of(own)["cluster"]["ipolicy"] == before
    assert own.gnt("group show-ispecs-cmd").out.strip() == "gnt-group add default"
    assert "--ipolicy-bounds-specs" in own.gnt("group show-ispecs-cmd --include-defaults").out


@pytest.mark.shows("backend/roles/pool-kept", "2.0/candidate/pool-size")
def test_the_candidate_pool_follows_its_size(own: FailingCluster) -> None:
    def candidates() -> list[str]:
        return own.gnt("node list --no-headers -o name -F master_candidate").out.split()

    said = modify(own, "-C", "2")
    assert "demoted node node3.example.com" in said
    assert candidates() == list(own.nodes[:2])
    assert not os.path.exists(own.paths_of(own.nodes[2]).config_data)
    files.write_durable(own.paths.rapi_users, b"joe secret write\n", 0o640)
    said = modify(own, "-C", "9")
    assert "promoted nodes to master candidate role: node3.example.com" in said
    assert "is to have 9 nodes, but only 3 can be" in said
    assert candidates() == list(own.nodes)
    assert files.read_bytes(own.paths_of(own.nodes[2]).rapi_users) == b"joe secret write\n"
    own.gnt("cluster redist-conf")
    assert own.gnt("cluster verify-config").status == 0
    assert own.gnt("cluster verify").status == 0


def test_operating_systems_are_hidden_and_given_parameters(own: FailingCluster) -> None:
    own.gnt("os modify --hidden=yes --blacklisted=yes -H kvm:acpi=no gone+x")
    shown = info(own)
    assert "Hidden OSes: gone+x" in shown
    assert "Blacklisted OSes: gone+x" in shown
    assert "gone+x:" in shown
    own.refused("os modify -H fake:migration_mode=live gone+x", "whole cluster")
    own.refused("os modify gone+x", "nothing to change")
    own.refused("os modify -H kvm gone+x", "nothing to change")
    own.gnt("os modify --hidden=no --blacklisted=no -H kvm:-acpi gone+x")
    assert "gone+x" not in own.gnt("cluster info").out


def test_an_image_that_is_not_there_is_told_before_anything_is_made(own: FailingCluster) -> None:
    before = config_of(own)
    add = (
        "instance add -t file --disk 0:size=4 -H fake -o bootsector+default -n node2 --no-name-check"
        " --no-ip-check --ignore-ipolicy -O os-image="
    )
    own.refused(f"{add}/none.img web.example.com", "os-image: there is no file /none.img")
    own.refused(f"{add}http:/x web.example.com", "neither an absolute path nor a URL")
    after = config_of(own)
    assert (after["instances"], after["disks"]) == (before["instances"], before["disks"])


def test_a_network_for_communication_with_instances(own: FailingCluster) -> None:
    modify(own, "--instance-communication-network=talk")
    assert "instance communication network: talk" in info(own)
    shown = own.gnt("network list --no-headers --separator=: -o name,network,mac_prefix,group_list")
    assert shown.lines == ["talk:169.254.0.0/16:52:54:00:default (routed, communication_rt, )"]
    own.gnt("group add far")
    assert "far (mode:routed link:communication_rt" in own.gnt("network info talk").out
    own.refused("network remove talk", "connected to node group(s) default, far")
    modify(own, "--instance-communication-network=")
    assert "instance communication network:" in info(own)
    own.gnt("network remove talk")
    own.gnt("group remove far")


def test_numbers_can_be_roman(own: FailingCluster) -> None:
    assert "candidate pool size: IX" in own.gnt("cluster info --roman").out


# redist-conf.


@pytest.mark.shows("2.1/redist/configuration")
def test_everything_is_sent_to_everybody_again(own: FailingCluster) -> None:
    script = own.paths.localize("/etc/ganeti/kvm-vif-bridge")
    files.write_durable(script, b"#!/bin/sh\n", 0o755)
    no_kernel = "-Hkvm:kernel_path=,initrd_path=,root_path="  # or verify misses the usual one
    modify(own, "--enabled-hypervisors=fake,kvm", no_kernel, "--force")
    two, three = (own.paths_of(node) for node in own.nodes[1:])
    os.remove(two.ssconf_file("master_node"))
    os.remove(two.hmac_key)
    os.remove(three.config_data)
    motd = own.paths.localize("/etc/motd")
    files.write_durable(motd, b"hello\n", 0o600)
    files.write_durable(own.paths.distributed_files_list, b"/etc/motd\n", 0o644)
    files.write_durable(two.accepted_files_list, b"/etc/motd\n", 0o644)
    said = own.gnt("cluster redist-conf").out
    assert "to 1 of 2 node(s)" in said
    assert "cannot send file /etc/motd to node" in said
    assert "can list it in /etc/ganeti/accepted-files there" in said
    assert files.read_bytes(two.localize("/etc/motd")) == b"hello\n"
    assert not os.path.exists(three.localize("/etc/motd"))
    assert "/etc/motd" in own.run(["gnt-cluster", "verify"]).out
    os.remove(own.paths.distributed_files_list)
    own.gnt("cluster redist-conf")
    assert ssconf.master_node(two) == own.master
    assert files.read_bytes(two.hmac_key) == files.read_bytes(own.paths.hmac_key)
    assert files.read_bytes(three.config_data) == files.read_bytes(own.paths.config_data)
    for paths in (two, three):
        assert os.access(paths.localize("/etc/ganeti/kvm-vif-bridge"), os.X_OK)
    own.gnt("cluster queue drain")
    own.refused("cluster redist-conf", "drained")
    own.gnt("cluster redist-conf --yes-do-it")
    own.gnt("cluster queue undrain")


def test_nodes_that_do_not_take_it_are_named(own: FailingCluster) -> None:
    node = own.nodes[2]
    daemon_control.stop_daemon(own.paths_of(node), NODED)
    try:
        said = own.gnt("cluster redist-conf").out
        assert f"cannot send the configuration to node {node}" in said
        assert "to 1 of 2 node(s)" in said
        assert f"cannot send file {own.paths.globalize(own.paths.hmac_key)} to node {node}" in said
    finally:
        daemon_control.start_daemon(own.paths_of(node), NODED, hostname=node)
    assert "cannot" not in own.gnt("cluster redist-conf").out


@pytest.mark.shows("2.1/redist/compared")
def test_files_that_differ_are_found_by_verify(own: FailingCluster) -> None:
    files.write_durable(own.paths_of(own.nodes[1]).known_hosts, b"other\n", 0o644)
    outcome = own.run("gnt-cluster verify")
    assert outcome.status == 1
    assert "node node2.example.com: file /var/lib/ganeti/known_hosts differs" in outcome.out
    own.gnt("cluster redist-conf")
    assert own.gnt("cluster verify").status == 0


# Small commands.


def test_small_commands(own: FailingCluster) -> None:
    assert own.gnt("cluster getmaster").out.strip() == own.master
    assert own.gnt("cluster master-ping").out == ""
    assert "Configuration format: 3000000" in own.gnt("cluster version").out
    assert own.gnt("cluster queue info").out == "The drain flag is unset\n"
    assert own.run("gnt-cluster master-ping", node=own.nodes[1]).status == 11


# Locks.


def test_locks_show_owners_waiters_and_priorities(own: FailingCluster) -> None:
    holder = own.submit("debug delay -n node2 3600")
    uuid = own.gnt("node list --no-headers -o uuid node2").out.strip()
    lock = f"node/{uuid}"
    wait_until(lambda: own.job_status(holder) == "running", "the first job")
    waiter = own.submit("debug delay --priority=high -n node2 0")
    wait_until(lambda: own.job_status(waiter) == "waiting", "the second job")

    def rows(*options: str) -> list[list[str]]:
        command = ["debug", "locks", "--no-headers", "--separator=|", *options]
        return [line.split("|") for line in own.gnt(command).lines]

    def priorities() -> list[str]:
        [found] = [row[1] for row in rows("-o", "name,priorities") if row[0] == lock]
        return found.split(",")

    wait_until(
        lambda: (
            [lock, "exclusive", f"job{holder}", f"exclusive:job{waiter}"]
            in [row[:4] for row in rows()]
        ),
        "both jobs in the list of locks",
    )
    assert f"job{waiter}:high" in priorities()
    assert [lock] in rows("-o", "name")
    assert own.gnt(["debug", "wconfd", "listlocks", str(holder)]).lines[-1] == f"{lock}: exclusive"
    said = own.gnt("debug wconfd listlocks " + str(waiter)).out
    assert said == f"Job {waiter} holds no locks; it waits for some.\n"
    status = own.gnt("debug wconfd listlockswaitingstatus").out
    assert f"{lock}: job {holder} (exclusive)" in status
    assert f"job {waiter} waits with priority" in status
    assert lock in own.gnt("debug wconfd listalllocks").lines
    own.run(["gnt-job", "cancel", "--kill", "--yes-do-it", str(holder)])
    own.run(["gnt-job", "wait", str(waiter)])
    wait_until(lambda: rows() == [], "all locks to be free")


@pytest.mark.shows("2.12/wconfd/protocol", "2.12/wconfd-details/one-socket")
def test_the_configuration_daemon_is_talked_to(own: FailingCluster) -> None:
    assert own.gnt("debug wconfd echo hello there").out == "hello there\n"
    own.gnt("debug wconfd cleanuplocks")
    own.gnt("debug wconfd flushconfig")
    serial, _ = json.loads(own.gnt("debug wconfd getSerial").out.encode())  # type: ignore[misc]
    assert serial == config_of(own)["serial_no"]
    own.refused("debug wconfd nonsense", "unknown method")
    own.refused("debug wconfd echo", "", status=0)
    assert own.run("gnt-debug wconfd echo x", node=own.nodes[1]).status == 11


# The manual.


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff renders the pages")
def test_manual_pages_are_made_and_rendered_without_warnings(tmp_path: Path) -> None:
    environment = dict(os.environ)
    made = process.run(
        [str(CHECKOUT / "tools/make-docs"), str(tmp_path)], timeout_s=60.0, env=environment
    )
    assert made.status == 0, made
    pages = sorted(str(page) for page in (tmp_path / "man").iterdir())
    assert str(tmp_path / "man/ganeti-wconfd.8") in pages
    for width in ("60n", "78n"):
        argv = ["groff", "-ww", "-mandoc", "-Tutf8", f"-rLL={width}", *pages]
        shown = process.run(argv, timeout_s=60.0, env=environment)
        assert (shown.status, shown.stderr) == (0, b"")
