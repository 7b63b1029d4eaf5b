"""Owners and modes are those that 3.0 gives its files (``test/data/model/paths.json``)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.daemons import DAEMONS
from ganeti.base.owned_files import DIRECTORY, OWNED
from ganeti.base.paths import Paths

MODEL: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "data" / "model" / "paths.json").read_text()
)
# There is no such daemon, and so no such log, any more; its name stays for old tools.
OF_OLDER_VERSIONS = {"/var/log/ganeti/master-daemon.log"}
OURS = {
    "/var/lib/ganeti/config.journal",
    *("/var/lib/ganeti/locks-own.data", "/var/lib/ganeti/tempres-own.data"),
    *("/var/lib/ganeti/ganeti_pub_keys", "/var/lib/ganeti/ssh-managed"),
    "/var/lib/ganeti/ganeti_revoked_keys",
    *("/var/lib/ganeti/rapi/roles", "/var/lib/ganeti/rapi/tokens"),
    "/var/log/ganeti/wconf-daemon.log",  # 3.0 leaves it as the daemon made it
    *("/var/log/ganeti/maintenance-daemon.log", "/var/log/ganeti/ha-agent.log"),
    *("/var/log/ganeti/etcd.log", "/var/lib/ganeti/etcd", "/var/lib/ganeti/etcd.member"),
    "/var/lib/ganeti/high-availability-member",
    *("/var/log/ganeti/meta-daemon.log", "/var/run/ganeti/metadata"),
    "/var/lib/ganeti/instance-communication",
    *("/var/log/ganeti/jobs.log", "/var/log/ganeti/rapi-access.log"),
    "/var/log/ganeti/lxc",
    *("/var/log/ganeti/audit.log", "/var/log/ganeti/rapi-audit.log"),
    "/var/run/ganeti/job-*.lock",
    "/var/lib/ganeti/queue/archive/[0-9]*",
    "/var/lib/ganeti/queue/archive/*/job-*",
}


def of_3_0() -> dict[str, tuple[bool, int, str, str]]:
    found = {}
    for row in MODEL:
        if row["kind"].startswith("files "):
            names = [f"{row['path']}/{row['kind'].split()[1]}"]
        elif "<daemon>" in row["path"]:
            continue
        else:
            names = [row["path"]]
        for name in names:
            is_directory = row["kind"] == "dir"
            found[name] = (is_directory, int(row["mode"], 8), row["owner"], row["group"])
    return found


def ours() -> dict[str, tuple[bool, int, str, str]]:
    paths = Paths("")
    return {
        "/".join(filter(None, (getattr(paths, row.place), row.pattern))): (
            row.kind == DIRECTORY,
            row.mode,
            row.user,
            row.group,
        )
        for row in OWNED
    }


def test_every_file_and_directory_of_3_0_is_in_the_table() -> None:
    found, wanted = ours(), of_3_0()
    pid_files = {f"/var/run/ganeti/{daemon.name}.pid" for daemon in DAEMONS}
    assert len(wanted) > 45
    assert wanted.keys() - found.keys() == OF_OLDER_VERSIONS
    assert found.keys() - wanted.keys() == OURS | pid_files
    assert {name: found[name] for name in wanted.keys() - OF_OLDER_VERSIONS} == {
        name: row for name, row in wanted.items() if name not in OF_OLDER_VERSIONS
    }


@pytest.mark.parametrize("daemon", DAEMONS, ids=lambda daemon: daemon.name)
def test_pid_files_belong_to_the_user_of_the_daemon(daemon: Any) -> None:
    row = ours()[f"/var/run/ganeti/{daemon.name}.pid"]
    assert row == (False, 0o600, daemon.user, daemon.group)


def test_directories_come_after_those_that_they_are_in() -> None:
    seen: list[str] = []
    for name, (is_directory, *_) in ours().items():
        if is_directory:
            above = re.sub("/[^/]*$", "", name)
            assert above in seen or above not in ours()
            seen.append(name)
