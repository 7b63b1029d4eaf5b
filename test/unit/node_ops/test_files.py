"""Which configuration may replace which, and which files are taken at all."""

import contextlib
import errno
import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.errors import GenericError, ProtocolError
from ganeti.base.paths import Paths
from ganeti.config.deltas import journal
from ganeti.config.deltas.journal import Record, record_of
from ganeti.config.index import CLUSTER_ID
from ganeti.config.overlay import Stored
from ganeti.node_ops import dispatch
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.machine import config_copy, files
from ganeti.node_ops.machine.config_copy import ConfigHead, refusal
from ganeti.node_ops.machine.files import ALLOWED_PATHS
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc_values import (
    CompressedText,
    ConfigPatch,
    ConfigVersion,
    FileDetails,
    SsconfPatch,
    compress,
)
from ganeti.store import master_facts, ssconf
from ganeti.store.config_file import digest_of, fold_journal, only_writer, read_config
from ganeti.store.master_facts import Claim

CONFIG = "/var/lib/ganeti/config.data"


def head(serial: int, cluster: str = "c1") -> ConfigHead:
    return ConfigHead(serial, config_copy._ClusterHead(cluster))


@pytest.mark.parametrize(
    ("present", "incoming", "refused"),
    [
        (None, head(1), False),
        (head(5), head(6), False),
        (head(5), head(5), False),
        (head(6), head(5), True),
        (head(6, "another"), head(5), False),
    ],
)
def test_an_older_configuration_never_replaces_a_newer_one(
    present: ConfigHead | None, incoming: ConfigHead, refused: bool
) -> None:
    text = refusal(present, incoming)
    assert (text is not None) == refused
    if text:
        assert "serial number 5, older than 6" in text


def config(serial: int, cluster: str = "c1", **more: Any) -> str:
    return json.dumps({"serial_no": serial, "cluster": {"uuid": cluster, "x": 1}, **more})


def send(context: NodeContext, text: str, path: str = CONFIG) -> None:
    files.Files(context).upload_file_single(
        path, CompressedText(text), 0o100640, "root", "root", 10.0, 20.0
    )


def test_a_configuration_is_written_with_mode_and_times(context: NodeContext) -> None:
    send(context, config(1))
    found = os.stat(context.paths.config_data)
    assert found.st_mode & 0o7777 == 0o640
    assert (found.st_atime, found.st_mtime) == (10.0, 20.0)


def test_the_file_on_disk_decides_not_what_was_sent_before(context: NodeContext) -> None:
    send(context, config(7))
    with pytest.raises(GenericError, match="older than 7"):
        send(context, config(6))
    Path(context.paths.config_data).write_text(config(3, y=1))
    send(context, config(6))
    assert json.loads(Path(context.paths.config_data).read_text())["serial_no"] == 6


def test_an_unreadable_configuration_is_replaced_but_never_sent_in(context: NodeContext) -> None:
    Path(context.paths.config_data).write_text("{")
    send(context, config(1))
    with pytest.raises(ProtocolError):
        send(context, "{")
    assert Path(context.paths.config_data).read_text() == config(1)


def test_the_white_list_is_about_the_path_on_the_wire(context: NodeContext) -> None:
    for path in ("/etc/passwd", "/var/lib/ganeti/server.pem", "/var/lib/ganeti//x", "/x"):
        with pytest.raises(GenericError, match="not one that this node accepts"):
            send(context, "x", path)
    for path in ("var/lib/ganeti/hmac.key", "/var/lib/../lib/ganeti/hmac.key"):
        with pytest.raises(GenericError):
            send(context, "x", path)
    send(context, "secret", "/###-VIRTUAL-PATH-###,/var/lib/ganeti/hmac.key")
    assert Path(context.paths.hmac_key).read_text() == "secret"


