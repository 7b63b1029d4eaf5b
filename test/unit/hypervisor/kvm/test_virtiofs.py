"""Tests of ganeti/hypervisor/kvm/hardware/virtiofs.py: both programs of that name."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from ganeti.base.errors import HypervisorError, OpPrereqError
from ganeti.hypervisor.kvm.hardware import virtiofs
from ganeti.hypervisor.kvm.monitor import Monitor

# Lines of what the programs say of themselves.
QEMUS = "    -o source=PATH             shared directory tree\n    --fd=FDNUM\n"
FIRST = "    --shared-dir <SHARED_DIR>\n    --fd <FD>\n    --sandbox <SANDBOX>\n"
MOVING = FIRST + "    --migration-on-error <MIGRATION_ON_ERROR>\n"


class Qemu:
    """A monitor that knows QEMU's version."""

    def __init__(self, major: int, minor: int) -> None:
        self._version = {"major": major, "minor": minor, "micro": 2}

    def query(self, command: str) -> dict[str, object]:
        assert command == "query-version"
        return {"qemu": self._version, "package": ""}


def install(path: Path, said: str, monkeypatch: pytest.MonkeyPatch) -> str:
    path.write_text(f"#!/bin/sh\ncat << END\n{said}END\n")
    path.chmod(0o755)
    monkeypatch.setattr(virtiofs, "_PLACES", ("/no/virtiofsd", str(path)))
    return str(path)


@pytest.mark.parametrize(
    ("said", "options"),
    [
        (QEMUS, ["--fd=7", "-o", "source=/run/view,sandbox=namespace,log_level=warn"]),
        (FIRST, ["--fd=7", "--shared-dir=/run/view", "--sandbox=namespace"]),
        (MOVING, ["--fd=7", "--shared-dir=/run/view", "--sandbox=namespace"]),
    ],
    ids=["qemu's", "successor", "one that moves"],
)
def test_the_command_is_that_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, options: list[str]
) -> None:
    path = install(tmp_path / "virtiofsd", said, monkeypatch)
    assert virtiofs.find("node1").command(7, "/run/view") == [path, *options]


@pytest.mark.parametrize(
    ("said", "qemu", "why"),
    [
        (QEMUS, (9, 2), "virtiofsd of node node1 cannot hand over what the guest has open"),
        (FIRST, (9, 2), "virtiofsd of node node1 cannot hand over what the guest has open"),
        (MOVING, (8, 1), "its QEMU is older than 8.2"),
        (MOVING, (8, 2), None),
        (MOVING, (10, 0), None),
    ],
)
def test_only_new_programs_move(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: str,
    qemu: tuple[int, int],
    why: str | None,
) -> None:
    install(tmp_path / "virtiofsd", said, monkeypatch)
    monitor = cast(Monitor, Qemu(*qemu))
    if why is None:
        virtiofs.check_movable(monitor, "web1", "node1")
        return
    with pytest.raises(HypervisorError) as caught:
        virtiofs.check_movable(monitor, "web1", "node1")
    assert caught.value.message == (
        "instance web1 shares directories of this node (hypervisor parameter shared_dirs), and"
        f" {why}; use failover"
    )


def test_a_node_without_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtiofs, "_PLACES", ("/no/virtiofsd",))
    with pytest.raises(OpPrereqError, match=r"shared_dirs: node node1 does not have .*package"):
        virtiofs.find("node1")
