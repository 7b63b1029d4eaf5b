"""Tests of ganeti/watcher/node_part.py: what runs on a node that is offline for the others."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from ganeti.base.errors import CommandError, HypervisorError
from ganeti.base.paths import Paths
from ganeti.node_ops.context import NodeContext
from ganeti.storage.drbd import drbdsetup
from ganeti.watcher import node_part


class _Hypervisor:
    """Three instances, of which the first does not stop."""

    def __init__(self) -> None:
        self.stopped: list[str] = []

    def list_instances(self) -> list[str]:
        return ["stuck", "web1", "web2"]

    def stop(self, name: str, *, force: bool) -> None:
        if name == "stuck":
            raise HypervisorError("it does not end")
        assert force
        self.stopped.append(name)


def test_an_instance_that_does_not_stop_keeps_no_other_one_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    paths, hypervisor = Paths(str(tmp_path)), _Hypervisor()
    os.makedirs(paths.data_dir)
    Path(paths.ssconf_file("hypervisor_list")).write_text("fake\n")
    text = "kernel_args=ro\nquiet\nother=1\n"  # the cluster's value has two lines
    Path(paths.ssconf_file("hvparams_fake")).write_text(text)
    monkeypatch.setattr(NodeContext, "hypervisor", lambda *_args: hypervisor)
    with caplog.at_level(logging.WARNING):
        assert not node_part._stop_instances(NodeContext(paths, "node1"))
    assert hypervisor.stopped == ["web1", "web2"]
    assert caplog.messages == [
        "Cannot stop instance stuck: it does not end",
        "Stopped instance web1",
        "Stopped instance web2",
    ]


def test_a_device_that_is_in_use_keeps_no_other_one_up(monkeypatch: pytest.MonkeyPatch) -> None:
    names, taken = ["resource0", "other", "resource1"], list[str]()

    def run(argv: Sequence[str]) -> None:
        if argv[-1] == "resource0":
            raise CommandError("device is held open", tuple(argv), 11, "")
        taken.append(argv[-1])

    monkeypatch.setattr(drbdsetup, "is_loaded", lambda: True)
    monkeypatch.setattr(drbdsetup, "resources", lambda: [SimpleNamespace(name=n) for n in names])
    monkeypatch.setattr(drbdsetup, "run", run)
    assert not node_part._stop_mirrors()
    assert taken == ["resource1"]
