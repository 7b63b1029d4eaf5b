from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from fakes.large_config import disk, instance, large_config, mac_of, uuid_of
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import ConfigurationError, OpPrereqError, ReservationError
from ganeti.config import instances
from ganeti.config import reservations as module
from ganeti.config.addresses.pool import AddressPool
from ganeti.config.index import CLUSTER_ID, INSTANCES, NETWORKS
from ganeti.config.reservation_file import (
    EMPTY,
    decode_reservations,
    encode_own_reservations,
    encode_reservations,
)
from ganeti.config.reservations import Reservations
from ganeti.config.state import ConfigState
from ganeti.config.transaction import Transaction
from ganeti.objects.model import Network
from ganeti.protocol.wconfd import ClientId

ONE, TWO = ClientId(1, "/l/1", 11), ClientId("tool", "/l/2", 12)
NODE = uuid_of("node", 1)


def counter() -> Callable[[int], bytes]:
    numbers = iter(range(1 << 20))
    return lambda size: next(numbers).to_bytes(size, "big")


def state() -> ConfigState:
    config = large_config(3)
    config["networks"]["net"] = {
        "name": "net", "network": "10.0.0.0/29", "mac_prefix": "bb:00:00", "uuid": "net",
        "reservations": "00100000", "ext_reservations": "11000001", "serial_no": 1, "tags": [],
        "network6": "2001:db8::/64", "gateway6": "2001:db8::1",
        "ext_reservations6": ["2001:db8::3-2001:db8::ff"],
    }  # fmt: skip
    return ConfigState(json.dumps(config).encode())


@pytest.mark.shows("2.0/net/mac")
def test_generated_macs_have_the_prefix_and_avoid_what_is_taken() -> None:
    view, reservations = state().durable, Reservations()
    reservations.reserve_mac(view, TWO, "aa:00:00:00:00:03")
    found = [reservations.generate_mac(view, ONE, None, counter()) for _ in range(2)]
    assert found == ["aa:00:00:00:00:04", "aa:00:00:00:00:05"]  # 0 to 2 are instances'
    assert reservations.generate_mac(view, ONE, "net", counter()) == "bb:00:00:00:00:00"
    with pytest.raises(OpPrereqError):
        reservations.generate_mac(view, ONE, "nowhere", counter())


def test_a_prefix_that_is_used_up_is_said_so() -> None:
    with pytest.raises(ReservationError, match="no free MAC"):
        Reservations().generate_mac(state().durable, ONE, None, lambda size: bytes(size))


def test_texts_are_exclusive_but_may_be_asked_for_again() -> None:
    view, reservations = state().durable, Reservations()
    for reserve, text in (
        (reservations.reserve_mac, "aa:00:00:99:99:99"),
        (reservations.reserve_lv, "xenvg/x"),
    ):
        reserve(view, ONE, text)
        reserve(view, ONE, text)
        with pytest.raises(ReservationError, match="job 1"):
            reserve(view, TWO, text)
    with pytest.raises(ReservationError, match="in use"):
        reservations.reserve_mac(view, ONE, mac_of(2).upper())
    assert reservations.reserve_id(view, ONE, "u")
    assert not reservations.reserve_id(view, ONE, "u")
    assert not reservations.reserve_id(view, ONE, NODE)


def test_an_address_given_back_before_the_commit_is_simply_kept() -> None:
    view, reservations = state().durable, Reservations()
    reservations.release_ip(view, ONE, "net", "10.0.0.2")
    assert [str(action) for action, _, _ in reservations.ip_actions(ONE)] == ["release"]
    reservations.reserve_ip(view, ONE, "net", "10.0.0.2", check_external=True)
    assert reservations.ip_actions(ONE) == []
    reservations.reserve_ip(view, ONE, "net", "10.0.0.4", check_external=True)
    reservations.release_ip(view, ONE, "net", "10.0.0.4")
    assert reservations.ip_actions(ONE) == []
    assert reservations.generate_ip(view, TWO, "net") == "10.0.0.3"
    assert reservations.generate_ip(view, ONE, "net") == "10.0.0.4"
    for address in ("10.0.0.3", "10.0.0.2", "10.0.0.1", "11.0.0.1", "x"):
        with pytest.raises(ReservationError):
            reservations.reserve_ip(view, ONE, "net", address, check_external=True)
    reservations.reserve_ip(view, ONE, "net", "10.0.0.1", check_external=False)


