"""Addresses of disks, as QEMU is told them."""

from __future__ import annotations

import pytest

from ganeti.base.errors import HypervisorError
from ganeti.protocol.qemu.images import image_from_uri


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("/srv/a b", {"driver": "file", "filename": "/srv/a b"}),
        ("file:/srv/x", {"driver": "file", "filename": "/srv/x"}),
        ("file:///srv/x", {"driver": "file", "filename": "/srv/x"}),
        (
            "nbd://[::1]/e%20x",
            {
                "driver": "nbd",
                "server": {"type": "inet", "host": "::1", "port": "10809"},
                "export": "e x",
            },
        ),
        (
            "nbd+unix:///?socket=/run/s",
            {"driver": "nbd", "server": {"type": "unix", "path": "/run/s"}},
        ),
        (
            "rbd:pool/image:id=admin:conf=/etc/ceph.conf",
            {
                "driver": "rbd",
                "pool": "pool",
                "image": "image",
                "user": "admin",
                "conf": "/etc/ceph.conf",
            },
        ),
        (
            "rbd:pool/image@snap",
            {"driver": "rbd", "pool": "pool", "image": "image", "snapshot": "snap"},
        ),
        (
            "gluster://gl1/gv0/ganeti/a%20b",
            {
                "driver": "gluster",
                "volume": "gv0",
                "path": "ganeti/a b",
                "server": [{"type": "inet", "host": "gl1", "port": "24007"}],
            },
        ),
        (
            "gluster://[::1]:24009/gv0/x",
            {
                "driver": "gluster",
                "volume": "gv0",
                "path": "x",
                "server": [{"type": "inet", "host": "::1", "port": "24009"}],
            },
        ),
        ("https://h/x", {"driver": "https", "url": "https://h/x"}),
        ('json:{"driver": "null-co"}', {"driver": "null-co"}),
    ],
)
def test_addresses_become_descriptions(uri: str, expected: dict[str, object]) -> None:
    assert image_from_uri(uri) == expected


@pytest.mark.parametrize(
    "uri",
    [
        "ftp://x",
        "",
        "nbd:///x",
        "nbd+unix:///x",
        "rbd:image",
        "rbd:p/i:x=1",
        "json:{",
        "json:{}",
        "gluster:///gv0/x",
        "gluster://h/gv0",
        "gluster://h/gv0/",
    ],
)
def test_others_are_refused_by_name(uri: str) -> None:
    with pytest.raises(HypervisorError, match="disk address"):
        image_from_uri(uri)
