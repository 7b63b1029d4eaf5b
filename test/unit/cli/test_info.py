"""The info commands print what 3.0 prints: keys, nesting, order and indentation.

Source: cli_output.json, whose lines are compared with what the describing functions return.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.errors import OpPrereqError
from ganeti.base.paths import Paths
from ganeti.cli import info, job, os
from ganeti.cli.cluster.info import describe as describe_cluster
from ganeti.cli.command import Command, Context, Options
from ganeti.cli.instance.info import describe as describe_instance
from ganeti.cli.run.context import Terminal
from ganeti.cli.run.listing import rows_of_nodes
from ganeti.cli.run.report import Facts, format_report, parameters, policy

RECORD = Path(__file__).resolve().parents[2] / "data" / "cli_output.json"
COMMANDS = json.loads(RECORD.read_text(encoding="utf-8"))["commands"]

NODE = {
    "cpu_speed": 1.0, "exclusive_storage": False, "oob_program": "", "ovs": False, "ovs_link": "",
    "ovs_name": "switch1", "spindle_count": 1, "ssh_port": 22,
}  # fmt: skip
BACKEND = {
    "always_failover": False, "auto_balance": True, "maxmem": 128, "minmem": 128,
    "spindle_use": 1, "vcpus": 1,
}  # fmt: skip
DISKS: Mapping[str, Mapping[str, object]] = {
    "blockdev": {},
    "diskless": {},
    "drbd": {
        "c-delay-target": 1, "c-fill-target": 0, "c-max-rate": 61440, "c-min-rate": 4096,
        "c-plan-ahead": 20, "data-stripes": 1, "disk-barriers": "n", "disk-custom": "",
        "dynamic-resync": False, "meta-barriers": False, "meta-stripes": 1, "metavg": "xenvg",
        "net-custom": "", "protocol": "C", "resync-rate": 61440,
    },
    "ext": {"access": "kernelspace"},
    "file": {},
    "gluster": {"access": "kernelspace", "host": "127.0.0.1", "port": 24007, "volume": "gv0"},
    "plain": {"stripes": 1},
    "rbd": {"access": "kernelspace", "pool": "rbd"},
    "sharedfile": {},
}  # fmt: skip
SPECS = ("cpu-count", "disk-count", "disk-size", "memory-size", "nic-count", "spindle-use")


def specs(*values: int) -> dict[str, int]:
    return dict(zip(SPECS, values, strict=True))


POLICY = {
    "minmax": [{"max": specs(8, 16, 1048576, 32768, 8, 12), "min": specs(1, 0, 0, 4, 0, 0)}],
    "std": specs(1, 1, 1024, 128, 1, 1),
    "disk-templates": ["diskless", "file"],
    "spindle-ratio": 32.0,
    "vcpu-ratio": 4.0,
}
COLLECTORS = ("cpu-avg-load", "diskstats", "drbd", "inst-status-xen", "lv", "xen-cpu-avg-load")
CLUSTER: Mapping[str, Any] = {
    "name": "cluster",
    "uuid": "36f6c68c-2abc-4d96-9b41-07e5907e9313",
    "master": "node1",
    "architecture": ["64bits", "x86_64"],
    "tags": [],
    "default_hypervisor": "fake",
    "enabled_hypervisors": ["fake"],
    "hvparams": {"fake": {"migration_mode": "live"}},
    "os_hvp": {},
    "osparams": {},
    "hidden_os": [],
    "blacklisted_os": [],
    "candidate_pool_size": 10,
    "max_running_jobs": 20,
    "max_tracked_jobs": 25,
    "mac_prefix": "aa:00:00",
    "master_netdev": "lo",
    "master_netmask": 32,
    "use_external_mip_script": False,
    "volume_group_name": None,
    "reserved_lvs": [],
    "drbd_usermode_helper": None,
    "file_storage_dir": "<base>/files",
    "shared_file_storage_dir": "<root>/node1/srv/ganeti/shared-file-storage",
    "gluster_storage_dir": "<root>/node1/var/run/ganeti/gluster",
    "maintain_node_health": False,
    "uid_pool": [],
    "default_iallocator": "hail",
    "default_iallocator_params": {},
    "primary_ip_version": 4,
    "prealloc_wipe_disks": False,
    "enabled_disk_templates": ["diskless", "file"],
    "install_image": "",
    "instance_communication_network": "",
    "zeroing_image": "",
    "compression_tools": ["gzip", "gzip-fast", "gzip-slow"],
    "enabled_user_shutdown": False,
    "modify_ssh_setup": False,
    "ssh_key_type": "rsa",
    "ssh_key_bits": 2048,
    "ndparams": NODE,
    "beparams": {"default": BACKEND},
    "nicparams": {"default": {"link": "xen-br0", "mode": "bridged", "vlan": ""}},
    "diskparams": DISKS,
    "ipolicy": POLICY,
    "enabled_data_collectors": dict.fromkeys(COLLECTORS, True),
    "data_collector_interval": dict.fromkeys(COLLECTORS, 5_000_000.0),
}


def recorded(command: str) -> list[str]:
    """Return the lines that 3.0 printed, without the values that times have."""
    [lines] = [each["stdout"] for each in COMMANDS if each["command"] == command][:1]
    return without_times(lines)


def without_times(lines: Sequence[str]) -> list[str]:
    return [re.sub(" time: .*", " time: T", line) for line in lines]


Tree = list[tuple[str, Any]]


def tree_of(lines: Sequence[str]) -> Any:
    """Read lines as a strict reader of YAML does: {key: value or tree}, or a list of them."""
    if lines[0].lstrip().startswith("- "):
        starts = [i for i, line in enumerate(lines) if line.startswith(_head(lines[0], "- "))]
        ends = [*starts[1:], len(lines)]
        entries = [list(lines[start:end]) for start, end in zip(starts, ends, strict=True)]
        assert starts[0] == 0
        return [
            tree_of([entry[0].replace("- ", "  ", 1), *entry[1:]])
            if ":" in entry[0]
            else entry[0].strip("- ")
            for entry in entries
        ]
    tree: dict[str, Any] = {}
    indent = _head(lines[0], "")
    below: list[str] = []
    key = ""
    for line in [*lines, f"{indent}END:"]:
        if line.startswith((f"{indent} ", f"{indent}- ")):
            assert not tree[key], f"{key} has a value and something below it"
            below.append(line)
            continue
        if below:
            tree[key] = tree_of(below)
            below = []
        key, colon, value = line.strip().partition(":")
        assert line.startswith(indent), line
        assert colon, line
        assert key not in tree, f"{key} is there twice"
        tree[key] = value.strip()
    del tree["END"]
    return tree


def _head(line: str, mark: str) -> str:
    return " " * (len(line) - len(line.lstrip(" "))) + mark


def test_a_cluster_is_shown_as_by_3_0() -> None:
    lines = without_times(format_report(describe_cluster(CLUSTER, Paths(""))))
    assert lines == recorded("gnt-cluster info")
    assert tree_of(lines)["Default disk parameters"]["plain"] == {"stripes": "1"}


def test_what_only_we_show_of_a_cluster_comes_last() -> None:
    more = {
        "modify_etc_hosts": True,
        "hv_state_static": {"kvm": {"cpu_total": 4}},
        "osparams_private_cluster": {"noop": {"key": "***"}},
    }
    lines = without_times(format_report(describe_cluster({**CLUSTER, **more}, Paths(""))))
    known = recorded("gnt-cluster info")
    assert lines[: len(known)] == known
    assert tree_of(lines[len(known) :]) == {
        "Modify /etc/hosts": "True",
        "Private OS parameters": {"noop": {"key": "***"}},
        "Hypervisor state": {"kvm": {"cpu_total": "4"}},
    }


def test_lists_and_settings_of_a_cluster() -> None:
    found = {
        **CLUSTER,
        "tags": ["a", "b"],
        "hidden_os": ["x", "y"],
        "uid_pool": [[5, 5], [7, 9]],
        "reserved_lvs": ["v/a", "v/b"],
        "osparams": {"noop": {"size": "1"}},
        "data_collector_interval": {"lv": 2_500_000},
        "enabled_data_collectors": {"lv": False},
    }
    tree = tree_of(format_report(describe_cluster(found, Paths(""))))
    assert tree["Tags"] == "a, b"
    assert tree["Hidden OSes"] == "x, y"
    assert tree["OS parameters"] == {"noop": {"size": "1"}}
    assert tree["Cluster parameters"]["uid pool"] == "5,7-9"
    assert tree["Cluster parameters"]["lvm reserved volumes"] == "v/a, v/b"
    assert tree["Data collectors"] == {"lv": {"active": "False", "interval": "2.500s"}}


def test_numbers_of_parameters_may_be_roman() -> None:
    facts = describe_cluster({**CLUSTER, "uid_pool": [[7, 9]]}, Paths(""), is_roman=True)
    tree = tree_of(format_report(facts))
    assert tree["Cluster parameters"]["candidate pool size"] == "X"
    assert tree["Default instance parameters"]["default"]["maxmem"] == "CXXVIII"
    [bounds] = tree["Instance policy - limits for instances"]["bounds specs"]
    assert bounds["max/0"]["spindle-use"] == "XII"


GROUP = {
    "name": "default",
    "ndparams": NODE,
    "custom_ndparams": {},
    "diskparams": DISKS,
    "custom_diskparams": {},
    "ipolicy": POLICY,
    "custom_ipolicy": {},
    "uuid": "u-1",
    "alloc_policy": "preferred",
    "node_list": ["node1", "node2"],
    "pinst_list": [],
    "tags": [],
}


def shown_group(values: Mapping[str, object]) -> list[str]:
    row = [values[name] for name in info.fields_of(info._GROUP)]
    return format_report([info.facts_of(info._GROUP, row)])


def test_a_group_is_shown_as_by_3_0_and_more_comes_after() -> None:
    own = {"name": "g2", "ndparams": {**NODE, "spindle_count": 2}}
    lines = shown_group({**GROUP, **own, "custom_ndparams": {"spindle_count": 2}})
    # 3.0 prints the last two, the ratios, in an order that differs from run to run.
    known = recorded("gnt-group info g2")
    assert lines[: len(known)] == known
    assert tree_of(lines)[0]["Nodes"] == ["node1", "node2"]
    assert lines[len(known) :] == [
        "  UUID: u-1",
        "  Allocation policy: preferred",
        "  Nodes:",
        "    - node1",
        "    - node2",
        "  Primary instances:",
        "  Tags:",
    ]


def test_own_values_of_a_group_are_no_defaults() -> None:
    bounds = [{"min": specs(1, 1, 1, 1, 1, 1), "max": specs(2, 2, 2, 2, 2, 2)}] * 2
    own_policy = {"minmax": bounds, "vcpu-ratio": 2.5}
    own = {
        "ndparams": {**NODE, "spindle_count": 2},
        "custom_ndparams": {"spindle_count": 2},
        "diskparams": {**DISKS, "plain": {"stripes": 3}},
        "custom_diskparams": {"plain": {"stripes": 3}, "file": {}},
        "ipolicy": {**POLICY, **own_policy},
        "custom_ipolicy": own_policy,
    }
    [tree] = tree_of(shown_group({**GROUP, **own}))
    assert tree["Node parameters"]["spindle_count"] == "2"
    assert tree["Node parameters"]["ssh_port"] == "default (22)"
    assert tree["Disk parameters"]["plain"] == {"stripes": "3"}
    assert tree["Disk parameters"]["rbd"]["pool"] == "default (rbd)"
    assert tree["Disk parameters"]["file"] == ""
    found = tree["Instance policy"]
    assert [list(pair) for pair in found["bounds specs"]] == [
        ["min/0", "max/0"],
        ["min/1", "max/1"],
    ]
    assert found["bounds specs"][1]["max/1"]["cpu-count"] == "2"
    assert found["vcpu-ratio"] == "2.5"
    assert found["spindle-ratio"] == "default (32)"
    assert found["allowed disk templates"] == "default (diskless, file)"


def shown_node(**values: object) -> list[str]:
    node = {
        "name": "node2", "pip": "192.0.2.11", "sip": "192.0.2.11", "master_candidate": True,
        "drained": False, "offline": False, "master_capable": True, "vm_capable": True,
        "powered": None, "pinst_list": [], "sinst_list": [], "ndparams": NODE,
        "custom_ndparams": {}, **values,
    }  # fmt: skip
    row = [node[name] for name in info.fields_of(info._NODE)]
    return format_report([info.facts_of(info._NODE, row)])


class Answers:
    """A LuxiD that knows some rows."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def query_nodes(self, _names: object, fields: Sequence[str]) -> list[list[object]]:
        return [[name, *["x" for _ in fields[1:]]] for name in self.names]

    query_groups = query_nodes

    def close(self) -> None:
        return


