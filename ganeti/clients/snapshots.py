"""Snapshots of clusters for the tools for placement, and the load of nodes, as daemons tell them.

Source: manual page htools(1), "Backend specification"; mond.json.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from msgspec import ValidationError, convert

from ganeti.allocation.model import Node
from ganeti.allocation.snapshot import Snapshot
from ganeti.allocation.sources.listings import ask_master, from_listings
from ganeti.allocation.sources.utilisation import Report
from ganeti.base.daemons import MOND_PORT
from ganeti.base.errors import GenericError, ProtocolError, TransportError
from ganeti.base.json import loads, loads_as
from ganeti.clients.rapi import Password, RapiClient, RapiRefusedError
from ganeti.protocol.rapi.values import DEFAULT_PORT
from ganeti.system.files import read_bytes
from ganeti.transport.curl_pool import CurlPool, CurlRequest, TlsTrust

from_luxi: Final = ask_master
_FILES: Final = "file://"
_FILE_BYTES_MAX: Final = 256 << 20  # as of other files with clusters
_MOND_TIMEOUT_S: Final = 10.0
_OK: Final = 200
_Rows = list[dict[str, Any]]


def from_rapi(
    address: str,
    *,
    more_exclusion: Iterable[str] = (),
    kvm_node_memory: int = 0,
    offline: Sequence[str] = (),
) -> Snapshot:
    """Return the cluster that a remote API tells; the other arguments are those of `from_listings`.

    Args:
        address: host, host and port, or URL, which may have a user and a password; one of a
            directory (``file://``) with the answers ``groups.json``, ``nodes.json``,
            ``instances.json`` and ``info.json``.

    Raises:
        GenericError: it does not answer, or the answers make no sense.
    """
    ask = _read_answers if address.startswith(_FILES) else _ask_rapi
    try:
        info, *rows = ask(address)
        found = convert(info, dict[str, Any])
        groups, nodes, instances = (convert(each, _Rows) for each in rows)
        more: dict[str, Any] = {
            "more_exclusion": more_exclusion,
            "kvm_node_memory": kvm_node_memory,
            "offline": offline,
        }
        return from_listings(found, groups, nodes, instances, **more)
    except ValidationError as err:
        raise GenericError(f"{_shown(address)}: no answer of a remote API: {err}") from err
    except (ProtocolError, TransportError, RapiRefusedError) as err:
        raise GenericError(f"{_shown(address)}: {err.message}") from err


def _read_answers(url: str) -> list[object]:
    directory = url.removeprefix(_FILES)
    found = []
    for name in ("info", "groups", "nodes", "instances"):
        path = f"{directory}/{name}.json"
        try:
            found.append(loads(read_bytes(path, _FILE_BYTES_MAX)))
        except OSError as err:
            raise GenericError(f"{path}: {err.strerror}") from err
    return found


def _ask_rapi(address: str) -> list[object]:
    host, port, login = _address(address)
    # As with 3.0, anybody is believed to be the cluster, and gets the password if one is given.
    trust = TlsTrust(checks_certificate=False)
    with RapiClient(host, port, login=login, trust=trust) as client:
        kinds = client.get_groups, client.get_nodes, client.get_instances
        return [client.get_info(), *(ask(bulk=1) for ask in kinds)]


def _address(text: str) -> tuple[str, int, Password | None]:
    """Return host, port and login of an address or URL."""
    try:
        parts = urlsplit(text if "://" in text else f"https://{text}")
        port = parts.port or DEFAULT_PORT
    except ValueError as err:
        raise GenericError(f"--master: {_shown(text)!r} is no address: {err}") from err
    login = None
    if parts.username is not None:
        login = Password(unquote(parts.username), unquote(parts.password or ""))
    return parts.hostname or "", port, login


def _shown(address: str) -> str:
    """Return an address for messages, without user and password."""
    if address.startswith(_FILES):
        return address
    scheme, separator, rest = address.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def reports_of(nodes: Iterable[Node]) -> dict[str, list[Report]]:
    """Ask the monitoring daemon of each node that is online.

    Those that do not answer, or with something else than reports, are left out.
    """
    asked = [node for node in nodes if not node.is_offline]
    requests = [
        CurlRequest(_reports_url(node), b"", _MOND_TIMEOUT_S, method="GET") for node in asked
    ]
    found = {}
    with closing(CurlPool(None)) as pool:
        for node, answer in zip(asked, pool.perform(requests), strict=True):
            if answer.error is None and answer.status == _OK:
                with suppress(ProtocolError):
                    found[node.name] = loads_as(list[Report], answer.body)
    return found


def _reports_url(node: Node) -> str:
    host = node.address or node.name
    return f"http://{f'[{host}]' if ':' in host else host}:{MOND_PORT}/1/report/all"
