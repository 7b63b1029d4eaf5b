"""The first contact of a merge: by a key, or by the password of root."""

from __future__ import annotations

import io
import json
import stat
import sys
from pathlib import Path

import pytest

from ganeti.base.errors import OpPrereqError
from ganeti.base.paths import Paths
from ganeti.cli.command import Context, Options
from ganeti.cli.merging import reach
from ganeti.cli.merging.command import PROGRAM
from ganeti.cli.merging.peer import Answer
from ganeti.cli.run.context import Terminal

ANSWER = {
    "cluster": "other.example.com",
    "master": "peer1.example.com",
    "config": [0, "the configuration"],
    "known_hosts": "other.example.com ssh-rsa AAAA\n",
    "running": ["guest1"],
}
# What SSH does here: it asks for the password by the program that it is told of, and runs the
# last argument, the peer program being replaced by its answer.
SSH = """#!{python}
import os, subprocess, sys
options = dict(word.split("=", 1) for word in sys.argv if "=" in word and " " not in word)
with open({log!r}, "a") as file:
    print(sys.argv, file=file)
if {needs_password!r}:
    said = ""
    if options["BatchMode"] == "no":
        said = subprocess.run([os.environ["SSH_ASKPASS"]], capture_output=True, text=True).stdout
    if said.rstrip("\\n") != "tiger $HOME":
        print("root@x: Permission denied (publickey,password).", file=sys.stderr)
        sys.exit(255)
if "{unknown}":
    sys.exit("Host key verification failed.")
command = sys.argv[-1]
if "cluster-merge-peer" in command:
    print("a line of a job")
    print({answer!r})
elif "id_rsa" in command:
    print("PRIVATE KEY")
"""


def make_ssh(tmp_path: Path, *, needs_password: bool = False, unknown: str = "") -> str:
    path = tmp_path / "ssh"
    path.write_text(
        SSH.format(
            python=sys.executable,
            log=str(tmp_path / "log"),
            needs_password=needs_password,
            answer=json.dumps(ANSWER),
            unknown=unknown,
        )
    )
    path.chmod(0o755)
    return str(path)


def context_of(answers: str, monkeypatch: pytest.MonkeyPatch) -> Context:
    monkeypatch.delenv("GANETI_ROOTDIR", raising=False)
    terminal = Terminal(io.StringIO(), io.StringIO(), io.StringIO(answers))
    [command] = PROGRAM.commands
    return Context("cluster-merge", command, Options({}), terminal)


def test_a_key_that_opens_it_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = make_ssh(tmp_path)
    found = reach.contact(
        context_of("", monkeypatch), "other.example.com", check_host_key=True, program=program
    )
    assert found.answer == Answer(**ANSWER)  # type: ignore[arg-type]
    assert found.answer.config_text == b"the configuration"
    assert found.private_keys == []


@pytest.mark.shows("2.1/merge-contact/passwords")
def test_otherwise_the_password_is_asked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = make_ssh(tmp_path, needs_password=True)
    context = context_of("tiger $HOME\nno second line", monkeypatch)
    found = reach.contact(context, "other.example.com", check_host_key=True, program=program)
    assert found.answer.master == "peer1.example.com"
    assert found.private_keys == [b"PRIVATE KEY\n"], "it opens the other nodes"
    assert "tiger" not in (tmp_path / "log").read_text(), "no command line shows it"
    with pytest.raises(OpPrereqError, match="no password was given"):
        reach.contact(context_of("", monkeypatch), "x", check_host_key=True, program=program)
    with pytest.raises(OpPrereqError, match="Permission denied"):
        reach.contact(context_of("lion\n", monkeypatch), "x", check_host_key=True, program=program)


def test_an_unknown_machine_is_no_reason_for_a_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = make_ssh(tmp_path, unknown="yes")
    with pytest.raises(OpPrereqError, match=r"Host key verification failed.*ssh-keyscan"):
        reach.contact(context_of("x\n", monkeypatch), "x", check_host_key=True, program=program)


def test_the_other_nodes_are_known_by_both_host_keys(tmp_path: Path) -> None:
    prefix = str(tmp_path / "way")
    path, key = f"{prefix}.known_hosts", f"{prefix}.key"
    found = reach.Contact(Answer(**ANSWER), [b"PRIVATE KEY\n"])  # type: ignore[arg-type]
    own = b"cluster.example.com ssh-rsa BBBB\n"
    assert reach.write_keys(prefix, found, own) == (path, key)
    assert Path(path).read_text().splitlines() == [
        "other.example.com ssh-rsa AAAA",
        "other.example.com ssh-rsa BBBB",
    ]
    assert Path(key).read_text() == "PRIVATE KEY\n"
    assert {stat.S_IMODE(Path(each).stat().st_mode) for each in (path, key)} == {0o600}
    assert reach.write_keys(prefix, reach.Contact(Answer()), b"") == ("", "")
    way = reach.Reach(Paths(""), "other.example.com", path, "/key", ports={"n": 2222}).to("n")
    line = " ".join(way.command_line(["true"]))  # type: ignore[attr-defined]
    for word in ("IdentityFile=/key", "HostKeyAlias=other.example.com", "Port=2222"):
        assert word in line
