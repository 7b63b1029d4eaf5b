"""Consoles in a real browser: keys go to real guests, and their answers come back."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from fakes.browser import Browser, open_browser
from fakes.rapi import RapiClient, create_instance, wait_job
from fakes.virtual_cluster import TIMEOUT_S, TestCluster
from fakes.waiting import wait_until
from guests import echo

from ganeti.bootstrap.virtual import lifecycle
from ganeti.protocol.rapi.pages import CONSOLE_PROTOCOL, SOCKET, TICKET_PREFIX

NAME = "echo.example.com"
ADD = "instance add --no-name-check --no-ip-check --no-install --no-start -B memory=16"
pytestmark = [
    pytest.mark.qemu,
    pytest.mark.skipif(lifecycle.find_qemu() is None, reason="needs QEMU"),
]


@pytest.fixture
def guest(cluster: TestCluster, rapi: RapiClient) -> str:
    """An instance on the second node that answers keys."""
    node = cluster.nodes[1]
    cluster.gnt(
        f"{ADD} -t file --disk=0:size=4 -n {node} -o noop -H kvm:vnc_bind_address=127.0.0.1 {NAME}"
    )
    paths = cluster.paths_of(node)
    [disk] = Path(paths.localize(f"/srv/ganeti/file-storage/{NAME}")).iterdir()
    echo.image(disk)
    assert wait_job(rapi, rapi.ask("PUT", f"/2/instances/{NAME}/startup").json) == "success"
    log = Path(f"{paths.log_kvm_dir}/{NAME}.serial.log")
    wait_until(lambda: echo.UP_TEXT in log.read_text("latin1"), "the guest is up", timeout_s=60)
    return NAME


def test_keys_reach_the_guest_and_its_answers_the_page(
    rapi: RapiClient, cluster: TestCluster, guest: str
) -> None:
    with open_browser() as page:
        top = f"https://{rapi.address}:{rapi.port}/ui/"
        page.go(top)
        page.click("#sign")
        page.type("#login-user", "writer")
        page.type("#login-password", "secret")
        page.click("#login-submit")
        page.wait_text("#who", "writer")
        page.go(f"{top}console.html#{guest}/serial")
        page.wait_text("#state", "Connected")
        page.wait_text("#screen", "Connected to")
        page.press("k")
        page.wait_text("#screen", "<k>")
        page.screenshot("console-serial")
        for key, presses in (("i", 1), ("j", 2)):
            for _ in range(presses):
                page.click("#again")
            page.wait_text("#state", "Connected")
            page.wait_text("#screen", "Connected to")
            assert "in use" not in page.text("#screen"), "the page let its first console go"
            page.press(key)
            page.wait_text("#screen", f"<{key}>")
        page.go(f"{top}console.html?g#{guest}/graphics")
        page.wait_text("#state", "Connected")
        for _ in range(3):
            page.click("#again")
        page.wait_text("#state", "Connected")
        page.wait_for("#screen canvas")
        page.call("POST", f"/element/{page.element('#screen canvas')}/click")
        page.press("z")
        log = Path(f"{cluster.paths_of(cluster.nodes[1]).log_kvm_dir}/{guest}.serial.log")
        wait_until(lambda: "[z]" in log.read_text("latin1"), "the key is there", timeout_s=30)
        page.wait(lambda: is_blue(page), "the screen is blue")
        page.screenshot("console-graphics")
        # Looking at the canvas is what the last warning is about.
        assert [line for line in page.log() if "willReadFrequently" not in line] == []


def shake(rapi: RapiClient, *words: str, origin: str = "") -> tuple[int, str]:
    """Ask for a WebSocket with these subprotocols; returns status and body, or the first frame."""
    lines = (
        f"GET {SOCKET.path} HTTP/1.1",
        f"Host: {rapi.address}:{rapi.port}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        f"Sec-WebSocket-Protocol: {', '.join((CONSOLE_PROTOCOL, *words))}",
        *([f"Origin: {origin}"] if origin else []),
    )
    with (
        socket.create_connection((rapi.address, rapi.port), TIMEOUT_S) as plain,
        rapi.tls.wrap_socket(plain) as channel,
    ):
        channel.sendall("\r\n".join([*lines, "", ""]).encode())
        head, _, rest = channel.recv(1 << 16).partition(b"\r\n\r\n")
        status = int(head.split()[1])
        if status == 101:
            assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head
            rest = rest or channel.recv(1 << 16)
        return status, rest.decode("latin1")


def ticket(rapi: RapiClient, name: str, way: str = "serial") -> str:
    answer = rapi.ask("POST", f"/2/instances/{name}/console-ticket?way={way}")
    assert answer.status == 200, answer
    return TICKET_PREFIX + str(answer.json["ticket"])


def test_a_ticket_is_good_once_and_for_pages_of_this_server(
    rapi: RapiClient, cluster: TestCluster
) -> None:
    path = f"/2/instances/{NAME}/console-ticket"
    assert rapi.ask("POST", path, user=None).status == 401
    assert rapi.ask("POST", path, user="reader").status == 403
    assert rapi.ask("POST", f"{path}?way=none").status == 400
    assert shake(rapi)[0] == 403
    assert shake(rapi, f"{TICKET_PREFIX}0123")[0] == 403
    assert shake(rapi, ticket(rapi, NAME), origin="https://evil.example.com")[0] == 403
    word = ticket(rapi, NAME)
    own = f"https://{rapi.address}:{rapi.port}"
    status, text = shake(rapi, word, origin=own)  # there is no such instance
    assert status == 101
    assert f"there is no instance '{NAME}'" in text
    assert shake(rapi, word, origin=own)[0] == 403, "it was used"
    log = Path(f"{cluster.paths.log_dir}/rapi-access.log").read_text()
    assert word.removeprefix(TICKET_PREFIX) not in log


def test_what_cannot_be_opened_is_said(rapi: RapiClient, cluster: TestCluster) -> None:
    create_instance(rapi, cluster, NAME)  # of the hypervisor that only pretends
    status, text = shake(rapi, ticket(rapi, NAME, "graphics"))
    assert status == 101
    assert "Console not available" in text or "has no graphics console" in text
    left = [each for each in os.listdir(cluster.paths.socket_dir) if each.startswith("console-")]
    assert left == []


def is_blue(page: Browser) -> bool:
    """Tell whether the guest's answer is on the screen."""
    script = (
        "const canvas = document.querySelector('#screen canvas');"
        " const {data} = canvas.getContext('2d').getImageData(1, 1, 1, 1); return [...data];"
    )
    red, green, blue, *_ = page.script(script)
    return bool(blue > 100 and red < 100 and green < 100)