def context_of(client: Answers) -> tuple[Context, io.StringIO]:
    """Return the surroundings of a command, and what it says."""
    said = io.StringIO()
    context = Context("gnt-node", Command("info", ""), Options({}), Terminal(said, said, said))
    context._client = client  # type: ignore[assignment]
    return context, said


def test_a_node_may_be_named_in_capitals() -> None:
    context, said = context_of(Answers("node2.example.com"))
    info.node_info(context, Options({}), ["NODE2", "node2"])
    assert "no such node" not in said.getvalue()
    info.node_info(context, Options({}), ["NODE3"])
    assert "no such node: NODE3" in said.getvalue()
    assert rows_of_nodes(context, ["NODE2", "node2"], ["name"]) == [["node2.example.com"]]
    with pytest.raises(OpPrereqError, match="node 'NODE3' is not known"):
        rows_of_nodes(context, ["NODE3"], ["name"])


def test_a_group_is_named_exactly() -> None:
    context, _ = context_of(Answers("default"))
    with pytest.raises(OpPrereqError, match="no such group: DEFAULT"):
        info.group_info(context, Options({}), ["DEFAULT"])


def test_a_node_is_shown_as_by_3_0() -> None:
    assert shown_node() == recorded("gnt-node info node2")
    [tree] = tree_of(shown_node(powered=False, pinst_list=["web1", "web2"]))
    assert tree["powered"] == "False"
    assert tree["primary for instances"] == ["web1", "web2"]
    [tree] = tree_of(shown_node(vm_capable=False))
    assert "primary for instances" not in tree


