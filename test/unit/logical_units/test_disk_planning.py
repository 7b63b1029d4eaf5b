"""Disks and names as asked for: plain decisions."""

from __future__ import annotations

import pytest
from fakes.fake_cluster import make_cluster
from fakes.fake_records import make_group, make_node
from msgspec import structs

from ganeti.base.errors import NotSupportedError, OpPrereqError
from ganeti.logical_units.instance.storage.files import file_place
from ganeti.logical_units.instance.storage.planner import SIZE_MIB_MAX, NewDisk, disk_size
from ganeti.logical_units.instance.storage.planning import (
    check_formats,
    choose_template,
    describe_disk,
    plan_disk,
    plan_disks,
    planner_of,
)
from ganeti.logical_units.instance.storage.units import plan_recreation
from ganeti.logical_units.lookup import normal_name
from ganeti.objects import disk_templates
from ganeti.objects.disk_templates import DiskMode, DiskTemplate
from ganeti.objects.model import Cluster, Disk, Node, NodeGroup
from ganeti.objects.rpc_instance import build_rpc_disk

NODE = Node.from_wire(make_node(1))
GROUP = NodeGroup.from_wire(make_group())
CLUSTER = Cluster.from_wire(
    make_cluster(ipolicy={"std": {"disk-size": 777}}, volume_group_name="xenvg")
)


@pytest.mark.shows("2.0/disk/size")
@pytest.mark.parametrize(
    ("size", "mib"), [(1, 1), ("512m", 512), ("10g", 10240), (SIZE_MIB_MAX, SIZE_MIB_MAX)]
)
def test_sizes(size: object, mib: int) -> None:
    assert disk_size("disk/0", size) == mib


@pytest.mark.parametrize("size", [None, 0, -1, SIZE_MIB_MAX + 1, 2**63, "x", ""])
def test_sizes_that_cannot_be(size: object) -> None:
    with pytest.raises(OpPrereqError, match=r"^disk/0: "):
        disk_size("disk/0", size)


@pytest.mark.parametrize("name", ["x" * 129, "a\tb"])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(OpPrereqError, match=r"^disk/0: the name"):
        plan_disk(CLUSTER, DiskTemplate.FILE, "disk/0", {"size": 1, "name": name})


def test_the_first_enabled_template_is_the_default() -> None:
    assert choose_template(CLUSTER, None) is DiskTemplate.SHAREDFILE


def test_templates_without_a_driver_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    without = structs.replace(DiskTemplate.RBD.traits, driver=None)
    monkeypatch.setitem(disk_templates._TRAITS, "rbd", without)
    cluster = Cluster.from_wire(make_cluster(enabled_disk_templates=["rbd", "drbd"]))
    with pytest.raises(NotSupportedError, match="'rbd' is not supported yet; supported are: block"):
        choose_template(cluster, None)


def test_a_provider_takes_its_own_parameters() -> None:
    settings = {"size": 1, "provider": "pvd", "color": "red", "access": "userspace"}
    assert plan_disk(CLUSTER, DiskTemplate.EXT, "disk/0", settings) == NewDisk(
        DiskTemplate.EXT, 1, DiskMode.RW, None, "pvd", {"color": "red", "access": "userspace"}
    )
    with pytest.raises(OpPrereqError, match="needs a provider"):
        plan_disk(CLUSTER, DiskTemplate.EXT, "disk/0", {"size": 1})


def test_a_disk_of_a_provider_is_named_by_it() -> None:
    new = NewDisk(DiskTemplate.EXT, 1, DiskMode.RW, "none", "pvd", {})
    disk = describe_disk(new, 3, None, [], iter("ux").__next__)
    assert (disk.uuid, disk.nodes) == ("u", [])
    assert disk.logical_id == ["pvd", "x.ext.disk3"]
    assert disk.iv_name == "disk/3"


