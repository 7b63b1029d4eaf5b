"""A cluster on machines of the rig, made by the commands of doc/installation.md."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ganeti.objects.disk_templates import supported_templates

from . import store
from .installed import commands
from .store import CHECKOUT
from .virtual_machines import VOLUME_GROUP, VirtualMachine, VirtualMachines, run_directory

_MADE_BY = "bootstrap/*.py"
# All have the host keys of their image; ssh-keyscan is too hasty for these machines.
_KNOW_HOSTS = "sed 's/^/{names} /' /etc/ssh/ssh_host_*_key.pub >> /root/.ssh/known_hosts"
_TEMPLATES = {"diskless", "drbd", "file", "plain"}
# Guests may be as small as these machines.
_BOUNDS = (
    "min:memory-size=16,cpu-count=1,disk-count=1,disk-size=1,nic-count=0,spindle-use=1"
    "/max:memory-size=32768,cpu-count=8,disk-count=16,disk-size=1048576,nic-count=8,spindle-use=12"
)


def make_cluster(machines: Sequence[VirtualMachine]) -> None:
    """Make a cluster of all machines, with a replication network and all disks that they can have."""
    first, *others = machines
    for machine in machines:
        machine.run("; ".join(["set -e", *commands("prepare")]))
    (init,) = (command for command in commands("init") if " init " in command)
    templates = sorted(_TEMPLATES.intersection(supported_templates()))
    options = [
        f"--secondary-ip={first.secondary}",
        f"--enabled-disk-templates={','.join(templates)}",
        f"--ipolicy-bounds-specs={_BOUNDS}",
    ]
    if "plain" in templates:
        options.append(f"--vg-name={VOLUME_GROUP}")
    init = re.sub(r" --enabled-disk-templates=\S*", "", init)
    first.run(init.replace(" init ", f" init {' '.join(options)} "))
    key = first.run("cat /root/.ssh/id_rsa.pub")
    first.run(_KNOW_HOSTS.format(names=",".join(machine.name for machine in others)))
    for machine in others:
        machine.run("cat >> /root/.ssh/authorized_keys", key)
        first.run(f"gnt-node add --secondary-ip={machine.secondary} {machine.name}")


def _fingerprint(count: int) -> str:
    """Return what changes when a cluster has to be made anew; other new sources go on with a saved one."""
    digest = hashlib.sha256(repr((count, store.PACKAGES)).encode())
    here = Path(__file__)
    made_by = [here, here.with_name("virtual_machines.py"), *(CHECKOUT / "ganeti").glob(_MADE_BY)]
    for path in sorted(made_by):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def saved(count: int) -> Path | None:
    """Return the disks of machines that are a cluster, if the store has them."""
    return store.found("clusters", _fingerprint(count))


def make_or_wait(machines: VirtualMachines) -> None:
    """Wait until the first machine is master; where nothing was saved, make the cluster and save it."""
    first, count = machines.machines[0], len(machines.machines)
    if machines.is_saved:
        first.wait_until("gnt-job list")
        return
    make_cluster(machines.machines)
    machines.at_all(lambda machine: machine.run("touch /etc/ssh/ssh_host_*"))  # not of the image
    store.version("clusters", _fingerprint(count), machines.save)


@contextlib.contextmanager
def cluster(count: int) -> Iterator[VirtualMachines]:
    """Yield running machines that are a cluster."""
    with run_directory() as directory, VirtualMachines(count, directory, saved(count)) as running:
        make_or_wait(running)
        yield running
