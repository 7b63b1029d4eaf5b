"""Tests of ganeti/rapid/book.py, and of the pages as the server answers them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from pathlib import Path

import pytest

from ganeti.base.paths import Paths
from ganeti.daemon.audit import AuditLog
from ganeti.protocol.rapi.values import HttpProblem
from ganeti.rapid.access import Access
from ganeti.rapid.book import Book
from ganeti.rapid.luxi_pool import LuxiPool
from ganeti.rapid.server import RapiServer
from ganeti.transport.http_message import HttpRequest, HttpResponse

SCRIPT = b"document.body.dataset.theme = 'auto';"
PAGE = b"<html><body><script>" + SCRIPT + b'</script><script src="a.js"></script></body></html>'


@pytest.fixture
def book(tmp_path: Path) -> Book:
    top = tmp_path / "html"
    for name, body in (
        ("index.html", PAGE),
        ("_static/style.css", b"p {}"),
        ("_static/scripts/furo.js", b"1"),
        ("_images/plot.png", b"\x89PNG"),
        ("objects.inv", b"# Sphinx"),
    ):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(body)
    (tmp_path / "secret").write_text("x")
    return Book([str(tmp_path / "none"), str(top)])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("index.html", "text/html; charset=utf-8"),
        ("_static/style.css", "text/css; charset=utf-8"),
        ("_static/scripts/furo.js", "text/javascript; charset=utf-8"),
        ("_images/plot.png", "image/png"),
        ("objects.inv", "text/plain; charset=utf-8"),
    ],
)
def test_a_file_is_answered_as_what_it_is(book: Book, name: str, kind: str) -> None:
    assert book.page(name)[1] == kind


@pytest.mark.parametrize(
    "name", ["../secret", "_static/../../secret", "_static", "", "/etc/passwd"]
)
def test_nothing_else_is_answered(book: Book, name: str) -> None:
    with pytest.raises(HttpProblem, match="no page") as caught:
        book.page(name)
    assert caught.value.status == 404


def test_the_policy_names_the_scripts_of_a_page(book: Book) -> None:
    digest = base64.b64encode(hashlib.sha256(SCRIPT).digest()).decode()
    policy = book.page("index.html")[2]
    assert f"script-src 'self' 'sha256-{digest}';" in policy
    assert "script-src 'self';" in book.page("_static/style.css")[2]


def test_a_book_that_is_not_installed_is_missed(tmp_path: Path) -> None:
    with pytest.raises(HttpProblem, match="not installed"):
        Book([str(tmp_path)]).page("index.html")


def test_the_server_answers_the_book_without_a_user(
    book: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ganeti.rapid.server.Book", lambda: book)
    paths = Paths(str(tmp_path))
    audit = AuditLog(str(tmp_path / "audit.log"))
    rapi = RapiServer(LuxiPool(paths, 1), Access(paths, always=True), {}, paths.root, audit)

    def ask(path: str, **headers: str) -> HttpResponse:
        request = HttpRequest("GET", path, headers, b"", None, "192.0.2.1", "1.1")
        return asyncio.run(rapi.handle(request))

    for path in ("/docs", "/docs/"):
        answer = ask(path)
        assert (answer.status, answer.headers["Location"]) == (302, "/docs/index.html")
    answer = ask("/docs/index.html")
    assert (answer.status, answer.body) == (200, PAGE)
    assert answer.content_type == "text/html; charset=utf-8"
    assert "sha256-" in answer.headers["Content-Security-Policy"]
    again = ask("/docs/index.html", **{"if-none-match": answer.headers["ETag"]})
    assert (again.status, again.body) == (304, b"")
    assert ask("/docs/_static/scripts/furo.js").body == b"1"
    for path in ("/docs/%2e%2e/secret", "/docs/none.html", "/docs/a/b/c/d"):
        assert ask(path).status == 404