@pytest.mark.shows("2.1/redist/own-files")
def test_the_administrator_of_a_node_accepts_more_files(context: NodeContext) -> None:
    own_list = Path(context.paths.accepted_files_list)
    own_list.write_text("/etc/motd  # the same everywhere\n/etc/ganeti/accepted-files\n")
    own_list.chmod(0o644)
    send(context, "hello", "/etc/motd")
    assert Path(context.paths.localize("/etc/motd")).read_text() == "hello"
    for path in ("/etc/issue", "/etc/ganeti/accepted-files"):
        with pytest.raises(GenericError, match="can list it in /etc/ganeti/accepted-files there"):
            send(context, "x", path)
    own_list.chmod(0o664)
    with pytest.raises(GenericError, match="writable by nobody else"):
        send(context, "x", "/etc/motd")


@pytest.mark.shows("2.1/redist/vnc-files")
def test_password_files_of_consoles_are_accepted(context: NodeContext) -> None:
    send(context, "secret", "/etc/ganeti/vnc-web1")
    for path in ("/etc/ganeti/vnc-", "/etc/ganeti/vnc-a/b", "/etc/ganeti/x", "/etc/vnc-web1"):
        with pytest.raises(GenericError, match="not one that this node accepts"):
            send(context, "x", path)


def test_the_list_holds_no_directory_and_no_program() -> None:
    assert len(ALLOWED_PATHS) == 21
    assert all(os.path.normpath(path) == path for path in ALLOWED_PATHS)


def test_owners_are_looked_up_on_real_nodes_only(context: NodeContext) -> None:
    details = FileDetails(CONFIG, CompressedText(""), 0o600, "no-such-user", "no-such-group", 0, 0)
    assert files._owner(context.paths, details) is None
    if os.geteuid() == 0:
        with pytest.raises(GenericError, match="no-such-user"):
            files._owner(Paths(""), details)


def test_the_remote_api_s_users_find_their_directory(context: NodeContext) -> None:
    send(context, "jack pw write", "/var/lib/ganeti/rapi/users")
    assert os.stat(context.paths.rapi_dir).st_mode & 0o777 == 0o750


