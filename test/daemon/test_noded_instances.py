"""The life of an instance as two node daemons see it, with the fake hypervisor and file disks."""

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fakes.noded_node import NodedNode, short_directory
from fakes.rpc_instances import rpc_instance
from fakes.waiting import wait_until

from ganeti.system.filelock import FileLock

NAME = "inst1.example.com"
REASON = [["gnt:client:gnt-instance", "start", 1795236540085182464]]
CREATE = """#!/bin/sh
env | grep -v -e ^PWD= -e ^_= -e ^SHLVL= -e ^OLDPWD= | sort > "$DISK_0_PATH"
echo "installing on $DISK_0_PATH"
test "$OSP_PASSWORD" = geheim
"""
# It says which process it is in its first disk, and is not moved by a polite word.
HANGS = """#!/bin/sh
trap '' TERM
echo $$ > "$DISK_0_PATH"
while :; do sleep 1; done
"""


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[NodedNode]]:
    with short_directory() as base:
        shared = base / "shared"
        shared.mkdir()
        nodes = [NodedNode(base, f"node{number}.example.com") for number in (1, 2)]
        for node in nodes:
            target = Path(node.paths.shared_file_storage_dir)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(shared)
            make_os(Path(node.paths.os_search_path[0]) / "noop")
            make_os(Path(node.paths.os_search_path[0]) / "hangs", create=HANGS, variants=False)
        with nodes[0], nodes[1]:
            yield nodes


@pytest.fixture
def node(nodes: list[NodedNode]) -> NodedNode:
    return nodes[0]


def make_os(path: Path, *, create: str = CREATE, variants: bool = True) -> None:
    path.mkdir(parents=True)
    (path / "ganeti_api_version").write_text("15\n" if variants else "10\n")
    if variants:
        (path / "variants.list").write_text("big\n")
    for name in ("create", "import", "export", "rename"):
        (path / name).write_text(create if name == "create" else "#!/bin/sh\nexit 7\n")
        (path / name).chmod(0o755)


def with_template(template: str) -> dict[str, Any]:
    wire = rpc_instance(disk_template=template)
    for index, disk in enumerate(wire["disks_info"]):
        directory = "shared-file-storage" if template == "sharedfile" else "file-storage"
        disk["dev_type"] = template
        disk["logical_id"] = ["loop", f"/srv/ganeti/{directory}/{template}1/disk{index}"]
    return wire


def create_disks(node: NodedNode, instance: dict[str, Any]) -> None:
    for disk in instance["disks_info"]:
        result = node.payload(
            "blockdev_create", disk, disk["size"], NAME, True, "originstname+inst1", False
        )
        assert result is None


def remove_disks(node: NodedNode, instance: dict[str, Any]) -> None:
    for disk in instance["disks_info"]:
        node.payload("blockdev_remove", disk)
        assert node.payload("blockdev_find", disk) is None


@pytest.fixture
def instance(node: NodedNode) -> Iterator[dict[str, Any]]:
    wire = with_template("file")
    create_disks(node, wire)
    yield wire
    node.payload("instance_shutdown", wire, 0, [])
    remove_disks(node, wire)


def link(node: NodedNode, index: int) -> str:
    return f"{node.paths.disk_links_dir}/{NAME}:{index}"


@pytest.mark.shows("backend/noded/disks")
def test_disks(node: NodedNode, instance: dict[str, Any]) -> None:
    disk, other = instance["disks_info"]
    path = "/srv/ganeti/file-storage/file1/disk0"
    assert node.payload("blockdev_find", disk)["dev_path"] == path
    assert node.payload("blockdev_getdimensions", [disk, other]) == [
        [4 << 20, None],
        [8 << 20, None],
    ]
    assert node.payload("blockdev_assemble", disk, instance, True, 0) == [
        path,
        f"/var/run/ganeti/instance-disks/{NAME}:0",
        None,
    ]
    assert os.readlink(link(node, 0)) == node.paths.root + path
    assert node.payload("blockdev_assemble", disk, instance, False, 0) == [True, True]
    node.payload("blockdev_grow", disk, 4, False, True, False)
    assert node.payload("blockdev_getdimensions", [disk])[0][0] == 8 << 20
    node.payload("blockdev_close", NAME, [disk, other])
    assert not os.path.lexists(link(node, 0))
    assert "exist" in node.failure("blockdev_create", disk, 4, NAME, True, "", False).lower()
    missing = disk | {"logical_id": ["loop", "/srv/ganeti/file-storage/file1/none"]}
    answers = node.payload("blockdev_getmirrorstatus_multi", [disk, missing])
    assert [success for success, _status in answers] == [True, False]


