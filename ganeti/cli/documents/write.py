"""``make-docs``: writes manual pages, the list of metrics and completion into the checkout."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Final

from ganeti.base.daemons import package_of
from ganeti.cli.declaration.program import Program
from ganeti.cli.documents import concepts
from ganeti.cli.documents.completion import completion_script
from ganeti.cli.documents.daemons import DAEMONS, SEE_ALSO
from ganeti.cli.documents.manual import SECTION, daemon_page, manual_page, tool_page
from ganeti.cli.programs import PROGRAMS, TOOLS
from ganeti.collectors import metrics
from ganeti.daemon.options import Option, options_of

METRICS_PATH: Final = "doc/metrics.md"
COMPLETION_PATH: Final = "doc/examples/bash_completion"


def tools() -> list[Program]:
    """Return the tools that have a table."""
    modules = [import_module(f"ganeti.cli.{module}") for module in TOOLS.values()]
    return [module.PROGRAM for module in modules if hasattr(module, "PROGRAM")]


def documents() -> dict[str, str]:
    """Return {path in the checkout: content} of everything that is generated."""
    found = {}
    names = [program.name for program in PROGRAMS] + [daemon.name for daemon in DAEMONS]
    for program in (*PROGRAMS, *tools()):
        page = tool_page(program) if program.is_single else manual_page(program, names)
        found[f"man/{program.name}.{program.manual_section}"] = page
    found[f"man/{concepts.NAME}.{concepts.MANUAL_SECTION}"] = daemon_page(
        concepts.NAME,
        concepts.SUMMARY,
        concepts.PROSE,
        [],
        concepts.sections(),
        names,
        manual_section=concepts.MANUAL_SECTION,
        is_program=False,
    )
    for daemon in DAEMONS:
        spec = import_module(f"ganeti.{package_of(daemon.name)}.main").SPEC
        found[f"man/{daemon.name}.{SECTION}"] = daemon_page(
            daemon.name,
            spec.description,
            daemon.prose,
            [(_flags(option), option.help) for option in options_of(spec.options)],
            daemon.sections,
            SEE_ALSO[daemon.name],
        )
    found[METRICS_PATH] = metrics.document()
    found[COMPLETION_PATH] = completion_script(
        PROGRAMS, [tool for tool in tools() if tool.name == "move-instance"]
    )
    return found


def _flags(option: Option) -> str:
    text = ", ".join(option.flags)
    return f"{text} {option.metavar}" if option.metavar else text


def main() -> int:
    """Write everything; the argument is the directory of the checkout."""
    root = sys.argv[1] if len(sys.argv) > 1 else _checkout()
    for path, content in documents().items():
        full = os.path.join(root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(content)
        sys.stdout.write(f"{path}\n")
    return 0


def _checkout() -> str:
    here = os.path.abspath(__file__)
    for _ in range(4):  # documents, cli, ganeti: up to the checkout
        here = os.path.dirname(here)
    return here
