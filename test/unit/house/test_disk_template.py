"""A disk template is one row and one file: the recipe of doc/development.md, followed word for word.

The recipe is carried out on a copy of the sources.  A program then uses the new template from end to
end: the master plans a disk, the node daemon's dispatch makes it, looks at it, grows and removes it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RECIPE = "## To add a disk template"
TABLE = Path("ganeti/objects/disk_templates.py")
BEFORE = "    SHAREDFILE = _template("

LIFE = """
import json, logging, os, sys
from ganeti.base.paths import Paths
from ganeti.logical_units.instance.storage import planning
from ganeti.node_ops import dispatch
from ganeti.node_ops.context import NodeContext
from ganeti.objects.disk_templates import DiskTemplate, supported_templates
from ganeti.objects.rpc_instance import RpcDisk
from ganeti.opcodes.registry import decode_opcode
from ganeti.protocol.node_calls import NodeCalls

logging.disable()
context = NodeContext(Paths(sys.argv[1]), "node1.example.com")
os.makedirs(context.paths.lock_dir)


def ask(call, *arguments):
    body = dispatch.answer(context, NodeCalls.calls[call], json.dumps(arguments).encode())
    success, payload = json.loads(body)
    assert success, payload
    return payload


assert "scratch" in supported_templates()
op = decode_opcode({"OP_ID": "OP_INSTANCE_CREATE", "instance_name": "web1.example.com",
                    "mode": "create", "disk_template": "scratch", "disks": [{"size": 4}],
                    "nics": []})
[new] = planning.plan_disks(None, op.disk_template, op.disks)
uuids = iter(["d1", "unique"])
disk = planning.describe_disk(new, 0, None, [], uuids.__next__)
assert disk.logical_id == ["scratch", "unique.scratch.disk0"]
wire = RpcDisk.from_wire(disk.to_wire()).to_wire()
others = [{**wire, "uuid": f"d{n}", "logical_id": ["scratch", f"other{n}"]} for n in range(3)]

assert ask("blockdev_find", wire) is None
assert ask("blockdev_create", wire, 4, "web1.example.com", True, "note", False) is None
path = ask("blockdev_find", wire)["dev_path"]
states = ask("blockdev_getmirrorstatus_multi", [wire, *others])
assert [is_there for is_there, _ in states] == [True, False, False, False]
ask("blockdev_grow", wire, 2, True, True, False)
ask("blockdev_grow", wire, 2, False, True, False)
assert ask("blockdev_getdimensions", [wire, *others]) == [[6 << 20, None], None, None, None]
body = json.dumps([wire, "snap", 6]).encode()
success, text = json.loads(dispatch.answer(context, NodeCalls.calls["blockdev_snapshot"], body))
assert not success and "scratch cannot be kept as a snapshot" in text, text
ask("blockdev_shutdown", wire)
ask("blockdev_remove", wire)
ask("blockdev_remove", wire)
assert ask("blockdev_find", wire) is None
print("a whole life")
"""


@pytest.mark.shows("2.1/storage/others")
def test_a_disk_template_is_one_row_and_one_file(tmp_path: Path) -> None:
    copy = tmp_path / "sources"
    shutil.copytree(
        ROOT / "ganeti", copy / "ganeti", ignore=shutil.ignore_patterns("__pycache__", "ui")
    )
    text = (ROOT / "doc" / "development.md").read_text(encoding="utf-8")
    recipe = text[text.index(RECIPE) :].partition("\n## ")[0]
    row, file = re.findall(r"```python\n(.*?)```", recipe, re.DOTALL)
    table = (copy / TABLE).read_text(encoding="utf-8")
    assert table.count(BEFORE) == 1
    (copy / TABLE).write_text(table.replace(BEFORE, row + BEFORE), encoding="utf-8")
    (copy / "ganeti/storage/scratch.py").write_text(file, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    result = subprocess.run(
        [sys.executable, "-c", LIFE, str(tmp_path / "root")],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=tmp_path,
    )
    assert result.stdout == "a whole life\n", result.stderr