def test_a_disk_outside_the_allowed_directories_is_refused(node: NodedNode) -> None:
    disk = rpc_instance()["disks_info"][0] | {"logical_id": ["loop", "/etc/shadow"]}
    assert "not below an allowed" in node.failure("blockdev_remove", disk)
    assert "not below an allowed" in node.failure("file_storage_dir_create", "/etc/x")


@pytest.mark.shows("2.0/os-scripts/create", "2.0/os-old/no-arguments")
def test_installing_runs_the_script_with_its_environment(
    node: NodedNode, instance: dict[str, Any]
) -> None:
    node.payload("instance_os_add", instance, True, 0)
    path = node.paths.localize("/srv/ganeti/file-storage/file1/disk0")
    env = dict(line.split("=", 1) for line in Path(path).read_text().splitlines())
    assert env["OS_NAME"] == "noop"
    assert env["OS_VARIANT"] == "big"
    assert env["INSTANCE_REINSTALL"] == "1"
    assert env["DISK_0_PATH"] == path
    assert env["OSP_ROOT_SIZE"] == "2g"
    assert "HOME" not in env
    assert "GANETI_ROOTDIR" not in env
    (log,) = (name for name in os.listdir(node.paths.log_os_dir) if name.startswith("add-noop-"))
    text = Path(node.paths.log_os_dir, log).read_text()
    assert text == f"installing on {path}\n"
    assert "geheim" not in node.log()


@pytest.mark.shows("2.0/os-output/stderr", "2.1/variants/abort")
def test_a_failing_script_shows_its_last_words(node: NodedNode, instance: dict[str, Any]) -> None:
    wrong = instance | {"osparams": {"password": "wrong"}}
    text = node.failure("instance_os_add", wrong, False, 0)
    assert "create script of OS 'noop+big' for instance 'inst1.example.com'" in text
    assert "on node node1.example.com: it failed with exit status 1" in text
    assert "installing on" in text
    assert "exit status 7" in node.failure("instance_run_rename", instance, "old", 0)
    absent = instance | {"os": "absent"}
    assert "OS 'absent' is not in /srv/ganeti/os" in node.failure(
        "instance_os_add", absent, False, 0
    )


@pytest.mark.parametrize(
    "next_call",
    [
        lambda wire: ("instance_os_add", wire | {"os": "noop+big"}, False, 0),
        lambda wire: ("instance_start", wire, False, REASON),
        lambda wire: ("instance_shutdown", wire, 0, REASON),
    ],
    ids=["install", "start", "stop"],
)
def test_the_next_call_ends_a_script_that_an_earlier_job_left(
    node: NodedNode, instance: dict[str, Any], next_call: Callable[[dict[str, Any]], Any]
) -> None:
    hung = instance | {"os": "hangs"}
    pid_file = Path(node.paths.localize(instance["disks_info"][0]["logical_id"][1]))
    with ThreadPoolExecutor(1) as elsewhere:
        first = elsewhere.submit(node.failure, "instance_os_add", hung, False, 0)
        wait_until(lambda: pid_file.read_text().endswith("\n"), "the script to run")
        script = int(pid_file.read_text())
        node.payload(*next_call(instance))
        assert "without an answer" in first.result(60)
    wait_until(lambda: not os.path.exists(f"/proc/{script}"), "the script to be gone")
    assert f"ending an OS script of instance '{NAME}'" in node.log()


HANGING = """#!/bin/sh
[ "$(basename "$0")" != "${EXTP_HANG:-}" ] || { echo $$ > "$EXTP_FILE"; exec sleep 1000; }
echo "$(basename "$0") $VOL_NAME" >> "$EXTP_FILE.log"
if [ "$(basename "$0")" = attach ]; then echo /dev/null; fi
"""


@pytest.fixture
def volume(node: NodedNode, tmp_path: Path) -> dict[str, Any]:
    """Return a disk of an external storage provider whose script "hang" hangs."""
    provider = Path(node.paths.es_search_path[0], "hangs")
    provider.mkdir(parents=True, exist_ok=True)
    (provider / "parameters.list").write_text("hang which\nfile where\n")
    for script in ("create", "remove", "grow", "attach", "detach", "setinfo", "verify"):
        (provider / script).write_text(HANGING)
        (provider / script).chmod(0o755)
    disk: dict[str, Any] = rpc_instance()["disks_info"][0]
    return disk | {
        "dev_type": "ext",
        "logical_id": ["hangs", "vol1"],
        "params": {"file": str(tmp_path / "pid")},
    }


