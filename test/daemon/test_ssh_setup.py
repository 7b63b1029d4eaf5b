"""SSH keys of a real machine: made once, let in once."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ganeti.base.errors import OpExecError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.bootstrap import keys
from ganeti.system import ssh

FAKE_KEYGEN = """#!/bin/sh
while [ "$1" != -f ]; do shift; done
echo private > "$2"
echo "ssh-rsa AAAA root@here" > "$2.pub"
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    return directory


def write_program(directory: Path, name: str, text: str) -> None:
    path = directory / name
    path.write_text(text)
    path.chmod(0o755)


def test_key_is_made_once_and_let_in_once(programs: Path, tmp_path: Path) -> None:
    write_program(programs, "ssh-keygen", FAKE_KEYGEN)
    home = tmp_path / "home"
    for _ in range(2):
        assert (
            keys.set_up_user_key(str(home / ".ssh"), "rsa", 2048, host="here")
            == "ssh-rsa AAAA root@here"
        )
    authorized = home / ".ssh" / "authorized_keys"
    assert authorized.read_text() == "ssh-rsa AAAA root@here\n"
    assert stat.S_IMODE(authorized.stat().st_mode) == 0o600
    assert stat.S_IMODE((home / ".ssh").stat().st_mode) == 0o700


def test_other_keys_stay(tmp_path: Path) -> None:
    path = tmp_path / "authorized_keys"
    path.write_text("ssh-rsa BBBB somebody")
    assert ssh.change_authorized_keys(str(tmp_path), add=["ssh-rsa AAAA root@here\n"])
    assert not ssh.change_authorized_keys(str(tmp_path), add=["ssh-rsa AAAA"], remove=["ssh-rsa C"])
    assert path.read_text() == "ssh-rsa BBBB somebody\nssh-rsa AAAA root@here\n"


def test_program_that_fails_is_quoted(programs: Path, tmp_path: Path) -> None:
    write_program(programs, "ssh-keygen", "#!/bin/sh\necho 'no entropy' >&2\nexit 1\n")
    with pytest.raises(OpExecError, match="no entropy"):
        keys.set_up_user_key(str(tmp_path / "home"), "rsa", 2048, host="here")


@pytest.mark.shows("backend/certificates/known-hosts")
def test_host_key_names_the_cluster(tmp_path: Path) -> None:
    directory = tmp_path / "etc" / "ssh"
    directory.mkdir(parents=True)
    (directory / "ssh_host_rsa_key.pub").write_text("ssh-rsa CCCC root@here\n")
    found = keys.host_key(Paths(str(tmp_path)), "rsa")
    assert keys.known_hosts("cluster", found) == b"cluster ssh-rsa CCCC\n"


def test_virtual_node_needs_no_host_key(tmp_path: Path) -> None:
    found = keys.host_key(Paths(str(tmp_path)), "rsa")
    assert keys.known_hosts("cluster", found) == b""


def test_broken_host_key_is_named(tmp_path: Path) -> None:
    directory = tmp_path / "etc" / "ssh"
    directory.mkdir(parents=True)
    (directory / "ssh_host_rsa_key.pub").write_text("nonsense\n")
    with pytest.raises(OpPrereqError, match=r"ssh_host_rsa_key\.pub"):
        keys.host_key(Paths(str(tmp_path)), "rsa")


@pytest.mark.shows("backend/certificates/host-key")
def test_a_machine_takes_the_host_keys_of_the_cluster(tmp_path: Path) -> None:
    master, node = Paths(str(tmp_path / "n1")), Paths(str(tmp_path / "n2"))
    directory = tmp_path / "n1" / "etc" / "ssh"
    directory.mkdir(parents=True)
    for name, text in (("rsa_key", "secret\n"), ("rsa_key.pub", "ssh-rsa CC\n"), ("dsa_key", "x")):
        (directory / f"ssh_host_{name}").write_text(text)
    sent = ssh.read_host_keys(master)
    assert sent == [("rsa", "secret\n", "ssh-rsa CC\n")]
    assert keys.take_host_keys(node, sent) == []
    assert ssh.read_host_keys(node) == sent
    private = tmp_path / "n2" / "etc" / "ssh" / "ssh_host_rsa_key"
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert ssh.write_host_keys(node, sent) is False
    with pytest.raises(OpExecError, match="no kind"):
        ssh.write_host_keys(node, [("../x", "", "")])
