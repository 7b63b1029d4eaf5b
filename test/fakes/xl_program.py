"""A played ``xl``: domains that are lines in a file below the root of a virtual node.

`install` makes it a program, and one called ``ssh`` beside it, which runs a command "on" the node
that expects the instance.  A guest obeys unless the command line of its kernel says otherwise:
``stubborn`` does not shut down, ``moves=never`` cannot be migrated live.

The output has the form of Xen 4.17.
"""

from __future__ import annotations

import ast
import contextlib
import fcntl
import json
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

TOTAL_MIB = 16384
DOMAIN_0_MIB = 1024
STATE = "xl.json"
_NO_LOGDIRTY = """\
xc: error: Failed to enable logdirty: 95,22,0: Internal error
libxl: error: libxl_stream_write.c:338:stream_complete: Domain 1:unsuccessful, rc=-3
migration sender: libxl_domain_suspend failed (rc=-3)
Migration failed, resuming at sender.
"""
Domains = dict[str, dict[str, Any]]


class Refused(Exception):
    """What xl says on its errors, before it ends with status 1."""


@contextlib.contextmanager
def domains(root: Path) -> Iterator[Domains]:
    """Hold the domains of a node; they are written back."""
    path = root / STATE
    with open(f"{path}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found: Domains = json.loads(path.read_text()) if path.exists() else {}
        yield found
        path.write_text(json.dumps(found))


def read_config(path: Path) -> dict[str, Any]:
    """Read a configuration as xl does: each line is a value of Python."""
    pairs = (line.split(" = ", 1) for line in path.read_text().splitlines() if line[0] != "#")
    return {key: ast.literal_eval(value) for key, value in pairs}


class Node:
    """One node, and the commands on it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def other(self, name: str) -> Node:
        """Return the node that expects an instance."""
        mark = f"var/run/ganeti/xen-hypervisor/incoming/{name}"
        for root in self.root.parent.iterdir():
            if root != self.root and (root / mark).exists():
                return Node(root)
        raise Refused("migration target: Domain creation failed (nobody expects it).")

    def list(self, *words: str) -> None:
        with domains(self.root) as found:
            rows = [(name, each) for name, each in found.items() if not words[1:] or name in words]
        if words[:1] == ("-l",):
            print(json.dumps([_long(name, each) for name, each in rows]))
            return
        print("Name                                        ID   Mem VCPUs\tState\tTime(s)")
        print(
            f"Domain-0                                     0  {DOMAIN_0_MIB}     2     r-----     123.4"
        )
        for name, each in rows:
            used_s = max(0.0, time.time() - each["started"])
            print(
                f"{name:40} {each['id']:5} {each['memory']:5} {each['vcpus']:5}"
                f"     {each['flags']} {used_s:8.1f}"
            )

    def info(self) -> None:
        with domains(self.root) as found:
            used = DOMAIN_0_MIB + sum(each["memory"] for each in found.values())
        print("host                   : node1\nrelease                : 6.1.0-18-amd64")
        print("nr_cpus                : 4\nnr_nodes               : 1\ncores_per_socket       : 2")
        print("threads_per_core       : 1\nvirt_caps              : pv hvm hap")
        print(
            f"total_memory           : {TOTAL_MIB}\nfree_memory            : {TOTAL_MIB - used - 64}"
        )
        print(
            "xen_major              : 4\nxen_minor              : 17\nxen_extra              : .3"
        )

    def create(self, *words: str) -> None:
        config = read_config(Path(words[-1]))
        if not os.path.exists(config.get("kernel", "/")):
            raise Refused(f"xc: error: panic: xg_dom_core.c: {config['kernel']}: No such file")
        self.add(config["name"], config, paused="-p" in words)

    def add(self, name: str, config: dict[str, Any], *, paused: bool, started: float = 0) -> None:
        with domains(self.root) as found:
            if name in found:
                raise Refused(f'libxl: error: Domain with name "{name}" already exists.')
            found[name] = {
                "id": _next(found),
                "memory": config["memory"],
                "vcpus": config["vcpus"],
                "flags": "--p---" if paused else "-b----",
                "started": started or time.time(),
                "config": config,
            }

    @contextlib.contextmanager
    def domain(self, name: str) -> Iterator[tuple[Domains, dict[str, Any]]]:
        with domains(self.root) as found:
            if name not in found:
                raise Refused(f"{name} is an invalid domain identifier (rc=-6)")
            yield found, found[name]

    def destroy(self, name: str) -> None:
        with self.domain(name) as (found, _domain):
            del found[name]

    def shutdown(self, *words: str) -> None:
        with self.domain(words[-1]) as (found, domain):
            stubborn = "stubborn" in domain["config"].get("extra", "")
            if not stubborn:
                keep = domain["config"]["on_poweroff"] == "preserve"
                domain["flags"] = "---s--"
                if not keep:
                    del found[words[-1]]
        if stubborn:
            time.sleep(300)

    def reboot(self, *words: str) -> None:
        with self.domain(words[-1]) as (found, domain):
            if "stubborn" in domain["config"].get("extra", ""):
                return
            domain["id"] = _next(found)
            domain["started"] = time.time()

    def unpause(self, name: str) -> None:
        with self.domain(name) as (_found, domain):
            domain["flags"] = "-b----"

    def pause(self, name: str) -> None:
        with self.domain(name) as (_found, domain):
            domain["flags"] = "--p---"

    def mem_set(self, name: str, memory: str) -> None:
        with self.domain(name) as (_found, domain):
            if int(memory) > domain["config"]["maxmem"]:
                raise Refused("libxl: error: memory target is above the static maximum")
            domain["memory"] = int(memory)

    def migrate(self, *words: str) -> None:
        name = words[-2]
        with self.domain(name) as (_found, domain):
            if "moves=never" in domain["config"].get("extra", ""):
                raise Refused(_NO_LOGDIRTY)
        target = self.other(name)
        self.destroy(name)
        target.add(name, _now(domain), paused=False, started=domain["started"])

    def save(self, *words: str) -> None:
        name, path = words[-2:]
        with self.domain(name) as (_found, domain):
            domain["flags"] = "--p---"
            Path(path).write_text(json.dumps([name, _now(domain), domain["started"]]))

    def restore(self, *words: str) -> None:
        name, config, started = json.loads(Path(words[-1]).read_text())
        self.add(name, config, paused="-p" in words, started=started)

    def console(self, *words: str) -> None:
        with self.domain(words[-1]):
            print(f"the console of {words[-1]}")


def _next(found: Domains) -> int:
    return 1 + max((each["id"] for each in found.values()), default=0)


def _now(domain: dict[str, Any]) -> dict[str, Any]:
    return {**domain["config"], "memory": domain["memory"]}


def _long(name: str, domain: dict[str, Any]) -> dict[str, Any]:
    sizes = {"max_memkb": domain["config"]["maxmem"] << 10, "target_memkb": domain["memory"] << 10}
    c_info = {"type": domain["config"]["type"], "name": name, "uuid": domain["config"]["uuid"]}
    return {"domid": domain["id"], "config": {"c_info": c_info, "b_info": sizes}}


def main(program: str, *words: str) -> int:
    """Be one of the programs."""
    node = Node(Path(os.environ["GANETI_ROOTDIR"]))
    try:
        if program == "ssh":
            data = sys.stdin.read()
            name, config, started = json.loads(data)
            assert shlex.join(words).endswith("xl restore -p /dev/stdin")
            node.other(name).add(name, config, paused=True, started=started)
            return 0
        command, *rest = words
        getattr(node, command.replace("-", "_"))(*rest)
    except Refused as err:
        sys.stderr.write(f"{err}\n")
        return 1
    return 0


def install(directory: Path) -> str:
    """Make the programs in a directory; returns the PATH that finds them first."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("xl", "ssh"):
        program = directory / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -I {__file__} {name} "$@"\n')
        program.chmod(0o755)
    return f"{directory}:{os.environ['PATH']}"


def prepare(roots: Sequence[str]) -> None:
    """Put the files on nodes that the defaults of parameters name."""
    for root in roots:
        for path, text in (
            ("boot/vmlinuz-3-xenU", "kernel"),
            ("etc/ganeti/vnc-cluster-password", "secret"),
        ):
            target = Path(root, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
