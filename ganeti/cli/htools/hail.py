"""``hail``: the allocator that comes with the cluster manager.

It is started by the node daemon of the master with the path of a question, and prints the answer.
Only modules that it needs are imported: a job waits for it.

Source: iallocator.json, "calling"; cli.json, "htools"; manual page hail(1).
"""

from __future__ import annotations

import gc
import sys
from typing import Final

from msgspec.structs import replace

from ganeti.allocation.answers import Question, answer, explanation
from ganeti.allocation.model import NO_LOAD, STANDARD_LOAD, Rules
from ganeti.allocation.snapshot import Snapshot
from ganeti.allocation.sources.text_data import to_text
from ganeti.allocation.state import ClusterState, make_state, snapshot_after
from ganeti.allocation.tags import meanings_of
from ganeti.cli.command import EXIT_FAILURE, ArgKind, Context, Options, opt
from ganeti.cli.declaration.program import single_program
from ganeti.cli.htools.frame import Run
from ganeti.cli.htools.options import shared
from ganeti.cli.htools.sources import load, read_question, write_file
from ganeti.protocol.iallocator import encode_response

OPTIONS: Final = (
    opt.commas(
        "--restrict-allocation-to=NODE,...", "place instances on these nodes only, for any question"
    ),
    opt.flag(
        "--explain",
        "say of a new instance why it goes to its nodes, and why not to the others: for people on"
        " the standard error, and in the answer",
    ),
    *shared(
        "ignore-soft-errors no-capacity-checks text-data simulate save print-nodes verbose",
        "static-kvm-node-memory ignore-dynu mond mond-xen",
    ),
)
_BEFORE, _AFTER = "pre-ialloc", "post-ialloc"


def answer_file(context: Context, options: Options, args: list[str]) -> None:
    """Answer the question in a file: prints the answer as JSON.

    Raises:
        GenericError: the question cannot be read or makes no sense.
    """
    gc.disable()  # the process ends before there is garbage that matters
    request = read_question(args[0])
    snapshot = load(context, options, request)
    counts = f"{len(snapshot.nodes)} nodes, {len(snapshot.instances)} instances"
    _remark(options, f"{request.mode.value}, {counts}")
    only = options.restrict_allocation_to
    rules = Rules(
        ignores_soft=options.ignore_soft_errors,
        checks_capacity=not options.no_capacity_checks,
        only=None if only is None else frozenset(only),
    )
    question = Question(
        make_state(snapshot),
        meanings_of(snapshot.tags),
        rules,
        NO_LOAD if options.ignore_dynu else STANDARD_LOAD,
    )
    found = answer(question, request.request)
    response = found.response
    _remark(options, response.info)
    if options.explain:
        lines = explanation(question, request.request, response)
        response = replace(response, explanation=lines)
        sys.stderr.writelines(f"{line}\n" for line in lines)
    if options.print_nodes is not None:
        _print_nodes(context, options, snapshot, question.cluster, found.after)
    if options.save is not None:
        _save(options.save, snapshot, snapshot_after(snapshot, found.after))
    context.write(encode_response(response))
    gc.freeze()  # nor does the end of the process look for any (6 ms)


def _remark(options: Options, text: str) -> None:
    if options.verbose:
        sys.stderr.write(f"{text}\n")


def _print_nodes(
    context: Context, options: Options, snapshot: Snapshot, *states: ClusterState
) -> None:
    for when, state in zip(("Initial", "Final"), states, strict=True):
        run = Run(context, options, snapshot, state, options.verbose)
        run.print_nodes(f"{when} cluster status:")


def _save(path: str, before: Snapshot, after: Snapshot) -> None:
    """Write the cluster as it is and as it will be."""
    for when, ending, content in (("before", _BEFORE, before), ("after", _AFTER, after)):
        write_file(f"{path}.{ending}", to_text(content))
        sys.stderr.write(
            f"The cluster state {when} iallocator run has been written to file '{path}.{ending}'\n"
        )


PROGRAM: Final = single_program(
    "hail",
    "choose nodes for instances, as an allocator",
    """Reads a question of the allocator interface from FILE (- for the standard input)
and prints the answer as JSON: where a new instance goes, or how instances leave a node or a group.
The program is called by the jobs that were told to use the allocator hail (-I hail, or the
cluster's default allocator); called by hand it only shows what it would say, and changes
nothing.""",
    answer_file,
    args=(opt.Argument(ArgKind.FILE, metavar="FILE"),),
    options=OPTIONS,
    is_interspersed=True,
    value_status=EXIT_FAILURE,
    manual_section=1,
)
