"""A cluster whose daemons run as Debian's users, in a mount namespace that has them.

It needs root; where no namespace can be had the test is left out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.base.daemons import DAEMONS, METAD

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare"),
]

CHECKOUT = Path(__file__).parents[2]
USERS = ("gnt-masterd", "gnt-confd", "gnt-rapi", "gnt-metad")
FIRST_ID = 64_100
GROUPS = {"gnt-daemons": USERS, "gnt-admin": ("gnt-rapi",), "gnt-luxid": ("gnt-masterd",)}
NODES = [f"node{number}.example.com" for number in (1, 2, 3)]
IN_NAMESPACE = """
mount --bind "$1/passwd" /etc/passwd
mount --bind "$1/group" /etc/group
if [ -n "$3" ]; then  # the interpreter lies where only root may look
    mount --bind "$2" "$1/python"
    mount -t tmpfs -o mode=755 tmpfs "$3"
    mkdir -p "$2"
    mount --bind "$1/python" "$2"
fi
touch "$1/is-there"
v() { command=$1; shift; "$PYTHON" tools/vcluster "$command" "$1/vc" "${@:2}"; }
on() { node=$1; shift; v run "$BASE" "$node" "$@"; }
trap 'v destroy "$BASE"' EXIT
v create "$BASE" --nodes 3 --hypervisor fake
for node in NODES; do on "$node" ensure-dirs; done
v stop "$BASE"
v start "$BASE"
on node1.example.com gnt-instance add -t diskless --no-install -n node2.example.com -o noop \\
    --no-name-check --no-ip-check inst1.example.com
on node1.example.com gnt-instance reboot inst1.example.com
on node1.example.com gnt-network add --network=127.77.1.0/24 talk
on node1.example.com gnt-network connect --nic-parameters=mode=routed,link=communication_rt talk
on node1.example.com gnt-cluster modify --instance-communication-network=talk
on node1.example.com gnt-instance modify --communication=yes inst1.example.com
on node2.example.com gnt-debug metad listinstances
on node1.example.com gnt-job archive 1
on node1.example.com gnt-node modify --offline=yes node3.example.com
on node1.example.com gnt-node modify --offline=no node3.example.com
on node2.example.com gnt-cluster master-failover
on node2.example.com gnt-cluster verify
for node in NODES; do on "$node" ensure-dirs --dry-run; done
for file in "$BASE"/vc/node2.example.com/var/run/ganeti/*.pid; do
    echo "user of $(basename "$file" .pid): $(stat -c %U "/proc/$(cat "$file")")"
done
""".replace("NODES", " ".join(NODES))


@pytest.fixture
def base() -> Iterator[Path]:
    """A short directory that all users may look into, with the files of users and groups."""
    directory = Path(tempfile.mkdtemp(prefix="gnt-"))
    directory.chmod(0o755)
    (directory / "python").mkdir()
    numbers = {name: FIRST_ID + number for number, name in enumerate((*USERS, *GROUPS))}
    users = [f"{name}:x:{numbers[name]}:{numbers[name]}::/:/bin/false\n" for name in USERS]
    groups = [f"{name}:x:{numbers[name]}:gnt-masterd\n" for name in USERS]
    groups += [f"{name}:x:{numbers[name]}:{','.join(of)}\n" for name, of in GROUPS.items()]
    for name, lines in (("passwd", users), ("group", groups)):
        (directory / name).write_text(Path(f"/etc/{name}").read_text() + "".join(lines))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def private_above(path: Path) -> Path | None:
    """Return the topmost directory above, or itself, that others may not look into."""
    above = [*reversed(path.parents), path]
    return next((each for each in above if not each.stat().st_mode & 0o001), None)


def test_a_cluster_runs_and_fails_over_as_the_users_of_debian(base: Path) -> None:
    if private_above(CHECKOUT) is not None:
        pytest.skip("other users cannot read the sources")
    interpreter = Path(sys.base_prefix).resolve()
    private = private_above(interpreter)
    done = subprocess.run(
        [
            *("unshare", "--mount", "--propagation", "private", "bash", "-ec", IN_NAMESPACE),
            *("bash", str(base), str(interpreter), str(private or "")),
        ],
        cwd=CHECKOUT,
        env={**os.environ, "PYTHON": sys.executable, "BASE": str(base)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if not (base / "is-there").exists():
        pytest.skip(f"no mount namespace can be had here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stdout + done.stderr
    found = dict(
        line.removeprefix("user of ").split(": ")
        for line in done.stdout.splitlines()
        if line.startswith("user of ")
    )
    wanted = [each for each in DAEMONS if not each.only_with or each.name == METAD]
    assert found == {daemon.name: daemon.user for daemon in wanted}
    assert "inst1.example.com: 127.77.1.1\n" in done.stdout
