"""The server's own answers: OpenAPI document, a page that shows it, the dashboard's files.

The pages need nothing from elsewhere: no scripts, styles or fonts of others.
"""

from __future__ import annotations

import functools
import html
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from ganeti.backups.policy import rules
from ganeti.base.json import dumps
from ganeti.protocol.rapi import pages as rapi_pages
from ganeti.protocol.rapi.openapi import openapi_document
from ganeti.system import files

_UI_DIRECTORY: Final = os.path.join(os.path.dirname(__file__), "ui")
_FILE_BYTES_MAX: Final = 1 << 20
_STYLE: Final = """
:root{color-scheme:light dark}
body{font:15px/1.45 system-ui,sans-serif;margin:0 auto;max-width:60rem;padding:1rem}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}
input{font:inherit;width:100%;box-sizing:border-box;padding:.5rem;position:sticky;top:0}
details{border:1px solid #8886;border-radius:6px;margin:.4rem 0;padding:.3rem .7rem}
summary{cursor:pointer;overflow-wrap:anywhere}
code,summary b{font-family:ui-monospace,monospace}
summary b{display:inline-block;min-width:4.2rem}
table{border-collapse:collapse;width:100%}
td,th{border-top:1px solid #8884;padding:.25rem .5rem;text-align:left;vertical-align:top}
.w{float:right;font-size:.8em;opacity:.75}
"""
_SCRIPT: Final = """
const box=document.querySelector('input');
box.addEventListener('input',()=>{const words=box.value.toLowerCase().split(/\\s+/);
for(const e of document.querySelectorAll('details')){
const text=e.querySelector('summary').textContent.toLowerCase();
e.hidden=!words.every(w=>text.includes(w));}
for(const s of document.querySelectorAll('section'))
s.hidden=!s.querySelector('details:not([hidden])');});
"""


def openapi_json() -> bytes:
    """Return the OpenAPI document as JSON text."""
    return dumps(openapi_document()) + b"\n"


def page() -> bytes:
    """Return the page that shows the document."""
    document = openapi_document()
    schemas = document["components"]["schemas"]
    sections: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            shown = _operation(path, method.upper(), operation, schemas)
            sections.setdefault(operation["tags"][0], []).append(shown)
    body = "".join(
        f"<section><h2>{html.escape(name)}</h2>{''.join(found)}</section>"
        for name, found in sorted(sections.items(), key=lambda item: item[0] != "general")
    )
    title = html.escape(document["info"]["title"])
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body><h1>{title}</h1>"
        f"<p>{html.escape(document['info']['description'])}"
        ' As <a href="openapi.json">OpenAPI document</a>.</p>'
        '<input type="search" aria-label="Search"'
        ' placeholder="Search: parts of a path, verbs, words, in any order">'
        f"<main>{body}</main><script>{_SCRIPT}</script></body></html>\n"
    )
    return text.encode()


def _operation(
    path: str, method: str, operation: Mapping[str, Any], schemas: Mapping[str, Any]
) -> str:
    rows = [
        (each["name"], each["in"], _kind(each["schema"]), each.get("description", ""))
        for each in operation["parameters"]
    ]
    body = operation.get("requestBody")
    if body is not None:
        schema = body["content"]["application/json"]["schema"]
        name = schema.get("$ref", "").rpartition("/")[2]
        whole = schemas[name] if name else schema
        required = set(whole.get("required", ()))
        rows += [
            (key, "body, required" if key in required else "body", _kind(value), _default(value))
            for key, value in whole.get("properties", {"(the whole)": whole}).items()
        ]
    cells = "".join(
        f"<tr><td><code>{html.escape(name)}</code><td>{where}<td>{html.escape(kind)}"
        f"<td>{html.escape(text)}"
        for name, where, kind, text in rows
    )
    table = f"<table><tr><th>name<th>in<th>type<th>meaning{cells}</table>" if rows else ""
    rights = operation.get("description", "")
    answer = next(iter(operation["responses"]["200"]["content"].values()))["schema"]
    return (
        f"<details><summary><b>{method}</b> <code>{html.escape(path)}</code>"
        f'<span class="w">{html.escape(operation["summary"])}</span></summary>'
        f"<p>{html.escape(operation['summary'])} {html.escape(rights)}"
        f" Answers {html.escape(_kind(answer))}.</p>{table}</details>"
    )


def _kind(schema: Mapping[str, Any]) -> str:
    """Return the type that a schema accepts, in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    if "enum" in schema:
        return "one of " + ", ".join(str(each) for each in schema["enum"])
    if schema.get("type") == "array" and isinstance(schema.get("items"), dict):
        return f"list of {_kind(schema['items'])}"
    return str(schema.get("type", schema.get("const", "any value")))


def _default(schema: Mapping[str, Any]) -> str:
    if "default" not in schema:
        return ""
    return f"default {dumps(schema['default']).decode()}"


def _file(name: str) -> bytes:
    return files.read_bytes(os.path.join(_UI_DIRECTORY, name), _FILE_BYTES_MAX)


def _policy_rules() -> bytes:
    """Return the words of policies of backups, and what is checked of them, as a module."""
    return b"export default " + dumps(rules()) + b";\n"


MAKERS: Final[Mapping[str, Callable[[], bytes]]] = {
    "openapi": openapi_json,
    "page": page,
    "ui/policy-rules.js": _policy_rules,
    **{
        f"ui/{name}": functools.partial(_file, name)
        for name in (*rapi_pages.FILES, *rapi_pages.LIBRARIES)
    },
}
