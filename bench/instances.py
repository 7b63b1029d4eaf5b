#!/usr/bin/env python3
"""Measures what is done to instances: one at a time, many at once, a live migration, a list.

    bench/instances.py [--base BASE] [--rounds 15] [--burst 50] [--guest-mib 128]

Without --base a virtual cluster of three nodes is made below a temporary directory and removed
afterwards.  Instances are diskless and of the fake hypervisor, so that the figures are the
cluster's own; the migration is QEMU's (left out where there is none), of an idle guest.  Beside the
targets stands what Ganeti 3.0.2 took for the same work on a machine like that of the targets.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from jobs import (
    CHECKOUT,
    MASTER,
    NOTHING,
    bare_interpreter_ms,
    cpu_by_daemon,
    processes_of,
    show_machine,
    virtual_cluster,
    wait_end,
)
from report import row

from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.clients.luxi import LuxiClient

NODES = ("node1.example.com", "node2.example.com", "node3.example.com")
OPERATIONS = {  # what 3.0.2 took, in milliseconds
    "create": 982,
    "reboot": 703,
    "shutdown": 730,
    "startup": 807,
    "remove": 836,
}
TARGET_MS = 40
RATE_BEFORE = 1.36


def creation(name: str, node: str, **changes: object) -> dict[str, object]:
    """Return the opcode that makes an instance; without a system it is not started."""
    return {
        "OP_ID": "OP_INSTANCE_CREATE",
        "instance_name": name,
        "mode": "create",
        "pnode": node,
        "disk_template": "diskless",
        "disks": [],
        "nics": [],
        "hypervisor": "fake",
        "beparams": {"memory": 16},
        "os_type": "test",
        "no_install": True,
        "start": True,
        "name_check": False,
        "ip_check": False,
        "conflicts_check": False,
        "reason": [],
        **changes,
    }


def opcode(op_id: str, name: str, **params: object) -> dict[str, object]:
    """Return another opcode about an instance."""
    return {"OP_ID": op_id, "instance_name": name, "reason": [], **params}


def removal(name: str) -> dict[str, object]:
    """Return the opcode that removes an instance, running or not."""
    return opcode("OP_INSTANCE_REMOVE", name, ignore_failures=False, shutdown_timeout=5)


def run_job(client: LuxiClient, wire: Mapping[str, object]) -> tuple[JobId, float]:
    """Run a job of one opcode; returns its number and how long it took, in milliseconds."""
    started = time.perf_counter()
    job_id = client.submit_job([dict(wire)])
    status = wait_end(client, job_id)
    took_ms = (time.perf_counter() - started) * 1000
    if status != "success":
        sys.exit(f"job {job_id} ({wire['OP_ID']}) ended as {status}: see gnt-job info {job_id}")
    return job_id, took_ms


def measure_one_at_a_time(client: LuxiClient, base: str, rounds: int) -> None:
    """Print how long each operation takes, and what of the processor."""
    times: dict[str, list[float]] = {name: [] for name in OPERATIONS}
    before: dict[str, float] = {}
    for number in range(rounds + 1):
        if number == 1:  # the first warms connections and caches
            before = cpu_by_daemon(processes_of(base))
        name = f"single{number}.example.com"
        steps: dict[str, dict[str, object]] = {
            "create": creation(name, NODES[number % len(NODES)]),
            "reboot": opcode("OP_INSTANCE_REBOOT", name, reboot_type="hard"),
            "shutdown": opcode("OP_INSTANCE_SHUTDOWN", name),
            "startup": opcode("OP_INSTANCE_STARTUP", name, force=False),
            "remove": removal(name),
        }
        for what, wire in steps.items():
            took_ms = run_job(client, wire)[1]
            if number:
                times[what].append(took_ms)
    time.sleep(0.5)  # until the last processes are collected
    used = cpu_by_daemon(processes_of(base))
    for what, taken in times.items():
        worst = sorted(taken)[int(len(taken) * 0.95)]
        target = f"{TARGET_MS} ms (3.0.2: {OPERATIONS[what]} ms)"
        row(what, f"{statistics.median(taken):.0f} ms, {worst:.0f} ms", target)
    count = rounds * len(OPERATIONS)
    cpu_ms = sum(used[name] - before.get(name, 0.0) for name in used) / count * 1000
    row("processor per operation, whole cluster", f"{cpu_ms:.0f} ms")
    row("  in bare interpreters", f"{cpu_ms / bare_interpreter_ms():.1f}")


def measure_burst(client: LuxiClient, count: int) -> None:
    """Print how many instances per second are made at once, and removed."""
    names = [f"burst{number}.example.com" for number in range(count)]
    created = [creation(name, NODES[index % len(NODES)]) for index, name in enumerate(names)]
    row(
        f"{count} creations at once, per second",
        f"{_rate(client, created):.1f}",
        f"45 (3.0.2: {RATE_BEFORE})",
    )
    row(
        f"{count} removals at once, per second", f"{_rate(client, [removal(n) for n in names]):.1f}"
    )


def _rate(client: LuxiClient, wires: Sequence[Mapping[str, object]]) -> float:
    started = time.perf_counter()
    answers = client.submit_many_jobs([[dict(wire)] for wire in wires])
    for accepted, job_id in answers:
        if not accepted or wait_end(client, JobId(int(job_id))) != "success":
            sys.exit(f"a job of many failed: {job_id}")
    return len(wires) / (time.perf_counter() - started)


def measure_list(base: str, rounds: int) -> None:
    """Print how long a list takes from prompt to prompt."""
    prefix = [f"{CHECKOUT}/tools/vcluster", "run", base, MASTER, "--"]
    environment = subprocess.run([*prefix, "env"], check=True, capture_output=True, text=True)
    env = dict(line.split("=", 1) for line in environment.stdout.splitlines() if "=" in line)
    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        subprocess.run(["gnt-instance", "list"], env=env, check=True, stdout=subprocess.DEVNULL)
        taken.append((time.perf_counter() - started) * 1000)
    row("gnt-instance list, prompt to prompt", f"{statistics.median(taken):.0f} ms", "60 ms")


def measure_migration(client: LuxiClient, rounds: int, memory_mib: int) -> None:
    """Print what a live migration costs beside QEMU's own work, and how long the guest pauses.

    And, on the way, what it takes until a guest of KVM runs.
    """
    name = "migrant.example.com"
    making = creation(
        name,
        NODES[0],
        hypervisor="kvm",
        beparams={"memory": memory_mib},
        disk_template="sharedfile",
        disks=[{"size": 16}],
        os_type="bootsector+default",
        no_install=False,
    )
    made_ms = [run_job(client, making)[1]]
    for _ in range(rounds):
        run_job(client, removal(name))
        made_ms.append(run_job(client, making)[1])
    row("create, install and start a guest of KVM", f"{statistics.median(made_ms):.0f} ms")
    own_ms, transfer_ms, pauses = [], [], []
    for number in range(rounds):
        target = NODES[1 - number % 2]
        wire = opcode("OP_INSTANCE_MIGRATE", name, mode="live", target_node=target)
        job_id, took_ms = run_job(client, wire)
        messages = _messages(client, job_id)
        transfer = _between(messages, "* starting memory transfer", "* memory transfer complete")
        own_ms.append(took_ms - transfer)
        transfer_ms.append(transfer)
        pauses.append(
            next(text.rpartition("for ")[2] for _, text in messages if "complete" in text)
        )
    run_job(client, removal(name))
    row("live migration, beside QEMU's transfer", f"{max(own_ms):.0f} ms", "1000 ms")
    row("  transfer of memory", f"{max(transfer_ms):.0f} ms")
    row("  pause of the guest", ", ".join(pauses))


def _messages(client: LuxiClient, job_id: JobId) -> list[tuple[float, str]]:
    """Return (time in milliseconds, text) of a job's messages."""
    [fields] = client.query_jobs([job_id], ["oplog"])
    entries: Any = fields
    return [
        (seconds * 1000 + microseconds / 1000, str(text))
        for oplog in entries[0]
        for _serial, (seconds, microseconds), _kind, text in oplog
    ]


