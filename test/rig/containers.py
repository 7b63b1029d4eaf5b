"""Machines with real systemd, SSH and addresses of their own, as systemd-nspawn containers.

Everything is in network and mount namespaces of its own, so nothing of it is seen outside, and it
is gone with the processes.  A machine's files are an overlay over a file system of the store.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil

from . import store

BRIDGE: Final = "br0"
NETWORK: Final = "10.95.0."
MASTER_ADDRESS: Final = f"{NETWORK}100"
CLUSTER_NAME: Final = "cluster.example.com"
TIMEOUT_S: Final = 900.0
UP_TIMEOUT_S: Final = 120.0
_PAUSE_S: Final = 0.1
NAMESPACE: Final = "gnt"
NAMESPACES: Final = "/run/netns"
_CONTROL_GROUPS: Final = "/sys/fs/cgroup"
_networks = itertools.count(1)
_NO_SYSRQ: Final = "sysrq-trigger"  # a container may not restart the machine it runs on
_SSH_OPTIONS: Final = (
    *("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no"),
    *("-o", "UserKnownHostsFile=/dev/null"),
    *("-o", "LogLevel=ERROR", "-o", "ConnectTimeout=120"),
    *("-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=8"),
)
# Runs with a mount namespace of its own, so nothing stays mounted when it ends, and in control groups
# of its own, since each systemd takes itself for the owner of all that it sees.
_START = """
for group in $1; do mkdir "$group"; echo $$ > "$group/cgroup.procs"; done
shift
mount -t overlay overlay -o lowerdir="$1",upperdir="$2/upper",workdir="$2/work" "$2/root"
shift 2
exec "$@"
"""


def hosts() -> str:
    """Return the hosts file of all machines."""
    lines = ["127.0.0.1 localhost", f"{MASTER_ADDRESS} {CLUSTER_NAME}"]
    lines += [f"{NETWORK}{10 + n} node{n}.example.com node{n}" for n in range(1, 10)]
    return "\n".join(lines) + "\n"


@dataclass
class Answer:
    """What a command on a machine printed, and how it ended."""

    status: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"exit status {self.status}\n{self.out}{self.err}"


@dataclass
class Machine:
    """One machine; ``directory`` holds its files: ``root`` while it runs, else ``upper``."""

    number: int
    directory: Path
    network: Network
    process: subprocess.Popen[bytes] | None = None
    log: Path = field(init=False)

    def __post_init__(self) -> None:
        self.log = self.directory / "console.log"

    @property
    def name(self) -> str:
        return f"node{self.number}.example.com"

    @property
    def address(self) -> str:
        return f"{NETWORK}{10 + self.number}"

    def ssh(self, *words: str) -> list[str]:
        """Return the words of an ssh command that reaches it as root."""
        argv = ("ssh", *_SSH_OPTIONS, "-i", str(self.network.key), f"root@{self.address}", *words)
        return [*self.network.inside(), *argv]

    def try_run(
        self, command: str, stdin: str | bytes = "", timeout_s: float = TIMEOUT_S
    ) -> Answer:
        """Run a shell command as root over SSH."""
        outcome = subprocess.run(
            self.ssh("--", command),
            input=stdin if isinstance(stdin, bytes) else stdin.encode(),
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
        out, err = (said.decode("utf-8", "replace") for said in (outcome.stdout, outcome.stderr))
        return Answer(outcome.returncode, out, err)

    def run(self, command: str, stdin: str | bytes = "", timeout_s: float = TIMEOUT_S) -> str:
        """Run a shell command as root over SSH; it has to succeed.  Prints how long it took."""
        begun = time.monotonic()
        answer = self.try_run(command, stdin, timeout_s)
        print(f"{time.monotonic() - begun:6.1f} s  {self.name}: {command[:200]}")
        assert answer.status == 0, f"{self.name}: {command}: {answer}\n{self.told()}"
        return answer.out

    def wait_until(self, command: str, timeout_s: float = UP_TIMEOUT_S) -> str:
        """Run a command until it succeeds."""
        until = time.monotonic() + timeout_s
        while (answer := self.try_run(command)).status:
            assert time.monotonic() < until, f"{self.name}: {command}: {answer}\n{self.told()}"
            time.sleep(_PAUSE_S)
        return answer.out

    def told(self) -> str:
        """Return what may explain a failure: the ends of the console's and the daemons' logs."""
        logs = self.try_run(
            "tail -n 20 /var/log/{ganeti,xen,xen/console}/*.log 2>/dev/null; dmesg | tail -n 5"
        )
        return f"{self.console()}\n{logs.out}"

    def console(self) -> str:
        """Return the end of what the machine printed."""
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""


def add_bridge(machine: Machine) -> None:
    """Give a machine the bridge of its guests."""
    machine.run("ip link add br0 type bridge && ip link set br0 up")


def assert_healthy(machine: Machine) -> None:
    """Have a cluster verified by its master."""
    assert_well(machine.try_run("gnt-cluster verify"))


def assert_well(verified: Answer) -> None:
    """Check that a verification found nothing but what no container has."""
    errors = [line for line in (verified.out + verified.err).splitlines() if "ERROR" in line]
    unexpected = [line for line in errors if _NO_SYSRQ not in line]
    assert not unexpected, "\n".join(unexpected)


class Network:
    """A bridge in a network namespace, the key that opens all machines, and a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.namespace = f"{store.own_name(NAMESPACE)}{next(_networks)}"
        self.key = directory / "key"
        self.bridges = {BRIDGE: NETWORK}

    def inside(self) -> tuple[str, ...]:
        """Return the words before a command that is to run where the machines are reached."""
        return ("ip", "netns", "exec", self.namespace)

    def ip(self, words: str, namespace: str | None = None) -> None:
        """Run an ip command in the namespace."""
        store.run("ip", "-n", namespace or self.namespace, *words.split())

    def __enter__(self) -> Self:
        if not self.key.exists():
            store.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key)
        store.run("ip", "netns", "add", self.namespace)
        self.ip("link set lo up")
        for bridge, network in self.bridges.items():
            self.ip(f"link add {bridge} type bridge")
            self.ip(f"address add {network}1/24 dev {bridge}")
            self.ip(f"link set {bridge} up")
        return self

    def __exit__(self, *_: object) -> None:
        store.run("ip", "netns", "delete", self.namespace)


