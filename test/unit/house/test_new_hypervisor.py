"""A hypervisor is one file and one row: the recipe of doc/development.md, followed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes.grown_tree import GrownTree

DRIVER = '''
"""Instances that are empty files."""

import os

from ganeti.hypervisor.interface import Hypervisor, InstanceInfo, InstanceState


class DummyHypervisor(Hypervisor):
    """The hypervisor "dummy" on one node."""

    def _path(self, name):
        return os.path.join(self.env.paths.run_dir, f"dummy:{name}")

    def all_instances_info(self):
        names = sorted(os.listdir(self.env.paths.run_dir))
        return [self.instance_info(name[6:]) for name in names if name.startswith("dummy:")]

    def instance_info(self, name):
        if not os.path.exists(self._path(name)):
            return None
        colour = self.hvparams["colour"]
        return InstanceInfo(name, len(colour), 1, InstanceState.RUNNING, 0.0)

    def start(self, instance, disks, *, paused=False):
        self.check_params(instance.hvparams)
        open(self._path(instance.name), "w").close()

    def stop(self, name, *, force=False, timeout_s=120):
        if os.path.exists(self._path(name)):
            os.unlink(self._path(name))
'''
ROW = """    DUMMY = (
        "dummy",
        HypervisorTraits(
            driver="ganeti.hypervisor.dummy:DummyHypervisor",
            parameters={"colour": text("red", "Its colour.", choices=("red", "blue"))},
        ),
    )
"""
SCRIPT = """
import json, os, sys

from guests.instances import make_instance

from ganeti.base.json import dumps, loads
from ganeti.base.paths import Paths
from ganeti.logical_units.instance.parameters import check_hvparams
from ganeti.node_ops import dispatch
from ganeti.node_ops.context import NodeContext
from ganeti.protocol.node_calls import NodeCalls

paths = Paths(sys.argv[1])
for directory in (paths.data_dir, paths.run_dir, paths.lock_dir):
    os.makedirs(directory)


def call(name, *args):
    context = NodeContext(paths, "node1.example.com", name)
    return loads(dispatch.answer(context, NodeCalls.calls[name], dumps(args)))


wire = make_instance("inst1.example.com", "dummy").to_wire()
wrong = make_instance("inst2.example.com", "dummy", colour="green").to_wire()
blue = {"dummy": {"colour": "blue"}}
print(json.dumps({
    "wrong": call("instance_start", wrong, False, [])[1],
    "start": call("instance_start", wire, False, []),
    "list": call("instance_list", ["dummy"], blue),
    "info": call("all_instances_info", ["dummy"], blue),
    "node": call("node_verify", {"hypervisor": ["dummy"]}, "cluster", blue),
    "migrate": call("instance_migratable", wire),
    "hotplug": call("hotplug_supported", wire),
    "stop": call("instance_shutdown", wire, 10, []),
    "gone": call("instance_list", ["dummy"], blue),
    "checked": check_hvparams("dummy", {"colour": "blue"}),
}))
"""


@pytest.mark.shows("backend/overview/hypervisors")
def test_a_hypervisor_is_one_file_and_one_row(tmp_path: Path) -> None:
    tree = GrownTree(tmp_path)
    tree.add_file("ganeti/hypervisor/dummy.py", DRIVER)
    tree.add_row("ganeti/objects/hypervisors.py", "    FAKE = (\n", ROW)
    told = json.loads(tree.run(SCRIPT, str(tmp_path / "node1")))
    assert "'green' is not one of red, blue" in told["wrong"]
    assert told["start"] == [True, None]
    assert told["list"] == [True, ["inst1.example.com"]]
    # The cluster's parameters reach the driver.
    assert told["info"][1]["inst1.example.com"]["memory"] == len("blue")
    assert told["node"] == [True, {"hypervisor": {"dummy": None}}]
    assert "cannot be migrated; use failover" in told["migrate"][1]
    assert "no devices to change" in told["hotplug"][1]
    assert told["stop"] == [True, None]
    assert told["gone"] == [True, []]
    assert told["checked"] == {"colour": "blue"}