INSTANCE: Mapping[str, Any] = {
    "name": "inst2",
    "uuid": "b2601ed8-ec9e-490b-9105-217646b58047",
    "serial_no": 3,
    "config_state": "up",
    "run_state": "up",
    "pnode": "node2",
    "pnode_group_name": "default",
    "pnode_group_uuid": "c014b8b1-b4ff-4899-bf99-22d19d5d3433",
    "snodes": [],
    "snodes_group_names": [],
    "snodes_group_uuids": [],
    "os": "noop",
    "os_actual": {},
    "os_instance": {},
    "network_port": None,
    "hypervisor": "fake",
    "hv_actual": {},
    "hv_instance": {},
    "be_actual": {**BACKEND, "maxmem": 64, "minmem": 64, "memory": 64},
    "be_instance": {"maxmem": 64, "minmem": 64},
    "nics": [
        [
            *(None, "18cf0e50-b25b-4543-949b-697aa860d494", None, "aa:00:00:98:16:d7"),
            *("bridged", "xen-br0", "", None, None),
        ]
    ],
    "disk_template": "file",
    "disks": [
        {
            "iv_name": "disk/0",
            "dev_type": "file",
            "size": 8,
            "mode": "rw",
            "logical_id": [
                "loop",
                "<base>/files/inst2/302bf88d-d182-4083-8679-90803d3d8d32.file.disk0",
            ],
            "pstatus": [
                "<base>/files/inst2/302bf88d-d182-4083-8679-90803d3d8d32.file.disk0",
                *(None, None, None, None, False, 1),
            ],
            "sstatus": None,
            "drbd_info": None,
            "spindles": None,
            "name": None,
            "uuid": "2f62699f-0573-4cf8-9e0f-b9e8e363e59c",
            "children": [],
        }
    ],
}


