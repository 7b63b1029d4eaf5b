"""Making a cluster: the allocator that a new cluster asks by default, and what its disks need here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fakes.shell_scripts import write_script

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.bootstrap import init
from ganeti.bootstrap.cluster_config import ClusterRequest
from ganeti.bootstrap.init import find_allocator
from ganeti.storage.lvm_reports import VolumeGroup
from ganeti.system import files


def test_our_own_allocator_is_the_default_where_it_is(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    assert find_allocator(paths, None) == ""
    directory = Path(paths.iallocator_search_path[-1])
    write_script(directory / "hail", "exit 0", 0o644)
    assert find_allocator(paths, None) == ""
    write_script(directory / "hail", "exit 0")
    assert find_allocator(paths, None) == "hail"
    assert find_allocator(paths, "") == ""


def test_another_one_must_be_there(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    with pytest.raises(GenericError, match="allocator 'mine' is not in"):
        find_allocator(paths, "mine")
    write_script(Path(paths.iallocator_search_path[0]) / "mine", "exit 0")
    assert find_allocator(paths, "mine") == "mine"
    write_script(Path(paths.iallocator_search_path[0]) / "spare", "exit 0")
    assert find_allocator(paths, "mine,spare") == "mine,spare"
    with pytest.raises(GenericError, match="allocator 'other' is not in"):
        find_allocator(paths, "mine,other")
    with pytest.raises(GenericError, match="not a valid name"):
        find_allocator(paths, "../mine")


def test_the_address_of_the_cluster_is_none_of_its_first_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(init.environment, "own_hostname", lambda: "node1")
    monkeypatch.setattr(
        init.environment, "resolve", lambda name, _paths, **_version: (name, "127.0.0.1")
    )
    with pytest.raises(GenericError, match=r"127\.0\.0\.1, which is an address of this node"):
        init.init_cluster(
            Paths(str(tmp_path)),
            ClusterRequest(
                cluster_name="c", enabled_hypervisors=["fake"], enabled_disk_templates=["file"]
            ),
            print,
        )


@pytest.mark.parametrize(
    ("version", "addresses", "named"),
    [
        (6, {"node1": "127.0.0.2", "c": "127.0.0.3"}, "node1 has the address 127.0.0.2"),
        (6, {"node1": "::1", "c": "127.0.0.3"}, "c has the address 127.0.0.3"),
        (4, {"node1": "127.0.0.2", "c": "::2"}, "c has the address ::2"),
    ],
)
def test_addresses_of_another_ip_version_make_no_cluster(
    version: int,
    addresses: dict[str, str],
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def resolve(name: str, _paths: Paths, *, ip_version: int) -> tuple[str, str]:
        asked.append(ip_version)
        return name, addresses[name]

    monkeypatch.setattr(init.environment, "own_hostname", lambda: "node1")
    monkeypatch.setattr(init.environment, "resolve", resolve)
    request = ClusterRequest(
        cluster_name="c",
        enabled_hypervisors=["fake"],
        enabled_disk_templates=["diskless"],
        primary_ip_version=version,
    )
    with pytest.raises(GenericError, match=f"{named}, and the cluster uses IPv{version}"):
        init.init_cluster(Paths(str(tmp_path)), request, print)
    assert set(asked) == {version}


def test_an_init_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_args: object) -> None:
        assert b"127.0.0.2\tnode1" in files.read_bytes(paths.etc_hosts)
        raise GenericError("ganeti-noded does not start")

    paths = Paths(str(tmp_path))
    Path(paths.etc_hosts).parent.mkdir(parents=True)
    Path(paths.etc_hosts).write_text("127.0.0.2 other\n127.0.0.3 c\n")
    monkeypatch.setattr(init.environment, "own_hostname", lambda: "node1")
    addresses = {"node1": "127.0.0.2", "c": "127.0.0.3"}
    monkeypatch.setattr(
        init.environment, "resolve", lambda name, _paths, **_version: (name, addresses[name])
    )
    monkeypatch.setattr(init, "_check_own_address", lambda *_: None)
    monkeypatch.setattr(init, "start_daemons", start)
    request = ClusterRequest(
        cluster_name="c",
        enabled_hypervisors=["fake"],
        enabled_disk_templates=["diskless"],
        modify_ssh_setup=False,
    )
    with pytest.raises(GenericError, match="ganeti-noded does not start"):
        init.init_cluster(paths, request, print)
    assert Path(paths.etc_hosts).read_text() == "127.0.0.2 other\n127.0.0.3 c\n"
    assert not os.path.exists(paths.config_data)


def test_the_first_machine_has_to_have_the_volume_group_and_the_helper(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = ClusterRequest(cluster_name="c", vg_name="xenvg", drbd_helper="/bin/true")
    groups: dict[str, VolumeGroup] = {}
    monkeypatch.setattr(init, "volume_groups", lambda: groups)
    monkeypatch.setattr(init, "usermode_helper", lambda: "/sbin/drbdadm")
    with pytest.raises(
        GenericError, match=r"no volume group 'xenvg'.*DRBD calls '/sbin/drbdadm', not '/bin/true'"
    ):
        init.check_block_storage(asked)
    groups["xenvg"] = VolumeGroup("xenvg", size_bytes=40 << 30, free_bytes=0, extent_bytes=4 << 20)
    monkeypatch.setattr(init, "usermode_helper", lambda: "/bin/true")
    init.check_block_storage(asked)
