"""The last resort: the node daemon restarts its machine by itself."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ganeti.base.paths import Paths
from ganeti.hypervisor import node
from ganeti.node_ops import dispatch
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.instances import life
from ganeti.protocol.node_calls import NodeCalls


def test_the_answer_comes_first_then_the_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    restarted = threading.Event()
    monkeypatch.setattr(life, "_POWERCYCLE_DELAY_S", 0.0)
    monkeypatch.setattr(node, "restart_at_once", lambda _hostname: restarted.set())
    context = NodeContext(Paths(), "node1.example.com")
    answer = dispatch.answer(context, NodeCalls.calls["node_powercycle"], b'["kvm", {}]')
    assert answer.startswith(b"[true")
    assert restarted.wait(60)


def test_the_kernel_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(node, "_SYSRQ_ENABLE", str(tmp_path / "enable"))
    monkeypatch.setattr(node, "_SYSRQ_TRIGGER", str(tmp_path / "trigger"))
    node.restart_at_once("node1.example.com")
    assert [(tmp_path / name).read_text() for name in ("enable", "trigger")] == ["1", "b"]
