"""Tests of ganeti/rapid/server.py."""

from __future__ import annotations

import re

import pytest

from ganeti.rapid.server import access_line
from ganeti.transport.http_message import HttpRequest, HttpResponse

LINE = re.compile(
    r'(\S+) - (\S+) \[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\] "([^"]*)" (\d{3}) (\d+)'
)


@pytest.mark.shows("2.0/logging/rapi-access")
def test_a_line_has_the_common_log_format() -> None:
    request = HttpRequest("GET", "/2/info", {}, b"", None, "192.0.2.1", "1.1", "joe")
    line = access_line(request, "192.0.2.1", HttpResponse(200, b"null"), 0.0)
    match = LINE.fullmatch(line)
    assert match is not None
    assert match.groups() == ("192.0.2.1", "joe", "GET /2/info HTTP/1.1", "200", "4")


def test_what_a_client_sends_stays_inside_its_part_of_the_line() -> None:
    target, user = '/" 200 1\n"\xe9', 'joe" x'
    request = HttpRequest("GET", target, {}, b"", None, "192.0.2.1", "1.0", user)
    assert LINE.fullmatch(access_line(request, "192.0.2.1", HttpResponse(404), 0.0))
    assert LINE.fullmatch(access_line(None, "192.0.2.1", HttpResponse(400), 0.0))
