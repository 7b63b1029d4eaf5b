"""``tools/burnin``: whole lives of instances on a cluster, to find out whether it works.

Source: cli.json, "burnin".
"""

from __future__ import annotations

import contextlib
import http.client
import signal
from collections.abc import Mapping, Sequence
from typing import Final

from ganeti.base.errors import GenericError, JobLost, OpExecError, OpPrereqError
from ganeti.base.ids import JobId
from ganeti.cli.burnin.made import Made, uuids_by_name
from ganeti.cli.burnin.stages import EXPORTING, STAGES, Guest, Stage, Trial, export_removal, removal
from ganeti.cli.command import EXIT_SUCCESS, ArgKind, Context, Options, opt
from ganeti.cli.declaration.program import DEBUG, VERSION, single_program
from ganeti.cli.declaration.values import Int, parse_size
from ganeti.cli.instance.devices import DISK_TEMPLATES
from ganeti.cli.run.endings import ENDINGS, LeftTerminal, interrupt_at_endings, undisturbed
from ganeti.cli.run.jobs import changes, encode, format_entry, results_of
from ganeti.clients.confd import ConfdClient
from ganeti.logical_units import lookup
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.model import NodeRole
from ganeti.opcodes.backup import OpBackupExport, OpBackupRemove
from ganeti.opcodes.instance import OpInstanceCreate
from ganeti.opcodes.opcode import InstanceOpCode, OpCode
from ganeti.protocol.confd_queries import NodeRole as ConfdRole
from ganeti.protocol.confd_queries import QueryType
from ganeti.protocol.export_description import PARTIAL_SUFFIX
from ganeti.system import clock
from ganeti.system.process_facts import signals_wait

NAME: Final = "burnin"
REBOOTS: Final = ("soft", "hard", "full")
_HTTP_PAUSE_S: Final = 1.0
_HTTP_PORT: Final = 80
_PAGE: Final = "/hostname.txt"
_PAGE_BYTES_MAX: Final = 4096
_MEMORY_MIB: Final = 128
_ROLES: Final = {each.value: getattr(ConfdRole, each.name).value for each in NodeRole}


