"""The configured DRBD resources of this node, from the output of ``drbdsetup show``.

    resource resource0 {
        net {
            cram-hmac-alg       "md5";
        }
        _remote_host {
            address             ipv4 10.0.0.2:11000;
        }
        _this_host {
            address             ipv4 10.0.0.1:11000;
            volume 0 {
                device          minor 0;
                disk            "/dev/xenvg/u.disk0_data";
                meta-disk       "/dev/xenvg/u.disk0_meta" [ 0 ];
                disk {
                    resync-rate         61440k; # bytes/second
                }
            }
        }
    }

Source: drbdsetup(8) of DRBD 8.4, "show"; drbd.conf(5).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyparsing as pp

from ganeti.base.errors import GenericError

COMMAND: Final = ("drbdsetup", "show", "--show-defaults")

Options = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Minor:
    """One device: where its data is, and its options; paths are "" while it has no disk."""

    minor: int
    data: str = ""
    meta: str = ""
    options: Options = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource: its addresses, as drbdsetup takes them, and its devices by volume number.

    Attributes:
        local: "" while it has no connection, as ``remote`` then.
    """

    name: str
    local: str = ""
    remote: str = ""
    options: Options = field(default_factory=dict, repr=False)  # the secret is one of them
    volumes: Mapping[int, Minor] = field(default_factory=dict)

    def __str__(self) -> str:
        """Tell it in a message."""
        disks = [f"{each.data} and {each.meta}" for each in self.volumes.values() if each.data]
        link = f"connection from {self.local} to {self.remote}" if self.local else "no connection"
        return f"resource {self.name}: {', '.join(disks) or 'no disk'}, {link}"


_word: Final = pp.QuotedString('"', esc_char="\\", unquote_results=True) | pp.Regex(r'[^\s{};"]+')
_words: Final = pp.Group(pp.OneOrMore(_word))
_section: Final = pp.Forward()
_body: Final = pp.ZeroOrMore(_section | pp.Group(_words + pp.Suppress(";")))
_section << pp.Group(_words + pp.Suppress("{") + pp.Group(_body) + pp.Suppress("}"))
_FILE: Final = pp.ZeroOrMore(_section).ignore(pp.Regex(r"#[^\n]*"))

_Section = tuple[list[str], list[Any]]


def parse(text: str) -> list[Resource]:
    """Return the resources.

    Raises:
        GenericError: the text cannot be understood.
    """
    try:
        sections = _FILE.parse_string(text, parse_all=True).as_list()
        return [_resource(name, body) for (_kind, name), body in sections]
    except (pp.ParseBaseException, ValueError, IndexError) as err:
        raise GenericError(f"cannot understand the output of {' '.join(COMMAND)}: {err}") from err


def _sections(body: Sequence[Any], kind: str) -> Iterator[_Section]:
    """Yield (words after the kind, contents) of each section of a kind."""
    for item in body:
        if len(item) == 2 and item[0][0] == kind:
            yield item[0][1:], item[1]


def _statements(body: Sequence[Any]) -> dict[str, list[str]]:
    return {item[0][0]: item[0][1:] for item in body if len(item) == 1}


def _options(body: Sequence[Any], kind: str) -> dict[str, str]:
    return {
        name: " ".join(words)
        for _, inner in _sections(body, kind)
        for name, words in _statements(inner).items()
    }


def _resource(name: str, body: Sequence[Any]) -> Resource:
    here = [item for _, inner in _sections(body, "_this_host") for item in inner]
    there = [item for _, inner in _sections(body, "_remote_host") for item in inner]
    local, remote = (_statements(each).get("address", []) for each in (here, there))
    return Resource(
        name=name,
        local=_address(local) if remote else "",
        remote=_address(remote),
        options=_options(body, "net"),
        volumes={int(number): _minor(inner) for (number,), inner in _sections(here, "volume")},
    )


def _minor(body: Sequence[Any]) -> Minor:
    words = _statements(body)
    return Minor(
        minor=int(words["device"][-1]),
        data=words.get("disk", [""])[0],
        meta=words.get("meta-disk", [""])[0],
        options=_options(body, "disk"),
    )


def _address(words: Sequence[str]) -> str:
    """Return family and address in the form of an argument of drbdsetup."""
    if not words:
        return ""
    host, _, port = words[-1].rpartition(":")
    return address(host.strip("[]"), int(port))


def address(host: str, port: int) -> str:
    """Return an address as an argument of drbdsetup; one address has one form.

    Raises:
        ValueError: ``host`` is no IP address.
    """
    ip = ipaddress.ip_address(host)
    return f"ipv6:[{ip}]:{port}" if ip.version == 6 else f"ipv4:{ip}:{port}"