def test_ipv6_addresses_are_given_to_one_job_each() -> None:
    view, reservations = state().durable, Reservations()
    assert reservations.generate_ip6(view, ONE, "net") == "2001:db8::2"
    assert reservations.generate_ip6(view, TWO, "net") == "2001:db8::100"
    for address in ("2001:DB8:0::2", "2001:db8::", "2001:db8::1", "2001:db8::77", "2001:db9::1"):
        with pytest.raises(ReservationError):
            reservations.reserve_ip(view, TWO, "net", address, check_external=True)
    reservations.reserve_ip(view, TWO, "net", "2001:db8::1", check_external=False)
    reservations.release_ip(view, ONE, "net", "2001:DB8::2")
    assert reservations.ip_actions(ONE) == []
    assert reservations.generate_ip6(view, TWO, "net") == "2001:db8::2"
    reservations.remove_owner(TWO)
    assert reservations.generate_ip6(view, ONE, "net") == "2001:db8::2"
    assert reservations.generate_ip(view, ONE, "net") == "10.0.0.3"  # the other kind goes its way


def test_an_ipv6_address_is_free_again_with_the_change_of_its_instance() -> None:
    found, reservations = state(), Reservations()
    wire = instance(9, NODE, [])
    address = reservations.generate_ip6(found.head, ONE, "net")
    wire["nics"][0].update(network="net", ip="2001:DB8:0:0::2")  # as somebody may have typed it
    transaction = found.begin(1.0)
    instances.create_instance(transaction, wire, [])
    transaction.check()
    found.accept(transaction)
    found.start_flush(2.0)
    found.flush_done()
    assert reservations.settle(found.durable, found.head)
    assert reservations.ips == {}
    with pytest.raises(ReservationError, match="in use"):
        reservations.reserve_ip(found.head, TWO, "net", address, check_external=True)
    reservations.release_ip(found.head, TWO, "net", address)
    assert reservations.generate_ip6(found.head, ONE, "net") == "2001:db8::100"  # not yet
    transaction = found.begin(3.0)
    transaction.modify(("instances", wire["uuid"]), {"nics": []})
    transaction.check()
    found.accept(transaction)
    found.start_flush(4.0)
    found.flush_done()
    assert reservations.settle(found.durable, found.head)
    assert reservations.generate_ip6(found.head, ONE, "net") == address


@pytest.mark.shows("2.0/disks/static", "2.0/minors/lowest")
def test_minors_are_the_lowest_free_ones() -> None:
    view, reservations = state().durable, Reservations()
    nodes = [uuid_of("node", 2), NODE]
    assert reservations.allocate_minors(view, "d1", nodes, None) == [0, 0]
    assert reservations.allocate_minors(view, "d2", [NODE], ONE) == [1]
    assert reservations.allocate_minors(view, "d2", [NODE], ONE) == [1]
    reservations.release_minors("d1")
    assert reservations.allocate_minors(view, "d3", [NODE], None) == [0]
    reservations.remove_owner(ONE)
    assert reservations.minors == {NODE: {0: "d3"}}
    with pytest.raises(ReservationError, match="twice"):
        reservations.allocate_minors(view, "d4", [NODE, NODE], None)


def test_ports_are_given_out_once() -> None:
    reservations, found = Reservations(), state()
    assert reservations.allocate_port(found.head, ONE) == 11000
    assert reservations.allocate_port(found.head, TWO) == 11001
    reservations.release_port(TWO, 11000)
    assert 11000 in reservations.ports
    reservations.release_port(ONE, 11000)
    assert reservations.dropped_ports == {11000}


def test_amounts_are_counted_per_node() -> None:
    reservations = Reservations()
    reservations.reserve_amounts(ONE, {NODE: (100, 5)}, {NODE: (100, None)})
    with pytest.raises(ReservationError, match=r"150 MiB of memory free, of which 100 MiB"):
        reservations.reserve_amounts(TWO, {NODE: (51, 0)}, {NODE: (150, 0)})
    reservations.reserve_amounts(TWO, {NODE: (50, 0)}, {NODE: (150, 10)})
    assert reservations.listed_amounts() == [(ONE, NODE, 100, 5), (TWO, NODE, 50, 0)]
    reservations.reserve_amounts(ONE, {NODE: (1, 1)}, {})
    assert reservations.listed_amounts() == [(ONE, NODE, 1, 1), (TWO, NODE, 50, 0)]


