#!/usr/bin/env python3
"""Measures what one run of the watcher takes on a large cluster.

    bench/watcher.py [--instances 10000] [--crashed 100]

Makes a virtual cluster of three nodes below a temporary directory, lays synthetic instances that
run into its configuration, and runs the watcher of the master: first when it has seen nothing, then
when all is well, then when some instances have crashed.  Disks are not verified: that is a job.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time

from jobs import CHECKOUT, MASTER, virtual_cluster
from query import fill, name_of, start_masters, stop_masters

from ganeti.bootstrap.virtual import lifecycle
from ganeti.clients.luxi import LuxiClient


def processor_s() -> float:
    """Return the processor time of all children that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def one_run(base: str, what: str) -> None:
    """Run the watcher once, and print how long it took."""
    tool = [sys.executable, f"{CHECKOUT}/tools/vcluster", "run", base, MASTER, "--"]
    began, used = time.monotonic(), processor_s()
    command = [*tool, "ganeti-watcher", "--no-verify-disks"]
    ended = subprocess.run(command, check=False)
    took_s, used_s = time.monotonic() - began, processor_s() - used
    print(f"{what:<32}{took_s:8.2f} s, processor {used_s:.2f} s, exit status {ended.returncode}")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=10_000)
    parser.add_argument("--crashed", type=int, default=100)
    wanted = parser.parse_args()
    words = ("--hypervisor", "fake", "--without", "ganeti-mond,ganeti-rapi,ganeti-confd")
    with virtual_cluster(3, *words) as base:
        cluster = lifecycle.load(base)
        paths = cluster.paths_of(MASTER)
        with open(paths.config_data, encoding="utf-8") as file:
            config = json.load(file)
        stop_masters(paths)
        fill(cluster, config, wanted.instances)
        start_masters(paths)
        one_run(base, "the first run")
        one_run(base, "all instances run")
        for number in range(wanted.crashed):
            node = sorted(config["nodes"])[number % len(config["nodes"])]
            directory = cluster.paths_of(config["nodes"][node]["name"]).fake_dir
            os.unlink(f"{directory}/{name_of(number)}")
        one_run(base, f"{wanted.crashed} have crashed")
        with LuxiClient(paths) as client:
            jobs = client.query("job", ["id"], ["=", "priority", -10]).rows()
        print(f"{'jobs submitted':<32}{len(jobs):8}")


if __name__ == "__main__":
    main()