def _between(messages: Sequence[tuple[float, str]], first: str, last: str) -> float:
    def at(words: str) -> float:
        return next(time_ms for time_ms, text in messages if text.startswith(words))

    return at(last) - at(first)


def run(base: str, rounds: int, burst: int, memory_mib: int) -> None:
    """Measure, and print the table."""
    paths = Paths(f"{base}/{MASTER}")
    os.environ["GANETI_ROOTDIR"] = paths.root
    os.environ["GANETI_HOSTNAME"] = MASTER
    row("milliseconds: median, 95 of 100", "reached", "at most, or at least")
    show_machine(base)
    with LuxiClient(paths) as client:
        nothing_ms = [run_job(client, NOTHING)[1] for _ in range(rounds)]
        row("a job that does nothing", f"{statistics.median(nothing_ms):.0f} ms")
        measure_one_at_a_time(client, base, rounds)
        measure_burst(client, burst)
        measure_list(base, rounds)
        if "kvm" in str(client.query_cluster_info()["enabled_hypervisors"]):
            measure_migration(client, 4, memory_mib)
    show_machine(base)


def main() -> int:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", help="a running virtual cluster, which stays as it is")
    parser.add_argument("--rounds", type=int, default=15, help="of each single operation")
    parser.add_argument("--burst", type=int, default=50, help="creations at once")
    parser.add_argument("--guest-mib", type=int, default=128, help="memory of the guest that moves")
    options = parser.parse_args()
    numbers = (options.rounds, options.burst, options.guest_mib)
    if options.base:
        run(os.path.abspath(options.base), *numbers)
        return 0
    with virtual_cluster(len(NODES)) as base:
        run(base, *numbers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
