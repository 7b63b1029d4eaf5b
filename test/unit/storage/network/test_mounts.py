"""The kernel's table of mounts."""

from __future__ import annotations

import pytest

from ganeti.storage.network import mounts
from ganeti.storage.network.mounts import Mount

# From a real node; the last one has a blank in its name.
TABLE = """\
28 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 28 0:26 / /run rw,nosuid shared:5 - tmpfs tmpfs rw,size=803340k
95 30 0:61 / /run/ganeti/gluster rw,relatime shared:9 - fuse.glusterfs gl1:/gv0 rw,user_id=0
96 28 0:62 / /srv/a\\040b rw - nfs4 host:/x rw
97 30 0:63 / /run/ganeti/gluster rw - tmpfs none rw
"""


def test_a_table_is_understood() -> None:
    found = mounts.parse(TABLE)
    assert found[2] == Mount("/run/ganeti/gluster", "fuse.glusterfs", "gl1:/gv0")
    assert found[3].place == "/srv/a b"


def test_the_last_mount_at_a_place_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "read", lambda: mounts.parse(TABLE))
    monkeypatch.setattr(mounts.os.path, "realpath", lambda path: path.replace("/var/run", "/run"))
    assert mounts.at("/var/run/ganeti/gluster") == Mount("/run/ganeti/gluster", "tmpfs", "none")
    assert mounts.at("/run/ganeti") is None
    assert mounts.below("/var/run/") == ["/run/ganeti/gluster"]
    assert mounts.below("/srv") == ["/srv/a b"]
    assert mounts.below("/sr") == []


def test_the_real_table_has_proc() -> None:
    found = mounts.at("/proc")
    assert found is not None
    assert found.kind == "proc"