class Burnin:
    """One run: all instances go through the stages together.

    The jobs that the context waits for were submitted, and nobody has seen them end.
    """

    def __init__(
        self, context: Context, options: Options, trial: Trial, names: Sequence[str]
    ) -> None:
        self._context = context
        self._options = options
        self._names = names
        self._trial = trial
        self._made = Made(context)
        self._exported: set[str] = set()

    def run(self) -> None:
        """Go through all stages; everything made is removed, even after a failure or Ctrl-C.

        The end of the session is like Ctrl-C, and does not cut the removal off.

        Raises:
            OpExecError: a stage failed; the text says which, and for which instances.
        """
        begun = clock.monotonic()
        try:
            self._live()
            self._remove()
        except BaseException as err:
            with undisturbed():
                self._give_up(err)
            raise
        self._say(f"All is well, after {clock.monotonic() - begun:.0f} s.")

    def _live(self) -> None:
        stages = [stage for stage in STAGES if stage.is_wanted(self._trial)]
        if self._options.confd:
            self._check_confd()
        for number, stage in enumerate(stages, 1):
            self._say(f"[{number}/{len(stages)}] {stage.text}")
            self._play(stage, is_first=number == 1)
            if self._options.http_check:
                self._check_http()

    def _give_up(self, error: BaseException) -> None:
        """Remove everything all the same; another failure to do so is only told."""
        terminal = self._context.terminal = LeftTerminal(self._context.terminal)
        if isinstance(error, KeyboardInterrupt):
            terminal.error(
                "Interrupted; what was begun is ended (another Ctrl-C leaves it as it is)"
            )
        try:
            self._remove()
        except GenericError as err:
            terminal.error(f"Not all was removed: {err.message}")
        except KeyboardInterrupt:
            names = ", ".join(sorted(self._made.names | self._exported))
            terminal.error(f"Instances and exports of these names may be left: {names}")
            raise

    def _say(self, text: str) -> None:
        self._context.write(text)

    # Jobs.

    def _play(self, stage: Stage, *, is_first: bool) -> None:
        """Play a stage for all instances, side by side if that is wanted."""
        guests = self._planned() if is_first else self._present()
        plans = {guest.name: list(stage.jobs(self._trial, guest)) for guest in guests}
        if not any(plans.values()):
            self._say("  there are not enough nodes or settings for it; left out")
            return
        begun = clock.monotonic()
        if self._options.parallel:
            longest = max(map(len, plans.values()))
            for index in range(longest):
                self._run({n: jobs[index] for n, jobs in plans.items() if index < len(jobs)})
        else:
            for name, jobs in plans.items():
                for job in jobs:
                    self._run({name: job})
        self._say(f"  {len(guests)} instances, {clock.monotonic() - begun:.1f} s")

    def _run(self, jobs: Mapping[str, Sequence[OpCode]]) -> None:
        """Submit jobs together, and wait for all.

        Raises:
            OpExecError: some failed; the text has their errors.
        """
        failed = list[str]()
        for opcodes, (name, said) in zip(jobs.values(), self._submit(jobs), strict=True):
            if not isinstance(said, int):
                failed.append(f"{name}: the job was not accepted: {said}")
                continue
            try:
                self._wait(said)
                self._made.settle(said)
                results_of(self._context, said)
            except GenericError as err:
                failed.append(f"{name}: job {said}: {err.message}")
            else:
                self._exported -= _instances_of(OpBackupRemove, opcodes)
        if failed:
            raise OpExecError("; ".join(failed))

    def _submit(self, jobs: Mapping[str, Sequence[OpCode]]) -> list[tuple[str, JobId | str]]:
        """Submit jobs, and remember them; returns the number of each, or why it has none."""
        context, there = self._context, list[str]()
        for opcodes in jobs.values():
            self._made.names |= _instances_of(OpInstanceCreate, opcodes)
            self._exported |= _instances_of(OpBackupExport, opcodes)
        if any(_instances_of(OpInstanceCreate, opcodes) for opcodes in jobs.values()):
            there += uuids_by_name(context).values()
        wire = [[encode(context, self._options, op) for op in job] for job in jobs.values()]
        with signals_wait([signal.SIGINT, *ENDINGS]):  # until the number of the job is in our list
            answers = context.client.submit_many_jobs(wire)
            found = [said if accepted else str(said) for accepted, said in answers]
            for said, opcodes in zip(found, jobs.values(), strict=True):
                if isinstance(said, int):
                    context.waiting_for.append(JobId(said))
                    self._made.begin(said, opcodes, there)
        return list(zip(jobs, found, strict=True))

    def _wait(self, job_id: JobId) -> None:
        """Wait for the end of a job; its messages are shown if that is wanted."""
        for change in changes(self._context, job_id):
            if self._options.verbose:
                for entry in change.log_entries:
                    self._context.terminal.write_lines(format_entry(entry))

    def _end_jobs(self) -> None:
        """Cancel the jobs that nobody has seen end, and wait until they have: they make things."""
        context = self._context
        if not context.waiting_for:
            return
        numbers = " ".join(map(str, context.waiting_for))
        self._say(f"Canceling jobs {numbers}, and waiting for those that run already")
        for job_id in context.waiting_for:
            context.client.cancel_job(job_id)
        for job_id in [*context.waiting_for]:
            try:
                self._wait(job_id)
            except JobLost:  # it has ended, and is archived
                context.waiting_for.remove(job_id)

    # Instances.

    def _planned(self) -> list[Guest]:
        nodes = self._trial.nodes
        return [
            Guest(name, nodes[i % len(nodes)], nodes[(i + 1) % len(nodes)])
            for i, name in enumerate(self._names)
        ]

    def _present(self) -> list[Guest]:
        rows = self._context.client.query_instances(self._names, ["name", "pnode", "snodes"])
        return [
            Guest(str(name), str(primary), str(next(iter(secondaries), "")))
            for name, primary, secondaries in rows
        ]

    def _remove(self) -> None:
        """Remove the instances that were made, also under the other name, and their exports."""
        self._end_jobs()
        if not self._made.names:
            return
        self._made.settle()
        instances = self._made.present()
        names = self._made.names | {self._trial.other_name}
        if others := sorted(names & uuids_by_name(self._context).keys() - {*instances}):
            self._context.terminal.error(
                f"Instances that burnin did not make are left alone: {', '.join(others)}"
            )
        if self._options.keep_instances:
            for what, kept in ("instances", instances), ("exports", sorted(self._exported)):
                if kept:
                    self._say(f"The {what} are kept: {', '.join(kept)}")
            return
        exports = {
            name
            for name in (_exports(self._context) if self._exported else ())
            if name.removesuffix(PARTIAL_SUFFIX) in self._exported
        }
        jobs = {name: [removal(Guest(name))] for name in instances}
        jobs |= {f"export {name}": [export_removal(Guest(name))] for name in sorted(exports)}
        for what, count in ("instances", len(instances)), ("exports", len(exports)):
            if count:
                self._say(f"Removing {count} {what}")
        if jobs:
            self._run(jobs)

    # Checks.

    def _check_http(self) -> None:
        """Wait until each guest serves its own name."""
        for name in self._names:
            deadline = clock.monotonic() + self._options.net_timeout
            while (said := _fetch(name)) != name:
                if clock.monotonic() >= deadline:
                    raise OpExecError(f"{name} does not serve its name at {_PAGE}: {said}")
                clock.pause(_HTTP_PAUSE_S)

    def _check_confd(self) -> None:
        """Ask RConfD about each node, and compare with the master's answers."""
        self._say("Asking RConfD")
        rows = self._context.client.query_nodes([], ["name", "role"])
        with ConfdClient.of_node(self._context.paths) as client:
            client.ask(QueryType.PING)
            for name, role in rows:
                found = client.value(QueryType.NODE_ROLE, name)
                if found != _ROLES.get(str(role)):
                    raise OpExecError(f"RConfD tells of node {name} another role: {found}")


