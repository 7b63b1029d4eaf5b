"""The note of a merge on the master: what it is about, and which steps are done.

It is durable before each step begins and after it has ended, so a merge that was cut off goes on,
or is taken back, from there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from ganeti.base import json
from ganeti.base.errors import GenericError, ProtocolError
from ganeti.base.paths import Paths
from ganeti.config.merging.merge import Wishes
from ganeti.system import files

PAUSE_S: Final = 1800
NAME: Final = "cluster-merge"
JOIN: Final = "join"
"""How the steps begin that take nodes in."""
OPEN: Final = "open"
"""The step after which nothing is taken back: jobs run with the merged configuration."""
_OF_NO_RETURN: Final = frozenset({OPEN, JOIN})
_MODE: Final = 0o600
_BYTES_MAX: Final = 64 << 20


class OtherNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the other cluster that can be reached."""

    name: str
    port: int
    drained: bool = False


class Journal(msgspec.Struct, kw_only=True):
    """One merge.

    Attributes:
        given: the name by which the other cluster was given.
        nodes: those of the other cluster that are not offline, nor lost.
        lost: those that will not come back.
        own_key: the public key that they let in.
        earlier: the clusters that the same command has merged before, as they were given.
        let_in: the nodes that did not let it in before, and may do so now.
        running: the instances that ran there.
        expected: all names of nodes and instances afterwards.
        pause_s: how long the watchers pause beyond the longest step.
        pauses: the ends of those that there were before, by node; "" is this one.
        before: the file with the own configuration as it was.
        other: the file with that of the other cluster.
        ssh_keys: those by which root of its candidates, or of former ones, logs in on its nodes.
        known_hosts, identity: see `Reach`.
        begun: the step at work, or cut off.
        is_undoing: it is being taken back.
    """

    given: str
    cluster: str
    master: str
    nodes: list[OtherNode]
    own_key: str
    wishes: Wishes
    pause_s: float = PAUSE_S
    check_host_key: bool = True
    known_hosts: str = ""
    identity: str = ""
    expected: dict[str, list[str]]
    lost: list[str] = []
    earlier: list[str] = []
    running: list[str] = []
    let_in: list[str] = []
    pauses: dict[str, float | None] = {}
    before: str = ""
    other: str = ""
    ssh_keys: list[str] = []
    begun: str = ""
    done: list[str] = []
    is_undoing: bool = False

    def give_up(self, names: Iterable[str]) -> None:
        """Do nothing more on nodes; those that this cluster has by then are set offline."""
        self.lost = sorted({*self.lost, *names})
        self.nodes = [each for each in self.nodes if each.name not in self.lost]
        self.let_in = [name for name in self.let_in if name not in self.lost]
        self.pauses = {name: self.pauses[name] for name in self.pauses if name not in self.lost}

    @property
    def begun_or_done(self) -> set[str]:
        """The steps that may have changed something."""
        return {*self.done, self.begun}

    @property
    def is_undoable(self) -> bool:
        """Whether everything can be taken back."""
        return not any(name.partition(":")[0] in _OF_NO_RETURN for name in self.begun_or_done)

    @property
    def way_out(self) -> str:
        """What became of a merge that was cut off, and the next command, for people."""
        touched, stopped = self.begun_or_done, ""
        are_stopped = "instances" in touched and "up" not in touched
        if self.running and are_stopped and not self.wishes.keeps_running:
            stopped = f", and the instances of {self.cluster} are stopped"
        if self.is_undoing:
            state, command = "being taken back", f"{NAME} --rollback to go on with that"
        else:
            state, command = "cut off", f"{NAME} {self.given} to go on"
            command += f", or {NAME} --rollback" if self.is_undoable else ""
        return f"the merge of {self.given} was {state}{stopped}; run {command}"


def load(paths: Paths) -> Journal | None:
    """Return the merge that is at work, or was cut off.

    Raises:
        GenericError: the note cannot be read.
    """
    path = paths.merge_note
    data = files.read_bytes_or_none(path, _BYTES_MAX)
    if data is None:
        return None
    try:
        return json.loads_as(Journal, data)
    except ProtocolError as err:
        raise GenericError(f"{path} cannot be understood: {err.message}") from err


def save(paths: Paths, journal: Journal) -> None:
    """Write the note; raises OSError."""
    files.write_durable(paths.merge_note, json.dumps(journal), _MODE)


def forget(paths: Paths, journal: Journal) -> None:
    """Remove the note, and the keys that were needed so far."""
    for path in (journal.known_hosts, journal.identity, paths.merge_note):
        if path:
            files.remove_if_exists(path)
    files.fsync_directory(paths.data_dir)
