"""Entries in a hosts file."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ganeti.base.errors import GenericError
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.machine import files as machine_files
from ganeti.node_ops.machine.files import Files, with_entry, without_name
from ganeti.system import files
from ganeti.system.environment import parse_hosts
from ganeti.system.filelock import FileLock

NAME = "node2.example.com"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "10.0.0.2\tnode2.example.com node2\n"),
        ("127.0.0.1 localhost\n", "127.0.0.1 localhost\n10.0.0.2\tnode2.example.com node2\n"),
        ("10.0.0.2 other # by hand\n", "10.0.0.2\tnode2.example.com node2 other # by hand\n"),
        ("10.0.0.9 node2.example.com node2\n", "10.0.0.2\tnode2.example.com node2\n"),
        (
            "10.0.0.9 node2 db  # both\n::1 localhost",
            "10.0.0.9\tdb # both\n::1 localhost\n10.0.0.2\tnode2.example.com node2\n",
        ),
    ],
)
def test_adding(before: str, after: str) -> None:
    assert with_entry(before, "10.0.0.2", NAME) == after
    assert with_entry(after, "10.0.0.2", NAME) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("10.0.0.2\tnode2.example.com node2\n", ""),
        ("10.0.0.2 node2 web\n#c\n", "10.0.0.2\tweb\n#c\n"),
        ("10.0.0.3 node20.example.com\n", "10.0.0.3 node20.example.com\n"),
        ("# node2 stood here\n", "# node2 stood here\n"),
    ],
)
def test_removing(before: str, after: str) -> None:
    assert without_name(before, NAME) == after
    assert without_name(after, NAME) == after


def test_a_name_without_a_domain_is_written_once() -> None:
    assert with_entry("", "10.0.0.4", "node4") == "10.0.0.4\tnode4\n"


def test_nodes_that_are_added_at_once_all_get_their_line(
    context: NodeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = files.write_durable

    def write_slowly(path: str, data: bytes, mode: int) -> None:
        time.sleep(0.05)  # the others have read by now, if they may
        write(path, data, mode)

    monkeypatch.setattr(files, "write_durable", write_slowly)
    table = {f"node{number}": f"10.0.0.{number}" for number in range(2, 7)}
    with ThreadPoolExecutor(len(table)) as pool:
        assert all(
            pool.map(lambda row: Files(context).etc_hosts_modify("add", *row), table.items())
        )
    assert parse_hosts(Path(context.paths.etc_hosts).read_text()).items() >= table.items()


def test_a_hosts_file_that_somebody_keeps_changing_is_not_waited_for_forever(
    context: NodeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_files, "_HOSTS_LOCK_S", 0.05)
    with (
        FileLock(f"{context.paths.lock_dir}/ganeti-etc-hosts.lock"),
        pytest.raises(GenericError, match="is being changed; try again later"),
    ):
        Files(context).etc_hosts_modify("remove", NAME, None)
