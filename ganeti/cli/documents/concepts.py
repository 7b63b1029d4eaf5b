"""The manual page ganeti(7): concepts, and every parameter of the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ganeti.cli.declaration.program import Section
from ganeti.objects.hypervisors import HVPARAMS
from ganeti.objects.parameters import (
    BEPARAMS,
    DISKPARAMS,
    NDPARAMS,
    NICPARAMS,
    ParamSpec,
    ParamTable,
    ValueType,
)

NAME: Final = "ganeti"
MANUAL_SECTION: Final = 7
SUMMARY: Final = "manager of clusters of virtual machines"
PROSE: Final = """Ganeti runs virtual machines on a cluster of machines.  This page names the
concepts that its commands use, and lists the parameters of instances, disks, networks and nodes."""

_CONCEPTS: Final = (
    Section(
        "THE THINGS OF A CLUSTER",
        ("Everything has a name and a UUID; commands take either, and names may be shortened.",),
        (
            ("cluster", "all nodes that one master node manages; it has settings and defaults"),
            ("node", "a machine that runs instances; each belongs to one node group"),
            (
                "master node",
                """the node that runs the master daemons and the commands; every other master
                candidate has a copy of the configuration and of the queue, and can replace it""",
            ),
            ("node group", "nodes that are alike, or close; with parameters and a policy"),
            ("instance", "a virtual machine, with disks and network interfaces"),
            (
                "primary and secondary node",
                "the node that runs an instance, and the one that has the mirror of its disks",
            ),
            ("disk template", "the kind of the disks of an instance, such as file, plain or drbd"),
            ("network", "a range of addresses that interfaces of instances can have"),
            ("operating system definition", "scripts that install and export an instance's system"),
            ("allocator", "a program that chooses nodes for instances, such as hail(1)"),
            ("job", "a list of operations in the queue; every change of the cluster is one"),
            ("tag", "a word on the cluster, a group, a node, an instance or a network"),
        ),
    ),
    Section(
        "STATES OF NODES",
        (),
        (
            ("master candidate", "it has a copy of the configuration"),
            ("drained", "it gets no new instances"),
            ("offline", "it is broken or off: nobody talks to it"),
            ("vm_capable, master_capable", "whether it may run instances or become the master"),
        ),
    ),
    Section(
        "JOBS",
        (
            """A command that changes something submits a job and follows it.  With --submit it
            prints the number of the job and ends; gnt-job(8) lists, watches and cancels jobs.  A
            job waits for the jobs that --depend names, then for the locks on what it changes.  Of
            jobs that wait, the one of the higher --priority is first.""",
        ),
        (
            ("queued, waiting", "the job has not begun; waiting: for locks"),
            ("running", "it is carried out by a process of its own"),
            ("canceling", "it is asked to end, and ends when it waits next"),
            ("success, error, canceled", "how it ended"),
        ),
    ),
    Section(
        "OPTIONS AND VALUES",
        (
            """Options stand before arguments, and a long option may be shortened while it is the
            only one that fits.  An option with three dots behind its value may be given several
            times.  A backslash protects a comma inside a value.""",
        ),
        (
            ("size", "MiB, or with a unit: 512m, 10g, 1t"),
            ("yes|no", "also true and false, on and off, 1 and 0"),
            (
                "key=value,...",
                """parameters; key alone means true, no_key false, and -key (or key=default) goes
                back to the value of the group or cluster""",
            ),
            ("ident:key=value,...", "the same for one of several things, such as a disk by number"),
        ),
    ),
    Section(
        "LISTS AND FILTERS",
        (
            """The list commands take names, patterns with * and ?, or one filter in quotes.  A
            filter compares fields with values by ==, !=, <, <=, >, >=, =~ (a regular expression)
            and =* (a pattern), tests a field alone, and joins conditions by and, or and not:
            'pnode == "node1" and not admin_up'.  list-fields names the fields.""",
        ),
    ),
    Section(
        "WHERE PARAMETERS COME FROM",
        (
            """A parameter has the value of the instance (or node, or group), otherwise that of the
            node group where it has one, otherwise that of the cluster, otherwise the default that
            is listed here.""",
        ),
    ),
)


def sections() -> tuple[Section, ...]:
    """Return the sections of the page."""
    tables: list[tuple[str, ParamTable]] = [
        ("BACK-END PARAMETERS (-B)", BEPARAMS),
        *(
            (f"PARAMETERS OF THE HYPERVISOR {name.upper()} (-H {name}:...)", table)
            for name, table in HVPARAMS.items()
        ),
        ("PARAMETERS OF NETWORK INTERFACES (-N, --net)", NICPARAMS),
        *(
            (f"DISK PARAMETERS OF {name.upper()} (-D {name}:...)", table)
            for name, table in DISKPARAMS.items()
            if table
        ),
        ("NODE PARAMETERS (--node-parameters)", NDPARAMS),
    ]
    return (*_CONCEPTS, *(Section(title, (), tuple(_entries(table))) for title, table in tables))


def _entries(table: ParamTable) -> Iterator[tuple[str, str]]:
    for name, spec in sorted(table.items()):
        notes = "; ".join(_notes(spec))
        yield name, f"{spec.summary.rstrip('.') or _KINDS[spec.type]} ({notes})"


_KINDS: Final[Mapping[ValueType, str]] = {
    ValueType.BOOL: "yes or no",
    ValueType.FLOAT: "a number",
    ValueType.INT: "a whole number",
    ValueType.MAYBE_STRING: "a text, or none",
    ValueType.SIZE: "a size",
    ValueType.STRING: "a text",
}


def _notes(spec: ParamSpec) -> Iterator[str]:
    """Yield what to say of the values of a parameter."""
    if spec.choices:
        yield "one of " + ", ".join(str(choice) or '""' for choice in spec.choices)
    elif spec.form:
        yield spec.form.words
    elif spec.summary and spec.type is not ValueType.STRING:
        yield _KINDS[spec.type]
    if spec.unit:
        yield f"in {spec.unit}"
    if spec.least is not None and spec.most is not None:
        yield f"from {spec.least:g} to {spec.most:g}"
    elif spec.least is not None:
        yield f"at least {spec.least:g}"
    elif spec.most is not None:
        yield f"at most {spec.most:g}"
    default = spec.default
    if isinstance(default, bool):
        default = "yes" if default else "no"
    yield "no default" if default in ("", None) else f"default {default}"
    if spec.cluster_wide:
        yield "only for the whole cluster"
