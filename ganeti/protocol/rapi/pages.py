"""The pages for people that stand beside the remote API: their files and content types.

Each file is a row, so no path of a request ever becomes a path of a file.

Source: RFC 9110; W3C Content Security Policy Level 3.
"""

from __future__ import annotations

from typing import Final

from ganeti.protocol.rapi.routes import BookPage, ConsoleSocket, Document, Route

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
CONSOLE_POLICY: Final = (  # its libraries make style sheets and pictures of their own
    POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'").replace(
        "img-src 'self'", "img-src 'self' data: blob:"
    )
)
TOP: Final = "/ui"
_SCRIPTS: Final = (
    *("about", "api", "app", "backups", "cluster", "console", "create", "curves", "dialog"),
    *("dom", "form", "jobs", "maintenance", "map", "operate", "operations", "places", "policy"),
    *("select", "snapshots", "start", "storage", "table", "users"),
)
FILES: Final = (
    *("index.html", "console.html", "style.css", "icon.svg"),
    *(f"{name}.js" for name in _SCRIPTS),
)
GENERATED: Final = ("policy-rules.js",)  # made by the server of tables that programs use too
_NOVNC: Final = (
    *("base64", "deflator", "display", "encodings", "inflator", "ra2", "rfb", "websock"),
    *(f"crypto/{name}" for name in ("aes", "bigint", "crypto", "des", "dh", "md5", "rsa")),
    *(f"decoders/{name}" for name in ("copyrect", "h264", "hextile", "jpeg", "raw", "rre")),
    *(f"decoders/{name}" for name in ("tight", "tightpng", "zlib", "zrle")),
    *(f"input/{name}" for name in ("domkeytable", "fixedkeys", "gesturehandler", "keyboard")),
    *(f"input/{name}" for name in ("keysym", "keysymdef", "util", "vkeys", "xtscancodes")),
    *(f"util/{name}" for name in ("browser", "cursor", "element", "events", "eventtarget")),
    *(f"util/{name}" for name in ("int", "logging", "strings")),
)
_PAKO: Final = (
    *("utils/common", "zlib/adler32", "zlib/constants", "zlib/crc32", "zlib/deflate"),
    *("zlib/gzheader", "zlib/inffast", "zlib/inflate", "zlib/inftrees", "zlib/messages"),
    *("zlib/trees", "zlib/zstream"),
)
LIBRARIES: Final = (  # of others, as they came
    *(f"lib/xterm/{name}" for name in ("xterm.mjs", "addon-fit.mjs", "xterm.css", "LICENSE")),
    *(f"lib/novnc/{name}" for name in ("LICENSE.txt", "LICENSE.MPL-2.0", "AUTHORS")),
    *(f"lib/novnc/core/{name}.js" for name in _NOVNC),
    *(f"lib/novnc/vendor/pako/{name}" for name in ("LICENSE", "README.md")),
    *(f"lib/novnc/vendor/pako/lib/{name}.js" for name in _PAKO),
)
_CONTENT_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "mjs": "text/javascript; charset=utf-8",
    "png": "image/png",
    "svg": "image/svg+xml",
}


_POLICIES: Final = {"console.html": CONSOLE_POLICY}


def content_type(name: str) -> str:
    """Return the content type of a file, by the end of its name."""
    return _CONTENT_TYPES.get(name.rpartition(".")[2], "text/plain; charset=utf-8")


def _page(path: str, name: str) -> Route:
    text, action = (
        f"Answer {name} of the dashboard.",
        Document(f"ui/{name}", _POLICIES.get(name, POLICY)),
    )
    kind = content_type(name)
    return Route(path, "GET", text, action, is_new=True, is_public=True, content_type=kind)


PAGES: Final = (
    _page(TOP, "index.html"),
    *(_page(f"{TOP}/{name}", name) for name in (*FILES, *GENERATED, *LIBRARIES)),
)

BOOK: Final = "/docs"
_BOOK_DEPTH_MAX: Final = 3  # the theme of Sphinx has files so deep
BOOK_PAGES: Final = tuple(
    Route(
        BOOK + "".join(f"/{{part{number}}}" for number in range(depth)),
        "GET",
        "Answer a page of the book.",
        BookPage(),
        is_new=True,
        is_public=True,
        content_type=content_type(".html"),  # or what the file is
    )
    for depth in range(_BOOK_DEPTH_MAX + 1)
)

CONSOLE_PROTOCOL: Final = "ganeti.console"
TICKET_PREFIX: Final = "ganeti.ticket."
SOCKET: Final = Route(
    f"{TOP}/console-socket",
    "GET",
    "Carry a console by WebSocket; the ticket is a second subprotocol.",
    ConsoleSocket(),
    is_new=True,
    is_public=True,  # the ticket tells who asks
)
