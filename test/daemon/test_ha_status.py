"""``gnt-cluster ha-status`` and its neighbours with a real etcd; nobody else runs."""

from __future__ import annotations

import asyncio
import io
import json
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.confd_config import DB, NODES, confd_config, encoded
from rig import etcd
from rig.etcd import Member

from ganeti.availability.records import (
    GUARDS,
    LOSSES,
    MASTER_KEY,
    PAUSE_KEY,
    Fencing,
    Guard,
    Loss,
    Mastership,
    Outdated,
    Pause,
    Presence,
    Proof,
    outdated_key,
)
from ganeti.availability.records import NODES as PRESENT
from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.base.json import dumps
from ganeti.base.paths import Paths
from ganeti.cli.cluster import ha_status
from ganeti.cli.programs import named
from ganeti.cli.run.context import Context, Terminal
from ganeti.cli.run.failures import NotConfirmed
from ganeti.clients import pauses
from ganeti.clients.etcd import Delete, EtcdClient, Put
from ganeti.maintd.service import StatusService
from ganeti.objects.record import Record
from ganeti.store.availability import Settings
from ganeti.system.environment import current_paths
from ganeti.transport.http_message import HttpRequest, HttpResponse

pytestmark = pytest.mark.skipif(not etcd.is_there(), reason="needs etcd")

PREFIX = "/ganeti/status/"
DEADLINE_S = 30.0
NOON = datetime.fromisoformat("2027-01-01 12:00")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[Member]]:
    with etcd.members(tmp_path_factory.mktemp("etcd")) as members:
        yield members


class Site:
    """A node with the files of high availability, and an etcd with records."""

    def __init__(self, root: Path, members: Sequence[Member]) -> None:
        self.root, self.members = root, members
        self.config = confd_config()
        self.config["instances"][DB]["admin_state"] = "up"
        names = {uuid: str(self.config["nodes"][uuid]["name"]) for uuid in NODES}
        self.names = [names[uuid] for uuid in NODES]
        self.endpoints = [each.url for each in members]
        directory = root / "var/lib/ganeti"
        directory.mkdir(parents=True)
        (directory / "config.data").write_bytes(encoded(self.config))
        settings = Settings(endpoints=self.endpoints, prefix=PREFIX)
        (directory / "high-availability").write_bytes(dumps(settings))

    def put(self, **records: Record) -> None:
        self.change(*(Put(key, dumps(each.to_wire())) for key, each in records.items()))

    def change(self, *changes: Put | Delete) -> None:
        async def run() -> None:
            async with EtcdClient(self.endpoints, None, PREFIX, DEADLINE_S) as client:
                await client.change([], *changes)

        asyncio.run(run())

    def read(self, key: str, kind: type[Any]) -> Any:
        async def run() -> Any:
            async with EtcdClient(self.endpoints, None, PREFIX, DEADLINE_S) as client:
                return (await client.read()).one(key, kind)

        return asyncio.run(run())

    def run(self, name: str, *args: str, answer: str = "", **options: Any) -> tuple[Any, str]:
        """Run a command; returns its status and its output."""
        [found] = [each for each in named("gnt-cluster").commands if each.name == name]
        out = io.StringIO()
        terminal = Terminal(
            out, io.StringIO(), io.StringIO(f"{answer}\n"), is_interactive=bool(answer)
        )
        context = Context("gnt-cluster", found, Any, terminal)  # type: ignore[arg-type]
        given: Any = Options(options)
        assert callable(found.does)
        return found.does(context, given, list(args)), out.getvalue()


