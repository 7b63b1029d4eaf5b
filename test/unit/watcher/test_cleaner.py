"""Old files go, and no others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ganeti.base.paths import Paths
from ganeti.store.working_directory import OVF, RESTORE, working_directory
from ganeti.system import clock
from ganeti.system.certificates import make_self_signed
from ganeti.watcher import cleaner

NOW = clock.now()
OLD = NOW - cleaner.AGE_S - 60
NOBODY = 1 << 22  # the kernel's highest number of a process is below
RECENT = NOW - cleaner.AGE_S + 60


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(str(tmp_path))


def make(path: str, changed: float, content: str = "x") -> str:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    Path(path).write_text(content)
    os.utime(path, (changed, changed))
    return path


def test_jobs_leave_the_archive_after_21_days_and_empty_directories_with_them(paths: Paths) -> None:
    archive = paths.queue_archive_dir
    gone = [make(f"{archive}/0/job-1", OLD), make(f"{archive}/job-9", OLD)]
    kept = [make(f"{archive}/1/job-10001", RECENT), make(f"{archive}/1/notes", OLD)]
    kept.append(make(f"{paths.queue_dir}/job-77", OLD))  # not archived
    os.utime(f"{archive}/0", (OLD, OLD))
    assert cleaner.clean_master(paths, NOW)
    assert [os.path.exists(path) for path in gone] == [False, False]
    assert all(map(os.path.exists, kept))
    os.utime(f"{archive}/0", (OLD, OLD))  # to remove its file has changed it
    assert cleaner.clean_master(paths, NOW)
    assert sorted(os.listdir(archive)) == ["1"]


def test_a_node_keeps_what_is_recent_or_an_operators(paths: Paths) -> None:
    uuid = "5fb2046a-4528-4dad-bceb-7d7cb1c27773"
    gone = [
        make(paths.watcher_status(uuid), OLD),
        make(f"{paths.data_dir}/.config.data.4711.3.tmp", OLD),
        make(f"{paths.run_dir}/iallocator-request-abc", OLD),
        make(f"{paths.export_dir}/web+new/config.ini", OLD),
        make(f"{paths.import_export_dir}/web-import/status", OLD),
    ]
    kept = [
        make(paths.watcher_data(uuid), OLD),
        make(f"{paths.data_dir}/.locks.data.spare-0", OLD),
        make(f"{paths.data_dir}/.config.data.{os.getpid()}.4.tmp", RECENT),
        make(f"{paths.export_dir}/web/config.ini", OLD),
        make(f"{paths.export_dir}/db+new/disk0", RECENT),
        make(f"{paths.export_dir}/db+new/config.ini", OLD),
    ]
    for directory in (f"{paths.export_dir}/web+new", f"{paths.import_export_dir}/web-import"):
        os.utime(directory, (OLD, OLD))
    assert cleaner.clean_node(paths, NOW)
    assert [path for path in gone if os.path.exists(path)] == []
    assert [path for path in kept if not os.path.exists(path)] == []
    assert not os.path.exists(f"{paths.export_dir}/web+new")


def test_keys_and_disks_of_processes_that_were_killed_go(paths: Paths) -> None:
    made = {"data_dir": RESTORE, "export_dir": OVF}
    old = [make(f"{getattr(paths, place)}/{name}old/x", OLD) for place, name in made.items()]
    new = [make(f"{getattr(paths, place)}/{name}new/x", RECENT) for place, name in made.items()]
    for path in (*old, *new):
        os.utime(os.path.dirname(path), (OLD, OLD))
    with working_directory(OVF, paths.export_dir) as used:
        os.utime(used, (OLD, OLD))
        assert cleaner.clean_node(paths, NOW)
        assert os.path.exists(used)
    assert not any(os.path.exists(os.path.dirname(path)) for path in old)
    assert all(map(os.path.exists, new))


def test_certificates_go_once_they_are_over(paths: Paths) -> None:
    for name, began in (("x509-over", NOW - 86400 * 30), ("x509-good", NOW)):
        pem = make_self_signed(now=began, days=7).decode()
        make(f"{paths.crypto_keys_dir}/{name}/cert", NOW, pem)
    assert cleaner.clean_node(paths, NOW)
    assert os.listdir(paths.crypto_keys_dir) == ["x509-good"]


def test_files_that_a_killed_process_left_go_at_once(paths: Paths) -> None:
    gone = [
        make(f"{paths.data_dir}/.config.data.{NOBODY}.3.tmp", NOW),
        make(f"{paths.queue_dir}/.job-9.{NOBODY}.62.tmp", NOW),
        make(f"{paths.livelock_dir}/.job_9_1.{NOBODY}.tmp", NOW),
    ]
    kept = [
        make(f"{paths.queue_dir}/.job-9.{os.getpid()}.62.tmp", NOW),
        make(f"{paths.queue_dir}/.job-9.{NOBODY}.62.tmp.txt", NOW),
    ]
    assert cleaner.clean_node(paths, NOW)
    assert not any(map(os.path.exists, gone))
    assert all(map(os.path.exists, kept))


def test_a_link_is_removed_and_not_followed(paths: Paths, tmp_path: Path) -> None:
    target = make(str(tmp_path / "precious" / "file"), OLD)
    os.makedirs(paths.export_dir)
    link = f"{paths.export_dir}/evil+new"
    os.symlink(os.path.dirname(target), link)
    os.utime(link, (OLD, OLD), follow_symlinks=False)
    assert cleaner.clean_node(paths, NOW)
    assert not os.path.lexists(link)
    assert os.path.exists(target)


def test_nothing_is_there_to_clean(paths: Paths) -> None:
    assert cleaner.clean_node(paths, NOW)
    assert cleaner.clean_master(paths, NOW)
