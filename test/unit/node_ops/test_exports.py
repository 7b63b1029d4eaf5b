"""Exported instances on a node."""

from pathlib import Path

import pytest
from guests.instances import make_instance

from ganeti.base.errors import GenericError, ProtocolError
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.disks import exports


def test_exports_are_listed_described_and_removed(context: NodeContext) -> None:
    assert exports.Exports(context).export_list() == []
    directory = Path(context.paths.export_dir, "inst1.example.com")
    directory.mkdir(parents=True)
    (directory / "config.ini").write_text("[export]\n")
    Path(context.paths.export_dir, ".hidden").mkdir()
    Path(context.paths.export_dir, "file").write_text("")
    assert exports.Exports(context).export_list() == ["inst1.example.com"]
    wire_path = "/var/lib/ganeti/export/inst1.example.com"
    for path in ("inst1.example.com", wire_path):
        assert exports.Exports(context).export_info(path) == "[export]\n"
    exports.Exports(context).export_remove("inst1.example.com")
    assert not directory.exists()


@pytest.mark.parametrize("name", ["..", ".", "", "a/../..", "absent"])
def test_nothing_else_is_removed_or_shown(context: NodeContext, name: str) -> None:
    with pytest.raises(GenericError):
        exports.Exports(context).export_remove(name)
    for path in (name, f"/etc/{name}"):
        with pytest.raises(GenericError):
            exports.Exports(context).export_info(path)


def test_how_disks_are_read_is_noted_until_it_stands_in_the_description(
    context: NodeContext,
) -> None:
    instance = make_instance("inst1.example.com")
    exports.Exports(context).export_note("inst1.example.com+new", "snapshot")
    exports.Exports(context).finalize_export(instance, [])
    directory = Path(context.paths.export_dir, "inst1.example.com")
    assert "method = snapshot" in (directory / "config.ini").read_text()
    assert [path.name for path in directory.iterdir()] == ["config.ini"]
    exports.Exports(context).finalize_export(instance, [])
    assert "method" not in (directory / "config.ini").read_text(), "nobody noted it"


@pytest.mark.parametrize(
    ("export", "method"), [("inst1.example.com+new", "magic"), ("../x", "snapshot")]
)
def test_what_is_no_note_is_refused(context: NodeContext, export: str, method: str) -> None:
    with pytest.raises(GenericError):
        exports.Exports(context).export_note(export, method)
    assert exports.Exports(context).export_list() == []


def test_what_is_no_disk_is_refused(context: NodeContext) -> None:
    with pytest.raises(ProtocolError, match="RpcDisk: expected object"):
        exports.Exports(context).finalize_export(make_instance("inst1.example.com"), [["loop"]])