def test_a_full_disk_is_an_answer_and_the_old_file_stays(
    context: NodeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    send(context, config(1))
    monkeypatch.setattr(os, "fsync", full)
    args = [CONFIG, compress(config(2)), 0o640, "root", "root", 1.0, 1.0]
    answer = dispatch.answer(
        context, NodeCalls.calls["upload_file_single"], json.dumps(args).encode()
    )
    assert answer == b'[false,"No space left on device"]\n'
    assert json.loads(Path(context.paths.config_data).read_text())["serial_no"] == 1
    assert os.listdir(context.paths.data_dir) == ["config.data"]


def send_patch(
    context: NodeContext, base: int, version: int, parts: list[tuple[int, int] | str]
) -> bool:
    patch = ConfigPatch(ConfigVersion(base, 0.0), ConfigVersion(version, 0.0), parts)
    return files.Files(context).config_patch(patch, 0o640, "root", "root", 10.0, 20.0)


def test_a_patch_keeps_parts_of_the_file_that_it_is_for(context: NodeContext) -> None:
    path = Path(context.paths.config_data)
    assert not send_patch(context, 1, 2, [config(2)])
    send(context, config(1, key="kept"))
    start = config(1, key="kept").index(', "cluster"')
    assert send_patch(
        context, 1, 2, ['{"serial_no": 2', (start, len(config(1, key="kept")) - start)]
    )
    assert path.read_text() == config(2, key="kept")
    assert path.stat().st_mtime == 20.0
    assert send_patch(context, 2, 3, [config(3)])
    assert not send_patch(context, 2, 4, [config(4)])
    with pytest.raises(GenericError, match="older than 3"):
        send_patch(context, 3, 1, [config(1)])
    with pytest.raises(GenericError, match="no bytes 0 to 99999"):
        send_patch(context, 3, 4, [(0, 99999)])
    assert path.read_text() == config(3)
    send(context, config(4))
    with pytest.raises(GenericError, match="older than 4"):
        send(context, config(3))


def test_a_file_that_somebody_touched_is_not_patched(context: NodeContext) -> None:
    send(context, config(1))
    Path(context.paths.config_data).write_text(config(1, y=1))
    assert not send_patch(context, 1, 2, [config(2)])
    assert json.loads(Path(context.paths.config_data).read_text())["y"] == 1


def test_a_file_that_is_the_master_s_is_confirmed_and_may_be_patched(
    context: NodeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def confirm(version: int, content: str, mode: int = 0o640) -> bool:
        digest = digest_of([content.encode()])
        wanted = ConfigVersion(version, 0.0)
        return files.Files(context).config_confirm(wanted, digest, mode, "root", "root")

    path = Path(context.paths.config_data)
    assert not confirm(1, config(1)), "there is none"
    send(context, config(1))
    monkeypatch.setattr(config_copy, "_written", {})  # as in a daemon that was started again
    assert not send_patch(context, 1, 2, [config(2)])
    assert not confirm(1, config(1, key="by hand"))
    assert not confirm(2, config(1))
    assert not confirm(1, config(1), mode=0o600)
    assert not send_patch(context, 1, 2, [config(2)])
    assert confirm(1, config(1))
    assert send_patch(context, 1, 2, [config(2)])
    assert path.read_text() == config(2)
    assert files.Files(context).config_append(CompressedText(line(2, 3, "b")))
    assert not confirm(2, config(2)), "it has a journal"
    path.write_text("{}")
    assert not confirm(2, "{}")


def line(base: int, version: int, tag: str) -> str:
    changed = {CLUSTER_ID: Stored(json.dumps({"uuid": "c1", "tag": tag}).encode())}
    versions = ConfigVersion(base, 0.0), ConfigVersion(version, 0.0)
    return record_of(*versions, changed).line.decode()


def test_records_go_on_from_the_file_and_the_records_here(context: NodeContext) -> None:
    def append(*lines: str) -> bool:
        return files.Files(context).config_append(CompressedText("".join(lines)))

    def serial_and_tag() -> tuple[int, str | None]:
        found = json.loads(read_config(context.paths))
        return found["serial_no"], found["cluster"].get("tag")

    one, two, three = line(1, 2, "b"), line(2, 3, "c"), line(3, 4, "d")
    assert not append(one)
    send(context, config(1))
    assert not append(two)
    assert append(one)
    assert append(one), "it has that already"
    assert append(one, two)
    assert append(two, three)
    assert serial_and_tag() == (4, "d")
    assert not append(line(9, 10, "x"))
    with pytest.raises(GenericError, match="no records"):
        append(line(4, 5, "e")[:-1])
    with pytest.raises(GenericError, match="older than 4"):
        send(context, config(3))
    with pytest.raises(GenericError, match="older than 4"):
        send_patch(context, 1, 3, [config(3)])
    assert serial_and_tag() == (4, "d")
    assert send_patch(context, 1, 4, [config(4)])
    assert not Path(context.paths.config_journal).exists()
    assert append(line(4, 5, "e"))
    send(context, config(6))
    assert serial_and_tag() == (6, None)
    assert not Path(context.paths.config_journal).exists()


def test_records_that_are_there_are_durable_before_the_node_says_that_it_has_them(
    context: NodeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon was killed between writing and syncing, and the master sends them again."""
    send(context, config(1))
    record = line(1, 2, "b")
    Path(context.paths.config_journal).write_text(record)
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    assert files.Files(context).config_append(CompressedText(record))
    assert len(synced) == 1
    assert Path(context.paths.config_journal).read_text() == "+" + record[1:]
    assert files.Files(context).config_append(CompressedText(record))
    assert len(synced) == 1


def test_a_master_that_starts_and_the_daemon_that_is_sent_a_newer_file_take_turns(
    context: NodeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the old master's journal would end in a file over the one that was acknowledged."""
    send(context, config(1))
    Path(context.paths.config_journal).write_text(line(1, 2, "b"))
    replay = journal.replay
    with ThreadPoolExecutor(1) as thread:
        sent: list[Future[None]] = []

        def slow(data: bytes, records: Sequence[Record]) -> bytes | None:
            sent.append(thread.submit(send, context, config(9)))
            wait(sent, timeout=0.2)  # it would be done by then
            return replay(data, records)

        monkeypatch.setattr(journal, "replay", slow)
        with only_writer(context.paths):
            fold_journal(context.paths, 1.0)
        monkeypatch.undo()
        for each in sent:
            each.result()
    assert json.loads(read_config(context.paths))["serial_no"] == 9


ALL = {"master_node": "n1", "node_list": "n1\nn2", "cluster_tags": ""}


def tags(context: NodeContext) -> str:
    return ssconf.read_key(context.paths, "cluster_tags")


def test_simple_values_are_patched_from_the_state_that_was_written_last(
    context: NodeContext,
) -> None:
    node = files.Files(context)
    change = {"master_node": "n1", "cluster_tags": "a"}
    assert not node.ssconf_patch(1, "x.1", "x.2", change), "a new daemon has no state"
    assert ssconf.read_all(context.paths) == {}
    assert node.ssconf_patch(1, "", "x.1", ALL)
    assert node.ssconf_patch(2, "x.1", "x.2", change)
    assert ssconf.read_all(context.paths) == {**ALL, "cluster_tags": "a"}
    assert not node.ssconf_patch(3, "x.1", "x.3", {**change, "cluster_tags": "b"})
    assert not node.ssconf_patch(3, "x.2", "x.3", {**change, "cluster_tags": "b"}), (
        "it was in doubt"
    )
    assert tags(context) == "a"


@pytest.mark.parametrize("name", ["write_ssconf_files", "ssconf_accept"])
def test_other_writes_of_simple_values_end_the_state(context: NodeContext, name: str) -> None:
    node = files.Files(context)
    assert node.ssconf_patch(1, "", "x.1", ALL)
    if name == "ssconf_accept":
        node.ssconf_accept(2, {**ALL, "cluster_tags": "c"})
    else:
        node.write_ssconf_files({"cluster_tags": "c"})
    assert not node.ssconf_patch(3, "x.1", "x.2", {"master_node": "n1"})
    assert tags(context) == "c"


def test_a_write_of_simple_values_that_failed_ends_the_state(
    context: NodeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = files.Files(context)
    assert node.ssconf_patch(1, "", "x.1", ALL)

    def fail(*_args: object, **_named: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("ganeti.store.ssconf.files.write_durable", fail)
        with pytest.raises(OSError, match="No space"):
            node.ssconf_patch(2, "x.1", "x.2", {"master_node": "n1", "cluster_tags": "a"})
    assert not node.ssconf_patch(3, "x.1", "x.3", {"master_node": "n1", "cluster_tags": "b"})
    assert not node.ssconf_patch(3, "x.2", "x.3", {"master_node": "n1", "cluster_tags": "b"})


def test_both_are_patched_by_one_call_the_configuration_first(context: NodeContext) -> None:
    node = files.Files(context)

    def send_both(base: int, version: int, simple: SsconfPatch) -> tuple[bool, bool]:
        versions = ConfigVersion(base, 0.0), ConfigVersion(version, 0.0)
        patch = ConfigPatch(*versions, [config(version)])
        return node.copies_patch(patch, 0o640, "root", "root", 10.0, 20.0, simple)

    change = SsconfPatch(2, "x.1", "x.2", {"master_node": "n1", "cluster_tags": "a"})
    send(context, config(1))
    assert node.ssconf_patch(1, "", "x.1", ALL)
    assert send_both(7, 8, change) == (False, False)
    assert tags(context) == "", "nothing is written without the configuration"
    assert send_both(1, 2, change) == (True, True)
    assert tags(context) == "a"
    assert send_both(2, 3, change) == (True, False), "another state of the values is here"
    assert json.loads(Path(context.paths.config_data).read_text())["serial_no"] == 3


# Masters of before.

OLD, NEW, THIRD = (f"node{number}.example.com" for number in (2, 3, 4))
FOLLOWS = {"node_list": "\n".join(["node1.example.com", OLD, NEW, THIRD])}


def follow(context: NodeContext, master: str, *, serial_no: int) -> None:
    """Let a node take note of the next master, and follow it."""
    known = master_facts.read_claim(context.paths).serial_no
    master_facts.take_claim(context.paths, known_serial=known, claim=Claim(serial_no, master))
    values = {**FOLLOWS, "master_node": master}
    master_facts.accept_master(context.paths, serial_no=serial_no, values=values)


def append(context: NodeContext, base: int, version: int) -> bool:
    return files.Files(context).config_append(CompressedText(line(base, version, f"t{version}")))


def confirm(context: NodeContext, version: int) -> bool:
    wanted, digest = ConfigVersion(version, 0.0), digest_of([config(version).encode()])
    return files.Files(context).config_confirm(wanted, digest, 0o640, "root", "root")


def send_both(context: NodeContext, base: int, version: int) -> tuple[bool, bool]:
    patch = ConfigPatch(ConfigVersion(base, 0.0), ConfigVersion(version, 0.0), [config(version)])
    simple = SsconfPatch(version, "", "s", {"master_node": context.peer_name})
    return files.Files(context).copies_patch(patch, 0o640, "root", "root", 10.0, 20.0, simple)


def send_in_one(context: NodeContext, version: int) -> None:
    details = FileDetails(CONFIG, CompressedText(config(version)), 0o640, "root", "root", 1.0, 1.0)
    files.Files(context).upload_file(details)


WRITES: list[Callable[[NodeContext], object]] = [
    lambda context: append(context, 5, 6),
    lambda context: send_patch(context, 5, 6, [config(6)]),
    lambda context: send_both(context, 5, 6),
    lambda context: send(context, config(6)),
    lambda context: send_in_one(context, 6),
    lambda context: confirm(context, 5),
]


@pytest.mark.parametrize("write", WRITES)
def test_who_follows_the_next_master_takes_no_configuration_of_the_one_before(
    context: NodeContext, write: Callable[[NodeContext], object]
) -> None:
    ssconf.write_values(context.paths, {**FOLLOWS, "master_node": OLD})
    old, new = replace(context, peer_name=OLD), replace(context, peer_name=NEW)
    send(old, config(5))
    follow(context, NEW, serial_no=10_005)
    with pytest.raises(GenericError, match=f"{OLD} is not the master.* that is {NEW}"):
        write(old)
    assert json.loads(read_config(context.paths))["serial_no"] == 5
    send(new, config(10_005))
    follow(context, OLD, serial_no=20_005)  # and back again
    send(old, config(20_005))
    with pytest.raises(GenericError, match=f"{NEW} is not the master"):
        append(new, 20_005, 10_006)
    shared = replace(context, peer_name="ganeti.example.com")  # of all nodes: it tells nothing
    send(shared, config(20_006))


@pytest.mark.parametrize("has_claim", [True, False])
def test_a_master_that_a_node_has_not_heard_of_is_believed_by_its_number(
    context: NodeContext, has_claim: bool
) -> None:
    """Its configuration comes before the simple one, by which the node learns its name."""
    ssconf.write_values(context.paths, {**FOLLOWS, "master_node": OLD})
    send(replace(context, peer_name=OLD), config(5))
    if has_claim:
        master_facts.take_claim(context.paths, known_serial=0, claim=Claim(10_005, NEW))
        with pytest.raises(GenericError, match=f"{THIRD} is not the master"):
            send(replace(context, peer_name=THIRD), config(6))
        assert append(replace(context, peer_name=OLD), 5, 6), "nobody has followed yet"
    new = replace(context, peer_name=NEW)
    send(new, config(10_005))
    assert append(new, 10_005, 10_006)
    assert ssconf.master_node(context.paths) == OLD


@pytest.mark.parametrize("write", WRITES)
def test_a_write_under_way_counts_only_if_the_master_is_the_same_at_its_end(
    context: NodeContext, write: Callable[[NodeContext], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    ssconf.write_values(context.paths, {**FOLLOWS, "master_node": OLD})
    old = replace(context, peer_name=OLD)
    send(old, config(5))

    @contextlib.contextmanager
    def overtaken(paths: Paths) -> Iterator[None]:
        with only_writer(paths):
            follow(context, NEW, serial_no=10_005)
            yield

    monkeypatch.setattr(config_copy, "only_writer", overtaken)
    with pytest.raises(GenericError, match=f"{OLD} is not the master"):
        write(old)
