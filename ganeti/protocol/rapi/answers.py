"""How an answer of LuxiD becomes an answer of the remote API, as pure functions over JSON text.

Values pass through as the text that LuxiD wrote: a list of thousands of instances is cut into cells
and put together again, never decoded and encoded.

Source: rapi.json, "resources" and "object_fields".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec
from msgspec import Raw

from ganeti.base.json import dumps, loads_as
from ganeti.protocol.rapi.jobs import Inputs
from ganeti.protocol.rapi.values import FIELDS, NODE_ROLES, HttpProblem

Shape = Callable[[Raw, Inputs], bytes]
"""Makes the body of the answer from the answer of LuxiD; raises HttpProblem."""

_rows = msgspec.json.Decoder(list[list[Raw]])
_MAXMEM: Final = re.compile(rb'"maxmem":(\d+)')
_COPIES: Final[Mapping[str, Mapping[str, str]]] = {"node": {"sip": "secondary_ip"}}
"""Fields that are shown under a second name too."""


def as_it_is(result: Raw, _inputs: Inputs) -> bytes:
    """Pass LuxiD's answer on."""
    return bytes(result)


def nothing(_result: Raw, _inputs: Inputs) -> bytes:
    """Answer null."""
    return b"null"


def _template(what: str) -> tuple[bytes, list[int]]:
    """Return a template for one object, and which cells of a row it takes."""
    fields = FIELDS[what]
    copies = _COPIES.get(what, {})
    places = list(enumerate(fields))
    places += [(fields.index(field), name) for field, name in copies.items()]
    pairs = b",".join(dumps(name) + b":%b" for _, name in places)
    return b"{" + pairs + b"}", [index for index, _ in places]


_TEMPLATES: Final = {what: _template(what) for what in FIELDS}
_INSTANCES: Final = ("instance", "instance_copies")
_BEPARAMS: Final = FIELDS["instance"].index("beparams")


def _objects(what: str, rows: Sequence[Sequence[Raw]]) -> list[bytes]:
    template, places = _TEMPLATES[what]
    if what in _INSTANCES:
        return [template % tuple(with_memory(row, _BEPARAMS)) for row in rows]
    return [template % tuple(row[index] for index in places) for row in rows]


def wanted(what: str, inputs: Inputs) -> str:
    """Return the row of `FIELDS` for the objects of a list: only instances are asked for copies."""
    return f"{what}_copies" if inputs.query.get("copies") else what


def with_memory(row: Sequence[Raw], beparams: int) -> list[bytes | Raw]:
    """Add "memory" to the back-end parameters at that place: the old name of "maxmem"."""
    cells: list[bytes | Raw] = list(row)
    text = bytes(row[beparams])
    found = _MAXMEM.search(text)
    if found is not None and b'"memory":' not in text:
        cells[beparams] = text[:-1] + b',"memory":' + found.group(1) + b"}"
    return cells


def all_of(what: str) -> Shape:
    """Return the shape of a list of whole objects."""

    def shape(result: Raw, inputs: Inputs) -> bytes:
        return b"[" + b",".join(_objects(wanted(what, inputs), _rows.decode(result))) + b"]"

    return shape


def one_of(what: str) -> Shape:
    """Return the shape of one object, of a list with at most one."""

    def shape(result: Raw, inputs: Inputs) -> bytes:
        rows = _rows.decode(result)
        if not rows:
            raise _not_found(what, inputs)
        return _objects(what, rows)[0]

    return shape


def _not_found(what: str, inputs: Inputs) -> HttpProblem:
    return no_such(what, next(iter(inputs.path.values()), ""))


def no_such(what: str, name: str) -> HttpProblem:
    """Return the answer to a question about an object that does not exist."""
    return HttpProblem(404, f"There is no {what} '{name}'")


def links_to(path: str, key: str) -> Shape:
    """Return the shape of a list of names with the URLs of the objects."""

    def shape(result: Raw, _inputs: Inputs) -> bytes:
        rows = loads_as(list[list[Any]], bytes(result))
        return dumps([{key: row[0], "uri": f"{path}/{quote(str(row[0]))}"} for row in rows])

    return shape


def node_role(result: Raw, inputs: Inputs) -> bytes:
    """Answer the role of a node as a word."""
    rows = loads_as(list[list[str]], bytes(result))
    if not rows:
        raise _not_found("node", inputs)
    return dumps(NODE_ROLES.get(rows[0][0], rows[0][0]))


def cluster_info(result: Raw, _inputs: Inputs) -> bytes:
    """Answer the facts about the cluster, some under a second name too."""
    facts = loads_as(dict[str, Raw], bytes(result))
    old_names = {"vg_name": "volume_group_name", "drbd_helper": "drbd_usermode_helper"}
    found = {old: facts[name] for old, name in old_names.items() if name in facts}
    return dumps({**facts, **found})


class _Cells(msgspec.Struct):
    data: list[list[tuple[int, Any]]]


def console(result: Raw, inputs: Inputs) -> bytes:
    """Answer how to reach an instance's console.

    Raises:
        HttpProblem: there is no such instance, or it does not run.
    """
    rows = loads_as(_Cells, bytes(result)).data
    if not rows:
        raise _not_found("instance", inputs)
    [[_status, value]] = rows[0]
    if value is None:
        raise HttpProblem(503, f"Instance '{inputs.path['instance']}' has no console now")
    return dumps(value)


class _Change(msgspec.Struct, array_like=True):
    job_info: list[Any] | None
    log_entries: list[Any]


END_FIELD: Final = "end_ts"
"""The field of a job that has a value only when it has ended."""


def job_change(result: Raw, inputs: Inputs) -> bytes:
    """Answer the changes of a job, and its end at once; null when there were none in time."""
    if bytes(result) == b'"nochange"':
        return b"null"
    change = loads_as(_Change, bytes(result))
    if change.job_info is None:
        return b"null"
    *job_info, ended = change.job_info
    if ended is None and not change.log_entries and job_info == inputs.body.previous_job_info:
        return b"null"
    return dumps({"job_info": job_info, "log_entries": change.log_entries})


def os_names(result: Raw, _inputs: Inputs) -> bytes:
    """Answer the usable operating systems, one name for each variant."""
    rows = loads_as(list[tuple[str, list[str] | None, bool, bool, bool]], bytes(result))
    names = []
    for name, variants, is_valid, is_hidden, is_blacklisted in sorted(rows, key=lambda row: row[0]):
        if is_valid and not is_hidden and not is_blacklisted:
            names += [f"{name}+{variant}" for variant in variants or ()] or [name]
    return dumps(names)


def named(*names: str) -> Shape:
    """Return the shape of an object whose values LuxiD answers as a list."""

    def shape(result: Raw, _inputs: Inputs) -> bytes:
        values = loads_as(list[Raw], bytes(result))
        return dumps(dict(zip(names, values, strict=True)))

    return shape