def test_who_reserves_first_comes_first() -> None:
    reservations, limit = Reservations(), {NODE: (150, None)}
    reservations.reserve_amounts(ONE, {NODE: (100, 0)}, {})
    reservations.reserve_amounts(TWO, {NODE: (100, 0)}, {})
    with pytest.raises(ReservationError, match="100 MiB are reserved by other jobs"):
        reservations.reserve_amounts(TWO, {NODE: (100, 0)}, limit)
    reservations.reserve_amounts(ONE, {NODE: (100, 0)}, limit)
    with pytest.raises(ReservationError):  # more than before: its place is the last now
        reservations.reserve_amounts(ONE, {NODE: (101, 0)}, limit)
    reservations.reserve_amounts(ONE, {}, {})
    reservations.reserve_amounts(TWO, {NODE: (100, 0)}, limit)
    assert reservations.listed_amounts() == [(TWO, NODE, 100, 0)]


def test_what_stands_in_the_configuration_is_reserved_no_more() -> None:
    found, reservations = state(), Reservations()
    reservations.reserve_mac(found.head, ONE, mac_of(9))
    reservations.reserve_mac(found.head, ONE, "aa:00:00:99:99:99")
    reservations.allocate_minors(found.head, uuid_of("disk", 9), [NODE], ONE)
    port = reservations.allocate_port(found.head, ONE)
    address = reservations.generate_ip(found.head, ONE, "net")
    one = disk(9, NODE)
    secret = reservations.generate_secret(found.head, ONE, counter())
    logical_id = [NODE, uuid_of("node", 2), port, 0, 0, secret]
    one.update(dev_type="drbd", logical_id=logical_id)
    wire = instance(9, NODE, [one["uuid"]])
    wire["nics"][0].update(network="net", ip=address)
    transaction = found.begin(1.0)
    instances.create_instance(transaction, wire, [one])
    transaction.check()
    found.accept(transaction)
    assert not reservations.settle(found.durable, found.head)
    found.start_flush(2.0)
    found.flush_done()
    assert reservations.settle(found.durable, found.head)
    assert json.loads(encode_reservations(reservations)) == {
        "dRBD": [],
        "mACs": [[ONE.to_wire(), ["aa:00:00:99:99:99"]]],
        "dRBDSecrets": [],
        "lVs": [],
        "iPv4s": [],
    }
    assert reservations.ports == {}
    assert found.durable.cluster.highest_used_port == port


def test_a_value_that_is_about_to_be_given_up_stays_reserved_for_the_next() -> None:
    found, reservations = state(), Reservations()
    address, mac, port = "10.0.0.3", mac_of(9), 11000
    wire = instance(9, NODE, []) | {"network_port": port}
    wire["nics"][0].update(network="net", ip=address)
    change(found, lambda transaction: instances.create_instance(transaction, wire, []))
    tagged = found.begin(1.0)
    tagged.modify(CLUSTER_ID, {"tags": ["a"]})
    found.accept(tagged)
    found.start_flush(2.0)  # and while that is written,
    gone = found.begin(3.0)
    instances.delete_instance(gone, wire["uuid"])
    gone.check()
    found.accept(gone)
    assert reservations.generate_ip(found.head, ONE, "net") == address
    assert reservations.allocate_port(found.head, ONE) == port
    reservations.reserve_mac(found.head, ONE, mac)
    found.flush_done()
    assert not reservations.settle(found.durable, found.head)
    found.start_flush(4.0)
    found.flush_done()
    assert not reservations.settle(found.durable, found.head)
    assert reservations.generate_ip(found.head, TWO, "net") != address
    assert reservations.allocate_port(found.head, TWO) != port
    with pytest.raises(ReservationError, match="job 1"):
        reservations.reserve_mac(found.head, TWO, mac)
    change(found, lambda transaction: instances.create_instance(transaction, wire, []))
    assert reservations.settle(found.durable, found.head)
    assert reservations.ips.keys() == {TWO}
    assert reservations.ports.keys() == {port + 1}


def change(found: ConfigState, call: Callable[[Transaction], object]) -> None:
    transaction = found.begin(1.0)
    call(transaction)
    transaction.check()
    found.accept(transaction)
    found.start_flush(2.0)
    found.flush_done()


