"""Our hscan beside Debian's: the same lines and the same files of the same answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fakes import debian_htools
from fakes.run_tool import run_tool
from fakes.text_clusters import Shape, made_up

from ganeti.allocation.snapshot import Snapshot
from ganeti.allocation.sources.text_data import from_text

CLUSTERS = 12
needs_debian = pytest.mark.skipif(not debian_htools.are_there(), reason=debian_htools.REASON)
SIZES = ("mtotal", "mnode", "mfree", "dtotal", "dfree", "ctotal", "cnos", "sptotal", "spfree")


def answers(snapshot: Snapshot) -> dict[str, Any]:
    """What the remote API of a cluster tells."""
    master = next((node.name for node in snapshot.nodes.values() if not node.is_offline), "none")
    nodes = []
    for node in snapshot.nodes.values():
        free = snapshot.free[node.name]
        memory = node.total_memory, node.own_memory, free.memory
        disk = node.total_disk, free.disk
        cpus = node.cpus, node.own_cpus
        sizes = (*memory, *disk, *cpus, node.spindle_count, free.spindles)
        row = {
            "name": node.name,
            "offline": node.is_offline,
            "drained": False,
            "vm_capable": True,
            "role": "M" if node.name == master else "C",
            "ndparams": {"spindle_count": node.spindle_count, "exclusive_storage": False},
            "group.uuid": node.group,
            "tags": node.tags,
            "pip": "192.0.2.1",
            "hv_state": {},
        }
        known = sizes if not node.is_offline else (None,) * len(sizes)
        nodes.append(row | dict(zip(SIZES, known, strict=True)))
    instances = [
        {
            "name": each.name,
            "status": each.status,
            "pnode": each.primary,
            "snodes": each.nodes[1:],
            "tags": each.tags,
            "disk_template": each.template,
            "disk_usage": sum(each.spec.disk_sizes_mib),
            "disk.sizes": each.spec.disk_sizes_mib,
            "disk.spindles": [each.spindles],
            "nic.networks": [None],
            "forthcoming": each.is_forthcoming,
            "beparams": {
                "maxmem": each.memory,
                "vcpus": each.spec.vcpus,
                "spindle_use": each.spindle_use,
                "auto_balance": each.is_auto_balanced,
            },
            "oper_ram": each.memory,
        }
        for each in snapshot.instances.values()
    ]
    groups = [
        {
            "uuid": group.uuid,
            "name": group.name,
            "alloc_policy": group.alloc_policy,
            "ipolicy": group.ipolicy,
            "tags": group.tags,
            "networks": [],
        }
        for group in snapshot.groups.values()
    ]
    info = {
        "tags": snapshot.tags,
        "ipolicy": snapshot.ipolicy,
        "master": master,
        "default_hypervisor": "xen-pvm",
        "enabled_hypervisors": ["xen-pvm"],
    }
    return {"info": info, "groups": groups, "nodes": nodes, "instances": instances}


def keep(directory: Path, number: int) -> str:
    """Write the answers of a cluster to files, and return their URL."""
    directory.mkdir(parents=True, exist_ok=True)
    shape = Shape(groups=1 + number % 2, has_exclusive=False, templates=("drbd", "plain"))
    for name, content in answers(from_text(made_up(number, shape))).items():
        (directory / f"{name}.json").write_text(json.dumps(content))
    return f"file://{directory}"


@needs_debian
def test_lines_and_files_are_theirs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for number in range(CLUSTERS):
        urls = [keep(tmp_path / "answers" / str(each), each) for each in (number, number + 50)]
        words = ["-pname,tmem,fmem,rmem,tdsk,fdsk,pcnt"] if number % 2 else ["--no-headers"]
        for directory in (ours, theirs):
            directory.mkdir(exist_ok=True)
        done = debian_htools.run("hscan", *words, "-d", str(theirs), *urls)
        found = run_tool(monkeypatch, capsys, "hscan", *words, "-d", str(ours), *urls)
        assert found == (done.returncode, done.stdout, done.stderr), number
        names = [path.name for path in sorted(theirs.iterdir())]
        assert names == [path.name for path in sorted(ours.iterdir())]
        for name in names:
            assert (ours / name).read_text() == (theirs / name).read_text(), name


def test_a_cluster_that_cannot_be_read_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    good = keep(tmp_path / "good", 1)
    words = ("hscan", "-d", str(tmp_path), f"file://{tmp_path}/none", good)
    status, out, _ = run_tool(monkeypatch, capsys, *words)
    assert status == 2
    assert f"Error for file://{tmp_path}/none: failed to load data. Details:" in out
    assert (tmp_path / f"{good.replace('/', '_')}.data").exists()
    groups = (tmp_path / "good" / "groups.json").read_text()
    bad = json.dumps([{**each, "name": "p|q"} for each in json.loads(groups)])
    (tmp_path / "good" / "groups.json").write_text(bad)
    status, out, _ = run_tool(monkeypatch, capsys, *words)
    assert (status, f"Error for {good}: a cluster as text cannot hold" in out) == (2, True)
    (tmp_path / "good" / "nodes.json").write_text("[{")
    assert run_tool(monkeypatch, capsys, *words)[0] == 2
    nowhere = str(tmp_path / "nowhere")
    good = keep(tmp_path / "good", 1)
    status, _, err = run_tool(monkeypatch, capsys, "hscan", "-d", nowhere, good)
    assert (status, "No such file or directory" in err) == (1, True)