class Options(dict[str, Any]):
    """The options that were given; the others are None."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)


@pytest.fixture
def site(three: Sequence[Member], monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="ha-") as root:  # short enough for sockets
        monkeypatch.setenv("GANETI_ROOTDIR", root)
        yield from _filled(Site(Path(root), three))


def _filled(found: Site) -> Iterator[Site]:
    everything = [Put(PRESENT + name, presence(name)) for name in found.names]
    guards = [
        Put(GUARDS + name, dumps(Guard(boot_id=f"boot {name}", watchdog_s=5.0).to_wire()))
        for name in found.names
    ]
    deadline_s = time.monotonic() + DEADLINE_S
    while True:  # etcd elects a leader first
        try:
            found.change(*everything, *guards, Put(MASTER_KEY, master(found.names[0])))
            break
        except GenericError:
            assert time.monotonic() < deadline_s
    yield found
    left = asyncio.run(_keys(found.endpoints))
    found.change(*map(Delete, left))


async def _keys(endpoints: Sequence[str]) -> list[str]:
    async with EtcdClient(endpoints, None, PREFIX, DEADLINE_S) as client:
        return list((await client.read()).entries)


def presence(name: str) -> bytes:
    return dumps(Presence(boot_id=f"boot {name}").to_wire())


def master(name: str) -> bytes:
    return dumps(Mastership(node=name, boot_id=f"boot {name}").to_wire())


def test_the_status_is_told_and_a_warning_sets_the_exit_status(site: Site) -> None:
    status, said = site.run("ha-status")
    lines = said.splitlines()
    assert status == 0, said
    assert "3 of 3 members answer" in lines[0]
    assert f"{site.names[0]} holds the lease; {site.names[1]} may take over" in lines[1]
    [row] = [line for line in lines if line.startswith(site.names[1])]
    assert row.split()[:5] == [site.names[1], "candidate", "held", "5", "s"]
    for member in site.members:
        assert any(line.startswith(member.url) and "follows a leader" in line for line in lines)
    site.change(Delete(PRESENT + site.names[1]))
    site.put(
        **{
            f"fencing/{site.names[1]}": Fencing(
                by=site.names[0], at=1.0, power="unknown", trouble="it hangs"
            )
        }
    )
    status, said = site.run("ha-status", site.names[1])
    assert status == ha_status.EXIT_LOOK
    assert f"Warning: {site.names[1]} is missed" in said
    assert "told its helper to switch it off" in said
    assert "it hangs" in said


def test_a_dry_run_tells_what_would_start(site: Site) -> None:
    status, said = site.run("ha-status", if_lost=[site.names[1]])
    assert status == 0
    assert f"If {site.names[1]} died now:" in said
    assert "its watchdog has reset it" in said
    assert "db.example.com does not start" in said  # no node tells its memory here
    with pytest.raises(OpPrereqError, match="node 'nowhere' is not known"):
        site.run("ha-status", if_lost=["nowhere"])


def test_scripts_get_everything(site: Site) -> None:
    _, said = site.run("ha-status", json=True)
    found = json.loads(said)
    assert found["holder"] == site.names[0]
    assert {each["name"]: each["lease"] for each in found["nodes"]} == dict.fromkeys(
        site.names, "held"
    )


def test_without_etcd_it_says_so(site: Site) -> None:
    for member in site.members[:2]:
        member.hang()
    try:
        status, said = site.run("ha-status")
    finally:
        for member in site.members[:2]:
            member.go_on()
    assert status == ha_status.EXIT_UNKNOWN
    assert "etcd does not answer" in said.splitlines()[0]
    assert "nobody acts on losses" in said
    [row] = [line for line in said.splitlines() if line.startswith(site.names[1])]
    assert "unknown" in row


def test_where_it_is_off_that_is_said(site: Site) -> None:
    (site.root / "var/lib/ganeti/high-availability").unlink()
    with pytest.raises(OpPrereqError, match="high availability is off"):
        site.run("ha-status")


def test_a_pause_lasts_until_its_time_or_its_end(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in site.names[1:]:  # their agents end their watchdogs
        site.put(**{GUARDS + name: Guard(boot_id=f"boot {name}")})
    monkeypatch.setattr(ha_status, "_STAND_DOWN_S", 0.0)
    _, said = site.run("ha-pause", duration="2h", reason="new switch")
    assert f"the watchdog still runs on {site.names[0]};" in said
    site.put(**{GUARDS + site.names[0]: Guard(boot_id=f"boot {site.names[0]}")})
    _, said = site.run("ha-pause", duration="2h", reason="new switch")
    assert "watchdog" not in said
    pause = site.read(PAUSE_KEY, Pause)
    assert pause.until == pytest.approx(time.time() + 7200, abs=60)
    assert pause.why == "new switch"
    assert pauses.paused_until(Paths(str(site.root))) == pause.until
    status, said = site.run("ha-status")
    assert status == ha_status.EXIT_LOOK
    assert "new switch" in said
    assert "Warning: high availability is paused" in said
    assert "nothing could prove" not in said
    site.run("ha-pause", end=True)
    assert site.read(PAUSE_KEY, Pause) is None
    assert pauses.paused_until(Paths(str(site.root))) == 0.0
    with pytest.raises(OpPrereqError, match="one of"):
        site.run("ha-pause")
    with pytest.raises(OpPrereqError, match="is over"):
        site.run("ha-pause", until="2020-01-01 10:00")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("18:30", "2027-01-01 18:30"),
        ("09:00", "2027-01-02 09:00"),
        ("2027-02-03 04:05", "2027-02-03 04:05"),
    ],
)
def test_times_as_people_say_them(text: str, wanted: str) -> None:
    assert ha_status.moment(text, NOON) == datetime.fromisoformat(wanted).timestamp()


@pytest.mark.parametrize("text", ["tomorrow", "25:00", "2027-13-01"])
def test_no_times(text: str) -> None:
    with pytest.raises(OpPrereqError, match="is not a time such as"):
        ha_status.moment(text, NOON)


class Rpc:
    """Stands for the node daemons: those named answer."""

    living: Sequence[str] = ()

    def __init__(self, _paths: object) -> None:
        pass

    def __enter__(self) -> Rpc:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        pass

    def call_one(self, _call: object, target: Any) -> Any:
        return SimpleNamespace(error=None if target.name in self.living else "no route to host")


@pytest.fixture
def rpc(monkeypatch: pytest.MonkeyPatch) -> type[Rpc]:
    kind = type("Rpc", (Rpc,), {})
    monkeypatch.setattr(ha_status, "NodeRpcClient", kind)
    return kind


def test_only_an_absent_node_is_confirmed_dead(site: Site, rpc: type[Rpc]) -> None:
    name = site.names[1]
    with pytest.raises(OpPrereqError, match="is not dead: its agent is there"):
        site.run("ha-confirm-dead", name, confirm=True)
    site.change(Delete(PRESENT + name))
    rpc.living = [name]
    with pytest.raises(OpPrereqError, match="its node daemon answers"):
        site.run("ha-confirm-dead", name, confirm=True)
    rpc.living = []
    with pytest.raises(NotConfirmed, match="You promise"):
        site.run("ha-confirm-dead", name)
    with pytest.raises(NotConfirmed):
        site.run("ha-confirm-dead", name, answer="n")
    assert site.read(LOSSES + name, Loss) is None
    site.run("ha-confirm-dead", name.partition(".")[0], answer="y")
    loss = site.read(LOSSES + name, Loss)
    assert (loss.proof, loss.boot_id) == (Proof.CONFIRMED, f"boot {name}")
    assert "@" in loss.by
    with pytest.raises(OpPrereqError, match="is dead already"):
        site.run("ha-confirm-dead", name, confirm=True)


@pytest.mark.parametrize("stays", [True, False], ids=["stays", "is cut off again"])
def test_a_node_that_comes_back_in_between_is_not_dead(
    site: Site, rpc: type[Rpc], monkeypatch: pytest.MonkeyPatch, *, stays: bool
) -> None:
    """Nobody has promised anything of what runs there since it has booted."""
    name = site.names[1]
    site.change(Delete(PRESENT + name))
    written = []

    def come_back(*_args: object, **_named: object) -> None:
        async def run() -> None:
            async with EtcdClient(site.endpoints, None, PREFIX, DEADLINE_S) as client:
                guard = Put(GUARDS + name, dumps(Guard(boot_id="next").to_wire()))
                back = guard, Put(PRESENT + name, presence(name))
                written.append(await client.change([], *back))
                if not stays:
                    await client.change([], Delete(PRESENT + name))

        thread = threading.Thread(target=lambda: asyncio.run(run()))
        thread.start()
        thread.join()

    monkeypatch.setattr(ha_status, "confirm", come_back)
    with pytest.raises(OpPrereqError, match="changed meanwhile"):
        site.run("ha-confirm-dead", name)
    assert written == [True]
    assert site.read(LOSSES + name, Loss) is None


def test_a_copy_is_accepted_on_the_named_node_only(site: Site) -> None:
    first, second = site.names[:2]
    records = {outdated_key(name, 11000): Outdated(by="x", since=1.0) for name in (first, second)}
    site.put(**records)
    status, said = site.run("ha-status")
    assert status == ha_status.EXIT_LOOK
    assert f"the copy of db.example.com on {first} lacks writes" in said
    with pytest.raises(NotConfirmed, match="are given up"):
        site.run("ha-accept-copy", "db", node=first)
    site.run("ha-accept-copy", "db", node=first, answer="yes")
    assert site.read(outdated_key(first, 11000), Outdated) is None
    assert site.read(outdated_key(second, 11000), Outdated) is not None
    site.run("ha-accept-copy", "db", confirm=True)
    with pytest.raises(OpPrereqError, match="no copy of db"):
        site.run("ha-accept-copy", "db", confirm=True)
    with pytest.raises(OpPrereqError, match="'web9' is not known"):
        site.run("ha-accept-copy", "web9", confirm=True)


# --- what the maintenance daemon tells of it


def asked(path: str) -> HttpResponse:
    """Ask it, while maintenance itself is off."""
    worker: Any = SimpleNamespace(state=None, healths={}, rounds=0)
    service = StatusService(current_paths(), worker, 1)
    return asyncio.run(service.handle(HttpRequest("GET", path, {}, b"", None, "192.0.2.1", "1.1")))


def gauges() -> dict[str, float]:
    lines = asked("/metrics").body.decode().splitlines()
    found = [line.rpartition(" ") for line in lines if line.startswith("ganeti_ha_")]
    helped = {line.split()[2] for line in lines if line.startswith("# HELP")}
    assert {name.partition("{")[0] for name, _, _ in found} <= helped
    return {name.removeprefix("ganeti_ha_"): float(value) for name, _, value in found}


def test_the_maintenance_daemon_tells_it_to_luxid_and_prometheus(site: Site) -> None:
    found = json.loads(asked("/1/availability").body)
    assert found["holder"] == site.names[0]
    assert found["warnings"] == []
    assert found["nodes"][1]["if_lost"]["takes_over"] == []
    told = gauges()
    assert told['nodes{lease="held"}'] == len(site.names)
    assert told["etcd_readable"] == told["master_lease_held"] == told["candidates_ready"] == 1
    assert [told[f'etcd_member_up{{member="{each.url}"}}'] for each in site.members] == [1] * 3
    name = site.names[1]
    site.change(Delete(PRESENT + name))
    site.put(
        **{
            LOSSES + name: Loss(uuid="u", node=name, proof=Proof.FENCED, by="x"),
            PAUSE_KEY: Pause(until=4e9),
            outdated_key(name, 11000): Outdated(by="x"),
        }
    )
    told = gauges()
    assert told['nodes{lease="dead"}'] == told["restarts_waiting"] == 1
    assert told["paused_until_timestamp_seconds"] == 4e9
    assert told["copies_outdated"] == 1


def test_while_it_is_off_nothing_is_told(site: Site) -> None:
    (site.root / "var/lib/ganeti/high-availability").unlink()
    assert asked("/1/availability").body == b"null"
    assert gauges() == {}


def test_settings_that_cannot_be_read_harm_no_other_answer(site: Site) -> None:
    (site.root / "var/lib/ganeti/high-availability").write_text("{")
    assert asked("/1/availability").status == 503
    assert gauges() == {}
    assert b"ganeti_maintd_rounds_total 0" in asked("/metrics").body
