"""The layered configuration against the obvious: everything decoded, indexed and checked anew."""

from __future__ import annotations

import json
import random
import tracemalloc
from typing import Any

import pytest
from fakes.large_config import disk, instance, large_config_bytes, mac_of, node, uuid_of
from fakes.old_configs import config_bytes, load_config

from ganeti.base.errors import ConfigurationError, GenericError
from ganeti.config import changes, instances
from ganeti.config.checks import cluster_problems, problems_of
from ganeti.config.deltas.journal import record_of, records_in, replay
from ganeti.config.index import CLUSTER, CLUSTER_ID, DISKS, GROUPS, INSTANCES, NODES, By
from ganeti.config.ssconf_values import SsconfComposer, ssconf_values
from ganeti.config.state import ConfigState, parts_since, problems_in
from ganeti.config.transaction import Transaction
from ganeti.config.views import Base, View

NOW = 1800000000.5


def make(instances_: int = 5, nodes: int = 3) -> ConfigState:
    return ConfigState(large_config_bytes(instances_, nodes))


def change(state: ConfigState, call: Any, now: float = NOW) -> Any:
    transaction = state.begin(now)
    result = call(transaction)
    transaction.check()
    state.accept(transaction)
    return result


def flush(state: ConfigState, now: float = NOW) -> Any:
    state.start_flush(now)
    state.flush_done()
    return json.loads(b"".join(state.pieces))


def all_problems(view: Base) -> list[str]:
    found = cluster_problems(view, view.tables)
    for identity in view.identities():
        found += problems_of(view, identity)
    return found


def index_of(view: Base) -> dict[Any, set[Any]]:
    return {
        (table, by, key): set(uuids)
        for table, kinds in view._index._of_table.items()
        for by, index in kinds.items()
        for key, uuids in index.items()
    }


def test_nothing_changes_but_what_was_changed() -> None:
    state = make()
    before = json.loads(large_config_bytes(5, 3))
    assert json.loads(b"".join(state.pieces)) == before
    change(state, lambda txn: changes.add_tags(txn, "cluster", "", ["x"]))
    after = flush(state)
    assert after["cluster"]["tags"] == ["x"]
    assert after["serial_no"] == before["serial_no"] + 1
    for config in (before, after):
        for key in ("tags", "serial_no", "mtime"):
            del config["cluster"][key]
        del config["serial_no"], config["mtime"]
    assert after == before


@pytest.mark.shows("backend/config-data/in-memory")
def test_readers_see_only_what_is_durable() -> None:
    state = make()
    change(state, lambda txn: changes.add_tags(txn, "cluster", "", ["one"]))
    assert state.durable.cluster.tags == []
    assert state.head.record(CLUSTER_ID, type(state.durable.cluster)).tags == ["one"]  # type: ignore[union-attr]
    state.start_flush(NOW)
    change(state, lambda txn: changes.add_tags(txn, "cluster", "", ["two"]))
    assert state.durable.cluster.tags == []
    state.flush_done()
    assert state.durable.cluster.tags == ["one"]
    assert state.has_changes
    assert flush(state)["cluster"]["tags"] == ["one", "two"]
    assert not state.has_changes


def test_a_failed_write_drops_it_and_all_on_top() -> None:
    state = make()
    before = list(state.pieces)
    change(state, lambda txn: instances.delete_instance(txn, "inst0"))
    state.start_flush(NOW)
    change(state, lambda txn: changes.add_tags(txn, "cluster", "", ["two"]))
    state.flush_failed()
    assert not state.has_changes
    assert state.pieces == before
    assert state.head.resolve(INSTANCES, "inst0") == uuid_of("instance", 0)
    change(state, lambda txn: changes.add_tags(txn, "cluster", "", ["three"]))
    after = flush(state)
    assert after["cluster"]["tags"] == ["three"]
    assert uuid_of("instance", 0) in after["instances"]


def test_a_leap_of_the_serial_number_waits_for_the_next_write() -> None:
    state = make()
    data, first = b"".join(state.pieces), state.serial_no
    flushes = []

    def write(*, fails: bool = False) -> None:
        change(state, lambda txn: txn.touch(CLUSTER_ID))
        flushes.append(state.start_flush(NOW))
        if fails:
            state.flush_failed()
        else:
            state.flush_done()

    change(state, lambda txn: txn.touch(CLUSTER_ID))
    flushes.append(state.start_flush(NOW))
    state.serial_floor = 5000
    assert state.serial_no == first
    state.flush_done()
    assert state.serial_no == first + 1
    write(fails=True)
    assert (state.serial_no, state.serial_floor) == (first + 1, 5000)
    assert flushes.pop().serial_no == 5001
    write()
    assert json.loads(b"".join(state.pieces))["serial_no"] == state.serial_no == 5001
    write()
    assert [flush.serial_no for flush in flushes] == [first + 1, 5001, 5002]
    assert [flush.base.serial_no for flush in flushes] == [first, first + 1, 5001]
    # A journal has no gap there.
    lines = b"".join(record_of(one.base, one.version, one.changed).line for one in flushes)
    replayed = replay(data, records_in(lines))
    assert replayed is not None
    assert json.loads(replayed) == json.loads(b"".join(state.pieces))


