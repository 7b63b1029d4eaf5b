"""The state directory that Ganeti 3.0.2 left on a master: read, not changed, and handed back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ganeti.base.paths import Paths
from ganeti.config.ssconf_values import ssconf_values
from ganeti.config.state import ConfigState, problems_in
from ganeti.config.upgrade.downgrade import downgrade_config
from ganeti.config.upgrade.upgrading import decode_config, upgrade_config
from ganeti.jobs.record import decode_job
from ganeti.store import ssconf
from ganeti.store.config_upgrade import load_and_upgrade

RECORDED = Path(__file__).parents[2] / "data/state-3.0.2"
CONFIG = (RECORDED / "config.data").read_bytes()
JOBS = sorted((RECORDED / "queue").glob("job-*"), key=lambda path: int(path.name[4:]))


def test_the_configuration_has_no_problems_and_needs_no_upgrade() -> None:
    assert problems_in(CONFIG) == []
    assert upgrade_config(decode_config(CONFIG), new_uuid=lambda: "never", now=1.0).notes == ()


def test_the_daemon_that_takes_it_over_does_not_write_it_again(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    shutil.copytree(RECORDED, paths.data_dir)
    before = Path(paths.config_data).stat().st_ino
    assert load_and_upgrade(paths, new_uuid=lambda: "never") == CONFIG
    assert Path(paths.config_data).stat().st_ino == before
    assert ssconf.master_node(paths) == "node1.example.com"


def test_it_can_be_handed_back_as_it_is() -> None:
    assert downgrade_config(decode_config(CONFIG)).notes == ()


def test_the_simple_configuration_is_what_we_would_write() -> None:
    ours = ssconf_values(ConfigState(CONFIG).durable)
    for name, value in ours.items():
        recorded = RECORDED / f"ssconf_{name}"
        if recorded.exists():
            assert recorded.read_text().rstrip("\n") == value.rstrip("\n"), name


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.name)
def test_its_jobs_are_read(path: Path) -> None:
    job = decode_job(path.read_bytes(), int(path.name[4:]))
    assert str(job.ops[0].status) == "success"
