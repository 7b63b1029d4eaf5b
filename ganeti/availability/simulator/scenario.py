"""What happens to a cluster in the simulator, as a text: one event a line, in the order of time.

    # comment
    0   watchdog none node3
    10  lose node2
    12  cut node1 node3
    300 end

A line has the time in seconds, a word of `EVENTS`, and what that word needs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ganeti.availability.simulator.nodes import Helper
from ganeti.availability.simulator.world import World
from ganeti.base.errors import OpPrereqError
from ganeti.base.text import match_name_component, shown

END: Final = "end"
END_S_MAX: Final = 86400.0
_AFTER_LAST_S: Final = 120.0  # without a line that says when it ends


@dataclass(frozen=True, slots=True)
class Word:
    """One kind of event.

    Attributes:
        takes: what stands behind the word, for people.
        states: the words that may stand before the names of nodes; empty for none.
        names: how few and how many names of nodes there are; None for no limit.
    """

    text: str
    takes: str
    play: Callable[[World, str, Sequence[str]], None]
    states: Collection[str] = ()
    names: tuple[int, int | None] = (1, None)


@dataclass(frozen=True, slots=True)
class Event:
    """One line."""

    at_s: float
    word: str
    state: str
    names: tuple[str, ...]

    def play(self, world: World) -> None:
        """Let it happen."""
        world.say(" ".join(filter(None, ("---", self.word, self.state, *self.names))))
        EVENTS[self.word].play(world, self.state, self.names)


@dataclass(frozen=True, slots=True)
class Scenario:
    """The events, and when the play ends, in seconds."""

    events: tuple[Event, ...]
    end_s: float

    def play(self, world: World) -> Iterator[tuple[float, str]]:
        """Play it; yields what is said, with its time."""
        told = 0
        for event in (*self.events, None):
            until_s = self.end_s if event is None else event.at_s
            world.run(until_s - world.now_s)
            if event is not None:
                event.play(world)
            yield from world.log[told:]
            told = len(world.log)


def read_scenario(text: str, nodes: Collection[str]) -> Scenario:
    """Read the text of a scenario.

    Raises:
        OpPrereqError: names the line, and what is wrong with it.
    """
    events: list[Event] = []
    end_s: float | None = None
    last_s = 0.0
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            at_s = _time(words[0], last_s)
            if words[1:] == [END]:
                end_s = at_s
                break
            events.append(_event(at_s, words[1:], nodes))
        except ValueError as err:
            raise OpPrereqError(f"line {number} of the scenario: {err}") from None
        last_s = at_s
    return Scenario(tuple(events), last_s + _AFTER_LAST_S if end_s is None else end_s)


def _time(word: str, last_s: float) -> float:
    try:
        at_s = float(word)
    except ValueError:
        raise ValueError(f"{word!r} is no time in seconds") from None
    if not last_s <= at_s <= END_S_MAX:
        raise ValueError(f"the time {word} is before the last one, or after {END_S_MAX:g} s")
    return at_s


def _event(at_s: float, words: Sequence[str], nodes: Collection[str]) -> Event:
    if not words or words[0] not in EVENTS:
        said = repr(words[0]) if words else "nothing"
        raise ValueError(f"{said} is no event; there are {', '.join((*EVENTS, END))}")
    kind = EVENTS[words[0]]
    state, names = "", words[1:]
    if kind.states:
        state, names = (words[1] if words[1:] else ""), words[2:]
        if state not in kind.states:
            raise ValueError(f"{words[0]} needs one of {', '.join(kind.states)}")
    fewest, most = kind.names
    if len(names) < fewest or (most is not None and len(names) > most):
        raise ValueError(f"{words[0]} needs {kind.takes}")
    return Event(at_s, words[0], state, tuple(_node(name, nodes) for name in names))


def _node(key: str, nodes: Collection[str]) -> str:
    """Return the node that a full or short name means."""
    try:
        name = match_name_component(key, nodes)
    except OpPrereqError as err:
        raise ValueError(err.message) from None
    if name is None:
        raise ValueError(f"{key!r} is no node; there are {shown(nodes)}")
    return name


def _each(action: Callable[[World, str], None]) -> Callable[[World, str, Sequence[str]], None]:
    def play(world: World, _state: str, names: Sequence[str]) -> None:
        for name in names:
            action(world, name)

    return play


def _cut(world: World, _state: str, names: Sequence[str]) -> None:
    world.cut.update((names[0], other) for other in names[1:])


def _part(world: World, _state: str, names: Sequence[str]) -> None:
    others = [name for name in world.nodes if name not in names]
    world.cut.update((name, other) for name in names for other in others)


def _heal(world: World, _state: str, _names: Sequence[str]) -> None:
    world.cut.clear()


def _helper(world: World, state: str, names: Sequence[str]) -> None:
    for name in names:
        world.nodes[name].helper = Helper(state)


def _watchdog(world: World, state: str, names: Sequence[str]) -> None:
    for name in names:
        node = world.nodes[name]
        node.has_watchdog, node.watchdog_works = state != "none", state == "works"
        if state == "none":
            node.dies_s, node.is_armed = None, False


def _pause(world: World, state: str, _names: Sequence[str]) -> None:
    world.pause = "high availability is paused" if state == "on" else ""


_NODES: Final = "names of nodes"
EVENTS: Final = {
    "lose": Word("the nodes lose their power", _NODES, _each(World.switch_off)),
    "return": Word("they get it back, and boot", _NODES, _each(World.switch_on)),
    "reset": Word("they boot at once", _NODES, _each(World.reset)),
    "hang": Word("their agents stand still", _NODES, _each(World.stand)),
    "continue": Word("their agents go on", _NODES, _each(World.go_on)),
    "kill": Word("their agents are killed, and start anew", _NODES, _each(World.kill)),
    "cut": Word(
        "the first one does not reach the others", "two names of nodes or more", _cut, (), (2, None)
    ),
    "part": Word("they do not reach all others", _NODES, _part),
    "heal": Word("all nodes reach each other again", "nothing", _heal, (), (0, 0)),
    "stop-etcd": Word("their members of etcd stop", _NODES, _each(World.stop_etcd)),
    "start-etcd": Word("they start again", _NODES, _each(World.start_etcd)),
    "lose-disk": Word("they do not reach the lease disk", _NODES, _each(World.lose_disk)),
    "return-disk": Word("they reach it again", _NODES, _each(World.return_disk)),
    "helper": Word(
        "their out-of-band helpers are of that kind",
        "none, works, hangs or fails, and names of nodes",
        _helper,
        tuple(Helper),
    ),
    "watchdog": Word(
        "their watchdogs are of that kind",
        "none, works or fails, and names of nodes",
        _watchdog,
        ("none", "works", "fails"),
    ),
    "pause": Word("nobody is to act, or may again", "on or off", _pause, ("on", "off"), (0, 0)),
    "confirm-dead": Word("a person says that they are dead", _NODES, _each(World.confirm_dead)),
    "take-back": Word("a person takes them back", _NODES, _each(World.take_back)),
    "remove": Word("a person removes them, if they may go", _NODES, _each(World.remove)),
    "add": Word("a person adds them again, and they boot", _NODES, _each(World.add)),
}
