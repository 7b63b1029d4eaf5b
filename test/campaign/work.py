"""The table of work: clients that use a cluster all the time and remember what they were told.

Each is a thread with a generator of its own.  No answer, or a refusal in plain words, is no failure
while things are broken; `checks` looks at what was promised.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from campaign.world import RECOVERED_S_MAX, World, run_job, tag_job, wait_ended
from fakes import campaign as groups
from fakes.linearizability import UNKNOWN, Call
from fakes.rapi import RapiClient

from ganeti.base.errors import GenericError, LockError, TransportError
from ganeti.base.ids import JobId
from ganeti.clients.confd import ConfdClient, read_key
from ganeti.clients.luxi import LuxiClient
from ganeti.clients.wconfd import WConfClient
from ganeti.jobs.status import Status
from ganeti.protocol.confd_queries import QueryType
from ganeti.protocol.wconfd import ClientId
from ganeti.system.filelock import LiveLock
from ganeti.transport.unix_client import NobodyListensError

TAGS = tuple(f"t{number}" for number in range(6))
LOCKS = tuple(f"instance/played-{letter}" for letter in "abc")
DISK_MIB = 16
IN_THE_WAY = re.compile(r"node '([\w.]+)'.*if nobody needs it, type: drbdsetup down (\w+)")


class Worker(threading.Thread):
    """Does one thing after the other until it is to stop.

    Attributes:
        done: how often what was answered, and in which way it was not.
        history: of calls that are to be linearizable, by what they are about.
    """

    pause_s = (0.05, 0.3)

    def __init__(self, world: World, seed: int) -> None:
        super().__init__(daemon=True)
        self.world = world
        self.chance = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.history: dict[str, list[Call]] = {}
        self.failed: BaseException | None = None
        self._over = threading.Event()

    def run(self) -> None:
        try:
            while not self._over.wait(self.chance.uniform(*self.pause_s)):
                try:
                    self.step()
                except (GenericError, OSError) as err:
                    self.done[type(err).__name__] += 1
                else:
                    self.done["answered"] += 1
            self.end()
        except BaseException as err:
            self.failed = err
            raise

    def step(self) -> None:
        """Do one thing; an error means that nothing was promised."""
        raise NotImplementedError

    def end(self) -> None:
        """Let everything go."""

    def stop(self) -> None:
        self._over.set()

    def outcome(self, job_id: int) -> tuple[str, str]:
        """Wait for a job that was accepted, whatever happens; returns its status and results."""
        end = time.monotonic() + RECOVERED_S_MAX
        while time.monotonic() < end:
            with contextlib.suppress(GenericError, OSError), self.world.client() as client:
                status = wait_ended(client, job_id)
                [[results]] = client.query_jobs([JobId(job_id)], ["opresult"])
                return status, str(results)
            time.sleep(0.1)
        raise AssertionError(f"job {job_id} does not end")

    def note(self, about: str, call: Call) -> None:
        self.history.setdefault(about, []).append(call)


class Tags(Worker):
    """Sets, removes and reads tags of one group, as others do at the same time."""

    def step(self) -> None:
        begun = time.monotonic()
        kind = self.chance.choice(["add", "remove", "read"])
        if kind == "read":
            with self.world.client() as client:
                rows = client.query("group", ["tags"], ["=", "name", "default"]).rows()
            found = frozenset(tag for tag in rows[0][0] if tag in TAGS)  # type: ignore[union-attr]
            self.note("tags", Call(("read",), begun, time.monotonic(), found))
            return
        tag = self.chance.choice(TAGS)
        opcode = {"add": "OP_TAGS_SET", "remove": "OP_TAGS_DEL"}[kind]
        answer: object = UNKNOWN
        ended = math.inf
        is_open = True
        try:
            with self.world.client() as client:
                job_id = client.submit_job(tag_job(opcode, tag))
            status, results = self.outcome(job_id)
            ended = time.monotonic()
            # One that died may have been carried out; one that was refused found nothing to do.
            refused = False if "OpPrereqError" in results else UNKNOWN
            answer = True if status == Status.SUCCESS else refused
        except GenericError as err:  # one that LuxiD answers is a promise as well
            is_lost = isinstance(err, TransportError)
            is_open = is_lost and not isinstance(err.__cause__, NobodyListensError)
            raise
        finally:
            if is_open:
                self.note("tags", Call((kind, tag), begun, ended, answer))


class Locks(Worker):
    """Takes and gives back locks as a process of the master does.

    After a call without an answer it dies, and waits until WConfD has freed everything of it.
    """

    pause_s = (0.02, 0.15)
    _numbers = iter(range(10**9))

    def __init__(self, world: World, seed: int) -> None:
        super().__init__(world, seed)
        self._term = -1
        self._owner: ClientId | None = None
        self._client: WConfClient | None = None
        self._livelock: LiveLock | None = None

    def step(self) -> None:
        if self._term != self.world.term:
            self.end()
            self._begin()
        assert self._client is not None
        assert self._owner is not None
        begun = time.monotonic()
        what: tuple[object, ...] = ("free", self._owner.identifier)
        try:
            if self.chance.random() < 0.4:
                self._client.free_locks()
                answer: object = None
            else:
                names = sorted(self.chance.sample(LOCKS, self.chance.randint(1, 2)))
                modes = [(name, self.chance.choice(["shared", "exclusive"])) for name in names]
                what = ("try", self._owner.identifier, tuple(modes))
                try:
                    answer = not self._client.try_update_locks(modes)
                except LockError:  # it holds others, and these are not in order
                    return
        except GenericError:
            self._die(what, begun)
            raise
        self._note(what, begun, answer)

    def _note(self, what: tuple[object, ...], begun: float, answer: object) -> None:
        self.note(_history_of(self._term), Call(what, begun, time.monotonic(), answer))

    def _begin(self) -> None:
        with self.world.busy:
            paths, self._term = self.world.cluster.paths, self.world.term
            name = f"player{next(self._numbers)}"
            path = f"{paths.livelock_dir}/{name}"
            self._livelock = LiveLock.create(path)
            self._owner = ClientId(name, path, os.getpid())
            self._client = WConfClient(paths, self._owner, restart_timeout_s=10.0)

    def _die(self, what: tuple[object, ...], begun: float) -> None:
        """Be found dead, and begin anew once nothing is left of the dead one.

        Where another node becomes the master meanwhile, nobody knows what was still carried out.
        """
        assert self._owner is not None
        dead, term = self._owner.identifier, self._term
        self.end()
        end = time.monotonic() + RECOVERED_S_MAX
        while term == self.world.term and time.monotonic() < end:
            with contextlib.suppress(GenericError, OSError):
                self._begin()
                assert self._client is not None
                left = json.dumps(self._client.snapshot()["locks"])
                if self._term == term and f'"{dead}"' not in left:
                    self._note(what, begun, UNKNOWN)
                    self._note(("free", dead), begun, None)
                    return
            self.end()
            time.sleep(0.2)
        for each in (what, ("free", dead)):
            self.note(_history_of(term), Call(each, begun, math.inf, UNKNOWN))

    def end(self) -> None:
        self._term = -1
        if self._client is not None and self._livelock is not None:
            self._client.close()
            self._livelock.release()
            self._client = None


def _history_of(term: int) -> str:
    return f"locks of term {term}"


class Queries(Worker):
    """Asks for lists of everything."""

    def step(self) -> None:
        kind = self.chance.choice(["node", "instance", "group", "lock", "job"])
        name = "id" if kind == "job" else "name"
        with self.world.client() as client:
            rows = client.query(kind, [name]).rows()
        assert kind != "node" or len(rows) == len(self.world.nodes)


class Confd(Worker):
    """Asks the candidates by signed datagrams."""

    def step(self) -> None:
        layout = self.world.cluster.layout
        addresses = [layout.address_of(node) for node in self.world.nodes]
        with ConfdClient(read_key(self.world.cluster.paths), addresses, timeout_s=1.0) as client:
            assert str(client.value(QueryType.CLUSTER_MASTER)) in self.world.nodes


class Rapi(Worker):
    """Reads by the remote API."""

    def step(self) -> None:
        address = self.world.cluster.layout.address_of(self.world.master)
        path = self.chance.choice(["/2/nodes", "/2/info", "/2/jobs", "/2/instances?bulk=1"])
        try:
            answer = RapiClient(address).ask("GET", path)
        except AssertionError as err:  # it closes the connection
            raise OSError(str(err)) from err
        if answer.status != 200:
            assert answer.status in (500, 502, 503, 504), answer
            raise OSError(f"status {answer.status}")


class Lives(Worker):
    """Makes an instance on a mirrored pair, does this and that with it, and removes it.

    Attributes:
        made: {name: whether its removal was acknowledged}, of those whose creation was.
        failures: why jobs did not succeed.
    """

    _numbers = iter(range(10**9))

    def __init__(self, world: World, seed: int) -> None:
        super().__init__(world, seed)
        self.made: dict[str, bool] = {}
        self.failures: list[str] = []
        self._instance = ""

    def step(self) -> None:
        if not self._instance:
            name = f"life{next(self._numbers)}.example.com"
            if self._job("OP_INSTANCE_CREATE", name, **self._disks()):
                self._instance, self.made[name] = name, False
            return
        kind, params = self.chance.choice(self._rows())
        if kind == "OP_INSTANCE_REMOVE":
            name, self._instance = self._instance, ""
            self.made[name] = self._job(kind, name, **params)
        else:
            self._job(kind, **params)

    def _disks(self) -> dict[str, object]:
        pnode, snode = self.chance.sample(self.world.nodes, 2)
        return {
            "mode": "create",
            "pnode": pnode,
            "snode": snode,
            "disk_template": "drbd",
            "disks": [{"size": DISK_MIB}],
            "nics": [],
            "os_type": "test",
            "hypervisor": "fake",
            "beparams": {"memory": 64},
            "name_check": False,
            "ip_check": False,
        }

    def _rows(self) -> Sequence[tuple[str, dict[str, object]]]:
        return (
            ("OP_INSTANCE_MIGRATE", {}),
            ("OP_INSTANCE_FAILOVER", {"shutdown_timeout": 0}),
            ("OP_INSTANCE_SHUTDOWN", {"timeout": 0}),
            ("OP_INSTANCE_STARTUP", {}),
            ("OP_INSTANCE_REBOOT", {"reboot_type": "hard", "shutdown_timeout": 0}),
            ("OP_INSTANCE_ACTIVATE_DISKS", {}),
            ("OP_INSTANCE_REPLACE_DISKS", {"mode": "replace_on_secondary", "disks": [0]}),
            ("OP_INSTANCE_GROW_DISK", {"disk": 0, "amount": 4}),
            ("OP_INSTANCE_REMOVE", {"shutdown_timeout": 0}),
        )

    def _job(self, kind: str, name: str = "", **params: object) -> bool:
        """Have a job done; returns whether it succeeded for sure."""
        opcode = {"OP_ID": kind, "instance_name": name or self._instance, **params}
        with self.world.client() as client:
            job_id = client.submit_job([opcode])
        status, results = self.outcome(job_id)
        if status != Status.SUCCESS:
            self.failures.append(f"{kind} {opcode['instance_name']}: {results}")
            self._type_what_it_says(results)
        self.done[f"{kind.removeprefix('OP_INSTANCE_')} {status}"] += 1
        return status == Status.SUCCESS

    def _type_what_it_says(self, text: str) -> None:
        """Take away the device of a creation that died, as an operator does: nobody else does."""
        if found := IN_THE_WAY.search(text):
            node, name = found.groups()
            self.world.cluster.run(["drbdsetup", "down", name], node=node)
            self.done["devices taken down"] += 1


class Groups(Worker):
    """Adds groups, each by a job of its own that a hook counts; some are removed again."""

    def __init__(self, world: World, seed: int) -> None:
        super().__init__(world, seed)
        self.load = groups.Load(world.cluster, seed, seed)

    def step(self) -> None:
        with self.world.client() as client:
            self.load._submit(client)
        if self.load.accepted:
            self.outcome(max(self.load.accepted))  # no faster than they are done


WORK: tuple[tuple[Callable[[World, int], Worker], int], ...] = (  # and how many of each
    (Groups, 1),
    (Tags, 2),
    (Locks, 2),
    (Lives, 1),
    (Queries, 1),
    (Confd, 1),
    (Rapi, 1),
)


def remove_instance(client: LuxiClient, name: str) -> str:
    """Remove an instance, whatever state it is in."""
    opcode = {"OP_ID": "OP_INSTANCE_REMOVE", "instance_name": name, "shutdown_timeout": 0}
    return run_job(client, [{**opcode, "ignore_failures": True}])