def test_a_refused_change_leaves_nothing() -> None:
    state = make()
    transaction = state.begin(NOW)
    changes.modify(transaction, INSTANCES, "inst1", {"name": "inst0.example.com"})
    with pytest.raises(ConfigurationError, match="inst0"):
        transaction.check()
    assert not state.has_changes
    assert state.head.resolve(INSTANCES, "inst1.example.com") == uuid_of("instance", 1)


def test_what_was_wrong_before_keeps_nobody_from_another_name() -> None:
    config = json.loads(large_config_bytes(2))
    one = disk(7, uuid_of("node", 1)) | {"size": -1}
    first, group = uuid_of("instance", 0), uuid_of("group", 0)
    config["disks"][one["uuid"]] = one
    config["instances"][first]["hvparams"] = {"old": "x"}
    config["nodegroups"][group]["ndparams"] = {"spindle_count": "x"}
    config["cluster"]["beparams"]["default"].pop("vcpus")
    state = ConfigState(json.dumps(config).encode())
    for table, key, fields in (
        (INSTANCES, first, {"name": "new.example.com"}),
        (GROUPS, group, {"name": "new"}),
        (CLUSTER, "", {"cluster_name": "new.example.com"}),
    ):
        change(state, lambda c, t=table, k=key, f=fields: changes.modify(c, t, k, f))
    change(state, lambda c: instances.attach_disk(c, first, one["uuid"], None))
    for wrong in ({"hvparams": {"old": "x", "new": "x"}}, {"name": "inst1.example.com"}):
        with pytest.raises(ConfigurationError, match=r"'new'|inst1") as caught:
            change(state, lambda c, f=wrong: changes.modify(c, INSTANCES, first, f))
        assert "'old'" not in str(caught.value)


def test_a_planned_instance_is_replaced_by_the_real_one_at_once() -> None:
    state = make()
    where = uuid_of("node", 1)
    first, second = disk(50, where), disk(51, where)
    planned = instance(50, where, [first["uuid"], second["uuid"]]) | {"network_port": 11002}
    change(
        state,
        lambda txn: instances.create_instance(
            txn, planned | {"forthcoming": True}, [first | {"forthcoming": True}, second]
        ),
    )
    real = {name: value for name, value in planned.items() if name != "network_port"}
    wire = real | {"disks": [first["uuid"]]}
    for _ in range(2):  # a repetition changes nothing
        serial, _ = change(
            state, lambda txn: instances.put_instance(txn, planned["uuid"], wire, [first])
        )
        assert serial == 4  # it was made with two disks, and changed once
    after = flush(state)
    stored = after["instances"][planned["uuid"]]
    assert "forthcoming" not in stored
    assert "network_port" not in stored
    assert stored["disks"] == [first["uuid"]]
    assert "forthcoming" not in after["disks"][first["uuid"]]
    assert second["uuid"] not in after["disks"]
    assert 11002 in after["cluster"]["tcpudp_port_pool"]


