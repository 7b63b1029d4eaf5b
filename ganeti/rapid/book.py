"""The book of the package at ``/docs``: pages that Sphinx made, as they lie on the disk.

Only what was there at the first question is ever answered, so no path of a request leads elsewhere.
The pages have small scripts in them; the policy of each names exactly these.

Source: W3C Content Security Policy Level 3.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import sys
from collections.abc import Iterable
from typing import Final

from ganeti.protocol.rapi.pages import BOOK, content_type
from ganeti.protocol.rapi.values import HttpProblem
from ganeti.system import files

_SHARE: Final = "share/doc/ganeti-python/html"
_SOURCE: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PLACES: Final = (  # the first that has it
    os.path.join(sys.prefix, _SHARE),
    os.path.join("/usr", _SHARE),
    os.path.join(_SOURCE, "build/html"),  # of who works on it
)
FIRST: Final = "index.html"
_FILE_BYTES_MAX: Final = 16 << 20
_INLINE: Final = re.compile(rb"<script>(.*?)</script>", re.DOTALL)
_POLICY: Final = (
    "default-src 'none'; script-src 'self'{}; style-src 'self' 'unsafe-inline';"
    " img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none';"
    " form-action 'self'; frame-ancestors 'none'"
)


class Book:
    """The files of the book."""

    def __init__(self, places: Iterable[str] = PLACES) -> None:
        self._places = tuple(places)
        self._directory = ""
        self._names: frozenset[str] = frozenset()

    def page(self, name: str) -> tuple[bytes, str, str]:
        """Return the bytes of a file, its content type and the policy for it.

        Raises:
            HttpProblem: 404.
        """
        if not self._names:
            self._look()
        if name not in self._names:
            raise HttpProblem(404, f"The book has no page '{name}'")
        body = files.read_bytes(os.path.join(self._directory, name), _FILE_BYTES_MAX)
        kind = content_type(name)
        return body, kind, _POLICY.format("".join(f" {each}" for each in _hashes(body, kind)))

    def _look(self) -> None:
        """Find the book."""
        for place in self._places:
            if os.path.isfile(os.path.join(place, FIRST)):
                self._directory, self._names = place, frozenset(_files_below(place))
                return
        text = f"The book is not installed here; it is part of the package ({BOOK} shows it then)"
        raise HttpProblem(404, text)


def _files_below(top: str) -> Iterable[str]:
    for directory, _directories, names in os.walk(top):
        for name in names:
            yield os.path.relpath(os.path.join(directory, name), top)


def _hashes(body: bytes, kind: str) -> list[str]:
    """Return the sources of a policy that allow the scripts which stand in a page."""
    if not kind.startswith("text/html"):
        return []
    found = (hashlib.sha256(each).digest() for each in _INLINE.findall(body))
    return sorted({f"'sha256-{base64.b64encode(each).decode()}'" for each in found})
