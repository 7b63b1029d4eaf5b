"""``tools/burnin``: whole lives of instances on a cluster, to find out whether it works.

Source: cli.json, "burnin".
"""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Mapping, Sequence
from typing import Final

from ganeti.base.errors import GenericError, OpExecError, OpPrereqError
from ganeti.base.ids import JobId
from ganeti.cli.burnin.stages import STAGES, Guest, Stage, Trial, removal
from ganeti.cli.command import EXIT_SUCCESS, ArgKind, Context, Options, opt
from ganeti.cli.declaration.program import DEBUG, VERSION, single_program
from ganeti.cli.declaration.values import Int, parse_size
from ganeti.cli.instance.devices import DISK_TEMPLATES
from ganeti.cli.run.jobs import changes, encode, follow, results_of
from ganeti.clients.confd import ConfdClient
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.model import NodeRole
from ganeti.opcodes.opcode import OpCode
from ganeti.protocol.confd_queries import NodeRole as ConfdRole
from ganeti.protocol.confd_queries import QueryType
from ganeti.system import clock

NAME: Final = "burnin"
REBOOTS: Final = ("soft", "hard", "full")
_HTTP_PAUSE_S: Final = 1.0
_HTTP_PORT: Final = 80
_PAGE: Final = "/hostname.txt"
_PAGE_BYTES_MAX: Final = 4096
_MEMORY_MIB: Final = 128
_ROLES: Final = {each.value: getattr(ConfdRole, each.name).value for each in NodeRole}


class Burnin:
    """One run: all instances go through the stages together."""

    def __init__(self, context: Context, options: Options, names: Sequence[str]) -> None:
        self._context = context
        self._options = options
        self._names = names
        self._trial = _trial(context, options)
        self._made: set[str] = set()

    def run(self) -> None:
        """Go through all stages; the instances are removed even after a failure.

        Raises:
            OpExecError: a stage failed; the text says which, and for which instances.
        """
        stages = [stage for stage in STAGES if stage.is_wanted(self._trial)]
        begun = clock.monotonic()
        try:
            if self._options.confd:
                self._check_confd()
            for number, stage in enumerate(stages, 1):
                self._say(f"[{number}/{len(stages)}] {stage.text}")
                self._play(stage, is_first=number == 1)
                if self._options.http_check:
                    self._check_http()
        finally:
            self._remove()
        self._say(f"All is well, after {clock.monotonic() - begun:.0f} s.")

    def _say(self, text: str) -> None:
        self._context.write(text)

    # Jobs.

    def _play(self, stage: Stage, *, is_first: bool) -> None:
        """Play a stage for all instances, side by side if that is wanted."""
        guests = self._planned() if is_first else self._present()
        plans = {guest.name: list(stage.jobs(self._trial, guest)) for guest in guests}
        if is_first:
            self._made |= plans.keys()
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
        context, failed = self._context, list[str]()
        wire = [[encode(context, self._options, op) for op in job] for job in jobs.values()]
        answers = context.client.submit_many_jobs(wire)
        for name, (accepted, said) in zip(jobs, answers, strict=True):
            if not accepted or not isinstance(said, int):
                failed.append(f"{name}: the job was not accepted: {said}")
                continue
            try:
                self._follow(JobId(said))
            except GenericError as err:
                failed.append(f"{name}: job {said}: {err.message}")
        if failed:
            raise OpExecError("; ".join(failed))

    def _follow(self, job_id: JobId) -> None:
        """Wait for a job; its messages are shown if that is wanted."""
        if self._options.verbose:
            follow(self._context, job_id)
            return
        for _change in changes(self._context, job_id):
            pass
        results_of(self._context, job_id)

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
        """Remove what was made, also under the other name."""
        if not self._made:
            return
        if self._options.keep_instances:
            self._say(f"The instances are kept: {', '.join(sorted(self._made))}")
            return
        wanted = {*self._made, *([self._options.rename] if self._options.rename else [])}
        rows = self._context.client.query_instances([], ["name"])
        left = [str(name) for [name] in rows if name in wanted]
        if left:
            self._say(f"Removing {len(left)} instances")
            self._run({name: [removal(Guest(name))] for name in left})

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
    return Trial(options, nodes, sizes, growth, _beparams(options))


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
    if options.os is None:
        raise OpPrereqError("name an operating system with -o (gnt-os list shows them)")
    if len(set(args)) < len(args):
        raise OpPrereqError("an instance is named twice")
    if options.rename and len(args) > 1:
        raise OpPrereqError("--rename is for one instance, several are named")
    taken = {*args, *([options.rename] if options.rename else [])}
    present = {str(name) for [name] in context.client.query_instances([], ["name"])}
    if same := sorted(taken & present):
        raise OpPrereqError(f"there are instances {', '.join(same)} already; they would be removed")
    Burnin(context, options, args).run()
    return EXIT_SUCCESS


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
            "burnin -o debootstrap+default -t plain -p test1.example.com test2.example.com",
            "two instances side by side, on all nodes",
        ),
    ),
    is_interspersed=True,
)
