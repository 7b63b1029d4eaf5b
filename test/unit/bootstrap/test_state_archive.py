"""An archive of the state has what a new master needs, whatever happens while it is read."""

from __future__ import annotations

import copy
import io
import os
import signal
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.sample_config import CONFIG

from ganeti.base import json
from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.bootstrap import cluster_files, failover, keys, state_archive
from ganeti.bootstrap.failover import Failover, FailoverOptions
from ganeti.bootstrap.state_archive import inner, pack, read_state, unpack, write_files
from ganeti.cli.cluster import backup, restore
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.context import Context, Terminal
from ganeti.cli.run.endings import ENDINGS
from ganeti.clients import master_poll
from ganeti.config.changes import add_tags
from ganeti.config.deltas.journal import record_of
from ganeti.config.state import ConfigState
from ganeti.jobs import changes
from ganeti.jobs.record import encode_job
from ganeti.jobs.submission import make_job
from ganeti.store import config_file
from ganeti.store.job_files import JobFiles
from ganeti.store.notes import restoration
from ganeti.system import certificates, files, ssh

NOW = (1, 2)
SERVER = keys.make_certificate()


def mode_of(path: str) -> int:
    return os.stat(path).st_mode & 0o7777


def write_config(
    paths: Paths,
    *trusted: bytes,
    serial_no: int = 7,
    manages_ssh: bool = False,
    candidates: Sequence[str] = (),
) -> None:
    config = copy.deepcopy(CONFIG)
    for uuid in candidates and config["nodes"]:
        config["nodes"][uuid]["master_candidate"] = uuid in candidates
    config["serial_no"] = serial_no
    config["cluster"]["modify_ssh_setup"] = manages_ssh
    digests = [certificates.facts(pem, "").digest for pem in trusted]
    config["cluster"]["candidate_certs"] = {f"n{i}": each for i, each in enumerate(digests)}
    config_file.write_config(paths, json.dumps(config))


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """A master with one job that has ended, and one that has not."""
    made = Paths(str(tmp_path / "n1"))
    os.makedirs(made.data_dir)
    queue = JobFiles(made)
    queue.prepare()
    for job_id in (3, 4):
        job = make_job(JobId(job_id), [{"OP_ID": "OP_TEST_DELAY"}], NOW)
        ended = changes.canceled(job, "", NOW) if job_id == 3 else job
        queue.write_durable(JobId(job_id), encode_job(ended))
    queue.write_serial(9)
    client = keys.make_client_certificate("n1", SERVER)
    for name, content in {"server_pem": SERVER, "client_pem": client, "hmac_key": b"k"}.items():
        files.write_durable(getattr(made, name), content, keys.mode_of(name))
    write_config(made, client)
    return made


def test_what_goes_in_comes_out(paths: Paths, tmp_path: Path) -> None:
    state = read_state(paths, "n1", now=5.0)
    assert unpack(pack(state)) == state
    assert (state.head.serial_no, state.head.last_job_id, state.head.unended) == (7, 9, (4,))
    assert state.job_count == 1, "the other one would be carried out a second time"
    other = Paths(str(tmp_path / "new"))
    write_files(other, state.contents)
    for name in ("config_data", "server_pem", "client_pem", "hmac_key"):
        there, here = getattr(other, name), getattr(paths, name)
        assert files.read_bytes(there) == files.read_bytes(here)
        assert mode_of(there) == mode_of(here)
    assert JobFiles(other).ids() == [3]


def test_ssh_keys_are_in_it_where_the_cluster_manages_them(paths: Paths) -> None:
    private, public = state_archive.ssh_files(paths)[:2]
    os.makedirs(os.path.dirname(private))
    for path in (private, public):
        Path(path).write_bytes(b"key")
    keys.let_keys_be_managed(paths)  # as of another cluster, before; 3.0 knows no such file
    state = read_state(paths, "n1", now=5.0)
    assert not any("ssh/" in path for path in state.contents)
    os.unlink(paths.ssh_managed)
    write_config(paths, manages_ssh=True)
    state = read_state(paths, "n1", now=5.0)
    assert state_archive.manages_ssh(paths, state)
    os.unlink(private)
    write_files(paths, state.contents)
    assert mode_of(private) == 0o600


