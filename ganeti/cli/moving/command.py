"""``tools/move-instance``: move instances to another cluster, from anywhere.

Source: cli.json, "move-instance".
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from queue import SimpleQueue
from threading import Thread
from types import FrameType
from typing import Any, Final

from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, ArgKind, Context, Options, opt
from ganeti.cli.declaration.program import DEBUG, single_program
from ganeti.cli.declaration.values import Int
from ganeti.cli.instance.devices import DISK_TEMPLATES
from ganeti.cli.moving.clusters import Cluster
from ganeti.cli.moving.move import Manner, Move
from ganeti.cli.moving.preflight import Preflight
from ganeti.cli.moving.wish import Overrides
from ganeti.cli.run.endings import ENDINGS, interrupt_at_endings
from ganeti.cli.run.failures import EXIT_INTERRUPTED
from ganeti.protocol.rapi.values import DEFAULT_PORT

NAME = "move-instance"


def _both(suffix: str, text: str, **settings: Any) -> tuple[opt.Option, opt.Option]:
    """Declare one option for each of the two clusters."""
    return (
        opt.option(f"--src-{suffix}", text.format("source"), **settings),
        opt.option(f"--dest-{suffix}", text.format("destination"), **settings),
    )


OPTIONS = (
    opt.flag("--dry-run", "name the missing parts, change nothing"),
    opt.flag("--keep-source", "leave the instance in the source cluster, shut down"),
    DEBUG,
    opt.flag("-v --verbose", "accepted for the sake of 3.0; all that happens is shown anyway"),
    opt.with_help(opt.IALLOCATOR, "allocator of the destination cluster that chooses the nodes"),
    opt.BACKEND_PARAMETERS,
    opt.INSTANCE_HYPERVISOR_PARAMETERS,
    opt.OS_PARAMETERS,
    opt.OS_PARAMETERS_PRIVATE,
    opt.with_help(
        opt.NET, "settings of an interface that are to be others: N:link=...,mac=generate"
    ),
    *_both(
        "rapi-port=PORT", "port of the remote API of the {} cluster", type=Int, default=DEFAULT_PORT
    ),
    *_both(
        "ca-file=FILE",
        "PEM file with the certificate of that remote API ({} cluster), or its authority's",
        completes=ArgKind.FILE,
    ),
    *_both("username=NAME", "user of the remote API of the {} cluster"),
    *_both(
        "password-file=FILE",
        "file with the password of that user, {} cluster",
        completes=ArgKind.FILE,
    ),
    opt.option("--dest-instance-name=NAME", "name there; by default the same"),
    opt.option("--dest-primary-node", "node to put it on", metavar="NODE"),
    opt.option("--dest-secondary-node", "secondary node, for mirrored disks", metavar="NODE"),
    opt.option(
        "--dest-disk-template=TEMPL",
        "disk template there; by default the same",
        choices=DISK_TEMPLATES,
    ),
    opt.with_help(opt.COMPRESS, "compression of the data sent"),
    opt.number("-p --parallel=<number>", "how many instances to move at a time", default=1),
    opt.number(
        "--opportunistic-tries=<number>",
        "how often to try with opportunistic locking, if resources are short for the moment",
        default=0,
    ),
    opt.number("--opportunistic-delay=<number>", "seconds between two of these tries", default=30),
)
_EXAMPLE = (
    "move-instance --src-username=jim --src-password-file=src.pw --src-ca-file=src.pem"
    " --dest-username=jim --dest-password-file=dest.pw --dest-ca-file=dest.pem"
    " --dest-primary-node=node7 old.example.com new.example.com web1.example.com"
)
PARALLEL_MAX: Final = 32
_INTERRUPTIONS: Final = (signal.SIGINT, *ENDINGS)


def move(context: Context, options: Options, args: Sequence[str]) -> int:
    """Move instances, so that an end of the session leaves no half of a move."""
    interrupt_at_endings()
    try:
        status, moves = _prepare(context, options, args)
    except KeyboardInterrupt:
        context.terminal.error(f"{NAME}: interrupted; nothing was touched")
        return EXIT_INTERRUPTED
    return run_all(context, moves, options.parallel) if moves else status


def _prepare(context: Context, options: Options, args: Sequence[str]) -> tuple[int, list[Move]]:
    """Look whether the moves can go through.

    Returns:
        The moves; if there are none to be made, the exit status beside.

    Raises:
        OpPrereqError: the options contradict.
    """
    source_address, destination_address, *names = args
    _check_options(options, names)
    source = _cluster(options, "source cluster", "src", source_address)
    destination = _cluster(options, "destination cluster", "dest", destination_address)
    preflight = Preflight(source, destination, keeps_source=options.keep_source)
    ready = preflight.run(
        dict.fromkeys(names, options.dest_instance_name or ""), _overrides(options)
    )
    if preflight.problems:
        context.terminal.error("Nothing was touched, because the move could not go through:")
        for problem in dict.fromkeys(preflight.problems):
            context.terminal.error(f"  - {problem}")
        return EXIT_FAILURE, []
    if options.dry_run:
        context.write("Nothing is missing.")
        return EXIT_SUCCESS, []
    manner = Manner(
        keeps_source=options.keep_source,
        opportunistic_tries=options.opportunistic_tries,
        opportunistic_delay_s=options.opportunistic_delay,
    )
    return EXIT_SUCCESS, [
        Move(each, source, destination, manner, partial(_say, context, each.wish.source.name))
        for each in ready
    ]


def _check_options(options: Options, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise OpPrereqError("an instance is named twice")
    if options.dest_instance_name and len(names) > 1:
        raise OpPrereqError("--dest-instance-name names one instance, several are to be moved")
    if options.iallocator and (options.dest_primary_node or options.dest_secondary_node):
        raise OpPrereqError("give either --iallocator or nodes, not both")
    if not 1 <= options.parallel <= PARALLEL_MAX:
        raise OpPrereqError(f"--parallel is a number from 1 to {PARALLEL_MAX}")
    if options.opportunistic_tries < 0 or options.opportunistic_delay < 0:
        raise OpPrereqError("--opportunistic-tries and --opportunistic-delay are not negative")


def _cluster(options: Options, what: str, prefix: str, address: str) -> Cluster:
    return Cluster(
        what=what,
        options=prefix,
        address=address,
        port=options.get(f"{prefix}_rapi_port"),
        user=options.get(f"{prefix}_username"),
        password_file=options.get(f"{prefix}_password_file"),
        ca_file=options.get(f"{prefix}_ca_file"),
    )


def _overrides(options: Options) -> Overrides:
    return Overrides(
        beparams=options.beparams,
        hvparams=options.hvparams,
        osparams=options.osparams,
        osparams_private=options.osparams_private,
        nics=options.nics,
        disk_template=options.dest_disk_template,
        primary_node=options.dest_primary_node,
        secondary_node=options.dest_secondary_node,
        iallocator=options.iallocator,
        compress=options.compress,
    )


def _say(context: Context, name: str, text: str) -> None:
    context.write(f"{name}: {text}")


def run_all(context: Context, moves: Sequence[Move], parallel: int) -> int:
    """Run the moves, so many at a time; returns the exit status.

    An interruption breaks nothing off: it asks the moves for their end, as often as there is one.
    """
    interruptions = SimpleQueue[bool]()

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        interruptions.put(True)  # which may itself be interrupted

    before = {number: signal.signal(number, interrupt) for number in _INTERRUPTIONS}
    try:
        with ThreadPoolExecutor(parallel, "move") as threads:
            futures = {threads.submit(each.run): each for each in moves}
            canceler = Thread(target=_cancel_when_asked, args=(context, futures, interruptions))
            canceler.start()
            wait(futures)
            interruptions.put(False)
            canceler.join()
        return _report(context, futures)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _cancel_when_asked(
    context: Context, futures: Mapping[Future[None], Move], interruptions: SimpleQueue[bool]
) -> None:
    """Ask the moves for their end after each interruption; False ends this."""
    while interruptions.get():
        context.terminal.error("Interrupted; moves begun are brought to a good end...")
        _cancel(context, futures)


def _cancel(context: Context, futures: Mapping[Future[None], Move]) -> None:
    """Let no move begin, and ask those that have begun for their end."""
    begun = [future for future in futures if not future.cancel()]
    for future in begun:
        futures[future].stop()
    for future in begun:
        if future.done():
            continue
        try:
            futures[future].cancel()  # may take long, if the cluster does not answer
        except GenericError as err:
            context.terminal.error(f"{futures[future].name}: {err.message}")


def _report(context: Context, futures: Mapping[Future[None], Move]) -> int:
    """Tell which moves failed, and why; returns the exit status."""
    status, unforeseen = EXIT_SUCCESS, list[BaseException]()
    for future, each in futures.items():
        error = None if future.cancelled() else future.exception()
        if future.cancelled():
            context.terminal.error(f"{each.name}: canceled before it began")
        elif isinstance(error, GenericError):
            context.terminal.error(f"{each.name}: not moved: {error.message}")
        elif error is not None:
            unforeseen.append(error)
        else:
            continue
        status = EXIT_FAILURE
    for mistake in unforeseen:  # of ours: the first is shown, after all the others were told
        raise mistake
    return status


PROGRAM: Final = single_program(
    NAME,
    "move instances to another cluster",
    """Moves instances from one cluster to another through the remote APIs of both,
which may be asked from any machine.  The disks go straight from node to node, over TLS.""",
    move,
    args=(
        opt.Argument(ArgKind.HOST, metavar="<source-cluster>"),
        opt.Argument(ArgKind.HOST, metavar="<destination-cluster>"),
        opt.Argument(ArgKind.TEXT, max=None, metavar="<instance>"),
    ),
    options=OPTIONS,
    examples=((_EXAMPLE, "move web1 to node7 of the cluster new.example.com"),),
    is_interspersed=True,
)