class Containers:
    """Some machines as containers over one file system."""

    def __init__(self, count: int, base: Sequence[Path], directory: Path) -> None:
        self.network = Network(directory)
        self._base = base
        self.machines = [
            Machine(n, directory / f"node{n}", self.network) for n in range(1, count + 1)
        ]

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as undo:
            undo.enter_context(self.network)
            undo.callback(self._stop_all)
            for machine in self.machines:
                self._prepare(machine)
                self.start(machine)
            for machine in self.machines:
                machine.wait_until("systemctl is-active --quiet multi-user.target")
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._undo.__exit__(kind, value, traceback)

    def _prepare(self, machine: Machine) -> None:
        for name in ("upper", "work", "root"):
            (machine.directory / name).mkdir(parents=True)
        upper = machine.directory / "upper"
        (upper / "etc/ssh").mkdir(parents=True)
        (upper / "etc/hostname").write_text(f"{machine.name}\n")
        (upper / "etc/hosts").write_text(hosts())
        let_in(upper, self.network.key)

    def start(self, machine: Machine) -> None:
        """Switch a machine on."""
        namespace = f"{self.network.namespace}-{machine.number}"
        self._unplug(machine, namespace)
        self._plug_in(machine, namespace)
        nspawn = (
            *(store.nspawn(), "--quiet", "--register=no", "--keep-unit", "--boot"),
            f"--machine=node{machine.number}",
            f"--hostname={machine.name}",
            f"--directory={machine.directory}/root",
            f"--bind-ro={store.wheels()}:/srv/wheels",
            "--capability=all",
            "--bind=/dev/net/tun",
        )
        # This way, and not by an option of nspawn, /sys shows the machine's own network.
        argv = (
            *("nsenter", f"--net={NAMESPACES}/{namespace}"),
            *("unshare", "--mount", "--propagation=private", "sh", "-ec", _START, "start"),
        )
        groups = " ".join(self._control_groups(machine))
        lower = ":".join(map(str, self._base))
        with open(machine.log, "ab") as log:
            machine.process = subprocess.Popen(
                [str(word) for word in (*argv, groups, lower, machine.directory, *nspawn)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _plug_in(self, machine: Machine, namespace: str) -> None:
        link = f"v{machine.number}"
        store.run("ip", "netns", "add", namespace)
        self.network.ip(f"link add {link} type veth peer name eth0 netns {namespace}")
        self.network.ip(f"link set {link} master {BRIDGE} up")
        self.network.ip("link set lo up", namespace)
        self.network.ip(f"address add {machine.address}/24 dev eth0", namespace)
        self.network.ip("link set eth0 up", namespace)

    def _unplug(self, machine: Machine, namespace: str) -> None:
        """Forget the addresses and devices of a machine that is off."""
        if Path(f"{NAMESPACES}/{namespace}").exists():
            with contextlib.suppress(RuntimeError):  # it goes by itself, but later
                self.network.ip(f"link delete v{machine.number}")
            store.run("ip", "netns", "delete", namespace)

    def _control_groups(self, machine: Machine) -> list[str]:
        """Return the control groups of a machine: one for each hierarchy that systemd uses."""
        return [f"{top}/{self.network.namespace}-{machine.number}" for top in _hierarchies()]

    def pull_plug(self, machine: Machine) -> None:
        """Kill everything on a machine at once."""
        process, machine.process = machine.process, None
        if process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children():
                    child.kill()  # the first process of the machine, and so all others
            process.wait(TIMEOUT_S)
        remove_control_groups(f"{self.network.namespace}-{machine.number}")

    def switch_off(self, machine: Machine) -> None:
        """Let a machine shut down in order."""
        assert machine.process is not None
        machine.try_run("systemctl poweroff")
        machine.process.wait(TIMEOUT_S)
        self.pull_plug(machine)

    def reboot(self, machine: Machine) -> None:
        """Let a machine shut down in order, and start it again."""
        self.switch_off(machine)
        self.start(machine)
        machine.wait_until("systemctl is-active --quiet multi-user.target")

    def _stop_all(self) -> None:
        for machine in self.machines:
            self.pull_plug(machine)
            self._unplug(machine, f"{self.network.namespace}-{machine.number}")


def _hierarchies() -> list[str]:
    tops = [f"{_CONTROL_GROUPS}/{name}" for name in ("systemd", "unified")]
    return [top for top in tops if os.path.isdir(top)] or [_CONTROL_GROUPS]


def remove_control_groups(pattern: str) -> None:
    """Remove the groups that systemd left; the kernel may still be busy with the dead in them."""
    until = time.monotonic() + UP_TIMEOUT_S
    for group in (group for top in _hierarchies() for group in Path(top).glob(pattern)):
        while group.is_dir():
            for directory, _, _ in os.walk(group, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(directory)
            assert time.monotonic() < until, f"{group} cannot be removed"
            time.sleep(_PAUSE_S)


def let_in(root: Path, key: Path) -> None:
    """Give a machine SSH host keys of its own, and let the owner of a key in as root."""
    store.run("ssh-keygen", "-A", "-f", root)
    ssh = root / "root/.ssh"
    ssh.mkdir(parents=True, mode=0o700)
    (root / "root").chmod(0o700)
    shutil.copy(f"{key}.pub", ssh / "authorized_keys")


@contextlib.contextmanager
def containers(count: int, *more: Path) -> Iterator[Containers]:
    """Yield running machines; ``more`` are directories over the plain Debian, the topmost first."""
    store.DIRECTORY.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(
            prefix=store.own_name(store.RUN), dir=store.DIRECTORY
        ) as directory,
        Containers(count, (*more, store.root()), Path(directory)) as running,
    ):
        yield running