def test_files_need_a_directory_of_the_cluster() -> None:
    cluster = Cluster.from_wire(make_cluster(file_storage_dir=""))
    with pytest.raises(OpPrereqError, match="gnt-cluster modify --file-storage-dir"):
        file_place(cluster, GROUP, DiskTemplate.FILE, "i", None, None)
    with pytest.raises(OpPrereqError, match="cannot be given for disk template 'diskless'"):
        file_place(cluster, GROUP, DiskTemplate.DISKLESS, "i", "x", None)


def new_file(settings: dict[str, str | int], of_cluster: str = "", of_group: str = "") -> Disk:
    """Return a disk of template file where cluster or group have that format for new ones."""
    params = [{"file": {"format": word}} if word else {} for word in (of_cluster, of_group)]
    cluster = Cluster.from_wire(make_cluster(diskparams=params[0]))
    group = NodeGroup.from_wire(make_group(diskparams=params[1]))
    new = plan_disk(cluster, DiskTemplate.FILE, "disk/0", {"size": 1, **settings})
    place = file_place(cluster, group, DiskTemplate.FILE, "web1", None, None)
    disk = describe_disk(new, 0, place, [NODE], iter("ux").__next__)
    assert build_rpc_disk(cluster, group, disk).format is disk.format
    return disk


@pytest.mark.parametrize(
    ("settings", "of_cluster", "of_group", "format_"),
    [
        ({}, "", "", "raw"),
        ({"format": "qcow2"}, "", "", "qcow2"),
        ({}, "qcow2", "", "qcow2"),
        ({}, "qcow2", "raw", "raw"),
        ({}, "raw", "qcow2", "qcow2"),
        ({"format": "raw"}, "qcow2", "qcow2", "raw"),
    ],
)
def test_a_new_file_has_the_format_of_its_disk_group_or_cluster(
    settings: dict[str, str | int], of_cluster: str, of_group: str, format_: str
) -> None:
    disk = new_file(settings, of_cluster, of_group)
    assert disk.format == format_
    assert disk.params == ({} if format_ == "raw" else {"format": format_})


def test_files_keep_their_format_whatever_new_ones_get() -> None:
    raw = new_file({})
    cluster = Cluster.from_wire(make_cluster(diskparams={"file": {"format": "qcow2"}}))
    assert build_rpc_disk(cluster, GROUP, raw).format == "raw"
    image = new_file({"format": "qcow2"})
    assert build_rpc_disk(CLUSTER, GROUP, image).format == "qcow2"


def test_only_kvm_reads_images() -> None:
    image = new_file({"format": "qcow2"})
    check_formats("kvm", [image])
    check_formats("chroot", [new_file({})])
    with pytest.raises(OpPrereqError, match=r"disk/0: hypervisor 'chroot' .*; give format=raw"):
        check_formats("chroot", [image])


@pytest.mark.parametrize("name", ["web1", "WEB1.Example.COM.", "a_b-c", "x" * 63 + ".de"])
def test_good_names(name: str) -> None:
    assert normal_name("instance", name) == name.lower().rstrip(".")


@pytest.mark.parametrize("name", ["", "-x", "a b", "a..b", ".a", "x" * 64, "a/b", "ü", "a." * 200])
def test_bad_names(name: str) -> None:
    with pytest.raises(OpPrereqError):
        normal_name("instance", name)


def test_devices_are_adopted_with_the_size_they_have() -> None:
    path = "/dev/disk/by-id/wwn-0x5000"
    assert plan_disk(CLUSTER, DiskTemplate.BLOCKDEV, "disk/0", {"adopt": path}) == NewDisk(
        DiskTemplate.BLOCKDEV, 0, DiskMode.RW, None, params={}, adopt=path
    )


