"""``gnt-debug simulate-ha``: what would happen to this cluster if nodes were lost."""

from __future__ import annotations

from typing import Final

from ganeti.availability.inventory import read_inventory
from ganeti.availability.restarts import Guest, priority_of
from ganeti.availability.simulator.nodes import Helper, SimGuest
from ganeti.availability.simulator.scenario import EVENTS, read_scenario
from ganeti.availability.simulator.world import World, make_world
from ganeti.availability.timing import Timing
from ganeti.base.errors import ConfigurationError, GenericError, OpPrereqError, failing_as
from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, ArgKind, Context, Options, command, opt
from ganeti.config.config_data import split_config
from ganeti.config.tables import Tables
from ganeti.objects.disk_templates import traits_of
from ganeti.objects.fill import fill_ndparams
from ganeti.objects.model import AdminState
from ganeti.store import availability

_MEMBERS_MAX: Final = 3  # of etcd
_NODE_FIELDS: Final = ("name", "role", "mtotal", "mnode", "ndp/oob_program")
_INSTANCE_FIELDS: Final = (
    *("name", "pnode", "snodes", "disk_template", "be/maxmem", "admin_state", "tags"),
)
_NO_MEMORY: Final = 1 << 20  # a node that does not tell has room for everything


def simulate(context: Context, options: Options, args: list[str]) -> int:
    """Play a scenario on a copy of this cluster: what happens when nodes are lost.

    Raises:
        OpPrereqError: the scenario, or this cluster, does not allow it.
        GenericError: the file cannot be read.
    """
    file = options.config
    world = _copy_of_file(file, options.memory) if file else _copy_of_cluster(context)
    if options.lease_disk:
        world.lease_disk = world.lease_disk or "lease disk"
    for name in options.unguarded or ():
        if name not in world.nodes:
            raise OpPrereqError(f"{name!r} is no node that is online")
        world.nodes[name].has_watchdog = False
    try:
        with open(args[0], encoding="utf-8") as file:
            scenario = read_scenario(file.read(), world.nodes)
    except (OSError, UnicodeDecodeError) as err:
        raise GenericError(f"cannot read {args[0]}: {err}") from err
    for at_s, text in scenario.play(world):
        context.write(f"{at_s:8.1f} s  {text}")
    context.write(f"{world.now_s:8.1f} s  the end")
    for line in _end(world):
        context.write(line)
    return EXIT_FAILURE if world.twice else EXIT_SUCCESS


def _copy_of_cluster(context: Context) -> World:
    """Make a world like this cluster: all nodes that are online, what should run runs."""
    rows = [row for row in context.client.query_nodes([], list(_NODE_FIELDS)) if row[1] != "O"]
    rows.sort(key=lambda row: row[1] != "M")  # the master first
    names = [str(row[0]) for row in rows]
    candidates = [str(row[0]) for row in rows if row[1] in ("M", "C")]
    guests = [
        SimGuest(
            name,
            primary,
            secondaries[0] if secondaries else None,
            traits_of(template).shared,
            memory,
            priority_of(tags),
        )
        for name, primary, secondaries, template, memory, state, tags in (
            context.client.query_instances([], list(_INSTANCE_FIELDS))
        )
        if state == AdminState.UP and primary in names
    ]
    settings = availability.read(context.paths)
    timing = Timing() if settings is None else settings.timing
    disk = "" if settings is None or settings.disk is None else settings.disk.path
    world = make_world(
        timing, names, candidates, guests, members=names[:_MEMBERS_MAX], lease_disk=disk
    )
    world.witness = "" if settings is None else settings.witness
    world.limits = availability.limits_of(context.paths)
    for name, _, total, own, helper in rows:
        node = world.nodes[str(name)]
        node.memory = total - (own or 0) if isinstance(total, int) else _NO_MEMORY
        node.helper = Helper.WORKS if helper else Helper.NONE
    return world


def _copy_of_file(path: str, memory: int | None) -> World:
    """Make a world like the cluster of a configuration: all nodes that are online.

    Args:
        memory: MiB that each node has for instances; None for enough.

    Raises:
        ConfigurationError: the file cannot be read, or understood.
    """
    with failing_as(ConfigurationError, f"cannot read {path}"), open(path, "rb") as file:
        tables = Tables(split_config(file.read()))
    inventory = read_inventory(tables)
    machines = [each for each in inventory.machines.values() if not each.is_offline]
    names = sorted((each.name for each in machines), key=inventory.master.__ne__)
    if inventory.master not in names:
        raise ConfigurationError(f"{path}: the master is no node that is online")
    guests = [_played(each) for each in inventory.guests if each.node in names]
    candidates = [name for name in names if inventory.machines[name].is_candidate]
    world = make_world(Timing(), names, candidates, guests, members=names[:_MEMBERS_MAX])
    for uuid in tables.nodes:
        node = tables.nodes.read(uuid)
        if node.name in world.nodes:
            world.nodes[node.name].memory = _NO_MEMORY if memory is None else memory
            params = fill_ndparams(tables.cluster, tables.groups.read(node.group), node)
            helper = Helper.WORKS if params["oob_program"] else Helper.NONE
            world.nodes[node.name].helper = helper
    return world


def _played(guest: Guest) -> SimGuest:
    """Return an instance as the play has it: one whose disks have copies has one other node."""
    other = None if guest.is_shared else next(iter(guest.nodes), None)
    memory, priority = guest.memory, guest.priority
    return SimGuest(guest.name, guest.node, other, guest.is_shared, memory, priority)


def _end(world: World) -> list[str]:
    """Say how it ended."""
    lines = []
    for name, node in world.nodes.items():
        what = "is off" if not node.is_up else f"runs {len(node.guests)} instances"
        master = ", is the master" if node.is_master else ""
        lines.append(f"{name} {what}{master}")
        lines += [f"  about {other}: {why}" for other, why in node.judge.says.items()]
        if node.is_up and node.claimant.says:
            lines.append(f"  does not take over: {node.claimant.says}")
    down = [
        name
        for name in world.guests
        if not any(name in node.guests for node in world.nodes.values())
    ]
    lines += [
        f"{name} does not run: {world.left.get(name, 'its turn has not come')}" for name in down
    ]
    lines += [f"TWICE at {at_s:g} s: {what}" for at_s, what in world.twice]
    return lines


_WORDS: Final = "; ".join(f"{name} ({word.text})" for name, word in EVENTS.items())


COMMANDS: Final = (
    command(
        simulate,
        "<scenario>:file",
        opt.commas("--no-watchdog=NODE,... -> unguarded", "nodes that no watchdog resets"),
        opt.option("--config=FILE", "play the cluster of this config.data", completes=ArgKind.FILE),
        opt.flag("--lease-disk", "as if all nodes shared a lease disk"),
        opt.size("--memory=SIZE", "with --config: what each node has for instances"),
        title="simulate-ha: play losses of nodes on a copy of this cluster",
        description=f"""Nothing is changed.  The decisions are those of high availability: who is
proved dead, who becomes the master, and what starts where.  All nodes start with a watchdog, those
with an out-of-band program with a helper that works.  With --config it needs no cluster: any
config.data will do, which does not tell how much memory the nodes have.  The master and the two
nodes after it have a member of etcd.  A line of the scenario has a time in seconds, a word, and
what the word needs, names of nodes mostly.  There are: {_WORDS}; end (of the play).""",
        examples="""
gnt-debug simulate-ha night.txt  # with "10 lose node2" and "100 end" in night.txt
gnt-debug simulate-ha --config=config.data --memory=64g night.txt  # another cluster""",
    ),
)
