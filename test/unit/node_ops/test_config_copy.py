"""The copy of the configuration on a candidate, and the journal beside it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ganeti.base.errors import ConfigurationError
from ganeti.config.deltas.journal import record_of
from ganeti.config.index import CLUSTER_ID
from ganeti.config.overlay import Stored
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.machine import config_copy
from ganeti.protocol.node_rpc_values import ConfigVersion
from ganeti.system import files


def config(serial: int) -> bytes:
    return json.dumps({"serial_no": serial, "cluster": {"uuid": "c1"}}).encode()


def line(base: int, version: int, tag: str) -> bytes:
    raw = json.dumps({"uuid": "c1", "tag": tag}).encode()
    versions = ConfigVersion(base, 0.0), ConfigVersion(version, 0.0)
    return record_of(*versions, {CLUSTER_ID: Stored(raw, 0)}).line


def send(context: NodeContext, content: bytes) -> None:
    path = context.paths.config_data
    config_copy.replace(
        context.paths, content, lambda pieces: files.write_durable(path, list(pieces))
    )


def test_the_file_is_durable_before_the_node_says_that_it_has_its_records(
    context: NodeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier daemon was killed once the file had its name, which was not synced yet."""
    send(context, config(2))
    path = Path(context.paths.config_data)
    path.with_name("new").write_bytes(path.read_bytes())
    path.with_name("new").rename(path)
    synced: list[str] = []
    sync = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    record = line(1, 2, "b")
    assert config_copy.append(context.paths, record), "the file has that"
    assert synced == ["config.data", "ganeti"]
    assert config_copy.append(context.paths, record)
    assert len(synced) == 2, "once is enough"
    send(context, config(3))
    synced.clear()
    assert config_copy.append(context.paths, (line(2, 3, "c")))
    assert synced == [], "this daemon wrote it itself"


def test_a_damaged_journal_takes_no_records_and_a_file_takes_its_place(
    context: NodeContext,
) -> None:
    send(context, config(1))
    lines = b"".join(b"+" + each[1:] for each in (line(1, 2, "b"), line(2, 3, "c")))
    journal = Path(context.paths.config_journal)
    journal.write_bytes(lines.replace(b'"b"', b'"x"'))
    with pytest.raises(ConfigurationError, match="is damaged at byte 0"):
        config_copy.append(context.paths, (line(1, 2, "b")))
    send(context, config(3))
    assert not journal.exists()
