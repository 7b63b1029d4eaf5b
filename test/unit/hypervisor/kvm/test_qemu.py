"""Whether KVM is usable is decided by a race."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ganeti.base.errors import OpPrereqError
from ganeti.base.json import dumps
from ganeti.base.paths import Paths
from ganeti.hypervisor.kvm import qemu
from ganeti.hypervisor.kvm.qemu import ProbeResult, Verdict, choose_accelerator, probe, race
from ganeti.system import clock


class Runner:
    """A guest that prints what a test wants, when it wants."""

    def __init__(self, *texts: bytes) -> None:
        self._reader, self._writer = os.pipe()
        self._seen = b""
        for text in texts:
            os.write(self._writer, text)

    def fileno(self) -> int:
        return self._reader

    def end(self) -> None:
        os.close(self._writer)

    def read(self) -> bytes:
        self._seen += os.read(self._reader, 100) or b"\0"
        return self._seen


def test_kvm_wins() -> None:
    assert race({"kvm": Runner(b"guest up\r\nwork done\r\n"), "tcg": Runner(b"guest up")}, 5).usable


def test_kvm_that_is_slower_is_of_no_use() -> None:
    verdict = race({"kvm": Runner(b"guest up"), "tcg": Runner(b"work done")}, 5)
    assert verdict == Verdict(False, "a guest runs faster without it")


def test_qemu_that_ends_says_why() -> None:
    kvm = Runner(b"Could not access KVM kernel module")
    kvm.end()
    verdict = race({"kvm": kvm, "tcg": Runner()}, 5)
    assert not verdict.usable
    assert "Could not access" in verdict.reason


def test_emulation_that_ends_leaves_it_to_kvm() -> None:
    tcg = Runner()
    tcg.end()
    assert race({"kvm": Runner(b"work done"), "tcg": tcg}, 5).usable


def test_time_limit_decides_nothing() -> None:
    verdict = race({"kvm": Runner(), "tcg": Runner()}, 0.01)
    assert not verdict.usable
    assert not verdict.final
    assert verdict.reason == "no guest was done within 0.01 seconds"


def test_doubtful_answer_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts = [Verdict(False, "too slow", final=False), Verdict(True)]
    monkeypatch.setattr(qemu, "_try", lambda _binary, _paths: verdicts.pop(0))
    paths = Paths(str(tmp_path))
    assert [probe("/bin/sh", paths).usable for _ in range(3)] == [False, True, True]
    assert verdicts == []


def test_answer_is_kept_for_this_run_of_the_kernel(tmp_path: Path) -> None:
    paths, binary = Paths(str(tmp_path)), "/bin/sh"
    key = {"binary": binary, "modified_ns": os.stat(binary).st_mtime_ns}
    known = ProbeResult(boot_id=clock.boot_id(), usable=True, **key)  # type: ignore[arg-type]  # key
    Path(paths.kvm_dir).mkdir(parents=True)
    file = Path(paths.kvm_dir, "accelerator")
    file.write_bytes(dumps(known))
    assert probe(binary, paths) == known
    assert choose_accelerator("", binary, paths) == "kvm"
    assert choose_accelerator("disabled", binary, paths) == "tcg"


@pytest.mark.parametrize("old", [b"garbage", b'{"boot_id":"x"}', None])
def test_without_a_device_there_is_nothing_to_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: bytes | None
) -> None:
    monkeypatch.setattr(qemu, "KVM_DEVICE", "/nowhere/kvm")
    paths = Paths(str(tmp_path))
    if old is not None:
        Path(paths.kvm_dir).mkdir(parents=True)
        Path(paths.kvm_dir, "accelerator").write_bytes(old)
    assert choose_accelerator("", "/bin/sh", paths) == "tcg"
    with pytest.raises(OpPrereqError, match=r"kvm_flag .* there is no /nowhere/kvm"):
        choose_accelerator("enabled", "/bin/sh", paths)
