"""How ``gnt-instance ssh`` reaches a guest, and how ``--wait-for`` waits for one."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from ganeti.base.errors import GenericError, OpExecError, OpPrereqError
from ganeti.cli.declaration.parser import Options
from ganeti.cli.instance import console, guest
from ganeti.cli.programs import named
from ganeti.cli.run.context import Context, Terminal

NAME, UUID = "web1.example.com", "d57ad28d-8ef1-47df-9747-d09279cc8352"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample"
_FOUND = named("gnt-instance").find("ssh")
assert _FOUND is not None
COMMAND = _FOUND


class FakeClient:
    """A LuxiD with one instance, that changes with each look at it."""

    def __init__(self, *guests: dict[str, object], **fields: object) -> None:
        self.guests = list(guests) or [{}]
        self.fields = {"oper_state": True, "nic.ips": [None], "osparams": {}, **fields}

    def query_instances(self, names: Sequence[str], fields: Sequence[str]) -> list[list[object]]:
        if names[0] not in (NAME, "web1"):
            return []
        now = self.guests.pop(0) if len(self.guests) > 1 else self.guests[0]
        values = {"name": NAME, "uuid": UUID, **self.fields, "guest": now}
        return [[values[field] for field in fields]]


def make_context(client: FakeClient, out: io.StringIO | None = None) -> Context:
    out = out or io.StringIO()
    context = Context("gnt-instance", COMMAND, Options({}), Terminal(out, out, io.StringIO()))
    context._client = client  # type: ignore[assignment]
    return context


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"status": "ERROR_nodeoffline"}, "is not known: its node node3 is marked offline; when"),
        ({"status": "ERROR_nodedown"}, "is not known: its node node3 does not answer;"),
        ({"status": "running"}, "the console of instance web1.example.com is not known$"),
        ({"status": "ADMIN_down", "oper_state": False}, "is not running"),
    ],
)
def test_a_console_that_is_not_known_names_the_node(fields: dict[str, object], text: str) -> None:
    known = {"console": None, "oper_state": None, "pnode": "node3", **fields}
    with pytest.raises(GenericError, match=text):
        console.console(make_context(FakeClient(**known)), Options({}), [NAME])


@pytest.mark.parametrize(
    ("fields", "signs", "place"),
    [
        ({}, {}, ["root@web1.example.com"]),
        ({}, {"addresses": ["192.0.2.9"]}, ["root@192.0.2.9"]),
        ({"nic.ips": [None, "192.0.2.5"]}, {"addresses": ["192.0.2.9"]}, ["root@192.0.2.5"]),
        (
            {"nic.ips": ["192.0.2.5"]},
            {"forward": ["127.9.9.1", 21000]},
            ["-p", "21000", "root@127.9.9.1"],
        ),
        ({"osparams": {"user": "debian"}}, {}, ["debian@web1.example.com"]),
    ],
)
def test_where_a_guest_is_and_who_logs_in(
    fields: dict[str, object], signs: dict[str, object], place: list[str]
) -> None:
    found = guest.look(make_context(FakeClient(signs, **fields)), "web1")
    argv = console.ssh_command(found, ["uptime", "-p"])
    assert argv[:5] == [
        *("ssh", "-o", f"HostKeyAlias={UUID}"),
        *("-o", "StrictHostKeyChecking=accept-new"),
    ]
    assert argv[5:] == [*place, "--", "uptime", "-p"]
    assert console.ssh_command(found, [], user="joe", identity="/key")[5:7] == ["-i", "/key"]
    assert console.ssh_command(found, [], user="joe")[-1].startswith("joe@")


@pytest.mark.parametrize("user", ["-oProxyCommand=touch /tmp/x;", "a b", "x;reboot", "$(x)"])
def test_a_user_of_an_instance_that_would_be_an_option_of_ssh_is_refused(user: str) -> None:
    found = guest.look(make_context(FakeClient(osparams={"user": user})), NAME)
    with pytest.raises(OpPrereqError, match="is no name of a user; give one with --user"):
        console.ssh_command(found, ["uptime"])
    assert console.ssh_command(found, [], user="joe")[-1].startswith("joe@")


def test_the_key_is_the_one_that_the_guest_was_given(tmp_path: Path) -> None:
    directory = tmp_path / ".ssh"
    directory.mkdir()
    for name, public in (("a", "ssh-rsa AAAAB3 a"), ("b", f"{KEY} me@here"), ("c", f"{KEY} c")):
        (directory / f"{name}.pub").write_text(public)
    (directory / "0.pub").symlink_to("/nonexistent")
    (directory / "1.pub").mkdir()
    (directory / "2.pub").write_bytes(b"x" * (1 << 17))
    (directory / "a").touch()
    (directory / "c").touch()  # of b there is only the public half
    client = FakeClient(osparams={"ssh_key": f"ssh-rsa AAAAother x\n{KEY} somebody"})
    found = guest.look(make_context(client), NAME)
    assert console.ssh_command(found, [])[5:7] == ["-i", str(directory / "c")]


@pytest.mark.parametrize(
    ("name", "client", "text"),
    [
        ("other", FakeClient(), "no instance 'other'"),
        ("web1", FakeClient(oper_state=False), f"instance {NAME} is not running"),
    ],
)
def test_ssh_needs_a_running_instance(name: str, client: FakeClient, text: str) -> None:
    with pytest.raises(OpPrereqError, match=text):
        console.ssh(make_context(client), Options({}), [name])


def test_the_command_is_shown_without_the_words_that_end_options() -> None:
    out = io.StringIO()
    options = Options({"user": None, "identity": None, "show_cmd": True})
    assert console.ssh(make_context(FakeClient(), out), options, ["web1", "--", "ls", "-l"]) == 0
    assert out.getvalue().endswith(f" root@{NAME} -- ls -l\n")


@pytest.mark.parametrize("flag", ["submit", "dry_run", "forthcoming", "no_start"])
def test_only_a_guest_that_starts_now_is_waited_for(flag: str) -> None:
    given = dict.fromkeys(("submit", "dry_run", "forthcoming"), False)
    options = {**given, "start": flag != "no_start", flag: True, "wait_for": "ssh"}
    with pytest.raises(OpPrereqError, match=f"either --wait-for or --{flag.replace('_', '-')}"):
        guest.check_wait(Options(options))
    guest.check_wait(Options({**options, "wait_for": None}))


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Make the clock go by the pauses alone; they are kept."""
    taken: list[float] = []
    monkeypatch.setattr(guest.clock, "pause", taken.append)
    monkeypatch.setattr(guest.clock, "monotonic", lambda: sum(taken))
    return taken


