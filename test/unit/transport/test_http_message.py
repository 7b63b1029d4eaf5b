"""Tests of ganeti/transport/http_message.py."""

from __future__ import annotations

from ganeti.transport.http_message import HttpRequest, HttpResponse, encode_head

NOW = 1795236540.5


def test_the_head_of_an_answer() -> None:
    response = HttpResponse(200, b"[true, null]\n", headers={"X-More": "yes"})
    assert encode_head(response, keep_alive=False, now=NOW) == (
        b"HTTP/1.1 200 OK\r\n"
        b"Server: Ganeti 3.0.2\r\n"
        b"Date: Sat, 21 Nov 2026 04:49:00 GMT\r\n"
        b"Content-Type: application/json\r\n"
        b"Content-Length: 13\r\n"
        b"X-More: yes\r\n"
        b"Connection: close\r\n\r\n"
    )


def test_a_text_for_people() -> None:
    response = HttpResponse.text(404, "no such thing: \u00fc")
    head = encode_head(response, keep_alive=True, now=NOW)
    assert head.startswith(b"HTTP/1.1 404 Not Found\r\n")
    assert b"Connection: keep-alive\r\n" in head
    assert f"Content-Length: {len(response.body)}\r\n".encode() in head
    assert response.body == "no such thing: \u00fc\n".encode()


def test_a_status_without_a_name_has_one_anyway() -> None:
    assert encode_head(HttpResponse(299), keep_alive=True, now=NOW).startswith(
        b"HTTP/1.1 299 Unknown\r\n"
    )


def test_the_path_is_the_target_without_its_query() -> None:
    assert HttpRequest("GET", "/2/jobs?bulk=1", {}, b"", None, "x").path == "/2/jobs"
