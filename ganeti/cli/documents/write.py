"""``make-docs``: writes manual pages, the list of metrics and completion into the checkout.

Texts that no table has of a daemon, a tool or the whole stand below ``doc/manual``, in the file
of its page: a line of other pages to see, the description of a daemon, then sections.  ``# TITLE``
begins a section; blank lines stand between its paragraphs; the meaning of a term is indented below
it.  ``@NAME.txt`` stands for a text that pages share, ``@NAME`` for the entries of a table, and
``$NAME`` for a value that is declared elsewhere.

Source: config.json, "paths_ensured_by_installation"; wconfd.json.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from string import Template
from typing import Final

from msgspec import Struct

from ganeti.base.daemons import PERIODIC, daemon_of
from ganeti.cli.declaration.parser import USAGE_EXIT
from ganeti.cli.declaration.program import Program
from ganeti.cli.documents import storage
from ganeti.cli.documents.completion import completion_script
from ganeti.cli.documents.manual import SECTION, Entry, Section, daemon_page, manual_page, tool_page
from ganeti.cli.programs import PROGRAMS, TOOLS
from ganeti.cli.run.failures import EXIT_SUCCESS
from ganeti.collectors import metrics
from ganeti.collectors.registry import COLLECTORS
from ganeti.daemon.options import Option, options_of
from ganeti.objects import parameters
from ganeti.objects.describe import describe_type
from ganeti.objects.hypervisors import HVPARAMS
from ganeti.objects.parameters import ParamTable
from ganeti.protocol import confd
from ganeti.protocol.confd_queries import QueryType, Takes
from ganeti.protocol.service import Call
from ganeti.protocol.wconfd import CLIENT_SHOWN, Need, Rules, WConfCalls, wire_names

DAEMONS: Final = [
    f"ganeti-{daemon}"
    for daemon in (
        *("noded", "wconfd", "confd", "mond", "metad"),
        *("luxid", "rapi", "maintd", "ha", "etcd"),
    )
]
_CONCEPTS: Final = {
    "ganeti": "manager of clusters of virtual machines",
    "ganeti-os-interface": "scripts that install operating systems",
}
_CONCEPTS_SECTION: Final = 7
_METRICS_PATH: Final = "doc/metrics.md"
_STORAGE_PATH: Final = "doc/storage.md"
_COMPLETION_PATH: Final = "doc/examples/bash_completion"
_CHECKOUT: Final = Path(__file__).resolve().parents[3]
_USAGE: Final = """\
usage: make-docs [DIRECTORY]

