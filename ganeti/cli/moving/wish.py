"""The instance in its new cluster: as it is, but for the options.  Pure.

Back-end parameters are taken as they are in effect, so that the guest has the memory and processors
that it had with any defaults of the new cluster; parameters of hypervisor and operating system
only as far as they are the instance's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ganeti.base.errors import OpPrereqError, ProtocolError
from ganeti.cli.instance.devices import nic_settings
from ganeti.objects.record import PrivateParams
from ganeti.opcodes.instance import InstanceCreateMode

SHUTDOWN_TIMEOUT_S: Final = 120  # that of the opcodes
_OF_CONNECTION: Final = ("mode", "link", "vlan")  # NICs in a network have them from there
_MEMORY: Final = "memory"
_LIMITS: Final = ("minmem", "maxmem")


@dataclass(frozen=True, slots=True)
class Overrides:
    """The options about the new instance; empty ones leave it as it is."""

    beparams: Mapping[str, object] = field(default_factory=dict)
    hvparams: Mapping[str, object] = field(default_factory=dict)
    osparams: Mapping[str, object] = field(default_factory=dict)
    osparams_private: Mapping[str, object] = field(default_factory=dict)
    nics: Sequence[tuple[str, object]] = ()
    disk_template: str | None = None
    primary_node: str | None = None
    secondary_node: str | None = None
    iallocator: str | None = None
    compress: str = "none"


@dataclass(frozen=True, slots=True)
class Source:
    """An instance as its cluster describes it; ``facts`` are those of 'gnt-instance info'."""

    name: str
    is_running: bool
    facts: Mapping[str, Any]

    @property
    def disks(self) -> Sequence[Mapping[str, Any]]:
        """Its disks."""
        disks: Sequence[Mapping[str, Any]] = self.facts["disks"]
        return disks


@dataclass(frozen=True, slots=True)
class Wish:
    """One move: an instance, and its changes, as parameters of its creation."""

    source: Source
    name: str
    creation: Mapping[str, Any]

    @property
    def disk_mib(self) -> int:
        """How much room its disks take."""
        return sum(disk["size"] for disk in self.creation["disks"])

    @property
    def memory_mib(self) -> int:
        """How much memory it takes once it runs; 0 if that cannot be told."""
        wanted = self.creation["beparams"]
        memory = wanted.get(_MEMORY, wanted.get("maxmem", 0))
        return int(memory) if str(memory).isdigit() else 0


def plan(source: Source, name: str, wanted: Overrides) -> Wish:
    """Decide on the settings of the new instance.

    Raises:
        OpPrereqError: an option contradicts, or means an interface that there is not.
        ProtocolError: the source describes the instance in another way than is known here.
    """
    facts = source.facts
    try:
        creation = {
            "instance_name": name,
            "mode": InstanceCreateMode.REMOTE_IMPORT,
            "disk_template": wanted.disk_template or facts["disk_template"],
            "disks": [_disk(disk) for disk in source.disks],
            "nics": _nics([_nic(nic) for nic in facts["nics"]], wanted.nics),
            "hypervisor": facts["hypervisor"],
            "hvparams": {**facts["hv_instance"], **wanted.hvparams},
            "beparams": _beparams(facts["be_actual"], wanted.beparams),
            "os_type": facts["os"] or None,
            "osparams": {**facts["os_instance"], **wanted.osparams},
            "osparams_private": _private(wanted.osparams_private),
            "tags": list(facts["tags"]),
            "pnode": wanted.primary_node,
            "snode": wanted.secondary_node,
            "iallocator": wanted.iallocator,
            "start": source.is_running,
            "compress": wanted.compress,
            "name_check": False,
            "ip_check": False,  # its address answers as long as it runs where it is
            "source_instance_name": source.name,
            "source_shutdown_timeout": SHUTDOWN_TIMEOUT_S,
        }
    except (KeyError, IndexError, TypeError) as err:
        raise ProtocolError(
            f"the source cluster describes instance {source.name!r} in an unknown way: {err!r}"
        ) from err
    return Wish(source, name, {key: value for key, value in creation.items() if value is not None})


def _private(values: Mapping[str, object]) -> PrivateParams | None:
    return PrivateParams(values) if values else None


def _disk(disk: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: disk[key] for key in ("size", "mode", "name", "spindles")}
    return {key: value for key, value in kept.items() if value is not None}


def _nic(nic: Sequence[Any]) -> dict[str, Any]:
    """Return the settings of an interface from the list that describes it."""
    name, _uuid, ip, mac, mode, link, vlan, _network, network = nic
    found = {"name": name, "ip": ip, "mac": mac}
    if network is not None:
        found |= {"network": network["name"]}
    else:
        found |= {"mode": mode, "link": link, "vlan": vlan}
    return {key: value for key, value in found.items() if value}


def _nics(nics: list[dict[str, Any]], given: Sequence[tuple[str, object]]) -> list[dict[str, Any]]:
    for ident, settings in given:
        if not ident.isdigit() or int(ident) >= len(nics):
            raise OpPrereqError(
                f"--net {ident}: the instance has {len(nics)} interface(s), numbered from 0 on"
            )
        if not isinstance(settings, Mapping):
            raise OpPrereqError(f"--net {ident}: an interface cannot be removed on the way")
        index, wanted = int(ident), nic_settings(ident, settings)
        kept = {key: value for key, value in nics[index].items() if _stays(key, wanted)}
        nics[index] = {**kept, **wanted}
    return nics


def _stays(key: str, wanted: Mapping[str, object]) -> bool:
    """Tell whether a setting of an interface still applies, given the wanted ones."""
    if "network" in wanted and wanted["network"] != "none":
        return key not in _OF_CONNECTION
    return key != "network" or not wanted.keys() & {*_OF_CONNECTION, "network"}


def _beparams(actual: Mapping[str, object], wanted: Mapping[str, object]) -> dict[str, object]:
    """Lay wanted back-end parameters over those in effect; ``memory`` means both limits."""
    replaced = _LIMITS if _MEMORY in wanted else ()
    kept = {key: value for key, value in actual.items() if key not in (*replaced, _MEMORY)}
    return {**kept, **wanted}
