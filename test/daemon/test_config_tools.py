"""``cfgupgrade`` and ``query-config`` as programs, below a root directory of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fakes.large_config import large_config_bytes
from fakes.old_configs import OLD_VERSIONS, config_bytes, load_config

from ganeti.base.paths import Paths
from ganeti.config import changes
from ganeti.config.deltas.journal import record_of
from ganeti.config.state import ConfigState
from ganeti.config.upgrade.upgrading import needs_upgrade
from ganeti.system.filelock import PidFile

TOOLS = Path(__file__).resolve().parents[2] / "tools"
MASTER = "node1.example.com"
TIMEOUT_S = 60
SECRETS = ("d0c5ecre7d0c5ecre7", "fakehostkey", "-private-value", "vnc-cluster-password")


@dataclass(frozen=True)
class Node:
    """A root directory with a configuration in it."""

    paths: Paths

    def run(self, tool: str, *args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(TOOLS / tool), *args],
            env={
                **os.environ,
                "GANETI_ROOTDIR": self.paths.root,
                "GANETI_HOSTNAME": MASTER,
                "COLUMNS": "100",
            },
            input=stdin.decode(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def good(self, tool: str, *args: str) -> str:
        done = self.run(tool, *args)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def bad(self, status: int, tool: str, *args: str) -> str:
        done = self.run(tool, *args)
        assert done.returncode == status, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr

    @property
    def data(self) -> bytes:
        return Path(self.paths.config_data).read_bytes()

    def put(self, data: bytes) -> None:
        Path(self.paths.config_data).write_bytes(data)

    @property
    def backups(self) -> list[Path]:
        return sorted(Path(self.paths.data_dir).glob("config.data.backup-*"))


@pytest.fixture
def node() -> Iterator[Node]:
    with tempfile.TemporaryDirectory(prefix="gnt-") as base:
        paths = Paths(os.path.join(base, MASTER))
        for directory in (paths.data_dir, paths.run_dir, paths.conf_dir):
            os.makedirs(directory)
        Path(paths.ssconf_file("master_node")).write_text(MASTER + "\n")
        yield Node(paths)


def without_new_uuids(text: str) -> str:
    """Return a text in which all UUIDs are alike: what lacks one gets any."""
    return re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID", text)


@pytest.mark.parametrize("version", OLD_VERSIONS)
def test_an_old_cluster_is_upgraded(node: Node, version: str) -> None:
    old = config_bytes(version)
    node.put(old)
    plan = node.good("cfgupgrade", "--dry-run")
    assert node.data == old
    assert node.backups == []
    assert "Nothing was written" in plan
    said = node.good("cfgupgrade", "--force")
    for note in load_config(f"{version}.upgraded")["notes"]:
        assert f"  - {without_new_uuids(note)}\n" in without_new_uuids(said)
        assert f"  - {without_new_uuids(note)}\n" in without_new_uuids(plan)
    (backup,) = node.backups
    assert backup.name.startswith(f"config.data.backup-{version}-")
    assert str(backup) in said
    assert backup.read_bytes() == old
    new = node.data
    assert not needs_upgrade(new)
    assert json.loads(new)["serial_no"] == json.loads(old)["serial_no"] + 1
    assert "nothing to do" in node.good("cfgupgrade")
    assert node.data == new
    assert node.good("query-config", "check") == "Nothing is wrong.\n"


def test_nobody_is_asked_without_a_terminal(node: Node) -> None:
    node.put(config_bytes("2.12"))
    assert "use --force to go on" in node.bad(1, "cfgupgrade")
    assert node.data == config_bytes("2.12")


def test_it_keeps_away_from_a_running_daemon(node: Node) -> None:
    node.put(config_bytes("2.12"))
    running = PidFile(node.paths.pid_file("ganeti-wconfd"))
    running.acquire()
    try:
        said = node.bad(1, "cfgupgrade", "--force")
        assert f"ganeti-wconfd is running (process {os.getpid()})" in said
        # given by its directory, the daemon of that directory counts
        assert "is running" in node.bad(1, "cfgupgrade", "-f", "--path", node.paths.data_dir)
        assert "would be refused: ganeti-wconfd" in node.good("cfgupgrade", "--dry-run")
    finally:
        running.release()
    assert node.data == config_bytes("2.12")
    node.good("cfgupgrade", "--force")


def test_it_runs_on_the_master_only(node: Node) -> None:
    node.put(config_bytes("2.16"))
    Path(node.paths.ssconf_file("master_node")).write_text("node9.example.com\n")
    assert "the master node is node9.example.com" in node.bad(11, "cfgupgrade", "-f")
    assert node.data == config_bytes("2.16")
    node.good("cfgupgrade", "-f", "--ignore-hostname")
    assert not needs_upgrade(node.data)


def test_a_copy_elsewhere_is_upgraded_where_it_lies(node: Node, tmp_path: Path) -> None:
    (tmp_path / "config.data").write_bytes(config_bytes("2.7"))
    node.good("cfgupgrade", "--force", "--path", str(tmp_path))
    assert not needs_upgrade((tmp_path / "config.data").read_bytes())
    assert len(list(tmp_path.iterdir())) == 2
    assert not Path(node.paths.config_data).exists()
    assert "is not a directory" in node.bad(1, "cfgupgrade", "--path", str(tmp_path / "no"))
    (tmp_path / "config.data").unlink()
    assert "No such file" in node.bad(2, "cfgupgrade", "--path", str(tmp_path))


def test_directories_that_are_not_allowed_are_named(node: Node, tmp_path: Path) -> None:
    node.put(config_bytes("2.7"))
    hint = "/srv/ganeti/shared-file-storage is not listed in"
    assert hint not in node.good("cfgupgrade", "--dry-run")
    (tmp_path / "file-storage-paths").write_text("# nothing\n")
    assert hint in node.good("cfgupgrade", "--dry-run", "--confdir", str(tmp_path))
    (tmp_path / "file-storage-paths").write_text("/srv/ganeti\n")
    assert hint not in node.good("cfgupgrade", "--dry-run", "--confdir", str(tmp_path))


def test_problems_are_told_but_do_not_stop(node: Node) -> None:
    config = load_config("2.16")
    next(iter(config["nodes"].values()))["group"] = "nowhere"
    node.put(json.dumps(config).encode())
    said = node.good("cfgupgrade", "--dry-run")
    assert "node 'node1.example.com': its group nowhere does not exist" in said
    assert "nowhere" not in node.good("cfgupgrade", "--dry-run", "--no-verify")
    assert "nowhere" not in node.good("cfgupgrade", "--force", "--no-verify")
    checked = node.run("query-config", "check")
    assert checked.returncode == 1
    assert "its group nowhere does not exist" in checked.stdout


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"version": 3000000, "cluster": {', "at byte 33"),
        (b"", "at byte 0"),
        (b"[]", "not a JSON object"),
        (b'{"version": 3010000, "cluster": {}}', "version 3.1 (3010000)"),
        (b'{"version": 1020000, "cluster": {}}', "upgrades start from 2.0"),
        (b'{"version": 2120000, "cluster": {}}', "not be usable: ConfigData: field"),
    ],
)
def test_what_cannot_be_upgraded_is_left_alone(node: Node, data: bytes, words: str) -> None:
    node.put(data)
    assert words in node.bad(2, "cfgupgrade", "--force")
    assert node.data == data
    assert node.backups == []


def test_downgrade(node: Node) -> None:
    config: Any = json.loads(config_bytes("2.16.upgraded"))["config"]
    node.put(json.dumps(config).encode())
    assert "nothing to do" in node.good("cfgupgrade", "--downgrade", "--force")
    node.put(json.dumps(config | {"ours": {"jobs": [1]}}).encode())
    assert "ours = an object of 1" in node.bad(1, "cfgupgrade", "--downgrade", "--force")
    assert node.backups == []
    node.put(json.dumps(config | {"ours": {}, "maintenance": {"jobs": [1]}}).encode())
    said = node.good("cfgupgrade", "--downgrade", "--force")
    assert "ours removed, it was empty" in said
    assert "maintenance removed, with its state" in said
    assert "maintenance" not in json.loads(node.data)
    assert len(node.backups) == 1
    node.put(config_bytes("2.12"))
    assert "of version 2.12" in node.bad(1, "cfgupgrade", "--downgrade", "--force")


def test_a_journal_that_a_killed_daemon_left_is_brought_into_the_file(node: Node) -> None:
    path = node.paths.config_data
    Path(path).write_bytes(large_config_bytes(1))
    state = ConfigState(large_config_bytes(1))
    change = state.begin(1.5)
    changes.add_tags(change, "cluster", "", ["kept"])
    state.accept(change)
    flush = state.start_flush(2.5)
    line = record_of(flush.base, flush.version, flush.changed).line
    Path(node.paths.config_journal).write_bytes(line + line[:50])
    assert "they are brought into it" in node.good("cfgupgrade", "--dry-run")
    assert json.loads(Path(path).read_bytes())["cluster"]["tags"] == []
    node.good("cfgupgrade", "--downgrade")
    assert json.loads(Path(path).read_bytes()) == json.loads(b"".join(flush.pieces))
    assert not os.path.exists(node.paths.config_journal)
    Path(path).write_bytes(json.dumps({**load_config("3.0"), "serial_no": 999}).encode())
    Path(node.paths.config_journal).write_bytes(line)
    assert "it is left alone" in node.good("cfgupgrade")
    Path(path).write_bytes(large_config_bytes(1))
    Path(node.paths.config_journal).write_bytes(line[:50])
    node.good("cfgupgrade")
    assert not os.path.exists(node.paths.config_journal), "half a record, of which nobody was told"
    damaged = b"+" + line[1:50] + b"!" + line[51:]
    Path(node.paths.config_journal).write_bytes(damaged)
    for option in ("--downgrade", "--dry-run"):
        assert "is damaged at byte 0" in node.bad(2, "cfgupgrade", option, "--no-verify")
    assert Path(node.paths.config_journal).read_bytes() == damaged


@pytest.mark.parametrize("tool", ["cfgupgrade", "query-config"])
def test_help(node: Node, tool: str) -> None:
    said = node.good(tool, "--help")
    assert said.startswith(f"usage: {tool} ")
    assert "no such option: --frob" in node.bad(
        2, tool, *(["count"] if tool == "query-config" else []), "--frob"
    )


@pytest.mark.parametrize("version", [*OLD_VERSIONS, "3.0"])
def test_any_version_can_be_looked_into(node: Node, version: str) -> None:
    node.put(config_bytes(version))
    names = node.good("query-config", "list", "--no-headers", "--separator=|", "nodes").splitlines()
    assert [line.split("|")[0] for line in names] == [f"node{n}.example.com" for n in (1, 2, 3)]
    group = "-" if version == "2.0" else "default"  # before 2.2 there were no groups
    assert names[0].endswith(f"|192.0.2.11|master|{group}")
    disks = node.good("query-config", "list", "disks", "--no-headers", "--separator=|")
    assert "|10.0G|web.example.com\n" in disks
    counts = dict(line.split() for line in node.good("query-config", "count").splitlines()[1:])
    assert int(counts["disks"]) == len(disks.splitlines())
    shown = json.loads(node.good("query-config", "show", "instances", "web"))
    assert shown["name"] == "web.example.com"
    if version != "2.0":  # UUIDs came later
        shown_again = node.good("query-config", "show", "instances", shown["uuid"])
        assert json.loads(shown_again) == shown
    cluster = json.loads(node.good("query-config", "show", "cluster"))
    assert cluster["cluster_name"] == "cluster.example.com"
    if version != "3.0":
        assert f"of version {version}; cfgupgrade" in node.run("query-config", "check").stdout


@pytest.mark.shows("2.0/parameter-security/no-secrets")
@pytest.mark.parametrize("version", [*OLD_VERSIONS, "3.0"])
def test_an_export_holds_no_secrets(node: Node, version: str) -> None:
    node.put(config_bytes(version))
    plain = node.good("query-config", "export", "--with-secrets")
    assert json.loads(plain) == load_config(version)
    assert any(secret in plain for secret in SECRETS)
    blanked = node.good("query-config", "export")
    assert not [secret for secret in SECRETS if secret in blanked]
    assert json.loads(blanked).keys() == load_config(version).keys()
    cluster = node.good("query-config", "show", "cluster")
    assert json.loads(cluster) == json.loads(blanked)["cluster"]


def test_files_and_the_standard_input_can_be_read(node: Node, tmp_path: Path) -> None:
    (tmp_path / "copy").write_bytes(config_bytes("3.0"))
    counted = node.good("query-config", "count", "--path", str(tmp_path / "copy"))
    piped = node.run("query-config", "count", "--path", "-", stdin=config_bytes("3.0"))
    assert (piped.returncode, piped.stdout) == (0, counted)
    assert "does not exist" in node.bad(2, "query-config", "count")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("show", "nodes", "node"), "none of the nodes has the name or UUID 'node'"),
        (("show", "nodes"), "say which of the nodes"),
        (("show", "cluster", "other"), "no cluster 'other'"),
        (("list", "things"), "'things' is not one of"),
        (("frob",), "unknown command 'frob'"),
    ],
)
def test_mistakes_are_answered(node: Node, args: tuple[str, ...], words: str) -> None:
    node.put(config_bytes("3.0"))
    assert words in node.bad(1, "query-config", *args)


def test_a_damaged_file_can_be_looked_into_as_far_as_it_goes(node: Node) -> None:
    node.put(b'{"version": 3000000, "cluster": {}, "nodes": {"a": 5, "b": {"name": "b"}}}')
    listed = node.good("query-config", "list", "nodes", "--no-headers")
    assert listed.split() == ["b", "-", "-", "regular", "-"]
    assert "Cluster: field" in node.bad(2, "query-config", "check")
    node.put(b'{"version": 3000000, "cluster": 5}')
    assert "is not a JSON object" in node.bad(2, "query-config", "count")