def _instances_of(
    kind: type[InstanceOpCode | OpInstanceCreate], opcodes: Sequence[OpCode]
) -> set[str]:
    """Return the names of the instances that opcodes of a kind are about."""
    return {op.instance_name for op in opcodes if isinstance(op, kind)}


def _exports(context: Context) -> set[str]:
    """Return the names of the exports on all nodes that answer."""
    return {str(name) for _node, name in context.client.query_exports([]) if name}


def _trial(context: Context, options: Options) -> Trial:
    """Check the options, and choose the nodes.

    Raises:
        OpPrereqError: they do not fit each other, or the cluster.
    """
    template = DiskTemplate(options.disk_template)
    sizes, growth = (_sizes(options.get(name)) for name in ("disk_size", "disk_growth"))
    if len(growth) not in (len(sizes), 1):
        raise OpPrereqError("--disk-growth needs as many sizes as --disk-size, or one for all")
    if len(growth) == 1:
        growth *= len(sizes)
    for kind in options.reboot_types:
        if kind not in REBOOTS:
            raise OpPrereqError(f"there is no reboot {kind!r}, only {', '.join(REBOOTS)}")
    if options.nodes and options.iallocator:
        raise OpPrereqError("give either -n or -I, not both")
    nodes = _nodes(context, options.nodes)
    if template.traits.mirrored and len(nodes) < 2:
        raise OpPrereqError(f"disk template {template} needs two nodes")
    other = _full_names(context, options, [options.rename])[0] if options.rename else ""
    return Trial(options, nodes, sizes, growth, _beparams(options), other)


def _full_names(context: Context, options: Options, names: Sequence[str]) -> list[str]:
    """Return names as instances get them.

    Raises:
        OpPrereqError: one does not resolve, or is no name.
    """
    if not options.name_check:
        return [lookup.normal_name("instance", name) for name in names]
    hint = "; use --no-name-check if names need not resolve"
    return [lookup.resolve("instance", name, context.paths, hint)[0] for name in names]


def _beparams(options: Options) -> dict[str, object]:
    memory = options.mem_size
    if memory and (options.maxmem_size or options.minmem_size):
        raise OpPrereqError("give either --mem-size, or --maxmem-size and --minmem-size")
    maximum, minimum = options.maxmem_size or memory, options.minmem_size or memory
    found = {"maxmem": maximum or _MEMORY_MIB, "minmem": minimum or maximum or _MEMORY_MIB}
    return {**found, "vcpus": options.vcpu_count}


def _sizes(texts: Sequence[str]) -> list[int]:
    return [parse_size(text) for text in texts]


def _nodes(context: Context, wanted: Sequence[str]) -> list[str]:
    fields = ["name", "offline", "drained", "vm_capable"]
    rows = context.client.query_nodes(list(wanted), fields)
    usable = [str(n) for n, offline, drained, capable in rows if capable and not offline | drained]
    if not usable:
        raise OpPrereqError("there is no node that instances can be put on")
    if wanted and len(usable) < len(rows):
        raise OpPrereqError("a node of -n is offline, drained, or takes no instances")
    return usable


def _fetch(name: str) -> str:
    """Return what a guest serves as its name, or the error."""
    connection = http.client.HTTPConnection(name, _HTTP_PORT, timeout=_HTTP_PAUSE_S)
    with contextlib.closing(connection):
        try:
            connection.request("GET", _PAGE)
            answer = connection.getresponse().read(_PAGE_BYTES_MAX)
        except (OSError, http.client.HTTPException) as err:
            return str(err)
    return answer.decode("utf-8", "replace").strip()


