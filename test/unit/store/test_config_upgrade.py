"""Tests of ganeti/store/config_upgrade.py."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from fakes.old_configs import NOW, OLD_VERSIONS, config_bytes, counted_uuids, load_config

from ganeti.base.errors import ConfigurationError, ConfigVersionMismatch
from ganeti.base.paths import Paths
from ganeti.config.upgrade.versions import Version
from ganeti.store import config_file, config_upgrade
from ganeti.system import files


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    found = Paths(str(tmp_path))
    os.makedirs(found.data_dir)
    return found


def put(paths: Paths, data: bytes) -> None:
    with open(paths.config_data, "wb") as file:
        file.write(data)
    os.chmod(paths.config_data, 0o600)


def backups(paths: Paths) -> list[str]:
    return sorted(name for name in os.listdir(paths.data_dir) if name != "config.data")


@pytest.mark.parametrize("version", OLD_VERSIONS)
def test_an_old_file_is_upgraded_and_kept(paths: Paths, version: str) -> None:
    old = config_bytes(version)
    put(paths, old)
    told: list[str] = []
    data = config_upgrade.load_and_upgrade(paths, new_uuid=counted_uuids(), tell=told.append)
    assert files.read_bytes(paths.config_data) == data
    expected = load_config(f"{version}.upgraded")
    assert json.loads(data) == expected["config"] | {"mtime": json.loads(data)["mtime"]}
    (backup,) = backups(paths)
    assert backup.startswith(f"config.data.backup-{version}-")
    for name in (backup, "config.data"):
        mode = os.stat(os.path.join(paths.data_dir, name)).st_mode
        assert stat.S_IMODE(mode) == 0o600  # as it was
    assert files.read_bytes(os.path.join(paths.data_dir, backup)) == old
    assert told[:-1] == [f"Configuration upgraded: {note}" for note in expected["notes"]]
    assert told[-1].endswith(backup)
    assert config_upgrade.load_and_upgrade(paths, new_uuid=counted_uuids()) == data
    assert backups(paths) == [backup]


def test_a_proper_file_is_not_touched(paths: Paths) -> None:
    put(paths, config_bytes("3.0"))
    before = os.stat(paths.config_data)
    data = config_upgrade.load_and_upgrade(paths, new_uuid=counted_uuids())
    assert data == config_bytes("3.0")
    assert backups(paths) == []
    assert os.stat(paths.config_data).st_ino == before.st_ino


@pytest.mark.parametrize("number", [3010000, 1020000])
def test_a_file_that_cannot_be_upgraded_is_left_alone(paths: Paths, number: int) -> None:
    data = json.dumps(load_config("3.0") | {"version": number}).encode()
    put(paths, data)
    with pytest.raises(ConfigVersionMismatch, match=str(number)):
        config_upgrade.load_and_upgrade(paths, new_uuid=counted_uuids())
    assert files.read_bytes(paths.config_data) == data
    assert backups(paths) == []


def test_an_old_file_that_is_damaged_is_left_alone(paths: Paths) -> None:
    config = load_config("2.7")
    del config["instances"]["web.example.com"]["os"]
    put(paths, json.dumps(config).encode())
    with pytest.raises(ConfigurationError, match=r"Instance 'web\.example\.com': field 'os': is m"):
        config_upgrade.load_and_upgrade(paths, new_uuid=counted_uuids())
    assert backups(paths) == []
    put(paths, config_bytes("2.7")[:900])
    with pytest.raises(ConfigurationError, match="byte 900"):
        config_upgrade.load_and_upgrade(paths, new_uuid=counted_uuids())


def test_without_room_for_the_new_file_the_old_one_stays(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(paths, config_bytes("2.12"))
    write = files.write_durable

    def no_room(path: str, *args: object, **kwargs: object) -> None:
        if path == paths.config_data:
            raise OSError(28, "No space left on device", path)
        write(path, *args, **kwargs)  # type: ignore[arg-type]  # handed through

    monkeypatch.setattr(files, "write_durable", no_room)
    with pytest.raises(OSError, match="No space left"):
        config_upgrade.load_and_upgrade(paths, new_uuid=counted_uuids())
    assert files.read_bytes(paths.config_data) == config_bytes("2.12")
    assert len(backups(paths)) == 1


def test_a_backup_never_replaces_another(paths: Paths) -> None:
    put(paths, b"0")
    made = [
        config_upgrade.replace_with_backup(
            paths.config_data,
            str(number).encode(),
            str(number + 1).encode(),
            version=Version(2, 9),
            now=NOW,
        )
        for number in range(3)
    ]
    name = f"{paths.config_data}.backup-2.9-20140513T165320Z"
    assert made == [name, f"{name}.1", f"{name}.2"]
    assert [files.read_bytes(path) for path in made] == [b"0", b"1", b"2"]
    assert files.read_bytes(paths.config_data) == b"3"


def test_names_for_backups_run_out(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    put(paths, b"old")
    monkeypatch.setattr(config_file, "NAMES_PER_SECOND_MAX", 1)
    replace = config_upgrade.replace_with_backup
    replace(paths.config_data, b"old", b"new", version=Version(2, 9), now=NOW)
    with pytest.raises(ConfigurationError, match="exist already"):
        replace(paths.config_data, b"new", b"newer", version=Version(2, 9), now=NOW)
    assert files.read_bytes(paths.config_data) == b"new"


def test_files_anywhere_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "copy"
    with pytest.raises(ConfigurationError, match=r"cannot read .*/copy: No such file"):
        config_upgrade.read_config_at(str(path))
    path.write_bytes(b"x")
    assert config_upgrade.read_config_at(str(path)) == b"x"
