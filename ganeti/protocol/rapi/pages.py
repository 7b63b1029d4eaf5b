"""The pages for people that stand beside the remote API: their files and content types.

Each file is a row, so no path of a request ever becomes a path of a file.

Source: RFC 9110; W3C Content Security Policy Level 3.
"""

from __future__ import annotations

from typing import Final

from ganeti.protocol.rapi.routes import Document, Route

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
TOP: Final = "/ui"
_SCRIPTS: Final = ("api", "app", "cluster", "dialog", "dom", "jobs", "maintenance", "map", "table")
FILES: Final = ("index.html", "style.css", "icon.svg", *(f"{name}.js" for name in _SCRIPTS))
_CONTENT_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


def _page(path: str, name: str) -> Route:
    text, action = f"Answer {name} of the dashboard.", Document(f"ui/{name}", POLICY)
    kind = _CONTENT_TYPES[name.rpartition(".")[2]]
    return Route(path, "GET", text, action, is_new=True, is_public=True, content_type=kind)


PAGES: Final = (_page(TOP, "index.html"), *(_page(f"{TOP}/{name}", name) for name in FILES))
