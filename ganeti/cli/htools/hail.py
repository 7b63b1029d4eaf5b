"""``hail``: the allocator that comes with the cluster manager.

It is started by the node daemon of the master with the path of a question, and prints the answer.
Only modules that it needs are imported: a job waits for it.

Source: iallocator.json, "calling"; cli.json, "htools"; manual page hail(1).
"""

from __future__ import annotations

import gc
import sys
from types import ModuleType
from typing import Final

from msgspec.structs import replace

from ganeti.allocation.answers import Question, answer, explanation
from ganeti.allocation.model import NO_LOAD, STANDARD_LOAD, Rules
from ganeti.allocation.questions import snapshot_of
from ganeti.allocation.snapshot import Snapshot
from ganeti.allocation.sources.utilisation import without_load
from ganeti.allocation.state import ClusterState, make_state, snapshot_after
from ganeti.allocation.tags import meanings_of
from ganeti.base.errors import GenericError, NotSupportedError, ProtocolError
from ganeti.cli.command import EXIT_FAILURE, ArgKind, Context, Options, opt
from ganeti.cli.declaration.program import DEBUG, VERSION, single_program
from ganeti.protocol.iallocator import AllocatorRequest, decode_request, encode_response

OPTIONS: Final = (
    opt.flag(
        "--ignore-soft-errors",
        "leave out what may be exceeded in need: ratios of virtual CPUs and spindles,"
        " exclusion tags, N+1 of mirrored instances",
    ),
    opt.flag(
        "--no-capacity-checks",
        "do not ask that all instances of a node can be restarted when it fails; the"
        " secondary nodes of mirrored instances are still checked",
    ),
    opt.commas(
        "--restrict-allocation-to=NODE,...", "place instances on these nodes only, for any question"
    ),
    opt.flag(
        "--explain",
        "say of a new instance why it goes to its nodes, and why not to the others: for people on"
        " the standard error, and in the answer",
    ),
    opt.flag("--ignore-dynu", "leave the number of instances out of the score"),
    opt.number(
        "--static-kvm-node-memory=N",
        "memory in MiB that a KVM node needs for itself, instead of its report; 0 is what it"
        " reports",
        default=0,
    ),
    opt.option(
        "-t --text-data=FILE",
        "read the cluster from this file, not from the question",
        completes=ArgKind.FILE,
    ),
    opt.several(
        "--simulate=SPEC", "make an empty group up: policy,nodes,disk,memory,cpus,spindles"
    ),
    opt.option(
        "-S --save=FILE",
        "write the cluster to FILE.pre-ialloc, and as it will be to FILE.post-ialloc",
        completes=ArgKind.FILE,
    ),
    opt.option(
        "-p --print-nodes=FIELDS",
        "print the nodes before and afterwards, with these fields; after + besides the usual ones",
        alone="",
    ),
    opt.option(
        "--mond",
        "whether to ask the monitoring daemons for the load of the nodes; only 'no' is supported",
        choices=("yes", "no"),
        alone="yes",
    ),
    opt.flag("--mond-xen", "ask for the load of Xen too; not supported"),
    opt.count("-v --verbose", "say more on the standard error"),
    VERSION,
    DEBUG,
)
STANDARD_INPUT = "-"
QUESTION_BYTES_MAX = 256 << 20  # 10,000 instances with 16 disks and networks each are 50 MB
_BEFORE, _AFTER = "pre-ialloc", "post-ialloc"


def answer_file(context: Context, options: Options, args: list[str]) -> None:
    """Answer the question in a file: prints the answer as JSON.

    Raises:
        GenericError: the question cannot be read or makes no sense.
    """
    _check_supported(options)
    gc.disable()  # the process ends before there is garbage that matters
    request = _read_question(args[0])
    snapshot = _cluster(options, request)
    counts = f"{len(snapshot.nodes)} nodes, {len(snapshot.instances)} instances"
    _remark(options, f"{request.mode.value}, {counts}")
    if options.ignore_dynu:
        snapshot = without_load(snapshot)
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
        _print_nodes("Initial", snapshot, question.cluster, options.print_nodes)
        _print_nodes("Final", snapshot, found.after, options.print_nodes)
    if options.save is not None:
        _save(options.save, snapshot, snapshot_after(snapshot, found.after))
    context.write(encode_response(response))


def _check_supported(options: Options) -> None:
    if options.mond == "yes" or options.mond_xen:
        raise NotSupportedError("--mond: the load that monitoring daemons report is not used yet")
    if options.text_data is not None and options.simulate:
        raise GenericError("only one of --text-data and --simulate can be given")
    if options.static_kvm_node_memory < 0:
        raise GenericError("--static-kvm-node-memory: memory cannot be negative")


def _remark(options: Options, text: str) -> None:
    if options.verbose:
        sys.stderr.write(f"{text}\n")


def _read_question(path: str) -> AllocatorRequest:
    try:
        return decode_request(_read(path))
    except ProtocolError as err:
        raise GenericError(f"{path}: no question to an allocator: {err.message}") from err


def _read(path: str) -> bytes:
    try:
        if path == STANDARD_INPUT:
            content = sys.stdin.buffer.read(QUESTION_BYTES_MAX + 1)
        else:
            with open(path, "rb") as file:
                content = file.read(QUESTION_BYTES_MAX + 1)
    except OSError as err:
        raise GenericError(f"{path}: {err.strerror}") from err
    if len(content) > QUESTION_BYTES_MAX:
        raise GenericError(f"{path}: more than {QUESTION_BYTES_MAX >> 20} MiB")
    return content


def _cluster(options: Options, request: AllocatorRequest) -> Snapshot:
    """Return the cluster that the options tell, if they tell one, or else that of the question."""
    if options.text_data is not None or options.simulate:
        source, path = _text_data(), options.text_data
        made: Snapshot = (
            source.made_up(options.simulate)
            if path is None
            else source.read_text(_read(path), path)
        )
        return made
    return snapshot_of(request, kvm_node_memory=options.static_kvm_node_memory)


def _text_data() -> ModuleType:
    """Return the module that reads and writes text, which no job needs."""
    from ganeti.allocation.sources import text_data

    return text_data


def _print_nodes(when: str, snapshot: Snapshot, state: ClusterState, fields: str) -> None:
    from ganeti.cli.htools import printing

    lines = printing.node_table(printing.shown_nodes(snapshot, state), fields)
    sys.stderr.writelines(f"{line}\n" for line in ("", f"{when} cluster status:", *lines, ""))


def _save(path: str, before: Snapshot, after: Snapshot) -> None:
    """Write the cluster as it is and as it will be."""
    for ending, content in ((_BEFORE, before), (_AFTER, after)):
        target = f"{path}.{ending}"
        try:
            with open(target, "w", encoding="utf-8") as file:
                file.write(_text_data().to_text(content))
        except OSError as err:
            raise GenericError(f"{target}: {err.strerror}") from err


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
    usage_status=EXIT_FAILURE,
    manual_section=1,
)
