"""Instances on logical volumes: each node of the cluster has programs of LVM with own groups."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import lvm_programs
from fakes.virtual_cluster import TestCluster, own_cluster

SDA, SDB = "/dev/none/sda1", "/dev/none/sdb1"
ADD = "instance add -H fake -t plain --no-install --no-start --no-name-check --no-ip-check"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    programs = tmp_path_factory.mktemp("lvm")
    lvm_programs.install(programs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        with own_cluster() as found:
            for node in found.nodes:
                root = found.paths_of(node).root
                lvm_programs.make_group(root, "xenvg", {SDA: 15000, SDB: 15000})
                lvm_programs.make_group(root, "fastvg", {"/dev/none/sdc1": 500}, extent_mib=32)
            found.gnt("cluster modify --vg-name=xenvg")
            found.gnt(
                "cluster modify --enabled-disk-templates=plain,file,diskless"
                " --ipolicy-disk-templates=plain,file,diskless"
            )
            yield found


@pytest.fixture(autouse=True)
def _tidy(cluster: TestCluster) -> Iterator[None]:
    yield
    cluster.tidy_up()
    assert all(not volumes(cluster, node) for node in cluster.nodes)


def volumes(cluster: TestCluster, node: str) -> dict[str, dict[str, object]]:
    """Return the volumes of a node, as its LVM has them."""
    return dict(lvm_programs._load(cluster.paths_of(node).root)["volumes"])


def ran(cluster: TestCluster, node: str, name: str) -> list[list[str]]:
    """Return the command lines of a program that ran on a node."""
    return [call for call in lvm_programs.calls(cluster.paths_of(node).root) if call[0] == name]


def device(cluster: TestCluster, node: str, index: int = 0) -> Path:
    """Return the file behind a volume of a node."""
    return Path(cluster.paths_of(node).root, "dev", sorted(volumes(cluster, node))[index])


@pytest.mark.shows("backend/overview/lvm", "backend/templates/plain")
def test_the_life_of_an_instance(cluster: TestCluster) -> None:
    first, second, _ = cluster.nodes
    cluster.gnt(f"{ADD} -n {first} --disk 0:size=100 --disk 1:size=64,vg=fastvg web.example.com")
    assert {path.split("/")[0] for path in volumes(cluster, first)} == {"xenvg", "fastvg"}
    cluster.gnt("instance start web.example.com")
    cluster.gnt("instance grow-disk web.example.com 0 28")
    assert cluster.instance_field("web.example.com", "disk.sizes") == "128,64"
    cluster.gnt("instance shutdown --timeout=1 web.example.com")
    device(cluster, first, 1).write_bytes(b"precious".ljust(128 << 20, b"\0"))
    cluster.gnt(f"instance move -f -n {second} web.example.com")
    assert not volumes(cluster, first)
    assert device(cluster, second, 1).read_bytes().startswith(b"precious")
    cluster.gnt(
        "instance rename --force --no-name-check --no-ip-check web.example.com www.example.com"
    )
    tags = [each["tags"] for each in volumes(cluster, second).values()]
    assert tags == [["originstname+www.example.com"]] * 2
    for template in ("file", "plain"):
        cluster.gnt(f"instance modify -t {template} www.example.com")
    assert {path.split("/")[0] for path in volumes(cluster, second)} == {"xenvg"}
    assert any(
        Path(cluster.paths_of(second).root, "dev", path).read_bytes().startswith(b"precious")
        for path in volumes(cluster, second)
    )
    cluster.gnt("cluster verify")


def test_what_a_guest_has_beyond_the_recorded_size_stays(cluster: TestCluster) -> None:
    first, second, _ = cluster.nodes
    cluster.gnt(f"{ADD} -n {first} --disk 0:size=40,vg=fastvg web.example.com")
    assert device(cluster, first).stat().st_size == 64 << 20
    with device(cluster, first).open("r+b") as file:
        file.seek(-7, os.SEEK_END)
        file.write(b"the end")
    cluster.gnt(f"instance move -f -n {second} web.example.com")
    assert device(cluster, second).read_bytes().endswith(b"the end")
    cluster.refused(
        "instance modify -t file web.example.com",
        "the disk has 40 MiB here, 64 MiB are to be written; if the one that is read is a volume",
    )
    cluster.gnt("cluster repair-disk-sizes web.example.com")
    assert cluster.instance_field("web.example.com", "disk.sizes") == "64"
    cluster.gnt("instance modify -t file web.example.com")
    cluster.gnt("instance modify -t plain web.example.com")
    assert device(cluster, second).read_bytes().endswith(b"the end")


def test_what_a_node_has_no_room_for_is_refused_with_numbers(cluster: TestCluster) -> None:
    node = cluster.nodes[0]
    add = f"{ADD} -n {node} --disk 0:size="
    cluster.refused(
        f"{add}40g web.example.com",
        f"not enough space in volume group 'xenvg' of node '{node}': 40960 MiB are needed, 30000 MiB"
        " are free",
    )
    cluster.refused(f"{add}1g,vg=myvg web.example.com", f"node '{node}' has no volume group 'myvg'")
    cluster.refused(f"{add}1g,vg=-f web.example.com", "'-f' is not a name of LVM")
    cluster.refused(f"{add}1g,spindles=2 web.example.com", "has no exclusive storage")


def test_a_volume_is_adopted(cluster: TestCluster) -> None:
    node = cluster.nodes[0]
    root = cluster.paths_of(node).root
    os.environ["FAKE_LVM"] = root
    try:
        for name in ("old", "kept", "more"):
            lvm_programs.main("lvcreate", f"--name={name}", "--size=40m", "xenvg")
    finally:
        del os.environ["FAKE_LVM"]
    Path(root, "dev/xenvg/old").write_bytes(b"precious".ljust(40 << 20, b"\0"))
    cluster.gnt("cluster modify --reserved-lvs=xenvg/ke.*")
    add = f"{ADD} -n {node} --disk 0:adopt="
    cluster.refused(f"{add}kept web.example.com", "is reserved for others")
    cluster.refused(f"{add}nix web.example.com", "there is no logical volume xenvg/nix")
    cluster.refused(f"{add}old,size=5 web.example.com", "the size is that of what is adopted")
    cluster.gnt(f"{add}old web.example.com")
    assert cluster.instance_field("web.example.com", "disk.sizes") == "40"
    assert Path(root, "dev/xenvg/old").read_bytes().startswith(b"precious")
    cluster.refused(f"{add}old www.example.com", "logical volume xenvg/old is disk")
    Path(root, "dev/xenvg/more").write_bytes(b"also precious".ljust(40 << 20, b"\0"))
    cluster.gnt("instance modify --disk add:adopt=more web.example.com")
    assert cluster.instance_field("web.example.com", "disk.sizes") == "40,40"
    assert Path(root, "dev/xenvg/more").read_bytes().startswith(b"also precious")
    cluster.gnt("instance remove -f web.example.com")
    assert list(volumes(cluster, node)) == ["xenvg/kept"]
    os.environ["FAKE_LVM"] = root
    try:
        lvm_programs.main("lvremove", "--force", "xenvg/kept")
    finally:
        del os.environ["FAKE_LVM"]


def test_storage_units_and_volumes_are_listed_and_changed(cluster: TestCluster) -> None:
    node = cluster.nodes[0]
    cluster.gnt(f"{ADD} -n {node} --disk 0:size=100 web.example.com")
    listed = cluster.gnt("node list-storage -t lvm-vg --no-headers --separator=| --units=m").out
    assert f"{node}|lvm-vg|xenvg|30000|100|29900|Y" in listed
    assert cluster.gnt(f"node list --no-headers -o dtotal,dfree --units=m {node}").out.split() == [
        "30000",
        "29900",
    ]
    listed = cluster.gnt("node volumes --no-headers --separator=| --units=m -o +dev").out
    [row] = [line.split("|") for line in listed.splitlines()]
    assert [row[0], row[2], row[4], row[5]] == [node, "xenvg", "100", "web.example.com"]
    cluster.gnt(f"node modify-storage --allocatable=no {node} lvm-pv {SDA}")
    listed = cluster.gnt("node list-storage -t lvm-pv --no-headers -o node,name,allocatable").out
    assert [node, SDA, "N"] in [line.split() for line in listed.splitlines()]
    cluster.gnt(f"node modify-storage --allocatable=yes {node} lvm-pv {SDA}")
    repair = f"node repair-storage {node} lvm-vg xenvg"
    cluster.refused(repair, "there is no good copy elsewhere of disk/0 of instance web")
    forced = f"node repair-storage --ignore-consistency {node} lvm-vg"
    cluster.gnt(f"{forced} xenvg")
    for each in (forced, f"node repair-storage {node} lvm-vg"):
        cluster.refused(f"{each} nix", f"there is no volume group 'nix' on node '{node}'")


def spaces(cluster: TestCluster, node: str) -> list[list[str]]:
    """Return [total, free MiB, total, free spindles] of a node, as each report has them.

    Fields of nodes, and the request of an allocator; of units only the space.
    """
    fields = "dtotal,dfree,sptotal,spfree"
    listed = cluster.gnt(f"node list --no-headers --units=m -o {fields} {node}").out.split()
    words = "debug iallocator --dir=in -m allocate -t plain --disks=1g --nics= -o test -I hail"
    asked = json.loads(cluster.gnt(f"{words} new.example.com").out)["nodes"][node]
    names = ("total_disk", "free_disk", "total_spindles", "free_spindles")
    units = "node list-storage -t lvm-vg --no-headers --units=m -o name,size,free"
    rows = [line.split() for line in cluster.gnt(f"{units} {node}").out.splitlines()]
    [unit] = [row[1:] for row in rows if row[0] == "xenvg"]
    return [listed, [str(asked[name]) for name in names], unit]


def test_reports_of_space_agree(cluster: TestCluster) -> None:
    node = cluster.nodes[0]
    cluster.gnt(f"{ADD} -n {node} --disk 0:size=100 web.example.com")
    listed, asked, unit = spaces(cluster, node)
    assert unit == listed[:2] == asked[:2] == ["30000", "29900"]
    assert asked[2:] == ["0", "0"], "nothing counts spindles without exclusive storage"
    cluster.gnt("instance remove -f web.example.com")
    cluster.gnt("group modify --node-parameters exclusive_storage=yes default")
    listed, asked, unit = spaces(cluster, node)
    assert unit == listed[:2] == asked[:2]
    assert listed[2:] == asked[2:] == ["2", "2"]
    cluster.gnt("group modify --node-parameters exclusive_storage=default default")


def test_an_instance_has_disks_of_several_templates(cluster: TestCluster) -> None:
    one, two, three = cluster.nodes
    name, copy = "mixed.example.com", "copy.example.com"
    kinds = "disk.templates"
    cluster.gnt(f"{ADD} -n {one} --disk 0:size=64 --disk 1:size=16,dev_type=file {name}")
    cluster.gnt(f"instance startup {name}")
    assert cluster.instance_field(name, f"disk_template,{kinds}") == "mixed|['plain', 'file']"
    cluster.refused(f"instance migrate -f {name}", "'plain' keeps the disks on node")
    cluster.gnt(f"instance move -f -n {two} {name}")  # running, of a hypervisor without snapshots
    assert cluster.instance_field(name, "pnode,status") == f"{two}|running"
    assert not volumes(cluster, one)
    assert len(volumes(cluster, two)) == 1
    cluster.gnt(f"instance shutdown {name}")
    cluster.gnt(f"instance modify --disk add:size=8,dev_type=file {name}")
    cluster.refused(f"instance modify --disk add:size=8 {name}", "has disks of plain and file")
    cluster.gnt(f"backup export -n {three} {name}")
    cluster.gnt(
        f"backup import --no-name-check --no-ip-check -n {one} --src-node {three} --src-dir {name}"
        f" {copy}"
    )
    assert cluster.instance_field(copy, kinds) == "['plain', 'file', 'file']"
    cluster.gnt(f"instance modify --disk 2:remove {name}")
    cluster.gnt(f"instance modify -t plain {name}")
    assert cluster.instance_field(name, kinds) == "['plain', 'plain']"
    cluster.gnt(f"backup remove {name}")


@pytest.fixture
def exclusive(cluster: TestCluster) -> Iterator[TestCluster]:
    """The cluster, all of whose nodes give whole physical volumes to their instances."""
    cluster.gnt("cluster modify --node-parameters exclusive_storage=yes")
    yield cluster
    cluster.tidy_up()
    cluster.gnt("cluster modify --node-parameters exclusive_storage=no")


def on_devices(cluster: TestCluster, node: str) -> set[str]:
    """Return the physical volumes that the last volume of a node was put on."""
    made = ran(cluster, node, "lvcreate")[-1]
    return {word for word in made if word.startswith("/dev/none/")}


def test_instances_have_physical_volumes_for_themselves(exclusive: TestCluster) -> None:
    cluster, node = exclusive, exclusive.nodes[0]
    name = "exclusive.example.com"
    assert "exclusive_storage: True" in cluster.gnt("cluster info").out
    disk = "--disk 0:size=100"
    cluster.refused(f"{ADD} -n {node} {disk} {name}", "say with spindles=N how many of its")
    cluster.refused(
        f"{ADD.replace('plain', 'file')} -n {node} {disk} {name}",
        "which disks of template 'file' cannot have; only those of plain can",
    )
    cluster.refused(f"{ADD} -n {node} {disk},spindles=0 {name}", "spindles")
    cluster.refused(f"{ADD} -n {node} {disk},spindles=3 {name}", "exclusive storage needs 3")
    cluster.refused(f"{ADD} -n {node} --disk 0:size=20000,spindles=1 {name}", "needs 1 of them")
    cluster.gnt(f"{ADD} -n {node} {disk},spindles=1 {name}")
    first = on_devices(cluster, node)
    assert len(first) == 1
    assert cluster.instance_field(name, "disk.spindles/0") == "1"
    assert spaces(cluster, node)[0][2:] == ["2", "1"]
    cluster.refused(f"instance modify --disk add:size=64 {name}", "say with spindles=N")
    cluster.refused(
        f"instance modify --disk add:size=64,dev_type=file {name}", "disks of template 'file'"
    )
    cluster.gnt(f"instance modify --disk add:size=64,spindles=1 {name}")
    assert on_devices(cluster, node).isdisjoint(first)
    other = f"{ADD} -n {node} {disk},spindles=1 other.example.com"
    cluster.refused(other, "has 0 empty physical volume(s)")
    cluster.gnt(f"instance grow-disk {name} 0 64m")
    cluster.refused(f"instance grow-disk {name} 0 20g", "(exclusive storage)")
    cluster.refused(f"instance modify -t file {name}", "which disks of template 'file' cannot have")
    cluster.gnt(f"instance remove -f {name}")
    cluster.gnt(other)
    cluster.gnt("instance remove -f other.example.com")


def test_who_decides_on_exclusive_storage(cluster: TestCluster) -> None:
    node = cluster.nodes[0]
    cluster.refused(
        f"node modify --node-parameters exclusive_storage=yes {node}", "group or the cluster"
    )
    cluster.refused(
        f"{ADD} -n {node} --disk 0:size=100,spindles=1 x.example.com",
        "has no exclusive storage, so spindles cannot be given",
    )
    cluster.gnt(f"{ADD.replace('plain', 'file')} -n {node} --disk 0:size=4 x.example.com")
    cluster.gnt("group modify --node-parameters exclusive_storage=yes default")
    try:
        verified = cluster.run("gnt-cluster verify --error-codes")
        assert "EINSTANCEUNSUITABLENODE" in verified.out + verified.err
    finally:
        cluster.gnt("group modify --node-parameters exclusive_storage=default default")


def test_volume_groups_of_the_cluster(cluster: TestCluster) -> None:
    cluster.refused("cluster modify --vg-name=nix", "there is no volume group 'nix'")
    cluster.refused("cluster modify --vg-name=", "plain is enabled and needs --vg-name")
    cluster.refused("cluster modify --vg-name=-x", "cannot be the name of a volume group")
    assert "xenvg" in cluster.gnt("cluster info").out


def test_a_pass_over_many_disks_asks_once(cluster: TestCluster) -> None:
    node = cluster.nodes[0]
    disks = " ".join(f"--disk {index}:size=4" for index in range(8))
    cluster.gnt(f"{ADD} -n {node} {disks} web.example.com")
    cluster.gnt("instance activate-disks web.example.com")
    before = len(ran(cluster, node, "lvs"))
    cluster.gnt("cluster verify-disks")
    assert len(ran(cluster, node, "lvs")) - before <= 2


def test_an_export_reads_snapshots_while_the_instance_runs_again(cluster: TestCluster) -> None:
    node, other, _ = cluster.nodes
    add = ADD.replace("--no-install --no-start", "-o test")
    cluster.gnt(f"{add} -n {node} --disk 0:size=40 web.example.com")
    written = device(cluster, node).read_bytes()
    assert b"web.example.com" in written
    outcome = cluster.gnt(f"backup export -n {other} web.example.com")
    said = outcome.out + outcome.err
    order = ["Taking snapshots", "Starting instance", "copying disk 0", "Finalizing export"]
    places = [said.index(words) for words in order]
    assert places == sorted(places)
    assert cluster.instance_field("web.example.com", "status") == "running"
    assert len(volumes(cluster, node)) == 1
    taken = [call for call in ran(cluster, node, "lvcreate") if "--snapshot" in call]
    assert taken
    outcome = cluster.gnt(f"backup export --long-sleep -n {other} web.example.com")
    said = outcome.out + outcome.err
    assert said.index("copying disk 0") < said.index("Starting instance")
    assert taken == [call for call in ran(cluster, node, "lvcreate") if "--snapshot" in call]
    cluster.gnt(
        f"backup import --no-name-check --no-ip-check -t plain -n {other} --src-node {other}"
        " --src-dir web.example.com copy.example.com"
    )
    restored = device(cluster, other).read_bytes()
    assert len(restored) == len(written)
    assert b"DISK_0_" in restored  # written by the scripts of the operating system


def test_an_export_without_room_for_snapshots_stops_the_instance(cluster: TestCluster) -> None:
    node, other, _ = cluster.nodes
    add = ADD.replace("--no-install --no-start", "-o test")
    cluster.gnt(f"{add} -n {node} --disk 0:size=480,vg=fastvg web.example.com")
    outcome = cluster.gnt(f"backup export -n {other} web.example.com")
    assert "stays down while it is exported" in outcome.out + outcome.err
    assert cluster.instance_field("web.example.com", "status") == "running"
    assert len(volumes(cluster, node)) == 1


@pytest.fixture
def pools(cluster: TestCluster) -> Iterator[list[str]]:
    """Make a thin pool on two nodes; returns the roots of these, which the last one does not have."""
    roots = [cluster.paths_of(node).root for node in cluster.nodes[:2]]
    with pytest.MonkeyPatch.context() as patch:
        for root in roots:
            patch.setenv("FAKE_LVM", root)
            lvm_programs.main("lvcreate", "--type=thin-pool", "--name=pool", "--size=100m", "xenvg")
        yield roots
        cluster.gnt("cluster modify -D plain:thin-pool=none")
        cluster.tidy_up()
        for root in roots:
            patch.setenv("FAKE_LVM", root)
            lvm_programs.main("lvremove", "--force", "xenvg/pool")


def thin(cluster: TestCluster, node: str) -> list[str]:
    """Return the pool of each volume of a node that is a disk."""
    return [
        str(each["pool"]) for each in volumes(cluster, node).values() if each["type"] != "thin-pool"
    ]


def test_thin_disks_take_space_when_they_are_written(
    cluster: TestCluster, pools: list[str]
) -> None:
    first, second, third = cluster.nodes
    add = ADD.replace("--no-install --no-start", "-o test")
    cluster.gnt(f"{add} -n {first} --disk 0:size=200,thin-pool=pool web.example.com")
    assert [each["type"] for each in volumes(cluster, first).values() if each["pool"]] == ["thin"]
    listed = cluster.gnt("node list-storage -t lvm-vg --no-headers --units=m -o node,name,free").out
    rows = [line.split() for line in listed.splitlines()]
    assert [first, "xenvg/pool", "100"] in rows
    assert [first, "xenvg", "29900"] in rows  # the pool, and nothing for the disk
    cluster.gnt("instance grow-disk web.example.com 0 100")
    assert cluster.instance_field("web.example.com", "disk.sizes") == "300"
    assert "thin-pool: pool" in cluster.gnt("instance info web.example.com").out
    cluster.gnt(f"backup export -n {second} web.example.com")
    cluster.refused(
        f"instance move -f -n {third} web.example.com", f"'{third}' has no thin pool xenvg/pool"
    )
    cluster.gnt("cluster verify")
    cluster.gnt("instance shutdown --timeout=1 web.example.com")
    cluster.gnt("instance modify --disk add:size=64 web.example.com")
    assert sorted(thin(cluster, first)) == ["", "pool"], "only where it was asked for"
    cluster.gnt("instance remove -f web.example.com")


def test_all_new_disks_of_a_cluster_are_thin(cluster: TestCluster, pools: list[str]) -> None:
    first, second, third = cluster.nodes
    cluster.gnt("cluster modify -D plain:thin-pool=pool")
    cluster.gnt(f"{ADD} -n {first} --disk 0:size=300 web.example.com")
    assert thin(cluster, first) == ["pool"]
    cluster.gnt(f"instance move -f -n {second} web.example.com")
    assert (thin(cluster, first), thin(cluster, second)) == ([], ["pool"])
    total, free = cluster.gnt(
        f"node list --no-headers -o dtotal,dfree --units=m {first}"
    ).out.split()
    assert (total, free) == ("100", "100"), "nodes are judged by the space of the pool"
    add = f"{ADD} --disk 0:size=9g"
    cluster.refused(
        f"{add} -n {third} no.example.com",
        f"node '{third}' has no thin pool xenvg/pool; make it there with 'lvcreate"
        " --type=thin-pool --size=... --name=pool xenvg'",
    )
    lvm_programs.change_volume(pools[0], "xenvg/pool", data_percent="100.00")
    cluster.refused(f"{add} -n {first} no.example.com", "is full; give it space with 'lvextend")
    lvm_programs.change_volume(
        pools[0], "xenvg/pool", data_percent="40.00", metadata_percent="100.00"
    )
    cluster.refused(f"{add} -n {first} no.example.com", "no room for more metadata")
    shown = cluster.gnt("node list-storage -t lvm-vg --no-headers -o +status " + first).out
    assert "lvextend --poolmetadatasize=" in shown
    assert "none needs" not in cluster.gnt("cluster repair-volume-groups").out
    cluster.gnt(
        f"{add},thin-pool=none -n {first} web2.example.com"
    )  # this one has all of its space
    assert thin(cluster, first) == [""]


@pytest.mark.parametrize("pool", ["none", "pool"])
def test_snapshots_of_a_stopped_instance(cluster: TestCluster, pools: list[str], pool: str) -> None:
    node, other, _ = cluster.nodes
    name, snapshot = "web.example.com", "instance snapshot"
    disks = f"--disk 0:size=40,thin-pool={pool} --disk 1:size=40,thin-pool={pool}"
    cluster.gnt(f"{ADD} -n {node} {disks} {name}")
    own = [path for path in sorted(volumes(cluster, node)) if path != "xenvg/pool"]
    files = [Path(cluster.paths_of(node).root, "dev", path) for path in own]
    kept = Path(f"{files[0]}.kept.first")

    def write(data: bytes) -> None:
        for file in files:
            file.write_bytes(data.ljust(40 << 20, b"\0"))

    write(b"precious")
    cluster.gnt(f"{snapshot} create {name} first")
    write(b"broken")
    cluster.gnt(f"{snapshot} create {name} second")
    listed = cluster.gnt(f"{snapshot} --no-headers --separator=| list {name}").lines
    assert [line.split("|")[::2] for line in listed] == [["first", "0,1"], ["second", "0,1"]]
    assert "belongs to no instance" not in cluster.gnt("cluster verify").out
    owners = cluster.gnt("node volumes --no-headers -o name,instance").lines
    assert kept.name in " ".join(owners)
    assert all(line.split()[1] == name for line in owners)
    cluster.refused(f"instance move -f -n {other} {name}", "its snapshots (first, second) would be")
    if pool == "none":
        cluster.refused(f"instance grow-disk {name} 0 8", "so LVM does not enlarge it")
    else:
        cluster.gnt(f"instance grow-disk {name} 0 8")
    cluster.gnt(f"instance start {name}")
    cluster.refused(f"{snapshot} -f restore {name} first", "is running on node")
    cluster.refused(f"{snapshot} create {name} third", "snapshots of running instances are not")
    cluster.gnt(f"instance shutdown --timeout=1 {name}")
    cluster.gnt(f"{snapshot} -f restore {name} first")
    assert all(file.read_bytes().startswith(b"precious") for file in files)
    sizes = "40,40" if pool == "none" else "48,40"
    assert cluster.instance_field(name, "disk.sizes") == sizes
    assert cluster.gnt(f"{snapshot} --no-headers --separator=| list {name}").lines == listed
    cluster.gnt(f"backup export --snapshot=second -n {other} {name}")
    cluster.gnt(
        f"backup import --no-name-check --no-ip-check -t plain -n {other} --src-node {other}"
        f" --src-dir {name} copy.example.com"
    )
    [*copied] = sorted(path for path in volumes(cluster, other) if path != "xenvg/pool")
    data = Path(cluster.paths_of(other).root, "dev", copied[0]).read_bytes()
    assert data.startswith(b"broken")
    cluster.gnt(f"{snapshot} -f remove {name} second")
    cluster.refused(f"{snapshot} -f remove {name} second", "has no snapshot 'second'")
    cluster.gnt(f"backup remove {name}")
    cluster.gnt(f"instance remove -f {name}")
    assert list(volumes(cluster, node)) == ["xenvg/pool"], "they go with their instance"