Writes manual pages, tables of the book and completion; without a directory into this checkout.
"""
_PROSE: Final = _CHECKOUT / "doc" / "manual"


def tools() -> list[Program]:
    """Return the tools that have a table."""
    modules = [import_module(f"ganeti.cli.{module}") for module in TOOLS.values()]
    return [module.PROGRAM for module in modules if hasattr(module, "PROGRAM")]


def documents() -> dict[str, str]:
    """Return {path in the checkout: content} of everything that is generated."""
    names = [*(program.name for program in PROGRAMS), *DAEMONS]
    found = dict[str, str]()
    for program in (*PROGRAMS, *tools()):
        see_also, _, sections = _prose(program.name)
        path = f"man/{program.name}.{program.manual_section}"
        if program.is_single:
            found[path] = tool_page(program, sections, see_also)
        else:
            found[path] = manual_page(program, see_also or names, sections)
    for name, summary in _CONCEPTS.items():
        see_also, prose, sections = _prose(name)
        found[f"man/{name}.{_CONCEPTS_SECTION}"] = daemon_page(
            name,
            summary,
            prose,
            [],
            sections if see_also else [*sections, *_parameters()],
            see_also or names,
            manual_section=_CONCEPTS_SECTION,
            is_program=False,
        )
    for daemon in DAEMONS:
        spec = import_module(f"ganeti.{daemon_of(daemon).package}.main").SPEC
        found[f"man/{daemon}.{SECTION}"] = _page(daemon, spec.description, spec.options)
    for name, path in PERIODIC.items():
        module = import_module(f"ganeti.{path}")
        found[f"man/{name}.{SECTION}"] = _page(name, module.DESCRIPTION, module.Options)
    found[_METRICS_PATH] = metrics.document()
    found[_STORAGE_PATH] = storage.with_table((_CHECKOUT / _STORAGE_PATH).read_text("utf-8"))
    functions = (_PROSE / "completion.sh").read_text(encoding="utf-8")
    found[_COMPLETION_PATH] = completion_script(functions, [*PROGRAMS, *tools()])
    return found


def _page(name: str, summary: str, kind: type[Struct]) -> str:
    options = [(_flags(option), option.help) for option in options_of(kind)]
    see_also, prose, sections = _prose(name)
    return daemon_page(name, summary, prose, options, sections, see_also)


def _flags(option: Option) -> str:
    if option.is_argument:
        return "|".join(option.choices)
    text = ", ".join(option.flags)
    return f"{text} {option.metavar}" if option.metavar else text


def main() -> int:
    """Write everything; the argument is the directory of the checkout."""
    words = sys.argv[1:]
    if len(words) > 1 or any(word.startswith("-") for word in words):
        is_wish = words in (["-h"], ["--help"])
        (sys.stdout if is_wish else sys.stderr).write(_USAGE)
        return EXIT_SUCCESS if is_wish else USAGE_EXIT
    root = Path(words[0]) if words else _CHECKOUT
    for path, content in documents().items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content, encoding="utf-8")
        sys.stdout.write(f"{path}\n")
    return 0


# The texts written by hand.


def _prose(name: str) -> tuple[list[str], str, list[Section]]:
    """Return the texts of a page: other pages to see, the description, sections."""
    if not (_PROSE / f"{name}.txt").exists():
        return [], "", []
    head, *parts = re.split(r"^# (.+)\n", _read(name), flags=re.MULTILINE)
    also, prose = re.fullmatch(r"(?:See also: (.*)\n*)?((?s:.*))", head).groups()  # type: ignore[union-attr]
    sections = map(_section, parts[::2], parts[1::2])
    return also.split(", ") if also else [], prose, list(sections)


def _read(name: str) -> str:
    text = (_PROSE / f"{name}.txt").read_text(encoding="utf-8")
    text = re.sub(r"^@(.+)\.txt$", lambda shared: _read(shared[1]), text, flags=re.MULTILINE)
    return Template(text).substitute(
        client_shown=CLIENT_SHOWN,
        datagram_bytes_max=confd.DATAGRAM_BYTES_MAX,
        clock_skew_s_max=confd.CLOCK_SKEW_S_MAX,
    )


def _section(title: str, text: str) -> Section:
    paragraphs: list[str] = []
    entries: list[Entry] = []
    for block in re.split(r"\n{2,}", text.strip()):
        if block.startswith("@"):
            entries += _TABLES[block]
        elif "\n    " in block:
            entries += re.findall(r"^(\S.*)((?:\n    .*)+)", block, re.MULTILINE)
        else:
            paragraphs.append(block)
    return Section(title, paragraphs, entries)


# The texts from tables.


def _call(call: Call[Rules]) -> Entry:
    types = {each.name: each.describe() for each in call.arguments}
    words = [f"{name}: {types[name]}" if name in types else name for name in wire_names(call)]
    arguments = f"Arguments: {'; '.join(words)}." if words else "No arguments."
    answer = "nothing" if call.answers_nothing else describe_type(call.result)
    needs = "" if call.rules.needs is Need.NONE else f"  Needs {call.rules.needs}."
    origin = "" if call.rules.is_own else "  As in Ganeti 3.0."
    if call.rules.instead:
        origin = f"  As in Ganeti 3.0, if allowed; otherwise use {call.rules.instead}."
    effect = f"{str(call.rules.effect).capitalize()}."
    return (call.name, f"{call.summary}  {effect}  {arguments}  Answers {answer}.{needs}{origin}")


def _confd_query(query: QueryType) -> Entry:
    takes = "" if query.takes is Takes.NOTHING else f"Takes {query.takes}.  "
    return f"{query:d} {query.constant}", f"{takes}{query.answer_described}"


_TABLES: Final[Mapping[str, list[Entry]]] = {
    "@calls": [_call(call) for call in WConfCalls.calls.values()],
    "@queries": [_confd_query(query) for query in QueryType],
    "@collectors": [(row.name, row.summary) for row in COLLECTORS.values()],
}


def _parameters() -> list[Section]:
    """Return a section for each table of parameters."""
    tables: list[tuple[str, ParamTable]] = [
        ("BACK-END PARAMETERS (-B)", parameters.BACKEND_SETTINGS),
        *(
            (f"PARAMETERS OF THE HYPERVISOR {name.upper()} (-H {name}:...)", table)
            for name, table in HVPARAMS.items()
        ),
        ("SETTINGS OF A DISK (--disk)", parameters.DISK_SETTINGS),
        ("SETTINGS OF A NETWORK INTERFACE (--net)", parameters.NIC_SETTINGS),
        ("DEFAULTS OF NETWORK INTERFACES (-N)", parameters.NICPARAMS),
        *(
            (f"DISK PARAMETERS OF {name.upper()} (-D {name}:... or --disk)", table)
            for name, table in parameters.DISKPARAMS.items()
            if table
        ),
        ("NODE PARAMETERS (--node-parameters)", parameters.NDPARAMS),
        ("SPECIFICATIONS OF INSTANCE POLICIES (--ipolicy-*-specs)", parameters.ISPEC_TABLE),
        ("STATIC FIGURES OF A HYPERVISOR (--hypervisor-state)", parameters.HV_STATE_PARAMS),
        ("STATIC FIGURES OF A STORAGE (--disk-state)", parameters.DISK_STATE_PARAMS),
    ]
    return [
        Section(title, [], [(name, spec.described) for name, spec in sorted(table.items())])
        for title, table in tables
    ]