def test_an_agent_is_waited_for(pauses: list[float]) -> None:
    out = io.StringIO()
    client = FakeClient({}, {"console": "booting\n"}, {"agent": True})
    guest.wait(make_context(client, out), NAME, "agent", 60)
    assert pauses == [1, 1]
    assert f"the guest agent of {NAME} answers after 2 s" in out.getvalue()


def test_an_ssh_server_is_waited_for(pauses: list[float]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            for greeting in (b"", b"HTTP/1.1", b"SSH-2.0-test\r\n"):
                with server.accept()[0] as connection:
                    connection.sendall(greeting)

        thread = threading.Thread(target=greet)
        thread.start()
        client = FakeClient({"forward": [*server.getsockname()]})
        guest.wait(make_context(client), NAME, "ssh", 60)
        thread.join()
    assert pauses == [1, 1]


@pytest.mark.parametrize(
    ("shown", "end"),
    [
        ("", "; its console has shown nothing"),
        ("one\r\n\r\n\x1b[0mtwo\n", "; the end of its console:\n  one\n  [0mtwo"),
    ],
)
def test_what_the_console_showed_is_told_when_nobody_answers(
    pauses: list[float], shown: str, end: str
) -> None:
    context = make_context(FakeClient({"console": shown}))
    with pytest.raises(OpExecError) as caught:
        guest.wait(context, NAME, "agent", 2.5)
    text = f"the guest agent of {NAME} has not answered within 2.5 s; the instance is left running"
    assert caught.value.message == text + end
    assert pauses == [1, 1, 0.5]


@pytest.mark.usefixtures("pauses")
def test_nobody_waits_for_an_instance_that_has_stopped() -> None:
    context = make_context(FakeClient({"console": "panic\n"}, oper_state=False))
    with pytest.raises(OpExecError, match=r"does not run any more; .*\n  panic$"):
        guest.wait(context, NAME, "agent", 60)


@pytest.mark.parametrize(
    ("host", "place"), [("192.0.2.1", "192.0.2.1:11000"), ("2001:db8::1", "[2001:db8::1]:11000")]
)
def test_the_address_of_a_screen_is_one_that_viewers_take(host: str, place: str) -> None:
    found = {"instance": "web1", "host": host, "port": 11000, "display": 5100}
    text = console.graphical_text("vnc", found)
    assert text == f"Instance web1 has a VNC console on {place} (display 5100)\nvnc://{place}/"