def shown_instance(**values: object) -> list[str]:
    return without_times(format_report([describe_instance({**INSTANCE, **values})]))


def test_an_instance_is_shown_as_by_3_0() -> None:
    assert shown_instance() == recorded("gnt-instance info inst2")
    static = {"run_state": None, "disks": [{**INSTANCE["disks"][0], "pstatus": None}]}
    assert shown_instance(**static) == recorded("gnt-instance info --static inst2")


def test_numbers_of_an_instance_may_be_roman() -> None:
    values = {**INSTANCE, "serial_no": 7, "network_port": 11004}
    [tree] = tree_of(format_report([describe_instance(values, is_roman=True)]))
    assert (tree["Serial number"], tree["Allocated network port"]) == ("VII", "11004")
    assert tree["Back-end parameters"]["maxmem"] == "LXIV"


def test_a_disk_that_is_lost_is_shown() -> None:
    disk = {**INSTANCE["disks"][0], "pstatus": None, "pstatus_error": "disk/0 does not exist"}
    [tree] = tree_of(shown_instance(disks=[disk]))
    assert tree["Disks"][0]["on primary"] == "*UNAVAILABLE* disk/0 does not exist"


def test_parameters_of_a_disk_of_its_own_are_shown() -> None:
    disk = {**INSTANCE["disks"][0], "dev_type": "plain", "params": {"stripes": 2, "other": 1}}
    [tree] = tree_of(shown_instance(disks=[disk]))
    assert tree["Disks"][0]["own parameters"] == {"stripes": "2"}