def test_maps_are_read_only_of_networks_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    config = large_config(3)
    for number in range(2):
        config["networks"][f"net{number}"] = {
            "name": f"net{number}", "network": f"10.{number}.0.0/24", "uuid": f"net{number}",
            "serial_no": 1, "tags": [],
        }  # fmt: skip
    found, reservations = ConfigState(json.dumps(config).encode()), Reservations()
    for number in range(20):
        client = ClientId(number, f"/l/{number}", 1)
        reservations.generate_ip(found.head, client, f"net{number % 2}")
    read: list[str] = []

    class Counted(AddressPool):
        def __init__(self, network: Network) -> None:
            read.append(network.name)
            super().__init__(network)

    monkeypatch.setattr(module, "AddressPool", Counted)

    def settled() -> list[str]:
        read.clear()
        assert not reservations.settle(found.durable, found.head)
        return sorted(read)

    assert settled() == ["net0", "net1"]
    assert settled() == []
    for identity in (CLUSTER_ID, (INSTANCES, uuid_of("instance", 0))):
        change(found, lambda transaction, one=identity: transaction.touch(one))
        assert settled() == []
    change(found, lambda transaction: transaction.touch((NETWORKS, "net1")))
    assert settled() == ["net1"]
    reservations.generate_ip(found.head, ONE, "net0")
    assert settled() == ["net0"]


def test_an_address_reserved_after_a_look_is_looked_at() -> None:
    found, reservations = state(), Reservations()
    reservations.reserve_ip(found.head, ONE, "net", "10.0.0.3", check_external=True)
    assert not reservations.settle(found.durable, found.head)
    reservations.release_ip(found.head, TWO, "net", "10.0.0.4")  # which nobody has
    assert reservations.settle(found.durable, found.head)
    assert reservations.ips.keys() == {ONE}
    marked = {"reservations": "00110000"}
    change(found, lambda transaction: transaction.modify((NETWORKS, "net"), marked))
    assert reservations.settle(found.durable, found.head)
    assert reservations.ips == {}


def test_addresses_of_a_network_that_is_gone_are_reserved_no_more() -> None:
    found, reservations = state(), Reservations()
    for address in ("10.0.0.3", "2001:db8::2"):
        reservations.reserve_ip(found.head, ONE, "net", address, check_external=True)
    assert not reservations.settle(found.durable, found.head)
    change(found, lambda transaction: transaction.delete((NETWORKS, "net")))
    assert reservations.settle(found.durable, found.head)
    assert reservations.ips == {}


owners = st.sampled_from([ONE, TWO, ClientId(3, "/l/3", 0)])


@pytest.mark.shows("2.12/wconfd-details/mirrored")
@given(st.lists(st.tuples(st.integers(0, 7), owners, st.integers(0, 5)), max_size=20))
def test_files_hold_everything(steps: list[tuple[int, ClientId, int]]) -> None:
    view, reservations = state().durable, Reservations()
    draws = [lambda size, one=number: bytes([one]) * size for number in range(6)]
    for kind, client, number in steps:
        try:
            match kind:
                case 0:
                    reservations.reserve_mac(view, client, f"aa:00:00:99:99:0{number}")
                case 1:
                    reservations.generate_secret(view, client, draws[number])
                case 2:
                    reservations.reserve_lv(view, client, f"vg/{number}")
                case 3:
                    reservations.generate_ip6(view, client, "net")
                    reservations.generate_ip(view, client, "net")
                case 4:
                    for address in (f"10.0.0.{number}", f"2001:db8::{number}"):
                        reservations.release_ip(view, client, "net", address)
                case 5:
                    reservations.allocate_minors(view, f"d{number}", [NODE], client)
                case 6:
                    reservations.allocate_port(view, client)
                    reservations.reserve_amounts(client, {NODE: (number, 1)}, {})
                case 7:
                    reservations.remove_owner(client)
        except ReservationError:
            continue
    written = encode_reservations(reservations), encode_own_reservations(reservations)
    again = decode_reservations(*written)
    assert (encode_reservations(again), encode_own_reservations(again)) == written
    assert again.owners() == reservations.owners()


@pytest.mark.parametrize(
    "data", [b"[]", b"{}", b'{"dRBD":1}', EMPTY.replace(b'"mACs":[]', b'"mACs":[[1,["x"]]]')]
)
def test_malformed_files_are_refused(data: bytes) -> None:
    with pytest.raises(ConfigurationError):
        decode_reservations(data, None)