@pytest.mark.parametrize(
    ("hangs", "next_call"),
    [
        ("create", lambda disk: ("blockdev_create", disk, 8, NAME, True, "", False)),
        ("create", lambda disk: ("blockdev_remove", disk)),
        ("setinfo", lambda disk: ("blockdev_remove", disk)),
        ("grow", lambda disk: ("blockdev_grow", disk, 8, False, True, False)),
    ],
    ids=["another-disk", "remove", "late", "grow-again"],
)
def test_the_next_call_ends_a_provider_that_an_earlier_job_left(
    node: NodedNode, volume: dict[str, Any], tmp_path: Path, hangs: str, next_call: Any
) -> None:
    hung = volume | {"params": {**volume["params"], "hang": hangs}}
    call = ("blockdev_create", hung, 8, NAME, True, "", False)
    if hangs == "grow":
        call = ("blockdev_grow", hung, 8, False, True, False)
    elif next_call(volume)[0] == "blockdev_create":  # for another disk of the same instance
        volume = volume | {"uuid": "another", "logical_id": ["hangs", "vol2"]}
    pid_file = tmp_path / "pid"
    with ThreadPoolExecutor(1) as elsewhere:
        first = elsewhere.submit(node.failure, *call)
        wait_until(lambda: pid_file.exists() and pid_file.read_text().endswith("\n"), "the script")
        script = int(pid_file.read_text())
        node.payload(*next_call(volume))
        assert "without an answer" in first.result(60)
    wait_until(lambda: not os.path.exists(f"/proc/{script}"), "the script to be gone")
    assert "that an earlier job left at work" in node.log()
    if hangs != "grow":  # what was half made is removed
        assert "remove vol1" in Path(f"{pid_file}.log").read_text()


def test_a_start_that_goes_on_is_waited_for(node: NodedNode, instance: dict[str, Any]) -> None:
    with FileLock(f"{node.paths.lock_dir}/os-{NAME}.lock"):
        for call in (
            ("instance_os_add", instance, False, 0),
            ("instance_start", instance, False, REASON),
            ("instance_shutdown", instance, 0, REASON),
        ):
            assert "earlier job's call still works on instance" in node.failure(*call)
    node.payload("instance_os_add", instance, False, 0)


@pytest.mark.shows("backend/noded/instances")
def test_start_look_reboot_stop(node: NodedNode, instance: dict[str, Any]) -> None:
    assert node.payload("instance_info", NAME, "fake", {}) == {}
    for _twice in range(2):
        node.payload("instance_start", instance, False, REASON)
    assert os.path.islink(link(node, 1))
    info = node.payload("instance_info", NAME, "fake", {})
    assert info["memory"] == 256
    assert info["vcpus"] == 2
    assert info["state"] == 0
    assert node.payload("instance_list", ["fake"], {}) == [NAME]
    assert list(node.payload("all_instances_info", ["fake"], {})) == [NAME]
    node.payload("instance_balloon_memory", instance, 192)
    assert node.payload("instance_info", NAME, "fake", {})["memory"] == 192
    assert "no devices" in node.failure("hotplug_supported", instance)
    node.payload("instance_reboot", instance, "hard", 10, REASON)
    assert "full reboot" in node.failure("instance_reboot", instance, "full", 10, REASON)
    assert "reboot_type" in node.failure("instance_reboot", instance, "odd", 10, REASON)
    for _twice in range(2):
        node.payload("instance_shutdown", instance, 10, REASON)
    assert node.payload("instance_list", ["fake"], {}) == []
    assert not os.path.lexists(link(node, 1))
    trail = json.loads(Path(node.paths.instance_reason_dir, NAME).read_text())
    assert trail[0] == REASON[0]
    assert trail[1][:2] == ["gnt:daemon:noded:shutdown", ""]
    assert "does not run" in node.failure("instance_reboot", instance, "hard", 10, [])


def test_a_start_that_fails_leaves_no_links(node: NodedNode, instance: dict[str, Any]) -> None:
    node.payload("blockdev_remove", instance["disks_info"][1])
    text = node.failure("instance_start", instance, False, [])
    assert "disk 1 of instance 'inst1.example.com' cannot be used on node node1.example.com" in text
    assert node.payload("instance_list", ["fake"], {}) == []
    assert not os.path.lexists(link(node, 0))


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".x", "a:b"])
def test_an_instance_name_never_becomes_another_path(node: NodedNode, name: str) -> None:
    wire = rpc_instance(name=name, disks_info=[], nics=[])
    for call, args in (("start", (False, [])), ("shutdown", (0, [])), ("reboot", ("hard", 0, []))):
        assert "not a valid instance name" in node.failure(f"instance_{call}", wire, *args)


