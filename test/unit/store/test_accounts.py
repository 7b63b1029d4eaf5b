"""What belongs to whom, on a machine with users for the daemons; as root, with numbers of nobody."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from ganeti.base.daemons import DAEMONS, daemon_of
from ganeti.base.errors import OpPrereqError
from ganeti.base.owned_files import OWNED
from ganeti.base.paths import Paths
from ganeti.bootstrap import cluster_files
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.verify.files import node_setup
from ganeti.store import accounts
from ganeti.system import files

NAMES = {"root": 0}
for _row in OWNED:
    for _name in (_row.user, _row.group):
        NAMES.setdefault(_name, 64_000 + len(NAMES))

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """A node on a machine that has Debian's users."""

    def user(name: str) -> SimpleNamespace:
        return SimpleNamespace(pw_name=name, pw_uid=NAMES[name], pw_gid=NAMES[name])

    monkeypatch.setattr(accounts.pwd, "getpwnam", user)
    monkeypatch.setattr(accounts.grp, "getgrnam", lambda name: SimpleNamespace(gr_gid=NAMES[name]))
    found = Paths(str(tmp_path))
    cluster_files.ensure_directories(found)
    return found


def owner(path: str) -> tuple[int, int, int]:
    status = os.stat(path)
    return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)


def number(user: str, group: str, mode: int) -> tuple[int, int, int]:
    return NAMES[user], NAMES[group], mode


@needs_root
def test_everything_gets_its_owner_and_a_second_look_finds_nothing(paths: Paths) -> None:
    for path in (paths.config_data, paths.hmac_key, paths.job_file(7), paths.ssconf_file("x")):
        files.write_atomic(path, b"x", 0o666)
    files.ensure_directory(os.path.dirname(paths.archived_job_file(3)))
    files.write_atomic(paths.archived_job_file(3), b"x", 0o600)
    assert not accounts.has_accounts(paths)
    changed = accounts.settle(paths)
    assert accounts.has_accounts(paths)
    assert list(accounts.differences(paths)) == []
    assert paths.config_data in [each.path for each in changed]
    assert owner(paths.data_dir) == number("gnt-masterd", "gnt-masterd", 0o755)
    assert owner(paths.config_data) == number("gnt-masterd", "gnt-confd", 0o640)
    assert owner(paths.hmac_key) == number("gnt-confd", "gnt-masterd", 0o440)
    assert owner(paths.job_file(7)) == number("gnt-masterd", "gnt-daemons", 0o640)
    assert owner(paths.archived_job_file(3)) == number("gnt-masterd", "gnt-daemons", 0o640)
    assert owner(paths.ssconf_lock) == (0, NAMES["gnt-masterd"], 0o660)


@needs_root
def test_a_file_that_becomes_a_link_or_goes_while_it_is_looked_at_harms_nobody(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    precious = tmp_path / "precious"
    precious.touch(0o600)
    for path in (paths.config_data, paths.hmac_key):
        files.write_atomic(path, b"x", 0o666)
    found = [each for each in accounts.differences(paths) if "/lib/ganeti/" in each.path]
    monkeypatch.setattr(accounts, "differences", lambda _paths: found)
    os.unlink(paths.hmac_key)
    os.unlink(paths.config_data)
    os.symlink(precious, paths.config_data)
    changed = {each.path for each in accounts.settle(paths)}
    assert changed == {each.path for each in found} - {paths.hmac_key, paths.config_data}
    assert owner(str(precious)) == (0, 0, 0o600)


@needs_root
def test_a_lock_that_somebody_else_made_is_made_anew(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel lets even root not open it (fs.protected_regular)."""
    open_really = os.open
    Path(paths.ssconf_lock).write_text("theirs")

    def protected(path: str, flags: int, mode: int = 0o777, **options: int) -> int:
        if path == paths.ssconf_lock and flags & os.O_CREAT and os.path.exists(path):
            raise PermissionError(13, "Permission denied", path)
        return open_really(path, flags, mode, **options)

    monkeypatch.setattr(os, "open", protected)
    accounts.settle(paths)
    assert Path(paths.ssconf_lock).read_bytes() == b""
    assert owner(paths.ssconf_lock) == (0, NAMES["gnt-masterd"], 0o660)


@needs_root
def test_what_root_writes_later_needs_no_repair(paths: Paths) -> None:
    for path in (paths.config_data, paths.hmac_key, paths.ssconf_file("x")):
        files.write_atomic(path, b"x")
    accounts.settle(paths)
    files.write_durable(paths.config_data, b"new", 0o600)
    files.write_atomic(paths.hmac_key, b"new", 0o600)
    files.write_atomic(paths.ssconf_file("x"), b"new")
    files.write_durable(paths.job_file(8), b"new", 0o640)
    files.ensure_directory(os.path.dirname(paths.archived_job_file(3)), inherits_owner=True)
    files.write_atomic(paths.archived_job_file(3), b"new", 0o640)
    assert list(accounts.differences(paths)) == []


@needs_root
def test_a_verification_names_what_belongs_to_others(paths: Paths) -> None:
    node = NodeContext(paths, "node1")
    files.write_atomic(paths.config_data, b"x", 0o600)
    assert node_setup(node) == [], "there are no such users yet"
    accounts.settle(paths)
    assert node_setup(node) == []
    os.chmod(paths.config_data, 0o644)
    [text] = node_setup(node)
    uid, gid = NAMES["gnt-masterd"], NAMES["gnt-confd"]
    assert text == (
        f"/var/lib/ganeti/config.data is {uid}:{gid} 0644, not gnt-masterd:gnt-confd 0640;"
        " 'ensure-dirs' there puts that right"
    )
    for number in range(9):
        files.write_atomic(paths.job_file(number), b"", 0o600)
        os.chown(paths.job_file(number), 0, 0)
    assert len(node_setup(node)) == 6
    assert node_setup(node)[-1] == "5 more files belong to others than they should"


@needs_root
def test_a_link_is_not_followed(paths: Paths, tmp_path: Path) -> None:
    secret = tmp_path / "shadow"
    secret.write_text("")
    os.symlink(secret, paths.hmac_key)
    accounts.settle(paths)
    assert owner(str(secret))[:2] == (0, 0)


@needs_root
def test_a_replaced_file_keeps_what_the_administrator_gave_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    os.chown(path, 64_001, 64_002)
    path.chmod(0o604)
    files.write_atomic(str(path), b"1", 0o640)
    assert owner(str(path)) == (64_001, 64_002, 0o604)
    files.write_durable(str(path), b"2", 0o640)
    assert owner(str(path)) == (64_001, 64_002, 0o604)
    files.write_durable(str(path), b"3", 0o640, owner=(64_003, 64_004))
    assert owner(str(path)) == (64_003, 64_004, 0o640)


def test_each_daemon_has_a_user(paths: Paths) -> None:
    found = {daemon.name: accounts.user_of(daemon) for daemon in DAEMONS}
    assert found["ganeti-noded"] == found["ganeti-mond"] == 0
    assert found["ganeti-luxid"] == found["ganeti-wconfd"] == NAMES["gnt-masterd"]
    assert found["ganeti-confd"] == NAMES["gnt-confd"]
    assert found["ganeti-rapi"] == NAMES["gnt-rapi"]


def test_a_user_that_is_missing_is_named(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(NAMES, "gnt-rapi")
    with pytest.raises(OpPrereqError, match="gnt-rapi, whom ganeti-rapi runs as, does not exist"):
        accounts.user_of(daemon_of("ganeti-rapi"))
