"""Command lines and key files of SSH."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ganeti.base.errors import OpExecError
from ganeti.base.text import ssh_key_of
from ganeti.system import files, ssh
from ganeti.system.filelock import DirectoryLock


def test_a_machine_that_is_no_node_yet_is_known_as_the_user_knows_it() -> None:
    argv = ssh.command_line("node9", ["true"])
    assert "StrictHostKeyChecking=yes" in argv
    assert not [word for word in argv if "KnownHostsFile" in word or "Alias" in word]
    careless = ssh.command_line("node9", ["true"], check_host_key=False)
    assert "UserKnownHostsFile=/dev/null" in careless


def test_a_key_is_tried_before_those_of_root_not_in_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "directory_of", lambda _: str(tmp_path))
    for name in ("id_rsa", "id_rsa.pub", "id_ed25519"):
        (tmp_path / name).touch()
    line = ssh.command_line("n", ["true"], identity="/key")
    own = [str(tmp_path / name) for name in ("id_rsa", "id_ed25519")]
    assert [word for word in line if "Identity" in word] == [
        f"IdentityFile={path}" for path in ("/key", *own)
    ]
    assert "Identity" not in " ".join(ssh.command_line("n", ["true"])), "SSH finds them by itself"


@pytest.mark.parametrize(
    ("kind", "bits", "words"),
    [("ecdsa", 384, ["-b", "384"]), ("ecdsa", 2048, []), ("rsa", 1024, ["-b", "1024"])],
)
def test_a_key_has_the_length_that_its_kind_can_have(
    monkeypatch: pytest.MonkeyPatch, kind: str, bits: int, words: list[str]
) -> None:
    ran: list[list[str]] = []

    def run(argv: list[str], **_more: object) -> Any:
        ran.append(argv)
        return SimpleNamespace(check=lambda: None)

    monkeypatch.setattr(ssh.process, "run", run)
    ssh._generate("/key", kind, bits, "node1")
    [argv] = ran
    assert argv[argv.index("/key") + 1 :] == words


def test_a_key_lets_in_whatever_its_comment(tmp_path: Path) -> None:
    assert not ssh.lets_in(str(tmp_path), "ssh-rsa AA")
    assert ssh.change_authorized_keys(str(tmp_path), add=["ssh-rsa AA old"])
    assert ssh.lets_in(str(tmp_path), "ssh-rsa AA new")
    assert not ssh.lets_in(str(tmp_path), "ssh-rsa BB old")


def test_keys_that_are_removed_at_once_are_all_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"ssh-rsa K{number}" for number in range(6)]
    directory = str(tmp_path)
    ssh.change_authorized_keys(directory, add=names)
    write = files.write_durable

    def write_slowly(path: str, data: bytes, mode: int) -> None:
        time.sleep(0.05)  # the others have read by now, if they may
        write(path, data, mode)

    monkeypatch.setattr(files, "write_durable", write_slowly)
    with ThreadPoolExecutor(len(names) - 1) as pool:
        changes = pool.map(
            lambda name: ssh.change_authorized_keys(directory, remove=[name]), names[1:]
        )
        assert all(changes)
    assert [name for name in names if ssh.lets_in(directory, name)] == names[:1]


def test_keys_that_somebody_keeps_changing_are_not_waited_for_forever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "_LOCK_TIMEOUT_S", 0.05)
    with (
        DirectoryLock(str(tmp_path)),
        pytest.raises(OpExecError, match=r"are being changed .* try again later"),
    ):
        ssh.change_authorized_keys(str(tmp_path), add=["ssh-rsa AA"])
    assert ssh.change_authorized_keys(str(tmp_path), add=["ssh-rsa AA"])


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("ssh-rsa AA me@here", ("ssh-rsa", "AA")),
        ('from="10.0.0.1" ssh-rsa AA', ("ssh-rsa", "AA")),
        ("ecdsa-sha2-nistp256 BB", ("ecdsa-sha2-nistp256", "BB")),
        ("# a comment", "# a comment"),
        (" # ssh-rsa AA me@here", " # ssh-rsa AA me@here"),
        ("", ""),
    ],
)
def test_what_tells_a_key_from_others(line: str, key: object) -> None:
    assert ssh_key_of(line) == key


def test_a_key_in_a_comment_lets_nobody_in(tmp_path: Path) -> None:
    comment = "# ssh-rsa AA me@here\n"
    authorized = tmp_path / "authorized_keys"
    authorized.write_text(comment)
    assert not ssh.lets_in(str(tmp_path), "ssh-rsa AA")
    assert ssh.change_authorized_keys(str(tmp_path), add=["ssh-rsa AA"])
    assert ssh.lets_in(str(tmp_path), "ssh-rsa AA")
    assert ssh.change_authorized_keys(str(tmp_path), remove=["ssh-rsa AA"])
    assert authorized.read_text() == comment


def test_keys_are_added_once_and_removed_whatever_their_comment() -> None:
    text = "ssh-rsa AA old\n# mine\n\nno-pty ssh-rsa BB\n"
    assert ssh.with_keys(text, add=["ssh-rsa AA new", "ssh-rsa CC"]) == text + "ssh-rsa CC\n"
    assert ssh.with_keys(text, remove=["ssh-rsa BB x", "ssh-rsa AA"]) == "# mine\n\n"