def test_a_hypervisor_that_is_not_there(node: NodedNode) -> None:
    assert "unknown" in node.failure("instance_list", ["what"], {})
    assert "unknown" in node.failure("hypervisor_validate_params", "what", {})
    node.payload("hypervisor_validate_params", "fake", {"migration_mode": "live"})


def test_console(node: NodedNode) -> None:
    stored = rpc_instance(hvparams={}, beparams={})
    request = {
        "instance": stored,
        "node": {"name": node.name, "primary_ip": node.address},
        "group": {},
        "hvParams": rpc_instance()["hvparams"],
        "beParams": rpc_instance()["beparams"],
    }
    connection = node.connect()
    connection.request("POST", "/instance_console_info", json.dumps({NAME: request}))
    success, consoles = json.loads(connection.getresponse().read())
    assert success, consoles
    assert consoles[NAME]["kind"] == "msg"


def test_migration(nodes: list[NodedNode]) -> None:
    source, target = nodes
    wire = with_template("sharedfile")
    create_disks(source, wire)
    source.payload("instance_start", wire, False, [])
    source.payload("instance_migratable", wire)
    info = source.payload("migration_info", wire)
    address = target.payload("accept_instance", wire, info, target.address)
    source.payload("instance_migrate", "cluster.example.com", wire, address, True)
    status = source.payload("instance_get_migration_status", wire)
    assert status["status"] == "completed"
    target.payload("instance_finalize_migration_dst", wire, info, True)
    source.payload("instance_finalize_migration_src", wire, True, True)
    assert source.payload("instance_list", ["fake"], {}) == []
    assert target.payload("instance_list", ["fake"], {}) == [NAME]
    assert not os.path.lexists(link(source, 0))
    assert os.path.islink(link(target, 0))
    assert "does not run" in source.failure("instance_migratable", wire)
    target.payload("instance_shutdown", wire, 0, [])
    remove_disks(target, wire)


def test_an_aborted_migration_leaves_one_copy(nodes: list[NodedNode]) -> None:
    source, target = nodes
    wire = with_template("sharedfile")
    create_disks(source, wire)
    source.payload("instance_start", wire, False, [])
    info = source.payload("migration_info", wire)
    target.payload("accept_instance", wire, info, target.address)
    target.payload("instance_finalize_migration_dst", wire, info, False)
    source.payload("instance_finalize_migration_src", wire, False, True)
    assert source.payload("instance_info", NAME, "fake", {})["state"] == 0
    assert target.payload("instance_list", ["fake"], {}) == []
    assert not os.path.lexists(link(target, 0))
    source.payload("instance_shutdown", wire, 0, [])
    remove_disks(source, wire)


def test_node_info(node: NodedNode) -> None:
    os.makedirs(node.paths.file_storage_dir, exist_ok=True)
    units = [["file", "/srv/ganeti/file-storage", []], ["lvm-vg", "xenvg", [False]]]
    boot_id, storage, hypervisors = node.payload("node_info", units, [["fake", {}]])
    assert len(boot_id) == 36
    assert storage[0]["storage_free"] <= storage[0]["storage_size"]
    assert storage[1] == {
        "type": "lvm-vg",
        "name": "xenvg",
        "storage_free": None,
        "storage_size": None,
    }
    assert hypervisors[0]["memory_total"] >= hypervisors[0]["memory_free"] > 0
    assert node.payload("node_info", None, None)[1:] == [None, None]


@pytest.mark.shows("2.1/storage/directories", "2.1/storage/status", "2.1/storage/one-call")
def test_storage_units(node: NodedNode) -> None:
    os.makedirs(node.paths.file_storage_dir, exist_ok=True)
    directories = [["/srv/ganeti/file-storage"]]
    rows = node.payload("storage_list", "file", directories, None, ["name", "free", "allocatable"])
    assert rows[0][0] == "/srv/ganeti/file-storage"
    assert rows[0][2] is True
    missing = [["/srv/ganeti/file-storage", "/srv/nix"]]
    rows = node.payload("storage_list", "file", missing, None, ["name", "size", "status"])
    assert [row[0] for row in rows] == missing[0]
    assert rows[0][2] == "ok"
    assert rows[1][1] is None
    assert "No such file" in rows[1][2]
    assert "colour" in node.failure("storage_list", "file", directories, None, ["colour"])
    assert "ext" in node.failure("storage_list", "ext", [], None, ["name"])
    assert "cannot be changed" in node.failure(
        "storage_modify", "file", directories, "/srv/ganeti/file-storage", {"allocatable": True}
    )