def test_the_two_sides_and_parts_of_a_mirrored_disk_are_shown() -> None:
    part = {"dev_type": "plain", "size": 1024, "logical_id": ["vg", "data"], "children": [],
            "pstatus": ["/dev/vg/data", 254, 0, None, None, False, 1], "uuid": "p"}  # fmt: skip
    sides = {"primary_node": "n1", "primary_minor": 0, "secondary_node": "n2",
             "secondary_minor": 4, "port": 11000}  # fmt: skip
    disk = {
        **INSTANCE["disks"][0],
        "dev_type": "drbd",
        "logical_id": ["u1", "u2", 11000, 0, 4, "secret"],
        "drbd_info": sides,
        "pstatus": ["/dev/drbd0", 147, 0, None, None, False, 1],
        "sstatus": ["/dev/drbd4", 147, 4, 40.5, 75, True, 3],
        "children": [part, part],
    }
    secondaries = {"snodes": ["n2"], "snodes_group_names": ["g"], "snodes_group_uuids": ["u"]}
    lines = shown_instance(disks=[disk], **secondaries)
    assert "secret" not in "".join(lines)
    [tree] = tree_of(lines)
    assert tree["Nodes"][1] == {"secondaries": "n2 (group g, group UUID u)"}
    [shown] = tree["Disks"]
    assert shown.pop("child devices")[1] == {
        "child 1": "plain, size 1.0G",
        "logical_id": "vg/data",
        "on primary": "/dev/vg/data (254:0)",
        "name": "None",
        "UUID": "p",
    }
    assert list(shown.items())[1:-2] == [
        ("access mode", "rw"),
        ("nodeA", "n1, minor=0"),
        ("nodeB", "n2, minor=4"),
        ("port", "11000"),
        ("on primary", "/dev/drbd0 (147:0) in sync, status ok"),
        (
            "on secondary",
            "/dev/drbd4 (147:4) *RECOVERING* 40.50%, ETA 75s, status *DEGRADED* *UNCERTAIN STATE*",
        ),
    ]


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("0.0.0.0", "vnc to node2:5912 (display 12)"),
        ("127.0.0.1", "vnc to 127.0.0.1:5912 (node node2) (display 12)"),
        ("/run/vnc", "vnc to node2:/run/vnc"),
        ("", None),
    ],
)
def test_where_the_screen_of_an_instance_is(address: str, text: str | None) -> None:
    [tree] = tree_of(shown_instance(network_port=5912, hv_actual={"vnc_bind_address": address}))
    assert tree.get("console connection") == text
    assert tree["Allocated network port"] == "5912"


NETWORK = {
    "name": "n1", "uuid": "fdd45e4b-5011-40c3-bf17-d54a684db7fc", "serial_no": 1,
    "network": "192.0.2.128/28", "gateway": "192.0.2.129", "network6": None, "gateway6": None,
    "mac_prefix": None, "free_count": 13, "reserved_count": 3, "map": "XX.............X",
    "external_reservations6": "", "external_reservations": "192.0.2.128, 192.0.2.129, 192.0.2.143", "group_list": [],
}  # fmt: skip


def test_a_network_is_shown_as_by_3_0() -> None:
    assert info.describe_network(NETWORK, []) == recorded("gnt-network info n1")
    connected = {**NETWORK, "group_list": [["default", "bridged", "xen-br0", ""]]}
    lines = [each["stdout"] for each in COMMANDS if each["command"] == "gnt-network info n1"]
    assert info.describe_network(connected, []) == lines[1]


def test_users_of_a_network_and_large_maps() -> None:
    user = info.user_line(["web1", ["192.0.2.130", None], ["u", "v"]], "u")
    lines = info.describe_network({**NETWORK, "map": "X" * 100, "free_count": 97}, [user])
    assert lines[-2:] == ["  used by 1 instances:", "    web1: 0:192.0.2.130"]
    assert f"       64 {'X' * 36:<64} 127" in lines
    only6 = {**NETWORK, "network": None, "free_count": None, "external_reservations": None}
    only6["external_reservations6"] = "2001:db8::10-2001:db8::1f"
    lines = info.describe_network(only6, [])
    assert not any("Usage map" in line for line in lines)
    at = lines.index("  externally reserved IPv6s:")
    assert lines[at + 1] == "    2001:db8::10-2001:db8::1f"


