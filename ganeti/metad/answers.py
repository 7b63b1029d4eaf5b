"""The pages that a guest may read about itself: from metadata to texts, no I/O.

Source: hooks_os_ext.json, "metadata_daemon", "get_urls"; beside them the addresses that guests made
for Amazon EC2 ask for: a directory answers with its names, one a line, those of directories with a
slash behind them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from ganeti.base.json import dumps
from ganeti.objects.nic import leads_to_node
from ganeti.protocol.node_rpc_values import GuestMetadata, GuestNic

OURS: Final = "ganeti"
_LATEST: Final = "latest"
_EC2_VERSIONS: Final = ("2009-04-04", _LATEST)  # the first of them is what cloud-init asks for


class OfDefinition(NamedTuple):
    """A page that is made of the files of the guest's operating system definition on the node.

    Attributes:
        script: the script wanted; "" for the package of all.
    """

    script: str = ""


Page: TypeAlias = bytes | OfDefinition
Pages: TypeAlias = "Mapping[str, Page | Pages]"
_SCRIPTS: Final = ("create", "create_untrusted", "export", "import", "rename", "verify")
_OF_DEFINITION: Final[Pages] = {
    "os-install-package": OfDefinition(),
    "package": OfDefinition(),
    "scripts": {name: OfDefinition(name) for name in _SCRIPTS},
}


def pages(guest: GuestMetadata) -> Pages:
    """Return all pages of a guest, by the parts of their addresses."""
    ec2 = _ec2(guest)
    of_os: dict[str, Page | Pages] = {"parameters.json": dumps(dict(guest.parameters))}
    if guest.os:
        of_os |= _OF_DEFINITION
    return {
        **dict.fromkeys(_EC2_VERSIONS, ec2),
        OURS: {_LATEST: {"meta_data.json": dumps(_description(guest)), "os": of_os}},
    }


def page_at(found: Pages, path: str) -> Page | None:
    """Return the page at an address, the names in a directory; None if there is nothing."""
    place: Page | Pages = found
    for part in path.strip("/").split("/") if path.strip("/") else ():
        if not isinstance(place, Mapping) or part not in place:
            return None
        place = place[part]
    if not isinstance(place, Mapping):
        return place
    names = [f"{name}/" if isinstance(place[name], Mapping) else name for name in sorted(place)]
    return "\n".join(names).encode()


def _description(guest: GuestMetadata) -> dict[str, object]:
    """Return the metadata without the parameters, which have an address of their own."""
    found = guest.to_wire()
    del found["parameters"]
    return {"hostname": guest.name, **found}


def _value(guest: GuestMetadata, name: str) -> str:
    value, _visibility = guest.parameters.get(name, ("", None))
    return value


def _ec2(guest: GuestMetadata) -> Pages:
    first = _first_nic(guest)
    values = {
        "ami-id": guest.os,
        "hostname": guest.name,
        "instance-id": guest.uuid,
        "instance-type": guest.hypervisor,
        "local-hostname": guest.name,
        "local-ipv4": first.ip if first and not _has_ipv6(first) else "",
        "ipv6": first.ip if first and _has_ipv6(first) else "",
        "mac": first.mac if first else "",
    }
    found: dict[str, Page | Pages] = {
        name: value.encode() for name, value in values.items() if value
    }
    found["network"] = {
        "interfaces": {"macs": {nic.mac: _ec2_nic(guest, nic) for nic in guest.nics}}
    }
    keys = [line for line in _value(guest, "ssh_key").splitlines() if line.strip()]
    if keys:
        found["public-keys"] = {
            f"{index}": {"openssh-key": key.encode()} for index, key in enumerate(keys)
        }
    data = _value(guest, "user_data")
    # A path is a file of the node, whose content the scripts of the operating system bring along.
    own = {"user-data": data.encode()} if data and not data.startswith("/") else {}
    return {"meta-data": found, **own}


def _first_nic(guest: GuestMetadata) -> GuestNic | None:
    """Return the first interface that leads to others than the node."""
    others = [nic for nic in guest.nics if not leads_to_node(nic.name)]
    return others[0] if others else None


def _has_ipv6(nic: GuestNic) -> bool:
    return ":" in nic.ip


def _ec2_nic(guest: GuestMetadata, nic: GuestNic) -> Pages:
    values = {"device-number": f"{list(guest.nics).index(nic)}", "mac": nic.mac}
    if _has_ipv6(nic):
        values |= {"ipv6s": nic.ip, "subnet-ipv6-cidr-blocks": nic.network}
    else:
        values |= {"local-ipv4s": nic.ip, "subnet-ipv4-cidr-block": nic.network}
    return {name: value.encode() for name, value in values.items() if value}