def test_a_backup_tells_which_ssh_keys_are_not_in_it_and_a_restoration_takes_those_that_are(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host, own = (f"{paths.root}/etc/ssh/ssh_host_rsa_key", f"{ssh.directory_of(paths)}/id_rsa")
    write_config(paths, manages_ssh=True)
    for path in (host, f"{host}.pub", own):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(path).write_bytes(b"ssh-rsa key")
    os.unlink(own)
    terminal = Terminal(io.StringIO(), errors := io.StringIO(), io.StringIO())
    context = Context("gnt-cluster", backup.COMMANDS[0], Options({"force": True}), terminal)
    Path(paths.ssconf_file("master_node")).write_text("n1")
    monkeypatch.setattr(backup, "own_hostname", lambda: "n1")
    monkeypatch.setattr(Context, "paths", paths)
    archive = str(tmp_path / "state")
    backup.backup(context, context.options, [archive])
    assert "Not in it: root's SSH keys; there are none here." in errors.getvalue()
    write_config(paths)
    backup.backup(context, context.options, [str(tmp_path / "other")])
    text = "SSH host keys and root's SSH keys; this cluster does not manage them."
    assert f"Not in it: {text}" in errors.getvalue()

    Path(host).write_bytes(b"of the new machine")
    taken: list[object] = []

    def take_host_keys(_paths: Paths, found: list[object]) -> list[str]:
        taken.extend(found)
        return []

    monkeypatch.setattr(keys, "take_host_keys", take_host_keys)
    restore._write(context, unpack(Path(archive).read_bytes()))
    assert taken == [("rsa", "ssh-rsa key", "ssh-rsa key")]
    assert Path(host).read_bytes() == b"of the new machine", "the server is told of each change"


def test_a_journal_of_before_changes_nothing_of_what_is_restored(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on from the version in the archive: with the mistake that is to be undone."""
    state = read_state(paths, "n1", now=5.0)
    before = ConfigState(config_file.read_config(paths))
    change = before.begin(6.0)
    add_tags(change, "cluster", "", ["mistake"])
    before.accept(change)
    flush = before.start_flush(6.0)
    record = record_of(flush.base, flush.version, flush.changed)
    config_file.JournalFile(paths).append([record.line])
    assert b"mistake" in config_file.read_config(paths)
    monkeypatch.setattr(Context, "paths", paths)
    terminal = Terminal(said := io.StringIO(), io.StringIO(), io.StringIO())
    context = Context("gnt-cluster", restore.COMMANDS[0], Options({}), terminal)
    with pytest.raises(OpPrereqError, match=r"move it away, and .*/config\.journal"):
        restore._check_machine(paths, "n1", state.head)
    os.rename(paths.config_data, f"{paths.config_data}.moved-away")
    restore._write(context, state)
    assert config_file.read_config(paths) == state.contents[inner(paths, paths.config_data)]
    [aside] = Path(paths.data_dir).glob("config.journal*")
    assert str(aside) in said.getvalue()
    assert aside.read_bytes()[1:] == record.line[1:]


def test_a_restored_configuration_counts_as_old_until_there_is_a_newer_one(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever kills the restoration then, a fail-over asks for as many answers as it did."""
    chosen: list[FailoverOptions] = []
    monkeypatch.setattr(Failover, "run", lambda attempt: chosen.append(attempt._options))
    os.makedirs(paths.lock_dir)
    state = read_state(paths, "n1", now=5.0)
    monkeypatch.setattr(Context, "paths", paths)
    terminal = Terminal(io.StringIO(), io.StringIO(), io.StringIO())
    context = Context("gnt-cluster", restore.COMMANDS[0], Options({}), terminal)
    seen: list[bool] = []
    write = state_archive.write_files

    def write_and_look(its_paths: Paths, contents: Mapping[str, bytes]) -> None:
        if inner(paths, paths.config_data) in contents:
            seen.append(restoration.is_old_copy(paths, 7))
        write(its_paths, contents)

    monkeypatch.setattr(state_archive, "write_files", write_and_look)
    failover.fail_over(paths, "n1", FailoverOptions(), print)
    os.unlink(paths.config_data)
    restore._write(context, state)
    assert seen == [True], "the note is there before the configuration"
    failover.fail_over(paths, "n1", FailoverOptions(), print)
    failover.fail_over(paths, "n1", FailoverOptions(no_voting=True), print)
    write_config(paths, serial_no=8)  # as another master sends it
    failover.fail_over(paths, "n1", FailoverOptions(), print)
    old = FailoverOptions(asks_offline=True, own_is_old=True)
    assert chosen == [FailoverOptions(), old, replace(old, no_voting=True), FailoverOptions()]
    restoration.end(paths)
    assert not os.path.exists(paths.restore_note)


@pytest.mark.parametrize("number", ENDINGS)
def test_the_end_of_the_session_leaves_no_keys(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: signal.Signals
) -> None:
    """Nor does a restoration leave those of another one, which was killed."""
    (archive := tmp_path / "state").write_bytes(pack(read_state(paths, "n1", now=5.0)))
    os.unlink(paths.config_data)
    left = Path(paths.data_dir) / ".restore-left" / "var/lib/ganeti"
    left.mkdir(parents=True)
    (left / "server.pem").write_bytes(SERVER)
    staged: list[Path] = []

    def end(*_args: object) -> None:
        staged.extend(Path(paths.data_dir).glob(".restore-*/**/server.pem"))
        signal.raise_signal(number)

    monkeypatch.setattr(restore, "own_hostname", lambda: "n1")
    monkeypatch.setattr(master_poll, "ask_all", end)
    monkeypatch.setattr(Context, "paths", paths)
    terminal = Terminal(io.StringIO(), io.StringIO(), io.StringIO())
    context = Context("gnt-cluster", restore.COMMANDS[0], Options({"no_voting": False}), terminal)
    handlers = {each: signal.signal(each, signal.SIG_DFL) for each in ENDINGS}
    with pytest.raises(KeyboardInterrupt):
        restore.restore(context, context.options, [str(archive)])
    for each, handler in handlers.items():
        signal.signal(each, handler)
    assert len(staged) == 1, "that of this one"
    assert [name for name in os.listdir(paths.data_dir) if "restore" in name] == []


def test_a_destroyed_cluster_leaves_no_keys_of_a_restoration(paths: Paths) -> None:
    left = Path(paths.data_dir) / ".restore-left"
    (left / "var").mkdir(parents=True)
    assert str(left) in cluster_files.remove_cluster_files(paths)
    assert not left.exists()


def test_a_destroyed_cluster_leaves_no_users_of_the_remote_api(paths: Paths) -> None:
    """Those whom an administrator wrote before stay, if it was never made."""
    access = [Path(each) for each in (paths.rapi_users, paths.rapi_roles, paths.rapi_tokens)]
    access[0].parent.mkdir()
    for path in access:
        path.write_text("joe secret write")
    cluster_files.remove_cluster_files(paths, keeps_access=True)
    assert all(path.exists() for path in access)
    cluster_files.remove_cluster_files(paths)
    assert not any(path.exists() for path in access)


def test_a_restoration_lets_the_candidates_in_alone_also_those_of_a_newer_configuration(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, second, *_ = CONFIG["nodes"]
    texts = [f"{first} ssh-rsa A", f"{first} ssh-rsa A2", f"{second} ssh-rsa B", "gone ssh-rsa C"]
    Path(paths.ssh_pub_keys).write_text("\n".join(texts))

    def write(*candidates: str) -> None:
        write_config(paths, manages_ssh=True, candidates=candidates)

    write(first)
    (archive := tmp_path / "state").write_bytes(pack(read_state(paths, "n1", now=5.0)))
    authorized = Path(ssh.directory_of(paths)) / "authorized_keys"
    authorized.parent.mkdir(parents=True)
    authorized.write_text("ssh-rsa B\nssh-rsa ME\n")
    before: list[list[str]] = []

    def fail_over(*_args: object) -> None:
        before.append(authorized.read_text().splitlines())
        write(second)

    monkeypatch.setattr(restore, "own_hostname", lambda: "n1")
    for name in ("_check_machine", "_check_others"):
        monkeypatch.setattr(restore, name, lambda *_args, **_named: None)
    monkeypatch.setattr(restore, "fail_over", fail_over)
    monkeypatch.setattr(Context, "paths", paths)
    terminal = Terminal(io.StringIO(), io.StringIO(), io.StringIO())
    options = Options({"yes_do_it": True, "no_voting": False})
    context = Context("gnt-cluster", restore.COMMANDS[0], options, terminal)
    restore.restore(context, options, [str(archive)])
    assert before == [["ssh-rsa ME", "ssh-rsa A", "ssh-rsa A2"]]
    assert authorized.read_text().splitlines() == ["ssh-rsa ME", "ssh-rsa B"]


def test_a_certificate_that_is_replaced_just_now(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The configuration is read after it; the second look finds both replaced."""
    client = keys.make_client_certificate("n1", SERVER)
    looks = 0
    read = config_file.read_config

    def replace_first(its_paths: Paths) -> bytes:
        nonlocal looks
        looks += 1
        if looks == 1:
            write_config(paths, client, serial_no=8)
        else:
            files.write_durable(paths.client_pem, client)
        return read(its_paths)

    monkeypatch.setattr(config_file, "read_config", replace_first)
    state = read_state(paths, "n1", now=5.0)
    assert state.head.serial_no == 8
    assert client in state.contents.values()
    write_config(paths, SERVER)
    with pytest.raises(GenericError, match="does not trust"):
        read_state(paths, "n1", now=5.0)


def test_changes_of_a_job_in_it_are_in_its_configuration(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that ends while the archive is made may be missing, but never its changes alone."""
    read = JobFiles.read

    def end_then_change(queue: JobFiles, job_id: JobId) -> bytes | None:
        found = read(queue, job_id)
        write_config(paths, serial_no=100 + job_id)  # changes go on after every read
        return found

    monkeypatch.setattr(JobFiles, "read", end_then_change)
    assert read_state(paths, "n1", now=5.0).head.serial_no == 104


def tar_of(**contents: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(name.replace("_json", ".json").replace("ganeti_", "ganeti-"))
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "no compressed tar file"),
        (b"text", "no compressed tar file"),
        (tar_of(a=b""), "has no ganeti-state.json"),
        (tar_of(ganeti_state_json=b"{}"), "cannot be read"),
    ],
    ids=["empty", "text", "no head", "a strange head"],  # bytes of archives have the time
)
def test_other_files_are_refused(data: bytes, text: str) -> None:
    with pytest.raises(OpPrereqError, match=text):
        unpack(data)


def test_a_damaged_archive_is_refused_wherever_it_is_damaged(paths: Paths) -> None:
    data = pack(read_state(paths, "n1", now=5.0))
    # The header of gzip has a time, a name and a kind of system that count for nothing.
    for place in range(12, len(data), 97):
        damaged = data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]
        with pytest.raises(OpPrereqError):
            unpack(damaged)
        with pytest.raises(OpPrereqError):
            unpack(data[:place])


@pytest.mark.parametrize(
    "path", ["etc/passwd", "../x", "var/lib/ganeti/queue/job-3/../../x", "var/lib/ganeti/job-3"]
)
def test_files_without_a_place_are_not_written(paths: Paths, path: str) -> None:
    before = sorted(os.listdir(paths.data_dir))
    with pytest.raises(OpPrereqError, match="does not belong"):
        write_files(paths, {"var/lib/ganeti/rapi.pem": b"", path: b""})
    assert sorted(os.listdir(paths.data_dir)) == before
