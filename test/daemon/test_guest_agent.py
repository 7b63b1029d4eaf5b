"""The guest agent's protocol over a real socket: who answers, who does not, and who must."""

from __future__ import annotations

import contextlib
import json
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.hypervisor.kvm import agent
from ganeti.hypervisor.kvm.files import MachineFiles
from ganeti.system import clock

Answer = Callable[[str], bytes | None]


class Guest:
    """An agent behind the socket of a machine; it keeps what it was asked."""

    def __init__(self, files: MachineFiles, answer: Answer, before: bytes = b"") -> None:
        self.asked: list[str] = []
        self._answer, self._before = answer, before
        files.make_directories()
        self._listener = files.listen("agent")
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection, connection.makefile("rb") as lines:
            connection.sendall(self._before)
            for line in lines:
                message = json.loads(line)
                command = message["execute"]
                self.asked.append(command)
                if command == "guest-sync":
                    reply: bytes | None = json.dumps(
                        {"return": message["arguments"]["id"]}
                    ).encode()
                else:
                    reply = self._answer(command)
                if reply is not None:
                    connection.sendall(reply + b"\n")

    def close(self) -> None:
        self._listener.close()
        self._thread.join(10)


@pytest.fixture
def files() -> Iterator[MachineFiles]:
    with tempfile.TemporaryDirectory(prefix="ga") as directory:
        yield MachineFiles(Paths(str(Path(directory))), "web1")


def frozen(_command: str) -> bytes:
    return b'{"return": 2}'


def test_file_systems_stand_still_for_the_block_alone(files: MachineFiles) -> None:
    guest = Guest(files, frozen, before=b'rest of an old ans"}\n\xff{"return": 5}\n')
    with agent.held_still("web1", files, must=True) as is_still:
        assert is_still
        assert guest.asked == ["guest-sync", "guest-fsfreeze-freeze"]
    guest.close()
    assert guest.asked[2:] == ["guest-fsfreeze-thaw"]


def test_the_guest_goes_on_if_the_work_fails(files: MachineFiles) -> None:
    guest = Guest(files, frozen)
    with pytest.raises(ZeroDivisionError), agent.held_still("web1", files, must=False):
        1 / 0  # noqa: B018 - the work fails
    guest.close()
    assert guest.asked[-1] == "guest-fsfreeze-thaw"


def test_addresses_that_mean_nothing_elsewhere_are_left_out(files: MachineFiles) -> None:
    addresses = ["127.0.0.1", "::1", "192.0.2.5", "fe80::1", "2001:db8::5", "169.254.1.1"]
    rows = [{"ip-address": address, "prefix": 24} for address in addresses]
    cards = [{"name": "lo"}, {"name": "eth0", "ip-addresses": rows}]
    guest = Guest(files, lambda _: json.dumps({"return": cards}).encode())
    with agent.GuestAgent(files.socket_path("agent")) as connection:
        assert connection.addresses() == ["192.0.2.5", "2001:db8::5"]
    guest.close()


@pytest.mark.parametrize(
    "said", [[1], 7, None, [{"ip-addresses": 7}], [{"ip-addresses": [5, None, {"ip-address": []}]}]]
)
def test_a_guest_that_says_nonsense_has_no_addresses(files: MachineFiles, said: object) -> None:
    guest = Guest(files, lambda _: json.dumps({"return": said}).encode())
    with agent.GuestAgent(files.socket_path("agent")) as connection:
        assert connection.addresses() == []
    guest.close()


@pytest.mark.parametrize("text", ["2001:db8::5%\x1b[2J -x", "0.0.0.0", "::", "224.0.0.1", "a b"])
def test_texts_of_a_guest_that_lead_nowhere_are_no_addresses(
    files: MachineFiles, text: str
) -> None:
    rows = [{"ip-address": text}, {"ip-address": "192.0.2.5"}]
    guest = Guest(files, lambda _: json.dumps({"return": [{"ip-addresses": rows}]}).encode())
    with agent.GuestAgent(files.socket_path("agent")) as connection:
        assert connection.addresses() == ["192.0.2.5"]
    guest.close()


def test_a_guest_that_talks_without_end_holds_nobody(files: MachineFiles) -> None:
    files.make_directories()
    listener: socket.socket = files.listen("agent")
    talks_s = 5.0

    def talk() -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            until = clock.monotonic() + talks_s
            while clock.monotonic() < until:
                connection.sendall(b"{}\n" * 40_000)

    thread = threading.Thread(target=talk)
    thread.start()
    begun = clock.monotonic()
    with pytest.raises(agent.AgentError, match="no guest agent answers"):
        agent.GuestAgent(files.socket_path("agent"), 0.2)
    assert clock.monotonic() - begun < talks_s / 2
    thread.join(10)
    listener.close()


def test_an_agent_that_refuses_is_thawed_and_told(files: MachineFiles) -> None:
    def refuse(command: str) -> bytes:
        return b'{"return": 0}' if "thaw" in command else b'{"error": {"desc": "no fsfreeze"}}'

    guest = Guest(files, refuse)
    with (
        pytest.raises(HypervisorError, match=r"refused guest-fsfreeze-freeze: no fsfreeze; is"),
        agent.held_still("web1", files, must=True),
    ):
        pytest.fail("it must not go on")
    guest.close()
    assert guest.asked[-1] == "guest-fsfreeze-thaw"


def test_without_an_answer_it_goes_on_unless_it_must(
    files: MachineFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    with agent.held_still("web1", files, must=False) as is_still:
        assert not is_still
    with (
        pytest.raises(HypervisorError, match="has no channel for a guest agent; is hypervisor"),
        agent.held_still("web1", files, must=True),
    ):
        pytest.fail("it must not go on")
    monkeypatch.setattr(agent, "_GREETING_S", 0.1)
    files.make_directories()
    listener: socket.socket = files.listen("agent")  # QEMU's, with nobody in the guest behind it
    with agent.held_still("web1", files, must=False) as is_still:
        assert not is_still
    with (
        pytest.raises(HypervisorError, match="no guest agent answers"),
        agent.held_still("web1", files, must=True),
    ):
        pytest.fail("it must not go on")
    listener.close()
