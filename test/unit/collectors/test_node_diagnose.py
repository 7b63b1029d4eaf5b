"""Tests of doc/examples/node-diagnose, the example of a diagnose command, on recorded answers."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from fakes.shell_scripts import write_script

from ganeti.protocol.maintenance.diagnosis import parse

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "doc" / "examples" / "node-diagnose"
DATA = ROOT / "test" / "data" / "diagnose"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("node_diagnose", str(SCRIPT))
    spec = importlib.util.spec_from_loader("node_diagnose", loader)
    assert spec is not None
    made = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    loader.exec_module(made)
    sys.dont_write_bytecode = before
    return made


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ata-healthy", []),
        ("ata-failing", [("disk-failing", "/dev/sda WD-WCC4N0000001")]),
        ("ata-pending-sectors", [("disk-worn", "/dev/sdb Z1F00001")]),
        ("nvme-healthy", []),
        ("nvme-read-only", [("disk-failing", "/dev/nvme0 S4EVNF0M000001")]),
        ("nvme-no-spare", [("disk-worn", "/dev/nvme0 S4EVNF0M000001")]),
        ("scsi-defects", [("disk-worn", "/dev/sdc 6SL00001")]),
        ("no-smart", []),
    ],
)
def test_disks(example: ModuleType, name: str, expected: list[tuple[str, str]]) -> None:
    text = (DATA / f"smartctl-{name}.json").read_text()
    assert list(example.smart_findings(text)) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("healthy", []),
        ("degraded", [("raid-degraded", "md1")]),
        ("rebuilding", [("raid-degraded", "md0")]),
        ("failed", [("raid-failed", "md5"), ("raid-failed", "md0")]),
        ("checking", []),
        ("none", []),
    ],
)
def test_raids(example: ModuleType, name: str, expected: list[tuple[str, str]]) -> None:
    assert list(example.raid_findings((DATA / f"mdstat-{name}").read_text())) == expected


def test_a_rebuild_is_the_same_event_from_beginning_to_end(example: ModuleType) -> None:
    text = (DATA / "mdstat-rebuilding").read_text()
    later = text.replace("12.6%", "97.3%").replace("37043392", "285830000")
    assert later != text
    assert list(example.raid_findings(later)) == list(example.raid_findings(text))


def edac(root: Path, **counts: int) -> None:
    """Make the files of a memory controller with two modules, of which the second counted."""
    for at, label in enumerate(
        ("CPU_SrcID#0_MC#0_Chan#0_DIMM#0", "CPU_SrcID#0_MC#0_Chan#1_DIMM#0")
    ):
        module = root / "sys/devices/system/edac/mc/mc0" / f"dimm{at}"
        module.mkdir(parents=True, exist_ok=True)
        (module / "dimm_label").write_text(f"{label}\n")
        for name in ("ue", "ce"):
            (module / f"dimm_{name}_count").write_text(f"{counts.get(name, 0) if at else 0}\n")


def test_memory(example: ModuleType, tmp_path: Path) -> None:
    def found(**counts: int) -> list[tuple[str, str]]:
        edac(tmp_path, **counts)
        return list(example.memory_findings(str(tmp_path)))

    thing = "mc0 CPU_SrcID#0_MC#0_Chan#1_DIMM#0"
    assert list(example.memory_findings(str(tmp_path))) == []  # without EDAC
    assert found(ce=3) == []
    assert found(ce=example.CORRECTED_MAX + 1) == [("memory-correctable", thing)]
    assert found(ue=1, ce=5000) == [("memory-uncorrectable", thing)]


def test_network_interfaces(example: ModuleType) -> None:
    bad, good = ((DATA / f"ethtool-{name}").read_text() for name in ("crc-errors", "healthy"))
    assert list(example.network_findings("eth0", good)) == []
    assert list(example.network_findings("eth1", bad)) == [
        ("network-errors", "eth1 rx_errors"),
        ("network-errors", "eth1 rx_crc_errors"),
    ]


def test_of_several_findings_the_most_invasive_counts(example: ModuleType) -> None:
    found = {("raid-degraded", "md0"), ("disk-failing", "/dev/sdb"), ("disk-failing", "/dev/sda")}
    assert example.report(found) == {
        "status": "evacuate",
        "details": {"disk-failing": ["/dev/sda", "/dev/sdb"], "raid-degraded": ["md0"]},
    }
    assert set(example.POLICY.values()) <= set(example.STATUSES)


def run(root: Path, programs: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(programs), "DIAGNOSE_ROOT": str(root)}
    return subprocess.run(
        [sys.executable, str(SCRIPT)], env=environment, capture_output=True, text=True, check=True
    )


def test_it_prints_what_the_collector_reads(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    bare = run(tmp_path, programs)
    assert json.loads(bare.stdout) == {"status": "Ok"}
    assert "smartctl" in bare.stderr
    scan = '{"devices": [{"name": "/dev/sda", "type": "sat"}]}'
    write_script(
        programs / "smartctl",
        f"""case "$*" in
*--scan-open*) echo '{scan}' ;;
*"-d sat /dev/sda") while read -r line; do echo "$line"; done < {DATA}/smartctl-ata-failing.json
    exit 8 ;;
esac""",
    )
    os.makedirs(tmp_path / "proc")
    (tmp_path / "proc/mdstat").write_text((DATA / "mdstat-degraded").read_text())
    whole = run(tmp_path, programs)
    assert whole.stderr == ""
    found = parse(whole.stdout)
    assert found == {
        "status": "evacuate",
        "details": {"disk-failing": ["/dev/sda WD-WCC4N0000001"], "raid-degraded": ["md1"]},
    }
    write_script(programs / "smartctl", "echo nonsense")
    odd = run(tmp_path, programs)
    assert "disks: the answer is not understood" in odd.stderr
    assert json.loads(odd.stdout)["details"] == {"raid-degraded": ["md1"]}
