"""A management board that speaks Redfish over TLS, with the faults that boards have.

Source: DSP0266, Redfish specification: "Services", "ComputerSystem.Reset"; basic authentication.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ganeti.system import certificates, clock

_SYSTEM = "/redfish/v1/Systems/1"
_RESET = f"{_SYSTEM}/Actions/ComputerSystem.Reset"
_AFTER = {"ForceOff": "Off", "On": "On", "ForceRestart": "On"}


class Board(ThreadingHTTPServer):
    """The board of one node.

    Attributes:
        mood: "well"; "slow" (never answers), "lies" (takes orders and does nothing), "late" (is off
            only when asked for the third time), "garbage", "torn" (ends in the middle), "odd" (a
            state that nobody knows), "double" (two systems), "refuses" (an error for every order).
        asked: method, path and authorization of each request.
    """

    daemon_threads = True

    def __init__(self, directory: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.power, self.mood = "On", "well"
        self.health = "OK"
        self.user, self.password = "fencer", "a secret"
        self.asked: list[tuple[str, str, str]] = []
        self.orders: list[str] = []
        self.late = 0
        self.is_over = threading.Event()
        self.pem = directory / "board.pem"
        self.pem.write_bytes(certificates.make_self_signed("board", now=clock.now()))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.pem)
        self.socket = context.wrap_socket(self.socket, server_side=True)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server_address[1]}"

    @property
    def pin(self) -> str:
        text = self.pem.read_text()
        start = text.index("-----BEGIN CERTIFICATE")
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(text[start:])).hexdigest()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """As declared: clients that go away are no news."""

    def order(self, kind: str) -> None:
        self.orders.append(kind)
        if self.mood == "late":
            self.late = 3
        elif self.mood != "lies":
            self.power = _AFTER[kind]

    def look(self) -> str:
        if self.late:
            self.late -= 1
            if self.late == 0:
                self.power = "Off"
        return "Rebooting" if self.mood == "odd" else self.power


class _Handler(BaseHTTPRequestHandler):
    server: Board
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as declared
        pass

    def do_GET(self) -> None:
        if not self._may():
            return
        board = self.server
        if self.path == "/redfish/v1/Systems":
            paths = [_SYSTEM, "/redfish/v1/Systems/2"] if board.mood == "double" else [_SYSTEM]
            self._answer(200, {"Members": [{"@odata.id": path} for path in paths]})
        elif self.path == _SYSTEM:
            actions = {"#ComputerSystem.Reset": {"target": _RESET}}
            system = {"PowerState": board.look(), "Status": {"Health": board.health}}
            self._answer(200, {**system, "Actions": actions})
        else:
            self._answer(404, {})

    def do_POST(self) -> None:
        if not self._may():
            return
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != _RESET or body.get("ResetType") not in _AFTER:
            self._answer(400, {})
        elif self.server.mood == "refuses":
            self._answer(503, {})
        else:
            self.server.order(body["ResetType"])
            self._answer(204, None)

    def _may(self) -> bool:
        board, said = self.server, self.headers.get("Authorization", "")
        board.asked.append((self.command, self.path, said))
        if board.mood == "slow":
            board.is_over.wait()
            return False
        if board.mood == "garbage":
            self._answer(200, None, b"<html>\xff welcome")
            return False
        if board.mood == "torn":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"{")
            self.close_connection = True
            return False
        word = base64.b64encode(f"{board.user}:{board.password}".encode()).decode()
        if said != f"Basic {word}":
            self._answer(401, {})
            return False
        return True

    def _answer(self, status: int, value: object, data: bytes | None = None) -> None:
        text = data or (b"" if value is None else json.dumps(value).encode())
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


@contextlib.contextmanager
def running(directory: Path) -> Iterator[Board]:
    """Run a board."""
    board = Board(directory)
    thread = threading.Thread(target=board.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield board
    finally:
        board.is_over.set()
        board.shutdown()
        thread.join()
        board.server_close()
