"""All node daemons of a cluster in memory.

They keep disks, directories and running instances per node, record every call, and fail where a test
tells them to.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ganeti.base.errors import GenericError
from ganeti.base.versions import PROTOCOL_VERSION
from ganeti.clients.node_rpc import NodeClient, RpcResult, Target, read_answer
from ganeti.protocol.node_rpc import (
    NodeCall,
    decode_arguments,
    encode_arguments,
    encode_failure,
    encode_result,
)

NODE_MEMORY_MIB = 4096


class FakeNode:
    """What is on one node."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.disks: set[str] = set()
        self.data: dict[str, str] = {}  # disk -> what is in it, "" when it is new
        self.directories: set[str] = set()
        self.running: dict[str, int] = {}  # instance -> state, 0 running, 1 stopped
        self.receiving: set[str] = set()
        self.memory: dict[str, int] = {}  # of those whose memory was changed
        self.plugged: dict[str, list[tuple[str, str, str]]] = {}  # instance -> changes while up
        self.snapshots: dict[str, dict[str, str]] = {}  # instance -> disk's UUID -> its path
        self.files: dict[str, object] = {}
        self.has_left = False


Failure = Callable[[str, str, Sequence[Any]], str | None]


class FakeRpc(NodeClient):
    """All node daemons of a cluster."""

    def __init__(self) -> None:
        self.nodes: dict[str, FakeNode] = {}
        self.calls: list[tuple[str, str, list[Any]]] = []  # node, call, arguments
        self.failure: Failure = lambda _node, _call, _args: None
        self.lost_answer: Failure = lambda _node, _call, _args: None
        self.hook_results: dict[str, list[Any]] = {}
        self.migration_states: list[dict[str, Any]] = []
        self.transfers: dict[str, tuple[FakeNode, str]] = {}  # name -> disk of a node
        self.transfer_error: str | None = None
        self.providers: list[Any] = []
        self.devices: dict[str, int] = {}
        self.shared: set[str] = set()  # disks on storage that all nodes see
        self.os_list: dict[str, list[Any]] = {}
        self.version: object = PROTOCOL_VERSION
        self.verify_answers: dict[str, Any] = {}
        self.has_ip = True
        self.answers: dict[str, Any] = {}  # of calls that nothing here plays
        # allocators by name: question and options to what is printed
        self.allocators: dict[str, Callable[[dict[str, Any], dict[str, Any]], str]] = {}

    def node(self, name: str) -> FakeNode:
        """Return a node, making it when it is asked for the first time."""
        if "." not in name:
            name += ".example.com"
        return self.nodes.setdefault(name, FakeNode(name))

    def fail(self, call: str, node: str | None = None, text: str = "it broke") -> None:
        """Let every such call fail."""
        self.failure = lambda where, name, _args: (
            text if name == call and node in (None, where, where.partition(".")[0]) else None
        )

    def perform(
        self, call: NodeCall, targets: Mapping[Target, Sequence[object]]
    ) -> dict[str, RpcResult[Any]]:
        return {target.name: self._one(call, target, args) for target, args in targets.items()}

    def _one(self, call: NodeCall, target: Target, sent: Sequence[object]) -> RpcResult[Any]:
        if target.offline and not call.rules.to_offline:
            return RpcResult(target.name, error="is marked offline", offline=True, call=call.name)
        args = decode_arguments(call, encode_arguments(call, sent))
        name = call.name
        call.read(args)  # the node would refuse a wrong one
        self.calls.append((target.name, name, args))
        refused = self.failure(target.name, name, args)
        if refused is not None:
            return read_answer(call, target.name, encode_failure(refused))
        try:
            payload = self._play(name, self.node(target.name), copy.deepcopy(args))
        except GenericError as err:
            return read_answer(call, target.name, encode_failure(err.message))
        lost = self.lost_answer(target.name, name, args)
        if lost:
            return read_answer(call, target.name, encode_failure(lost))
        return read_answer(call, target.name, encode_result(payload))

    def _play(self, call: str, node: FakeNode, args: list[Any]) -> Any:
        played = getattr(self, "do_" + call, None)
        return self.answers.get(call) if played is None else played(node, *args)

    def called(self, call: str) -> list[tuple[str, list[Any]]]:
        """Return (short node name, arguments) of each such call."""
        return [(n.partition(".")[0], args) for n, name, args in self.calls if name == call]

    def names(self) -> list[str]:
        """Return the names of all calls in order."""
        return [name for _, name, _ in self.calls]

    # What the node daemons do.

    def do_version(self, _node: FakeNode) -> object:
        return self.version

    def do_test_delay(self, _node: FakeNode, _duration: float) -> None:
        return None

    def do_hooks_runner(self, node: FakeNode, path: str, phase: str, _env: Any) -> list[Any]:
        return self.hook_results.get(f"{node.name.partition('.')[0]}:{path}-{phase}", [])

    def do_node_info(self, node: FakeNode, _units: Any, hypervisors: list[Any]) -> list[Any]:
        used = 128 * len(node.running)
        return [
            "boot",
            [],
            [{"memory_total": NODE_MEMORY_MIB, "memory_free": NODE_MEMORY_MIB - used}]
            * len(hypervisors),
        ]

    def do_iallocator_runner(
        self, _node: FakeNode, name: str, question: str, options: dict[str, Any]
    ) -> str:
        if name not in self.allocators:
            raise GenericError(f"iallocator {name!r} is not in /usr/lib/ganeti/iallocators")
        return self.allocators[name](json.loads(question), options)

    def do_node_verify(self, node: FakeNode, checks: Any, _name: str, _params: Any) -> Any:
        number = node.name.partition(".")[0].removeprefix("node")
        return {
            "version": [PROTOCOL_VERSION, "3.0.2"],
            "time": [1000, 0],
            "client-cert": [None, f"D{number}"],
            "filelist": {},
            "hypervisor": {},
            **self.verify_answers,
        }

    def do_node_crypto_tokens(self, node: FakeNode, request: list[Any]) -> list[Any]:
        return [["ssl", f"DIGEST:{node.name}"] for _ in request]

    def do_node_has_ip_address(self, _node: FakeNode, _address: str) -> bool:
        return self.has_ip

    def do_node_leave_cluster(self, node: FakeNode, _ssh: bool) -> None:
        node.has_left = True

    def do_node_demote_from_mc(self, _node: FakeNode) -> None:
        return None

    def do_node_deactivate_master_ip(self, _node: FakeNode, _params: Any, _script: bool) -> None:
        return None

    def do_node_activate_master_ip(self, _node: FakeNode, _params: Any, _script: bool) -> None:
        return None

    def do_etc_hosts_modify(self, _node: FakeNode, _mode: str, _name: str, _ip: Any) -> bool:
        return True

    def do_upload_file(self, node: FakeNode, details: Any) -> None:
        node.files[details[0]] = details

    def do_hypervisor_validate_params(self, _node: FakeNode, _name: str, _params: Any) -> None:
        return None

    def do_os_validate(self, _node: FakeNode, *_args: Any) -> bool:
        return True

    def do_os_diagnose(self, node: FakeNode) -> list[Any]:
        return self.os_list.get(node.name.partition(".")[0], [])

    def do_bridges_exist(self, _node: FakeNode, _bridges: list[str]) -> None:
        return None

    def do_file_storage_dir_create(self, node: FakeNode, path: str) -> None:
        node.directories.add(path)

    def do_file_storage_dir_remove(self, node: FakeNode, path: str) -> None:
        node.directories.discard(path)

    def do_file_storage_dir_rename(self, node: FakeNode, old: str, new: str) -> None:
        node.directories.discard(old)
        node.directories.add(new)
        for place in (node.disks, self.shared):
            for path in [path for path in place if path.startswith(f"{old}/")]:
                place.remove(path)
                place.add(new + path.removeprefix(old))
                node.data[new + path.removeprefix(old)] = node.data.pop(path, "")

    def _place(self, node: FakeNode, disk: Mapping[str, Any]) -> set[str]:
        return node.disks if disk["dev_type"] == "file" else self.shared

    def do_blockdev_create(self, node: FakeNode, disk: Any, *_args: Any) -> None:
        if disk["logical_id"][1] in self._place(node, disk):
            raise GenericError(f"disk {disk['logical_id'][1]} exists")
        self._place(node, disk).add(disk["logical_id"][1])
        node.data[disk["logical_id"][1]] = ""

    def do_blockdev_remove(self, node: FakeNode, disk: Any) -> None:
        self._place(node, disk).discard(disk["logical_id"][1])
        node.data.pop(disk["logical_id"][1], None)

    def do_blockdev_grow(self, node: FakeNode, disk: Any, *_args: Any) -> None:
        self._must_have(node, disk)

    def do_export_list(self, _node: FakeNode) -> list[str]:
        return self.answers.get("export_list", [])

    def do_extstorage_diagnose(self, _node: FakeNode) -> list[Any]:
        return self.providers

    def do_bdev_sizes(self, _node: FakeNode, paths: list[str]) -> dict[str, int]:
        return {path: self.devices[path] for path in paths if path in self.devices}

    def do_import_start(
        self, node: FakeNode, _opts: Any, _instance: Any, _component: str, dest: Any
    ) -> str:
        name = f"import-{len(self.transfers)}"
        self.transfers[name] = (node, self._end(node, dest))
        return name

    def _end(self, node: FakeNode, io: Any) -> str:
        """Return the path of what one end of a transfer is."""
        kind, args = io
        if kind == "file":
            return str(args[0])
        if kind == "snapshot":
            found = {uuid: path for kept in node.snapshots.values() for uuid, path in kept.items()}
            return found[args[0]]
        self._must_have(node, args[0])
        return str(args[0]["logical_id"][1])

    def do_export_start(self, node: FakeNode, *args: Any) -> str:
        _opts, _host, port, _instance, _component, source = args
        name = f"export-{len(self.transfers)}"
        path = self._end(node, source)
        self.transfers[name] = (node, path)
        if self.transfer_error is None:
            into, into_path = self.transfers[f"import-{port}"]
            into.data[into_path] = node.data.get(path, "")
        return name

    def do_impexp_status(self, _node: FakeNode, names: list[str]) -> list[Any]:
        return [
            {
                "exit_status": 0 if self.transfer_error is None else 1,
                "error_message": self.transfer_error,
                "listen_port": int(name.rpartition("-")[2]),
                "progress_percent": 100.0,
            }
            for name in names
        ]

    def do_impexp_cleanup(self, _node: FakeNode, name: str) -> None:
        del self.transfers[name]

    def do_blockdev_rename(self, node: FakeNode, pairs: list[Any]) -> None:
        for disk, new_id in pairs:
            self.do_blockdev_remove(node, disk)
            self._place(node, disk).add(new_id[1])

    def do_blockdev_assemble(
        self, node: FakeNode, disk: Any, _instance: Any, _primary: bool, _index: int
    ) -> list[Any]:
        self._must_have(node, disk)
        return [disk["logical_id"][1], None, None]

    def _must_have(self, node: FakeNode, disk: Any) -> None:
        if disk["logical_id"][1] not in self._place(node, disk):
            raise GenericError(f"disk {disk['logical_id'][1]} is not there")

    def do_blockdev_shutdown(self, _node: FakeNode, _disk: Any) -> None:
        return None

    def do_blockdev_wipe(self, _node: FakeNode, _disk: Any, _offset: int, _size: int) -> None:
        return None

    def do_blockdev_find(self, node: FakeNode, disk: Any) -> Any:
        there = disk["logical_id"][1] in self._place(node, disk)
        return {"dev_path": disk["logical_id"][1], "ldisk_status": 1} if there else None

    def do_blockdev_getmirrorstatus_multi(self, node: FakeNode, disks: list[Any]) -> list[Any]:
        found = [self.do_blockdev_find(node, disk) for disk in disks]
        return [[False, "it is not there"] if one is None else [True, one] for one in found]

    def do_storage_list(self, node: FakeNode, *args: Any) -> list[list[Any]]:
        _kind, directories, name, fields = args
        values = {"allocatable": True, "free": 7, "size": 9, "used": 2}
        return [
            [(values | {"name": path})[field] for field in fields]
            for path in directories[0]
            if name in (None, path)
        ]

    def do_blockdev_getdimensions(self, _node: FakeNode, disks: list[Any]) -> list[Any]:
        return [[disk["size"] << 20, None] for disk in disks]

    def do_instance_os_add(self, node: FakeNode, instance: Any, _again: bool, _debug: int) -> None:
        for disk in instance["disks_info"]:
            self._must_have(node, disk)

    def do_instance_run_rename(self, *_args: Any) -> None:
        return None

    def do_instance_info(self, node: FakeNode, name: str, _hv: str, _params: Any) -> Any:
        if name not in node.running:
            return {}
        memory_mib = node.memory.get(name, 128)
        return {"memory": memory_mib, "vcpus": 1, "state": node.running[name], "time": 1.0}

    def do_all_instances_info(self, node: FakeNode, _names: Any, _params: Any) -> Any:
        return {name: self.do_instance_info(node, name, "", {}) for name in node.running}

    def do_instance_list(self, node: FakeNode, _names: Any, _params: Any) -> list[str]:
        return sorted(node.running)

    def do_instance_start(self, node: FakeNode, instance: Any, _paused: bool, _reason: Any) -> None:
        for disk in instance["disks_info"]:
            self._must_have(node, disk)
        node.running[instance["name"]] = 0

    def do_instance_shutdown(self, node: FakeNode, instance: Any, _timeout: int, _why: Any) -> None:
        node.running.pop(instance["name"], None)

    def do_instance_balloon_memory(self, node: FakeNode, instance: Any, memory: int) -> None:
        if instance["name"] not in node.running:
            raise GenericError("it does not run here")
        node.memory[instance["name"]] = memory

    def do_hotplug_supported(self, node: FakeNode, instance: Any) -> None:
        if node.running.get(instance["name"]) != 0:
            raise GenericError("it does not run here")

    def do_instance_snapshot_supported(self, node: FakeNode, instance: Any) -> None:
        self.do_hotplug_supported(node, instance)

    def do_instance_snapshot(self, node: FakeNode, instance: Any) -> None:
        self.do_hotplug_supported(node, instance)
        paths = {disk["uuid"]: disk["logical_id"][1] for disk in instance["disks_info"]}
        node.snapshots[instance["name"]] = paths

    def do_instance_snapshot_drop(self, node: FakeNode, instance: Any) -> None:
        node.snapshots.pop(instance["name"], None)

    def do_hotplug_device(self, node: FakeNode, instance: Any, *change: Any) -> str:
        action, kind, device, _extra, _seq = change
        self.do_hotplug_supported(node, instance)
        plugged = node.plugged.setdefault(instance["name"], [])
        plugged.append((action, kind, device["uuid"]))
        return "pci.0/0xc"

    def do_instance_reboot(self, node: FakeNode, instance: Any, *_args: Any) -> None:
        if instance["name"] not in node.running:
            raise GenericError("it does not run")

    def do_instance_console_info(self, _node: FakeNode, instances: Mapping[str, Any]) -> Any:
        return {name: {"instance": name, "kind": "msg", "message": "hello"} for name in instances}

    def do_instance_migratable(self, node: FakeNode, instance: Any) -> None:
        if node.running.get(instance["name"]) != 0:
            raise GenericError("it does not run here")

    def do_migration_info(self, _node: FakeNode, instance: Any) -> str:
        return f"info of {instance['name']}"

    def do_accept_instance(self, node: FakeNode, instance: Any, _info: str, target: str) -> str:
        node.receiving.add(instance["name"])
        return f"{target}:8102"

    def do_instance_migrate(
        self, node: FakeNode, _cluster: str, instance: Any, _target: str, _live: bool
    ) -> None:
        if node.running.get(instance["name"]) != 0:
            raise GenericError("it does not run here")

    def do_instance_get_migration_status(self, node: FakeNode, instance: Any) -> Any:
        state = self.migration_states.pop(0) if self.migration_states else {"status": "completed"}
        if state["status"] == "completed":
            node.running[instance["name"]] = 1
        return state

    def do_instance_finalize_migration_dst(
        self, node: FakeNode, instance: Any, _info: str, success: bool
    ) -> None:
        if instance["name"] in node.receiving and success:
            node.running[instance["name"]] = 0
        node.receiving.discard(instance["name"])

    def do_instance_finalize_migration_src(
        self, node: FakeNode, instance: Any, success: bool, _live: bool
    ) -> None:
        if success:
            node.running.pop(instance["name"], None)
        elif instance["name"] in node.running:
            node.running[instance["name"]] = 0
