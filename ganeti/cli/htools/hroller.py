"""``hroller``: groups nodes that can be rebooted at the same time.

Source: cli.json, "htools"; manual page hroller(1).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ganeti.allocation.model import Instance, Rules
from ganeti.allocation.placing import find_place, find_secondary
from ganeti.allocation.sources.text_data import to_text
from ganeti.allocation.state import ClusterState, make_state
from ganeti.base.errors import GenericError
from ganeti.base.text import natural_sorted
from ganeti.cli.command import EXIT_FAILURE, Context, Options, opt
from ganeti.cli.declaration.program import single_program
from ganeti.cli.htools.frame import Run, group_of, start
from ganeti.cli.htools.options import SOURCES, shared
from ganeti.cli.htools.sources import write_file

ROUNDS: Final = 20  # of regrouping
Neighbours = Mapping[str, set[str]]
# Getting away counts, and only for the time of a reboot.
_RULES: Final = Rules(ignores_soft=True, checks_capacity=False)


def roll(context: Context, options: Options, _args: list[str]) -> None:
    """Print the groups of nodes.

    Raises:
        GenericError: the data cannot be read, the master node is not known, or there are several.
    """
    loaded = start(context, options)
    run = _of_now(loaded)
    master = _master(run)
    if options.save is not None:
        path = f"{options.save}.original"
        write_file(path, to_text(loaded.snapshot))
        run.say(f"The cluster state before hroller run has been written to file '{path}'")
    names = _chosen(run)
    if not names:
        raise GenericError("Cannot create node graph: there is no node to reboot")
    planner = Planner(run.state, neighbours(run, names), _evacuated(run, names))
    groups = _ordered(planner.plan(names), master)
    if options.one_step_only:
        groups, title = groups[:1], "'First Reboot Group'"
    else:
        title = "'Node Reboot Groups'"
    if not options.no_headers:
        run.say(title)
    for group in groups:
        lines = group if options.one_step_only else [",".join(group)]
        moved = (planner.moved(group) or []) if options.print_moves else []
        places = {each.name: " ".join(each.nodes) for each in moved}
        lines += [f"  {name} {places[name]}" for name in natural_sorted(places)]
        context.terminal.write_lines(lines)


def _of_now(run: Run) -> Run:
    """Return the cluster without the memory of instances that are down: they stay so meanwhile."""
    instances = {
        name: replace(each, memory=each.running_memory)
        for name, each in run.snapshot.instances.items()
    }
    now = replace(run.snapshot, instances=instances)
    return replace(run, snapshot=now, state=make_state(now))


def _master(run: Run) -> str | None:
    masters = [name for name, node in run.snapshot.nodes.items() if node.is_master]
    if len(masters) > 1:
        names = ", ".join(masters)
        raise GenericError(f"Found more than one master node: {names}")
    if not masters:
        problem = "No master node found (maybe not supported by backend)."
        if not run.options.force:
            raise GenericError(problem)
        run.warn([f"Warning: {problem}"])
    return masters[0] if masters else None


def _chosen(run: Run) -> list[str]:
    """Return the nodes to reboot, in natural order."""
    options, nodes = run.options, run.snapshot.nodes
    names = [name for name in natural_sorted(nodes) if not nodes[name].is_offline]
    if options.group is not None:
        uuid = group_of(run, options.group).uuid
        names = [name for name in names if nodes[name].group == uuid]
    if options.node_tags is not None:
        wanted = set(options.node_tags)
        names = [name for name in names if not wanted.isdisjoint(nodes[name].tags)]
    if options.skip_non_redundant:
        taken = {each.primary for each in _alone(run)}
        names = [name for name in names if name not in taken]
    return names


def _alone(run: Run) -> Iterator[Instance]:
    """Yield the instances that have no second node."""
    return (each for each in _made(run) if each.secondary is None)


def _made(run: Run) -> Iterator[Instance]:
    """Yield the instances but those that are reserved only."""
    return (each for each in run.snapshot.instances.values() if not each.is_forthcoming)


def _evacuated(run: Run, names: Sequence[str]) -> dict[str, list[Instance]]:
    """Return the instances of each node that have to find another place meanwhile."""
    found: dict[str, list[Instance]] = {name: [] for name in names}
    for each in _made(run):
        is_left = each.secondary is None and run.options.ignore_non_redundant
        stays = each.secondary is not None and not run.options.full_evacuation
        for name in () if is_left or stays else each.nodes:
            if name in found:
                found[name].append(each)
    return found


def neighbours(run: Run, names: Sequence[str]) -> Neighbours:
    """Return for each node those that it must not be rebooted with.

    These are the two nodes of an instance, and the primary nodes of instances with the same
    secondary one, as both would fail over to it.
    """
    found: dict[str, set[str]] = {name: set() for name in names}
    sources: dict[str, set[str]] = {}
    pairs: list[tuple[str, str]] = []
    for each in _made(run):
        if each.secondary is not None:
            pairs.append((each.primary, each.secondary))
            sources.setdefault(each.secondary, set()).add(each.primary)
    if not run.options.offline_maintenance:
        for primaries in sources.values():
            pairs += combinations(sorted(primaries), 2)
    for one, other in pairs:
        if one in found and other in found:
            found[one].add(other)
            found[other].add(one)
    return found


class Planner(Struct):
    """Finds few groups of nodes without neighbours, whose instances find a place elsewhere."""

    state: ClusterState
    near: Neighbours
    leaving: Mapping[str, Sequence[Instance]]

    def plan(self, names: Sequence[str]) -> list[list[str]]:
        """Return the groups.

        The nodes are put into the first group that takes them, those with most neighbours first or
        in the order of saturation; then again with the groups of the round before in another order,
        which needs no more groups than before.

        Raises:
            GenericError: an instance has no other place even if only its node is rebooted.
        """
        for name in names:
            if not self._can_leave([name]):
                problem = "Not enough capacity to move non-redundant instances"
                raise GenericError(f"{problem} away from node {name}")
        best = min((self._grouped(order) for order in self._orders(names)), key=len)
        for number in range(ROUNDS):
            groups = best[::-1] if number % 2 else sorted(best, key=len, reverse=True)
            turn = number % len(groups) if groups else 0
            order = [name for group in groups[turn:] + groups[:turn] for name in group]
            found = self._grouped(order)
            best = min(found, best, key=len)
        return best

    def _orders(self, names: Sequence[str]) -> Iterator[Sequence[str]]:
        yield sorted(names, key=lambda name: -len(self.near[name]))
        colours: dict[str, int] = {}
        order: list[str] = []
        left = dict.fromkeys(names)
        while left:
            name = max(left, key=lambda each: self._saturation(each, colours))
            del left[name]
            taken = {colours[other] for other in self.near[name] if other in colours}
            colours[name] = next(c for c in range(len(names)) if c not in taken)
            order.append(name)
        yield order

    def _saturation(self, name: str, colours: Mapping[str, int]) -> tuple[int, int]:
        near = self.near[name]
        return len({colours[other] for other in near if other in colours}), len(near)

    def _grouped(self, order: Iterable[str]) -> list[list[str]]:
        groups: list[list[str]] = []
        for name in order:
            for group in groups:
                if self._takes(group, name):
                    group.append(name)
                    break
            else:
                groups.append([name])
        return groups

    def _takes(self, group: Sequence[str], name: str) -> bool:
        if not self.near[name].isdisjoint(group):
            return False
        return self._can_leave([*group, name])

    def _can_leave(self, names: Sequence[str]) -> bool:
        """Tell whether all instances that have to can leave these nodes at once."""
        return self.moved(names) is not None

    def moved(self, names: Sequence[str]) -> list[Instance] | None:
        """Return the instances that leave these nodes, at their places then; None if they cannot.

        One with a second node is migrated there, if need be, and gets another second node.
        """
        leaving = {each.name: each for name in names for each in self.leaving[name]}
        state, moved = self.state, list[Instance]()
        for each in sorted(leaving.values(), key=lambda one: (-one.memory, one.name)):
            state = state.without_instance(each)
            found = self._place(state, each, names)
            if not found:
                return None
            moved.append(replace(each, nodes=found))
            state = state.with_instance(moved[-1])
        return moved

    def _place(
        self, state: ClusterState, instance: Instance, names: Collection[str]
    ) -> Sequence[str]:
        group = state.group_of(instance.primary)
        if instance.secondary is None:
            return find_place(group, instance, _RULES, set(names)).nodes
        stays = instance.secondary if instance.primary in names else instance.primary
        node = state.nodes[stays]
        return find_secondary(group, instance, node, _RULES, set(names)).nodes


def _ordered(groups: Iterable[Sequence[str]], master: str | None) -> list[list[str]]:
    """Order groups by size, the largest first, that of the master node last, and it last in it."""
    found = [sorted(natural_sorted(group), key=lambda name: name == master) for group in groups]
    return sorted(found, key=lambda group: (master in group, -len(group)))


PROGRAM: Final = single_program(
    "hroller",
    "group nodes that can be rebooted at the same time",
    """Prints groups of nodes, few and large ones first.  While those of one group are rebooted,
every instance with a secondary node can run there, and the others find room on nodes outside of
the group.  The master node comes last.  It changes nothing.""",
    roll,
    options=(
        opt.flag("--offline-maintenance", "take all instances for shut down during the reboots"),
        opt.commas("--node-tags=TAG,...", "only nodes with one of these tags"),
        opt.flag("--skip-non-redundant", "only nodes without instances that have no second node"),
        opt.flag("--ignore-non-redundant", "instances without second node need no other place"),
        opt.flag("--one-step-only", "print the first group only, one node per line"),
        opt.flag("-f --force", "go on even if the master node is not known"),
        opt.flag("--print-moves", "print for each group where its instances go meanwhile"),
        opt.flag("--full-evacuation", "mirrors leave the nodes of a group too"),
        *shared(SOURCES, "offline verbose quiet no-headers save group static-kvm-node-memory"),
    ),
    value_status=EXIT_FAILURE,
    manual_section=1,
)