DEFINITION = {
    "valid": True, "hidden": False, "blacklisted": False, "api_versions": [10], "variants": [],
    "parameters": [], "trusted": True,
}  # fmt: skip


def test_an_operating_system_is_shown_as_by_3_0() -> None:
    assert ["noop:", *os.describe(DEFINITION)] == recorded("gnt-os info noop")
    more = {**DEFINITION, "variants": ["a", "b"], "parameters": [["size", "how big"]]}
    lines = os.describe(more)
    assert lines[5:8] == ["  - variants:", "    - a", "    - b"]
    assert "    - size: how big" in lines


def test_what_is_said_of_a_copy_of_an_operating_system() -> None:
    line = next(line for line in recorded("gnt-os diagnose") if "Node" in line)
    assert line.endswith(os.Copy("/x", True, "", [], [], [10], True).details)
    copy = os.Copy("/x", True, "", ["a", "b"], [["size", "how big"]], [20, 10], False)
    assert copy.details == (
        " [variants: a, b] [parameters: size] [API versions: 20, 10] [untrusted]"
    )


def test_a_job_is_shown_as_by_3_0() -> None:
    received = [1795384197, 43138]
    reason = [
        ["gnt:client:gnt-node", "add", 1795384196936254464],
        ["gnt:opcode:node_add", "job=3;index=0", 1795384197043138000],
    ]
    opcode = {
        "OP_ID": "OP_NODE_ADD", "comment": None, "debug_level": 0, "depends": None,
        "disk_state": {}, "hv_state": {}, "master_capable": True, "node_name": "node3",
        "primary_ip": "192.0.2.12", "reason": reason, "secondary_ip": "192.0.2.12",
        "vm_capable": True, "node_setup": False, "priority": 0, "readd": False,
    }  # fmt: skip
    entry = [1, [1795384197, 786481], "message", " - INFO: Node will be a master candidate"]
    start, executed, end = [1795384197, 431324], [1795384197, 524979], [1795384199, 779662]
    row = [
        *(3, "success", received, start, [1795384199, 779674], False, None),
        *([opcode], ["success"], [None], [[entry]], [start], [executed], [end]),
    ]
    lines = format_report([job.describe(row)])
    known = next(each["stdout"] for each in COMMANDS if each["command"] == "gnt-job info 3")
    zone = _hour(lines[2]), _hour(known[2])
    assert [line.replace(zone[0], zone[1]) for line in lines] == known
    [tree] = tree_of(lines)
    assert tree["Opcodes"][0]["Input fields"]["node_name"] == "node3"


def _hour(line: str) -> str:
    """Return the date and hour of a line, which depend on the time zone."""
    return line.split(": ", 1)[1].strip()[:13]


def test_a_job_that_waits_has_no_times_yet_and_defaults_are_filled_in() -> None:
    opcode = {"OP_ID": "OP_NODE_ADD", "node_name": "node3"}
    row = [7, "queued", [1, 0], None, None, False, None, [opcode], ["queued"], [None], [[]]]
    [tree] = tree_of(format_report([job.describe([*row, [None], [None], [None]])]))
    assert tree["Processing start"] == "N/A"
    assert tree["Total processing time"] == "N/A"
    assert tree["Opcodes"][0]["Input fields"]["readd"] == "False"
    assert "Archived" not in tree
    row[5] = True
    lines = format_report([job.describe([*row, [None], [None], [None]])])
    assert lines[-1] == "  Archived: True"
    row[6] = "f-1"
    lines = format_report([job.describe([*row, [None], [None], [None]])])
    assert lines[-1] == "  Held by job filter: f-1"
    unknown = [99999, *[None] * 13]
    assert format_report([job.describe(unknown)]) == recorded("gnt-job info 99999")


def test_an_unknown_opcode_is_shown_as_it_is() -> None:
    assert job.defaults_of({"OP_ID": "OP_OF_TOMORROW"}) == {}


def test_filled_parameters_that_are_no_mapping_are_left_empty() -> None:
    assert parameters(None, None) == Facts()
    assert policy(None, None) == [("bounds specs", []), ("allowed disk templates", "default ()")]
