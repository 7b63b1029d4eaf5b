import copy
import json
import os
from typing import Any

import pytest
from fakes.sample_config import CONFIG

from ganeti.base.errors import ConfigurationError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.luxid.config_view import ConfigView
from ganeti.query.cluster_values import Surroundings, cluster_info, config_values


class Files:
    """A configuration file, in a directory of the test."""

    def __init__(self, root: str) -> None:
        self.paths = Paths(root)
        self.config: dict[str, Any] = copy.deepcopy(CONFIG)

    def write(self, data: bytes | None = None) -> None:
        os.makedirs(self.paths.data_dir, exist_ok=True)
        with open(self.paths.config_data, "wb") as file:
            file.write(json.dumps(self.config).encode() if data is None else data)


@pytest.fixture
def files(tmp_path: object) -> Files:
    made = Files(str(tmp_path))
    made.write()
    return made


def test_without_a_file_there_is_one_clear_error(tmp_path: object) -> None:
    view = ConfigView(Paths(str(tmp_path)))
    with pytest.raises(ConfigurationError, match="does not exist"):
        _ = view.cluster


def test_an_event_makes_the_view_read_again(files: Files) -> None:
    view = ConfigView(files.paths)
    assert view.cluster.cluster_name == CONFIG["cluster"]["cluster_name"]
    files.config["cluster"]["tags"] = ["new"]
    files.write()
    assert view.cluster.tags != ["new"]
    view.on_file_event("other", "moved_to")
    assert not view.refresh()
    view.on_file_event("config.data", "moved_to")
    assert view.refresh()
    assert view.cluster.tags == ["new"]


def test_lost_events_make_the_view_read_again(files: Files) -> None:
    view = ConfigView(files.paths)
    view.refresh()
    view.on_file_event("", "overflow")
    assert view.refresh()


def test_a_broken_file_leaves_the_view_as_it_was(files: Files) -> None:
    view = ConfigView(files.paths)
    nodes = len(view.nodes) or len(CONFIG["nodes"])
    view.refresh()
    files.write(b"{broken")
    view.on_file_event("config.data", "moved_to")
    assert not view.refresh()
    assert len(view.nodes) == nodes
    assert view.cluster.uuid == CONFIG["cluster"]["uuid"]


@pytest.mark.shows("2.0/architecture/long-lived")
def test_only_what_changed_is_decoded_again(files: Files) -> None:
    view = ConfigView(files.paths)
    view.refresh()
    before = {uuid: view.nodes[uuid] for uuid in view.nodes}
    changed = next(iter(before))
    files.config["nodes"][changed]["tags"] = ["changed"]
    files.write()
    view.on_file_event("config.data", "moved_to")
    old = view.nodes
    view.refresh()
    for uuid, node in before.items():
        assert (view.nodes[uuid] is node) == (uuid != changed)
    assert view.nodes[changed].tags == ["changed"]
    assert old[changed] is before[changed] or old[changed].tags != ["changed"]


def test_names_follow_renames_additions_and_removals(files: Files) -> None:
    view = ConfigView(files.paths)
    view.refresh()
    first, *rest = view.nodes
    assert view.nodes.named(view.nodes[first].name.partition(".")[0]) == [first]
    files.config["nodes"][first]["name"] = "renamed.example.com"
    for uuid in rest:
        del files.config["nodes"][uuid]
    new = copy.deepcopy(files.config["nodes"][first])
    new.update(uuid="new-uuid", name="added.example.com")
    files.config["nodes"]["new-uuid"] = new
    names = [view.nodes[uuid].name for uuid in rest]
    files.write()
    view.on_file_event("config.data", "moved_to")
    view.refresh()
    assert view.nodes.named("renamed") == [first]
    assert view.nodes.named("added.example.com") == ["new-uuid"]
    assert all(view.nodes.named(name) == [] for name in names)


def test_objects_are_found_by_uuid_name_and_short_name(files: Files) -> None:
    view = ConfigView(files.paths)
    view.refresh()
    uuid = next(iter(view.nodes))
    name = view.nodes[uuid].name
    for key in (uuid, name, name.partition(".")[0]):
        found = view.nodes.find(key)
        assert found == uuid
    assert view.nodes.find("nowhere") is None
    with pytest.raises(OpPrereqError, match="node 'nowhere' not found"):
        view.require("nodes", "nowhere")


def test_an_ambiguous_short_name_is_refused(files: Files) -> None:
    first = next(iter(files.config["nodes"]))
    files.config["nodes"][first]["name"] = "twin.example.com"
    twin = {**files.config["nodes"][first], "uuid": "uuid-2", "name": "twin.elsewhere.org"}
    files.config["nodes"]["uuid-2"] = twin
    files.write()
    view = ConfigView(files.paths)
    view.refresh()
    with pytest.raises(OpPrereqError, match="ambiguous"):
        view.nodes.find("twin")


INFO_KEYS = [
    "software_version",
    "protocol_version",
    "config_version",
    "os_api_version",
    "export_version",
    "vcs_version",
    "architecture",
    "name",
    "master",
    "default_hypervisor",
    "enabled_hypervisors",
    "hvparams",
    "os_hvp",
    "beparams",
    "osparams",
    "ipolicy",
    "nicparams",
    "ndparams",
    "diskparams",
    "candidate_pool_size",
    "max_running_jobs",
    "max_tracked_jobs",
    "mac_prefix",
    "master_netdev",
    "master_netmask",
    "use_external_mip_script",
    "volume_group_name",
    "drbd_usermode_helper",
    "file_storage_dir",
    "shared_file_storage_dir",
    "gluster_storage_dir",
    "maintain_node_health",
    "ctime",
    "mtime",
    "uuid",
    "tags",
    "uid_pool",
    "default_iallocator",
    "default_iallocator_params",
    "reserved_lvs",
    "primary_ip_version",
    "prealloc_wipe_disks",
    "hidden_os",
    "blacklisted_os",
    "enabled_disk_templates",
    "install_image",
    "instance_communication_network",
    "zeroing_image",
    "compression_tools",
    "enabled_user_shutdown",
    "enabled_data_collectors",
    "data_collector_interval",
    "modify_ssh_setup",
    "ssh_key_type",
    "ssh_key_bits",
]


OWN_INFO_KEYS = [
    *("modify_etc_hosts", "hv_state_static", "disk_state_static", "osparams_private_cluster")
]


def test_cluster_info_has_every_key(files: Files) -> None:
    view = ConfigView(files.paths)
    info = cluster_info(view.cluster, view.master.name, ["64bits", "x86_64"])
    assert set(INFO_KEYS) <= set(info)
    json.dumps(info)


def test_config_values(files: Files) -> None:
    view = ConfigView(files.paths)
    around = Surroundings(
        master_name=view.master.name, architecture=[], is_drained=True, watcher_pause=5.5
    )
    values = config_values(view.cluster, around)
    names = ("drain_flag", "watcher_pause", "ssh_key_bits")
    assert [values[name] for name in names] == [True, 5.5, CONFIG["cluster"]["ssh_key_bits"]]