def burnin(context: Context, options: Options, args: list[str]) -> int:
    """Let instances live through everything that an instance can."""
    interrupt_at_endings()
    if options.os is None:
        raise OpPrereqError("name an operating system with -o (gnt-os list shows them)")
    if options.rename and len(args) > 1:
        raise OpPrereqError("--rename is for one instance, several are named")
    names = _full_names(context, options, args)
    if len(set(names)) < len(names):
        raise OpPrereqError("an instance is named twice")
    trial = _trial(context, options)
    _check_free(context, trial, names)
    Burnin(context, options, trial, names).run()
    return EXIT_SUCCESS


def _check_free(context: Context, trial: Trial, names: Sequence[str]) -> None:
    """Refuse names of things that are there, because they would be removed at the end.

    Raises:
        OpPrereqError: there is an instance or export of such a name.
    """
    if same := sorted({*names, trial.other_name} & uuids_by_name(context).keys()):
        raise OpPrereqError(f"there are instances {', '.join(same)} already; they would be removed")
    if EXPORTING.is_wanted(trial) and (same := sorted({*names} & _exports(context))):
        raise OpPrereqError(
            f"there are exports of {', '.join(same)} already, which would be overwritten and"
            " removed; take other names, or leave out exports with --no-importexport"
        )


def _leave_out(name: str, what: str, dest: str = "") -> opt.Option:
    return opt.unflag(f"--no-{name} -> {dest or name}", f"leave out: {what}")


PROGRAM: Final = single_program(
    NAME,
    "let instances live through everything that an instance can",
    """Makes instances of the names given, lets them live through all that can be done to an
instance, and removes them again: a test of a cluster before it is used.""",
    burnin,
    args=(opt.Argument(ArgKind.HOST, max=None, metavar="<instance>"),),
    options=(
        DEBUG,
        VERSION,
        opt.flag("-v --verbose", "show the messages of all jobs"),
        opt.option("-o --os=<OS>", "operating system", completes=ArgKind.OS_NAME),
        opt.HYPERVISOR_AND_PARAMETERS,
        opt.OS_PARAMETERS,
        opt.option("-t --disk-template", "disk template", choices=DISK_TEMPLATES, default="drbd"),
        opt.commas("--disk-size=<size,size,...>", "sizes of the disks", default=["1g"]),
        opt.commas("--disk-growth=<size,size,...>", "how much each disk grows", default=["128m"]),
        opt.size("--mem-size=<size>", "memory of an instance"),
        opt.size("--maxmem-size=<size>", "its maximum memory"),
        opt.size("--minmem-size=<size>", "its minimum memory"),
        opt.option("--vcpu-count=<count>", "its virtual processors", Int, default=1),
        opt.commas("-n --nodes=NODES", "nodes to use; by default all that can be", default=[]),
        opt.IALLOCATOR,
        opt.flag("-p --parallel", "all instances side by side"),
        opt.flag("-K --keep-instances", "do not remove the instances at the end"),
        opt.option("--rename=<instance_name>", "rename the instance there and back"),
        opt.commas("--reboot-types", "reboots to try", default=list(REBOOTS)),
        opt.flag("-C --http-check", f"after each stage, fetch {_PAGE} of each guest: its name"),
        opt.number("--net-timeout", "seconds that a guest has for that", default=15),
        opt.flag("--early-release", "give up the old disks early when disks are replaced"),
        opt.unflag("--no-ip-check", "an address in use is no reason to refuse"),
        opt.unflag("--no-name-check", "names need not resolve"),
        opt.flag("--no-nics", "instances without interfaces"),
        _leave_out("replace1", "replacing disks on the same nodes"),
        _leave_out("replace2", "replacing the secondary node"),
        _leave_out("failover", "failovers"),
        _leave_out("migrate", "migrations"),
        _leave_out("move", "moves"),
        _leave_out("importexport", "exports and imports"),
        _leave_out("startstop", "stopping and starting"),
        _leave_out("reinstall", "reinstallations"),
        _leave_out("reboot", "reboots"),
        _leave_out("renamesame", "renaming to the same name"),
        _leave_out("activate-disks", "activating and deactivating disks", "activate_disks"),
        _leave_out("add-disks", "adding and removing disks", "add_disks"),
        _leave_out("add-nics", "adding and removing interfaces", "add_nics"),
        _leave_out("confd", "questions to RConfD"),
        opt.option("--reason", "kept in the reason trails of all jobs"),
    ),
    examples=(
        (
            "burnin -o debootstrap+bookworm -t plain -p test1.example.com test2.example.com",
            "two instances side by side, on all nodes",
        ),
    ),
    is_interspersed=True,
)
