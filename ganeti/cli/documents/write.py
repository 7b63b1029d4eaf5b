"""``make-docs``: writes manual pages, the list of metrics and completion into the checkout."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Final

from ganeti.cli import (
    cfgupgrade,
    confd_client,
    hail,
    mon_collector,
    move_instance,
    node_tools,
    query_config,
    vcluster,
)
from ganeti.cli.declaration.help import flags_label
from ganeti.cli.declaration.program import Program
from ganeti.cli.documents.completion import completion_script
from ganeti.cli.documents.daemons import DAEMONS, SEE_ALSO, Section
from ganeti.cli.documents.hail import SECTION as HAIL_SECTION
from ganeti.cli.documents.hail import SECTIONS as HAIL_SECTIONS
from ganeti.cli.documents.manual import SECTION, daemon_page, manual_page
from ganeti.collectors import metrics
from ganeti.daemon.main import DaemonSpec
from ganeti.daemon.options import COMMON, Option, network

PROGRAMS: Final = (
    "backup",
    "cluster",
    "debug",
    "filter",
    "group",
    "instance",
    "job",
    "network",
    "node",
    "os",
    "rapi",
    "storage",
)
METRICS_PATH: Final = "doc/metrics.md"
COMPLETION_PATH: Final = "doc/examples/bash_completion"


def programs() -> list[Program]:
    """Return the tables of all gnt-* programs."""
    return [import_module(f"ganeti.cli.gnt_{name}").PROGRAM for name in PROGRAMS]


def documents() -> dict[str, str]:
    """Return {path in the checkout: content} of everything that is generated."""
    found = {}
    all_programs = programs()
    names = [program.name for program in all_programs] + [daemon.name for daemon in DAEMONS]
    for program in (
        *all_programs,
        vcluster.PROGRAM,
        query_config.PROGRAM,
        confd_client.PROGRAM,
        mon_collector.PROGRAM,
    ):
        found[f"man/{program.name}.{SECTION}"] = manual_page(program, names)
    for daemon in DAEMONS:
        spec = import_module(daemon.module).SPEC
        found[f"man/{daemon.name}.{SECTION}"] = daemon_page(
            daemon.name,
            spec.description,
            daemon.prose,
            [(_flags(option), option.help) for option in _options(spec)],
            daemon.sections,
            SEE_ALSO[daemon.name],
        )
    found[f"man/node-cleanup.{SECTION}"] = daemon_page(
        "node-cleanup",
        "make this machine no node of any cluster",
        node_tools.CLEANUP_PROSE,
        [(flags_label(option), option.help) for option in node_tools.CLEANUP_OPTIONS],
    )
    found[f"man/cfgupgrade.{SECTION}"] = daemon_page(
        cfgupgrade.NAME,
        cfgupgrade.SUMMARY,
        cfgupgrade.PROSE,
        [(flags_label(option), option.help) for option in cfgupgrade.OPTIONS],
        see_also=SEE_ALSO[cfgupgrade.NAME],
    )
    found[f"man/node-daemon-setup.{SECTION}"] = daemon_page(
        "node-daemon-setup", "make this machine a node", node_tools.SETUP_PROSE, []
    )
    found[f"man/move-instance.{SECTION}"] = daemon_page(
        move_instance.NAME,
        move_instance.SUMMARY,
        move_instance.INTRODUCTION,
        [(flags_label(option), option.help) for option in move_instance.OPTIONS],
        [Section(title, (text,)) for title, text in move_instance.CHAPTERS],
        SEE_ALSO[move_instance.NAME],
        usage=move_instance.USAGE,
    )
    found[f"man/{hail.NAME}.{HAIL_SECTION}"] = daemon_page(
        hail.NAME,
        hail.SUMMARY,
        hail.PROSE,
        [(flags_label(option), option.help) for option in hail.OPTIONS],
        HAIL_SECTIONS,
        see_also=("gnt-instance", "gnt-node", "gnt-cluster", "gnt-debug"),
        manual_section=HAIL_SECTION,
        usage="FILE",
    )
    found[METRICS_PATH] = metrics.document()
    found[COMPLETION_PATH] = completion_script(all_programs, [move_instance.PROGRAM])
    return found


def _options(spec: DaemonSpec) -> tuple[Option, ...]:
    listening = network(spec.port) if spec.port is not None else ()
    return (*COMMON, *listening, *spec.options)


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
