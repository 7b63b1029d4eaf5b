"""Where the bytes of a transfer come from, and where they go."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path

import pytest
from fakes.rpc_instances import rpc_instance
from msgspec import structs

from ganeti.base.errors import CommandError, ProtocolError, StorageError
from ganeti.base.paths import Paths
from ganeti.node_ops import scripts
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.transfers.calls import Transfers
from ganeti.node_ops.transfers.ends import End, open_sink, open_source
from ganeti.objects.rpc_instance import RpcInstance
from ganeti.protocol.node_rpc_values import StreamForm

DATA = os.urandom(100_000)
SUM = hashlib.sha256(DATA).hexdigest()


def script(tmp_path: Path, text: str) -> End:
    path = tmp_path / "script"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    device = tmp_path / "disk"
    return End(
        kind="script",
        path=str(device),
        argv=[str(path)],
        env={"PATH": "/usr/bin:/bin", "DEVICE": str(device)},
        log=str(tmp_path / "log"),
    )


def drain(end: End) -> bytes:
    source = open_source(end, StreamForm.FRAMES)
    try:
        return b"".join(source.pieces())
    finally:
        source.close()


def fill(end: End, data: bytes) -> None:
    for _ in open_sink(end, io.BytesIO(data), StreamForm.FRAMES).run():
        pass


def test_a_file_is_written_whole_with_its_checksum(tmp_path: Path) -> None:
    end = End(kind="file", path=str(tmp_path / "dump"))
    fill(end, DATA)
    assert (tmp_path / "dump").read_bytes() == DATA
    assert (tmp_path / "dump.sha256").read_text() == SUM
    assert sorted(os.listdir(tmp_path)) == ["dump", "dump.sha256"]
    assert drain(End(kind="file", path=end.path, sha256=SUM)) == DATA
    assert drain(end) == DATA, "nobody knows what it should add up to"


def test_a_damaged_file_has_no_end(tmp_path: Path) -> None:
    (tmp_path / "dump").write_bytes(DATA + b"x")
    with pytest.raises(StorageError, match="file dump is damaged"):
        drain(End(kind="file", path=str(tmp_path / "dump"), sha256=SUM))


@pytest.mark.shows("2.0/os-scripts/export", "2.0/os-scripts/import", "2.0/os-output/stdout")
def test_scripts_read_and_write(tmp_path: Path) -> None:
    (tmp_path / "disk").write_bytes(DATA)
    assert drain(script(tmp_path, "echo reading >&2; cat $DEVICE")) == DATA
    assert (tmp_path / "log").read_text() == "reading\n"
    fill(script(tmp_path, "tr a-z A-Z > $DEVICE"), b"hello")
    assert (tmp_path / "disk").read_bytes() == b"HELLO"


@pytest.mark.parametrize("text", ["head -c 10 /dev/zero; echo broken >&2; exit 3", "kill -9 $$"])
def test_an_export_script_that_fails(tmp_path: Path, text: str) -> None:
    with pytest.raises(CommandError, match=r"script .*/script ended with status"):
        drain(script(tmp_path, text))


@pytest.mark.parametrize("text", ["exit 1", "cat >/dev/null; echo full >&2; exit 1", "true"])
def test_an_import_script_that_fails(tmp_path: Path, text: str) -> None:
    with pytest.raises(CommandError, match=r"script .*/script (ended|did not read)"):
        fill(script(tmp_path, text), DATA * 10)


@pytest.mark.parametrize("sends", [True, False])
def test_messages_of_scripts_do_not_fill_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, sends: bool
) -> None:
    monkeypatch.setattr(scripts, "_LOG_BYTES_MAX", 100_000)
    end = script(tmp_path, "yes | head -c 1000000 >&2; echo the end >&2; cat > /dev/null; exit 1")
    with pytest.raises(CommandError, match=r"y\ny\nthe end$"):
        drain(end) if sends else fill(end, b"the disk")
    assert (tmp_path / "log").stat().st_size == 100_000


def test_a_log_that_cannot_be_written_keeps_no_script_from_its_work(tmp_path: Path) -> None:
    end = structs.replace(script(tmp_path, "yes | head -c 1000000 >&2; cat"), log="/dev/full")
    assert drain(end) == b""


def test_an_import_script_does_not_see_the_end_of_a_broken_stream(tmp_path: Path) -> None:
    class Broken:
        def read(self, count: int) -> bytes:
            raise StorageError("the stream ended early")

    end = script(tmp_path, "cat > /dev/null; touch $DEVICE")
    with pytest.raises(StorageError):
        for _ in open_sink(
            End(kind="file", path=str(tmp_path / "dump")), Broken(), StreamForm.FRAMES
        ).run():
            pass
    assert not (tmp_path / "dump").exists()
    with pytest.raises(StorageError):
        open_sink(end, Broken(), StreamForm.FRAMES)
    assert not (tmp_path / "disk").exists()


@pytest.mark.shows(
    "2.0/os-old/once-per-disk",
    "2.0/os-input/export-device",
    "2.0/os-input/export-index",
    "2.0/os-input/import-device",
    "2.0/os-input/import-index",
)
@pytest.mark.parametrize(("kind", "receives"), [("EXPORT", False), ("IMPORT", True)])
def test_scripts_are_told_which_disk_it_is(tmp_path: Path, kind: str, *, receives: bool) -> None:
    paths = Paths(str(tmp_path))
    definition = Path(paths.os_search_path[0]) / "noop"
    definition.mkdir(parents=True)
    (definition / "ganeti_api_version").write_text("20\n")
    (definition / "parameters.list").write_text("")
    for name in ("create", "import", "export", "rename", "verify"):
        (definition / name).write_text("#!/bin/sh\n")
        (definition / name).chmod(0o755)
    wire = rpc_instance(disks=[], disks_info=[], os="noop")
    calls = Transfers(NodeContext(paths, "node1"))
    for index in (0, 1):
        end = calls._script(
            RpcInstance.from_wire(wire), "disk", f"/dev/d{index}", index, receives=receives
        )
        assert end.argv == [str(definition / kind.lower())]
        assert end.env[f"{kind}_DEVICE"] == f"/dev/d{index}"
        assert end.env[f"{kind}_INDEX"] == str(index)
        assert end.env["INSTANCE_NAME"] == wire["name"]


@pytest.mark.parametrize(
    ("kind", "more"),
    [("raw", []), ("script", [0]), ("kept", ["monday"]), ("changes", [True, False])],
)
def test_what_is_no_object_is_no_disk(tmp_path: Path, kind: str, more: list[object]) -> None:
    calls = Transfers(NodeContext(Paths(str(tmp_path)), "node1"))
    instance = RpcInstance.from_wire(rpc_instance(disks=[], disks_info=[]))
    with pytest.raises(ProtocolError, match="RpcDisk: expected object"):
        calls._find_end(instance, "d", (kind, [[], *more]), StreamForm.FRAMES, receives=False)


@pytest.mark.shows("2.0/os-caveats/whole-dump")
def test_without_a_script_the_disk_is_dumped_and_restored(tmp_path: Path) -> None:
    size = 4 << 20
    one, two = tmp_path / "one", tmp_path / "two"
    for path in (one, two):
        path.touch()
        os.truncate(path, size)
    with one.open("r+b") as disk:
        disk.seek(1 << 20)
        disk.write(DATA)
    dump = drain(End(kind="script", path=str(one)))
    assert len(dump) < size
    fill(End(kind="script", path=str(two)), dump)
    assert one.read_bytes() == two.read_bytes()
    end = script(tmp_path, "exit 1")
    fill(End(kind="script", path=str(two), argv=end.argv, log=end.log), dump)


@pytest.mark.parametrize("form", StreamForm)
@pytest.mark.parametrize("kind", ["raw", "script"])
def test_a_volume_is_sent_with_the_extent_that_its_size_does_not_fill(
    tmp_path: Path, kind: str, form: StreamForm
) -> None:
    """Its guest uses the whole device, whatever is recorded."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(DATA)
    two.write_bytes(bytes(len(DATA)))
    source = open_source(End(kind=kind, path=str(one), size_bytes=len(DATA) - 30_000), form)
    stream = io.BytesIO(b"".join(source.pieces()))
    source.close()
    for _ in open_sink(End(kind=kind, path=str(two), size_bytes=70_000), stream, form).run():
        pass
    assert two.read_bytes() == DATA


@pytest.mark.shows("2.0/os-scripts/both")
def test_what_a_script_wrote_needs_a_script(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="has no import script here"):
        fill(End(kind="script", path=str(tmp_path / "disk")), b"a tar archive")
