"""The pages of a guest, by the kind of its first address."""

from __future__ import annotations

import pytest

from ganeti.metad.answers import page_at, pages
from ganeti.protocol.node_rpc_values import GuestMetadata, GuestNic

MAC = "aa:00:00:00:00:01"
ADDRESS, NETWORK = "address", "network"
NIC = f"network/interfaces/macs/{MAC}"


@pytest.mark.parametrize(
    ("address", "network", "has", "lacks"),
    [
        (
            "192.0.2.5",
            "192.0.2.0/24",
            {
                "local-ipv4": ADDRESS,
                f"{NIC}/local-ipv4s": ADDRESS,
                f"{NIC}/subnet-ipv4-cidr-block": NETWORK,
            },
            ("ipv6", f"{NIC}/ipv6s"),
        ),
        (
            "2001:db8::5",
            "2001:db8::/64",
            {"ipv6": ADDRESS, f"{NIC}/ipv6s": ADDRESS, f"{NIC}/subnet-ipv6-cidr-blocks": NETWORK},
            ("local-ipv4", f"{NIC}/local-ipv4s"),
        ),
    ],
)
def test_an_address_is_told_as_what_it_is(
    address: str, network: str, has: dict[str, str], lacks: tuple[str, ...]
) -> None:
    guest = GuestMetadata(
        name="web1.example.com",
        uuid="u",
        address="169.254.0.5",
        os="",
        hypervisor="kvm",
        memory=512,
        vcpus=1,
        tags=(),
        nics=(GuestNic(mac=MAC, ip=address, network=network),),
        disks=(),
        parameters={},
    )
    found = pages(guest)
    for name, kind in has.items():
        wanted = network if kind == NETWORK else address
        assert page_at(found, f"/latest/meta-data/{name}") == wanted.encode()
    for name in lacks:
        assert page_at(found, f"/latest/meta-data/{name}") is None
