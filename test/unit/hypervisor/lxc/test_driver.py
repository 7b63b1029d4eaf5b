"""What a node lacks for a container, as the driver tells it before a start."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganeti.base.errors import OpPrereqError
from ganeti.base.paths import Paths
from ganeti.hypervisor.interface import NodeEnv
from ganeti.hypervisor.lxc import driver
from ganeti.objects.hypervisors import HVPARAMS

DEFAULTS = {key: spec.default for key, spec in HVPARAMS["lxc"].items()}


def test_a_profile_of_apparmor_that_is_not_loaded_is_named_with_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enabled, profiles = tmp_path / "enabled", tmp_path / "profiles"
    monkeypatch.setattr(driver, "_APPARMOR_ON", str(enabled))
    monkeypatch.setattr(driver, "_APPARMOR_PROFILES", str(profiles))
    lxc = driver.LxcHypervisor("lxc", NodeEnv(Paths(str(tmp_path)), "node1", "127.0.0.1"), {})
    lxc.check_on_node(DEFAULTS)
    enabled.write_text("Y\n")
    profiles.write_text("/usr/bin/man (enforce)\n")
    with pytest.raises(OpPrereqError) as refused:
        lxc.check_on_node(DEFAULTS)
    text = str(refused.value)
    assert "node node1 has no profile 'lxc-container-default-cgns' loaded" in text
    assert "install the package 'apparmor'" in text
    assert "systemctl reload apparmor" in text
    lxc.check_on_node({**DEFAULTS, "extra_config": "lxc.apparmor.profile=unconfined"})
    profiles.write_text("lxc-container-default-cgns (enforce)\n")
    lxc.check_on_node(DEFAULTS)
