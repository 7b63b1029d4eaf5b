"""Our hspace beside Debian's: the same about the cluster, and at least as many instances."""

from __future__ import annotations

import pytest
from fakes import debian_htools
from fakes.run_tool import run_tool

pytestmark = pytest.mark.skipif(not debian_htools.are_there(), reason=debian_htools.REASON)
FIXED = ("HTS_CLUSTER_", "HTS_INI_", "HTS_TSPEC_INI_", "HTS_SPEC_", "HTS_KM_USED_", "HTS_OK")


def _keys(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


@pytest.mark.parametrize("template", ["plain", "drbd"])
@pytest.mark.parametrize("size", ["20g,4g,1", "10g,1g,2", "30g,9g,8"])
def test_keys_are_theirs(
    template: str, size: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (
        *("--simulate=p,3,100g,16g,4,2", "--machine-readable", f"--disk-template={template}"),
        *(f"--standard-alloc={size}", f"--tiered-alloc={size}"),
    )
    theirs = _keys(debian_htools.run("hspace", *words).stdout)
    status, out, _ = run_tool(monkeypatch, capsys, "hspace", *words)
    ours = _keys(out)
    assert status == 0
    assert set(ours) == set(theirs)
    fixed = {key: value for key, value in theirs.items() if key.startswith(FIXED)}
    assert {key: ours[key] for key in fixed} == fixed
    for key in ("HTS_ALLOC_INSTANCES", "HTS_TRL_INST_CNT"):
        assert int(ours[key]) >= int(theirs[key]), key
