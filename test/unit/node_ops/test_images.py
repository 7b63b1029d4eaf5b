"""Files of a node, or at URLs, that become the contents of disks."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.base.errors import BlockDeviceError, TransportError
from ganeti.base.paths import Paths
from ganeti.node_ops.disks.images import copy_image, image_bytes

PATHS = Paths()


class _Images(http.server.BaseHTTPRequestHandler):
    """Has one image, one that ends early, and one of unknown length."""

    def do_GET(self) -> None:
        if self.path == "/nothing":
            self.send_error(404)
            return
        self.send_response(200)
        if self.path != "/endless":
            self.send_header("Content-Length", "6" if self.path == "/image" else "9")
        self.end_headers()
        self.wfile.write(b"system")

    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with http.server.HTTPServer(("127.0.0.1", 0), _Images) as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{found.server_port}"
        found.shutdown()
        thread.join()


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    path = tmp_path / "disk"
    path.write_bytes(b"x" * 10)
    return path


def test_an_image_fills_the_beginning_of_a_disk(tmp_path: Path, disk: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(b"system")
    assert image_bytes(str(image), PATHS) == 6
    copy_image(str(image), str(disk), 10, PATHS)
    assert disk.read_bytes() == b"systemxxxx"
    with pytest.raises(BlockDeviceError, match="is larger than the disk"):
        copy_image(str(image), str(disk), 5, PATHS)
    assert disk.read_bytes() == b"systemxxxx"
    nothing = f"{tmp_path}/nothing"
    assert image_bytes(nothing, PATHS) is None
    with pytest.raises(BlockDeviceError, match=r"cannot copy .*/nothing to .*: No such file"):
        copy_image(nothing, str(disk), 10, PATHS)


def test_an_image_is_read_from_a_url(server: str, disk: Path) -> None:
    assert image_bytes(f"{server}/image", PATHS) == 6
    copy_image(f"{server}/image", str(disk), 10, PATHS)
    assert disk.read_bytes() == b"systemxxxx"
    with pytest.raises(BlockDeviceError, match="ended 3 bytes before its end"):
        copy_image(f"{server}/cut", str(disk), 10, PATHS)
    with pytest.raises(TransportError, match="does not say how long"):
        image_bytes(f"{server}/endless", PATHS)
    with pytest.raises(TransportError, match="404"):
        image_bytes(f"{server}/nothing", PATHS)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"hello\r\n\r\n", "hello"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\n", "does not say how long"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
            "does not say how long",
        ),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n", "more than 100 headers"),
    ],
)
def test_a_server_may_answer_anything(answer: bytes, words: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with listener.accept()[0] as connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(TransportError, match=words):
            image_bytes(f"http://127.0.0.1:{listener.getsockname()[1]}/image", PATHS)
        thread.join()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/a b", "http://127.0.0.1:x/"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(TransportError, match="cannot read"):
        image_bytes(url, PATHS)