class Walk:
    """Random changes, accepted or refused, with random fates of the writes."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.state = make(6, 4)
        self.composer = SsconfComposer(self.state.durable)
        self.number = 100

    def random_change(self, txn: Transaction) -> None:
        chance = self.chance
        self.number += 1
        some = f"inst{chance.randint(0, 7)}.example.com"
        where = uuid_of("node", chance.randint(1, 5))
        one = disk(self.number, where)
        match chance.randint(0, 10):
            case 0:
                mac = mac_of(chance.randint(0, 8))
                wire = instance(self.number, where, [one["uuid"]])
                wire["nics"][0]["mac"] = mac
                instances.create_instance(txn, wire, [one])
            case 1:
                instances.create_instance(txn, instance(self.number, where, [one["uuid"]]), [one])
            case 2:
                instances.delete_instance(txn, some)
            case 3:
                name = f"inst{chance.randint(0, 9)}.example.com"
                changes.modify(txn, INSTANCES, some, {"name": name, "network_port": None})
            case 4:
                changes.modify(txn, INSTANCES, some, {"primary_node": where})
            case 5:
                role = chance.choice(["offline", "drained", "master_candidate"])
                changes.modify(txn, NODES, where, {role: chance.random() < 0.5})
            case 6:
                number = chance.randint(5, 6)
                changes.create(txn, NODES, node(number, uuid_of("group", 0)))
            case 7:
                changes.delete(txn, NODES, where)
            case 8:
                changes.modify(txn, INSTANCES, some, {"network_port": chance.randint(11000, 11004)})
            case 9:
                instances.add_disk(txn, some, one, chance.choice([None, 0, 1]))
            case 10:
                wire = instance(chance.randint(0, 7), where, [one["uuid"]])
                instances.put_instance(txn, some, wire, [one])

    def step(self) -> None:
        for _ in range(self.chance.randint(1, 3)):
            transaction = self.state.begin(NOW + self.number)
            try:
                self.random_change(transaction)
                transaction.check()
            except GenericError:
                continue
            self.state.accept(transaction)
        if self.chance.random() < 0.8 and self.state.has_changes:
            flushing = self.state.start_flush(NOW + self.number)
            if self.chance.random() < 0.2:
                self.state.flush_failed()
            else:
                self.state.flush_done()
                self.composer.follow(flushing.changed)


@pytest.mark.shows("2.0/granular/coherent")
@pytest.mark.parametrize("seed", range(12))
def test_long_walks_agree_with_everything_computed_anew(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(60):
        walk.step()
        durable = walk.state.durable
        anew = ConfigState(b"".join(walk.state.pieces))
        assert index_of(durable) == index_of(anew.durable)
        assert all_problems(durable) == []
        assert walk.composer.values == ssconf_values(anew.durable)
        assert (anew.serial_no, anew.mtime) == (walk.state.serial_no, walk.state.mtime)


def test_chunks_are_joined_anew_only_where_something_changed() -> None:
    state = make(500)
    before = [id(piece) for piece in state.pieces]
    change(state, lambda txn: changes.modify(txn, INSTANCES, "inst250", {"os": "other"}))
    state.start_flush(NOW)
    state.flush_done()
    large = [piece for piece in state.pieces if len(piece) > 1000]
    assert sum(id(piece) not in before for piece in large) == 1
    assert (
        json.loads(b"".join(state.pieces))["instances"][uuid_of("instance", 250)]["os"] == "other"
    )


def test_names_are_found_in_every_form() -> None:
    view: View = make().durable
    uuid = uuid_of("instance", 3)
    for key in (uuid, "inst3.example.com", "inst3", "INST3", "inst3.example"):
        assert view.resolve(INSTANCES, key) == uuid
    assert view.resolve(INSTANCES, "inst") is None
    assert view.resolve(GROUPS, "default") == uuid_of("group", 0)


def test_a_group_has_no_short_name() -> None:
    state, uuid = make(), uuid_of("group", 0)
    change(state, lambda txn: changes.modify(txn, GROUPS, uuid, {"name": "rack.old"}))
    found = [state.head.resolve(GROUPS, key) for key in ("rack", "Rack", "RACK.OLD", "rack.old")]
    assert found == [None, None, None, uuid]


def test_an_ambiguous_short_name_is_refused() -> None:
    state = make()
    change(state, lambda txn: changes.modify(txn, INSTANCES, "inst1", {"name": "inst0.other.com"}))
    with pytest.raises(GenericError, match=r"inst0\.example\.com, inst0\.other\.com"):
        state.head.resolve(INSTANCES, "inst0")
    assert state.head.resolve(INSTANCES, "inst0.other.com") == uuid_of("instance", 1)


def test_an_index_follows_every_layer() -> None:
    state = make()
    change(state, lambda txn: changes.modify(txn, INSTANCES, "inst0", {"network_port": 11000}))
    state.start_flush(NOW)
    change(state, lambda txn: changes.modify(txn, INSTANCES, "inst0", {"network_port": 11001}))
    assert state.durable.find(By.PORT, 11000) == ()
    state.flush_done()
    assert state.durable.find(By.PORT, 11000) == ((INSTANCES, uuid_of("instance", 0)),)
    assert state.head.find(By.PORT, 11000) == ()
    assert state.head.find(By.PORT, 11001) == ((INSTANCES, uuid_of("instance", 0)),)


def test_a_good_configuration_has_no_problems() -> None:
    assert problems_in(config_bytes("3.0")) == []


def test_problems_name_their_objects() -> None:
    config = load_config("3.0")
    node = next(iter(config["nodes"].values()))
    node["group"] = "nowhere"
    config["cluster"]["candidate_pool_size"] = 3
    found = problems_in(json.dumps(config).encode())
    assert "too few master candidates: 2, wanted are 3" in found
    assert f"node '{node['name']}': its group nowhere does not exist" in found


def test_what_cannot_be_read_raises() -> None:
    with pytest.raises(ConfigurationError, match="byte"):
        problems_in(b'{"cluster": {')


def test_new_candidates_are_chosen_at_random() -> None:
    nodes = [uuid_of("node", number) for number in range(1, 7)]

    def promoted(seed: int) -> tuple[str, ...]:
        state, chance = make(nodes=6), random.Random(seed)
        change(state, lambda c: c.modify(CLUSTER_ID, {"candidate_pool_size": 3}))
        done = change(
            state, lambda c: changes.maintain_candidate_pool(c, nodes, [nodes[5]], chance.sample)
        )
        assert done["demoted"] == []
        return tuple(done["promoted"])

    chosen = [promoted(seed) for seed in range(20)]
    assert all(len(set(pair)) == 2 for pair in chosen)
    assert {uuid for pair in chosen for uuid in pair} == set(nodes[1:5])
    assert chosen == [promoted(seed) for seed in range(20)]


def test_a_whole_cluster_put_a_second_time_is_a_repetition() -> None:
    """The answer to the first was lost with a WConfD that was killed."""
    state = make()
    read = state.durable.cluster.to_wire()
    wanted = read | {"cluster_name": "new.example.com"}
    serial = change(state, lambda c: changes.replace_cluster(c, wanted))
    assert change(state, lambda c: changes.replace_cluster(c, wanted)) == serial
    assert flush(state)["cluster"]["serial_no"] == serial[0] == read["serial_no"] + 1
    other = read | {"master_ip": "192.0.2.77"}
    with pytest.raises(ConfigurationError, match=f"serial number is {serial[0]}, not"):
        change(state, lambda c: changes.replace_cluster(c, other))
    change(state, lambda c: c.modify(CLUSTER_ID, {"max_running_jobs": 7}))
    with pytest.raises(ConfigurationError, match="updated since"):
        change(state, lambda c: changes.replace_cluster(c, wanted))


def test_a_node_is_trusted_no_longer_than_it_is_a_candidate() -> None:
    state, [one, two] = make(nodes=2), [uuid_of("node", number) for number in (1, 2)]
    for uuid in (one, two):
        change(state, lambda c, uuid=uuid: changes.set_candidate_cert(c, uuid, f"of {uuid}"))
    for fields in ({"offline": False}, {"master_candidate": True}):
        change(state, lambda c, f=fields: changes.modify(c, NODES, two, f))
        assert set(flush(state)["cluster"]["candidate_certs"]) == {one, two}
    left = {"master_candidate": False, "offline": True}
    change(state, lambda c: changes.modify(c, NODES, two, left))
    assert flush(state)["cluster"]["candidate_certs"] == {one: f"of {one}"}


def patched(old: bytes, parts: list[tuple[int, int] | str]) -> bytes:
    texts = [part.encode() if isinstance(part, str) else part for part in parts]
    return b"".join(
        part if isinstance(part, bytes) else old[part[0] : part[0] + part[1]] for part in texts
    )


@pytest.mark.parametrize("seed", range(4))
def test_a_version_is_made_of_parts_of_any_before_it(seed: int) -> None:
    chance = random.Random(seed)
    state = make(400)
    versions = [state.pieces]
    for turn in range(8):
        number = chance.randrange(400)
        identity = (INSTANCES, uuid_of("instance", number))
        if state.head.stored(identity) is None or turn == 3:
            name = f"ü{seed}-{turn}"
            change(state, lambda txn, name=name: changes.add_tags(txn, "cluster", "", [name]))
        elif chance.random() < 0.3:
            gone = [identity, (DISKS, uuid_of("disk", number))]
            change(state, lambda txn, gone=gone: [txn.delete(each) for each in gone])
        else:
            change(state, lambda txn, key=identity: txn.touch(key))
        flush(state)
        versions.append(state.pieces)
    now = b"".join(versions[-1])
    for before in versions:
        assert patched(b"".join(before), parts_since(before, versions[-1])) == now
    parts = parts_since(versions[-2], versions[-1])
    assert sum(len(part) for part in parts if isinstance(part, str)) < len(now) // 4
    assert parts_since(versions[-1], versions[-1]) == [(0, len(now))]


def test_an_object_takes_little_memory_beside_its_text() -> None:
    count = 2000
    data = large_config_bytes(count, 20)
    ConfigState(large_config_bytes(2, 1))  # what is made once
    tracemalloc.start()
    state = ConfigState(data)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    # An instance, its disk (in a file), and the keys of both.
    assert (used - sum(map(len, state.pieces))) / count < 1100


def test_a_text_is_the_same_wherever_it_lies() -> None:
    state = make()
    for number in (0, 2, 1):
        uuid = uuid_of("instance", number)
        before = state.head.stored((INSTANCES, uuid_of("instance", 4)))
        assert before is not None
        text = before.raw
        change(state, lambda txn, uuid=uuid: txn.delete((INSTANCES, uuid)))
        flush(state)
        after = state.head.stored((INSTANCES, uuid_of("instance", 4)))
        assert after is before
        assert after.raw == text