@pytest.mark.parametrize(
    ("template", "settings", "text"),
    [
        ("blockdev", {"size": 1}, "adopts devices"),
        ("blockdev", {"adopt": "/dev/disk/x", "size": 1}, "size is that of what is adopted"),
        ("blockdev", {"adopt": "/dev/sda"}, "give one below /dev/disk/"),
        ("blockdev", {"adopt": "/dev/disk/../sda"}, "give one below /dev/disk/"),
        ("gluster", {"size": 1, "adopt": "/dev/disk/x"}, "'adopt' cannot be given"),
        ("file", {"size": 1, "adopt": "/srv/x"}, "size is that of what is adopted"),
        ("file", {"adopt": "x"}, "'x' is not the absolute path of a file"),
        ("file", {"adopt": "/srv/../x"}, "is not the absolute path of a file"),
        ("ext", {"size": 1}, "needs a provider"),
        ("ext", {"size": 1, "provider": "p", "access": "x"}, "not one of kernelspace, userspace"),
        ("plain", {"size": 1, "stripes": 0}, "^disk/0: plain parameter 'stripes': 0 is not betw"),
        ("plain", {"size": 1, "stripe-size": 5}, "'stripe-size': 5 is not one of 0, 4, 8, 16"),
        ("plain", {"size": 1, "protocol": "C"}, "protocol: not known for .*'plain', which has str"),
        ("file", {"size": 1, "stripes": 2}, "stripes: not known for .*'file', which has format;"),
        ("drbd", {"size": 1, "resync-rate": "-4"}, "drbd parameter 'resync-rate': -4 is not"),
    ],
)
def test_what_comes_from_outside_is_checked(
    template: str, settings: dict[str, str | int], text: str
) -> None:
    with pytest.raises(OpPrereqError, match=text):
        plan_disk(CLUSTER, DiskTemplate(template), "disk/0", settings)


@pytest.mark.shows("2.0/disk/size-auto", "2.0/gnt-cluster/disksize")
@pytest.mark.parametrize("settings", [{}, {"size": "auto"}])
def test_a_disk_without_a_size_has_that_of_the_policy(settings: dict[str, str | int]) -> None:
    assert plan_disk(CLUSTER, DiskTemplate.FILE, "disk/0", settings).size_mib == 777


def test_names_of_disks_are_unique_in_an_instance() -> None:
    with pytest.raises(OpPrereqError, match="several disks are to be called 'x'"):
        plan_disks(CLUSTER, DiskTemplate.FILE, [{"size": 1, "name": "x"}, {"size": 1, "name": "x"}])


def test_a_disk_has_parameters_of_its_own() -> None:
    given = {"size": 9, "stripes": "2"}
    planned = plan_disk(CLUSTER, DiskTemplate.PLAIN, "disk/0", given)
    assert planned.params == {"stripes": 2}
    given = {"size": 9, "protocol": "default", "dynamic-resync": "yes", "data-stripes": 2}
    planned = plan_disk(CLUSTER, DiskTemplate.DRBD, "disk/0", given)
    assert planned.params == {"dynamic-resync": True, "data-stripes": 2}
    assert plan_disk(CLUSTER, DiskTemplate.FILE, "disk/0", {"size": 9}).params == {}


def plain_disk(**params: object) -> Disk:
    wire = {"uuid": "d", "size": 9, "dev_type": "plain", "logical_id": ["v", "d"], "serial_no": 1}
    return Disk.from_wire({**wire, "params": params})


def test_a_disk_that_is_made_anew_may_have_other_parameters() -> None:
    disk = plain_disk(stripes=2)
    assert plan_recreation([disk], [0])[0].params == {"stripes": 2}
    assert plan_recreation([disk], [(0, {"stripes": "3"})])[0].params == {"stripes": 3}
    assert plan_recreation([disk], [(0, {"stripes": "default"})])[0].params == {}
    with pytest.raises(OpPrereqError, match="'stripes': 999 is not between 1 and 128"):
        plan_recreation([disk], [(0, {"stripes": 999})])
    with pytest.raises(
        OpPrereqError, match="only mode and size and stripe-size and stripes and thin-pool can"
    ):
        plan_recreation([disk], [(0, {"protocol": "C"})])


def test_a_disk_is_asked_for_with_its_own_parameters() -> None:
    settings = planner_of("plain").settings_of(plain_disk(stripes=2))
    assert settings == {"size": 9, "mode": "rw", "stripes": 2, "vg": "v"}
