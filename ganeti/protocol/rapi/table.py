"""All routes of the remote API, as one table; server, client, OpenAPI document and pages use it.

The files of the dashboard and of the book are found by the same table, but are no part of the API.

The rows of 3.0 come first; new ones stand beside them, with one resource for each opcode.

Source: rapi.json.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from ganeti.protocol.rapi import questions as rapi_questions
from ganeti.protocol.rapi import submissions as rapi_submissions
from ganeti.protocol.rapi.pages import BOOK_PAGES, PAGES, SOCKET
from ganeti.protocol.rapi.routes import Route, RouteTable, resources_of

_OLD: Final = (*rapi_questions.READING, *rapi_questions.CHANGING, *rapi_submissions.OLD)
_OLD_PATHS: Final = frozenset(route.path for route in _OLD)
_NEW: Final = (*rapi_questions.NEW, *rapi_submissions.NEW)

ROUTES: Final[tuple[Route, ...]] = (
    *_OLD,
    *(replace(route, is_new=route.path not in _OLD_PATHS) for route in _NEW),
)
TABLE: Final = RouteTable(resources_of((*ROUTES, *PAGES, *BOOK_PAGES, SOCKET)))
