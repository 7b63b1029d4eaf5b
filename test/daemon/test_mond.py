"""The monitoring daemon over its real socket, with a real RConfD to ask."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.confd_config import confd_config
from fakes.large_config import instance
from fakes.mond_node import DEADLINE_S, KEY, NAME, MondNode
from fakes.shell_scripts import write_script
from fakes.waiting import wait_until
from prometheus_client.parser import text_string_to_metric_families

from ganeti.mond.cluster_watch import REFRESH_S
from ganeti.protocol.maintenance.diagnosis import Diagnosis, Unknown, read_report
from ganeti.system import clock, process, process_facts

MEMORY_BYTES_MAX = 60 << 20
SLOW_CLIENTS = 200
MANY = 300
ON = {"active": True, "interval": 5_000_000}


@pytest.fixture(scope="module")
def node() -> Iterator[MondNode]:
    collectors = {"lv": {"active": False, "interval": 1}, "drbd": ON, "inst-status-xen": ON}
    with MondNode(data_collectors=collectors) as made:
        yield made


@pytest.mark.shows("2.12/mond/from-rconfd")
def test_what_the_configuration_says_is_obeyed(node: MondNode) -> None:
    def names() -> list[str]:
        return [row[0] for row in node.json("/1/list/collectors")]

    wait_until(lambda: "lv" not in names(), "the first answer of RConfD")
    assert names() == [
        "cpu-avg-load",
        "kvm-cpu-avg-load",
        "diskstats",
        "drbd",
        "inst-status-kvm",
        "diagnose",
    ]


@pytest.mark.shows("2.12/overview/mond-http")
def test_reports_of_a_real_node(node: MondNode) -> None:
    assert node.json("/") == [1]
    assert node.json("/1/") is None
    report = node.json("/1/report/default/cpu-avg-load")
    assert report["data"]["cpu_number"] == len(report["data"]["cpus"]) > 0
    [stat] = [each for each in node.json("/1/report/all") if each["name"] == "diskstats"]
    with open("/proc/diskstats", encoding="ascii") as file:
        assert [each["name"] for each in stat["data"]] == [line.split()[2] for line in file]


@pytest.mark.shows("2.12/overview/mond-rconfd", "2.1/confd/every-node")
def test_instances_are_those_that_confd_knows(node: MondNode) -> None:
    def report() -> list[dict[str, object]]:
        found: list[dict[str, object]]
        found = node.json("/1/report/instance/inst-status-kvm")["data"]["instances"]
        return found

    wait_until(report, "the instances")
    [instance] = report()
    assert instance["name"] == "db.example.com"
    assert instance["actualState"] == "absent"


def test_a_node_with_more_instances_than_fit_into_a_datagram() -> None:
    nodes = list(confd_config()["nodes"])
    instances = {
        one["uuid"]: {**one, "hypervisor": "kvm", "admin_state": "down"}
        for one in (instance(number, nodes[1], []) for number in range(MANY))
    }
    often = {"inst-status-kvm": {"active": True, "interval": 500_000}}
    with MondNode(instances=instances, data_collectors=often) as node:

        def reported() -> dict[str, str]:
            data = node.json("/1/report/instance/inst-status-kvm")["data"]
            return {one["name"]: one["adminState"] for one in data["instances"]}

        names = {one["name"] for one in instances.values()}
        wait_until(lambda: set(reported()) == names, "the instances")
        one = next(iter(instances.values()))
        one.update(admin_state="up", serial_no=2)
        node.config["instances"][one["uuid"]] = one
        node.config["serial_no"] += 1
        node.write_config()
        wait_until(lambda: reported()[one["name"]] == "up", "the change")
        counted = b'ganeti_node_instances{role="primary"} 300'
        wait_until(lambda: counted in node.get("/metrics")[1], "their number")


@pytest.mark.shows("maintd/forging/signed")
def test_the_diagnose_report_is_signed_with_the_key_of_the_cluster(node: MondNode) -> None:
    wait_until(lambda: "msg" in node.json("/1/report/node/diagnose")["data"], "the diagnosis")
    data = node.json("/1/report/node/diagnose")["data"]
    assert json.loads(data["msg"]) == {"status": "Ok"}
    signed = (data["salt"] + data["msg"]).encode()
    assert data["hmac"] == hmac.new(KEY, signed, hashlib.sha1).hexdigest()
    body = node.get("/1/report/node/diagnose")[1]
    found = read_report(body, KEY, NAME, clock.now())
    assert isinstance(found, Diagnosis)
    assert found.original == {"status": "Ok"}
    assert isinstance(read_report(body, KEY, "node1.example.com", clock.now()), Unknown)


@pytest.mark.shows("maintd/collector/configurable")
def test_a_changed_diagnose_command_counts_at_once() -> None:
    node = MondNode(diagnose_data_collector_filename="first")
    for name in ("first", "second"):
        text = f"""echo '{{"status": "Ok", "details": "{name}"}}'"""
        write_script(Path(node.paths.diagnose_commands_dir) / name, text)

    def details() -> object:
        body = node.get("/1/report/node/diagnose")[1]
        found = read_report(body, KEY, NAME, clock.now())
        return found.original.get("details") if isinstance(found, Diagnosis) else None

    with node:
        wait_until(lambda: details() == "first", "the first diagnosis")
        began_s = clock.monotonic()
        node.config["cluster"]["diagnose_data_collector_filename"] = "second"
        node.config["serial_no"] += 1
        node.write_config()
        wait_until(lambda: details() == "second", "the second diagnosis")
        assert clock.monotonic() - began_s < REFRESH_S / 2


def test_metrics(node: MondNode) -> None:
    wait_until(lambda: b"ganeti_config_serial" in node.get("/metrics")[1], "what RConfD says")
    text = node.get("/metrics")[1].decode()
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert values["ganeti_config_serial",] == node.config["serial_no"]
    assert values["ganeti_node_instances", "primary"] == 1
    assert values["ganeti_cluster_instances",] == 2
    assert values["ganeti_daemon_up", "ganeti-mond"] == 1
    assert values["ganeti_daemon_up", "ganeti-confd"] == 1
    assert values["ganeti_daemon_up", "ganeti-noded"] == 0
    assert values["ganeti_collector_active", "lv"] == 0


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /nothing HTTP/1.0\r\n\r\n", 404),
        (b"GET /../../etc/passwd HTTP/1.0\r\n\r\n", 404),
        (b"GET /1/report/%2e%2e/x HTTP/1.0\r\n\r\n", 404),
        (b"GET /1/report/\xff HTTP/1.0\r\n\r\n", 400),
        (b"GET /1/report/storage/" + b"x" * 5000 + b" HTTP/1.0\r\n\r\n", 404),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx", 405),
        (b"DELETE /1/report/all HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 104857600\r\n\r\n" + b"x" * 99999, 413),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: " + b"y" * 999_999, 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 99_999, 431),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 100, 400),
        (b"\0\xff\r\n\r\n", 400),
        (b"GET / SPDY/9\r\n\r\n", 400),
    ],
)
def test_bad_input_gets_a_proper_answer(node: MondNode, data: bytes, status: int) -> None:
    answer = node.answer_to(data)
    assert answer.split(b"\r\n")[0].split()[1] == str(status).encode(), answer[:200]
    assert node.json("/") == [1]


def test_slow_clients_keep_nobody_waiting(node: MondNode) -> None:
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(node.raw()) for _ in range(SLOW_CLIENTS)]
        for number, sock in enumerate(slow):
            sock.sendall(b"GET /1/report/all HTTP/1.1\r\nHost: x\r\nX: y"[: 1 + number % 40])
        for _ in range(20):
            assert node.get("/1/report/all")[0] == 200
        for sock in slow[:50]:  # a byte now and then
            with contextlib.suppress(ConnectionError):
                sock.sendall(b"x")
        assert node.get("/metrics")[0] == 200
    assert node.json("/") == [1]


def test_clients_that_do_not_read_cost_little(node: MondNode) -> None:
    request = b"GET /1/report/all HTTP/1.1\r\nHost: x\r\n\r\n"
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            sock = stack.enter_context(node.raw())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.sendall(request * 500)
        assert node.json("/") == [1]
        facts = process_facts.read(node.pid)
        assert facts is not None
        assert facts.resident_bytes < MEMORY_BYTES_MAX


def test_the_daemon_is_small(node: MondNode) -> None:
    for path in ("/1/report/all", "/metrics"):
        for _ in range(50):
            assert node.get(path)[0] == 200
    facts = process_facts.read(node.pid)
    assert facts is not None
    assert facts.resident_bytes < MEMORY_BYTES_MAX


def test_a_diagnose_command_that_hangs_ends_with_the_daemon() -> None:
    node = MondNode(diagnose_data_collector_filename="check")
    marker = f"{node.paths.run_dir}/diagnosing"
    text = f"sleep 1000 & echo $! > {marker}.new; mv {marker}.new {marker}; wait"
    write_script(Path(node.paths.diagnose_commands_dir) / "check", text)
    with node:
        wait_until(
            lambda: node.get("/1/report/all")[0] == 200 and os.path.exists(marker), "the run"
        )
        report = node.json("/1/report/node/diagnose")
        assert report["data"]["status"]["code"] in (1, 2)
        names = [each["name"] for each in node.json("/1/report/all")]
        assert "cpu-avg-load" in names
        with open(marker, encoding="ascii") as file:
            pid = int(file.read())
        node.stop("ganeti-mond")
        assert process.wait_gone(pid, DEADLINE_S)


@pytest.mark.shows("2.12/mond/without-confd")
def test_without_confd_a_node_tells_what_it_can() -> None:
    with MondNode(with_confd=False) as node:
        reports = {each["name"]: each for each in node.json("/1/report/all")}
        assert reports["cpu-avg-load"]["data"]["cpu_number"] > 0
        assert reports["inst-status-kvm"]["data"]["status"]["code"] in (1, 2)
        assert "msg" not in reports["diagnose"]["data"]
        wait_until(lambda: b"ganeti_confd_success 0.0" in node.get("/metrics")[1], "the failure")
