"""The configuration of a container, as text: deciding, not doing.

Source: lxc.container.conf(5); apparmor(7); constants.json, "hvparams" of lxc; manual page
gnt-instance(8).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.hypervisor.lxc.cgroups import Hierarchies
from ganeti.hypervisor.params import HvParams, parse_cpu_mask, wrong_param
from ganeti.netdev.backends import BackendKind, NicBackend
from ganeti.objects.rpc_instance import RpcInstance

_MIB: Final = 1 << 20
_PTYS: Final = 1024
_LOG_MIB: Final = 16  # of the console's log, which begins anew then
_DEVICE_RULE: Final = re.compile(r"[abc] (\d+|\*):(\d+|\*) [rwm]{1,3}|a")
_CAPABILITY: Final = re.compile(r"[a-z_0-9]+")
_LINE: Final = re.compile(r"lxc\.[a-z0-9_.]+ *=.*")
_PROFILE: Final = "lxc.apparmor.profile"
DEFAULT_PROFILE: Final = "lxc-container-default-cgns"  # of LXC, if nothing else is said
_PROFILES_OF_LXC: Final = ("unconfined", "unchanged", "generated")  # these it needs not have loaded
_MAPPINGS: Final = ("lxc.idmap", "lxc.include")  # the latter may bring the former
_COMMA: Final = re.compile(r"(?<!\\),")  # one behind a backslash belongs to its value


def listed(text: str) -> list[str]:
    """Split a text at its commas; one behind a backslash stays."""
    parts = (part.replace("\\,", ",").strip() for part in _COMMA.split(text))
    return [part for part in parts if part]


def device_rules(params: HvParams) -> list[str]:
    """Return the rules of the devices that a container may use."""
    return listed(params.text("devices"))


def extra_controllers(params: HvParams) -> list[str]:
    """Return the further controllers that a container is put under."""
    return listed(params.text("extra_cgroups"))


def maps_user_ids(params: HvParams) -> bool:
    """Tell whether the users of a container may be others on the node, root included."""
    keys = {line.partition("=")[0].strip() for line in listed(params.text("extra_config"))}
    return not keys.isdisjoint(_MAPPINGS)


def missing_profile(params: HvParams, enabled: str, loaded: str | None) -> str:
    """Return the profile of AppArmor that a container would need and the kernel does not have.

    Args:
        enabled: the content of the kernel's file that says whether AppArmor is on.
        loaded: the content of its list of profiles; None if it cannot be read, and nobody knows.

    Returns:
        "" if the container starts.
    """
    profile = ""
    for line in listed(params.text("extra_config")):
        key, _, value = line.partition("=")
        if key.strip() == _PROFILE:
            profile = value.strip()
    profile = profile or DEFAULT_PROFILE
    is_on = enabled.strip() == "Y" and loaded is not None
    if not is_on or profile in _PROFILES_OF_LXC or profile.startswith(":"):
        return ""
    assert loaded is not None
    names = {line.rpartition(" (")[0] for line in loaded.splitlines()}
    return "" if profile in names else profile


def problems(hvparams: Mapping[str, object]) -> Iterator[GenericError]:
    """Find parameters whose parts are wrong."""
    params = HvParams(hvparams)
    checks = (
        ("devices", _DEVICE_RULE, "a rule of devices such as c 1:3 rw"),
        ("drop_capabilities", _CAPABILITY, "the name of a capability such as sys_admin"),
        ("extra_config", _LINE, "a line of configuration such as lxc.environ=A=1"),
        ("extra_cgroups", _CAPABILITY, "the name of a controller such as pids"),
    )
    for name, pattern, words in checks:
        for part in listed(params.text(name)):
            if not pattern.fullmatch(part):
                yield wrong_param(name, f"{part!r} is not {words}")
    mask = params.text("cpu_mask")
    try:
        sets = parse_cpu_mask(mask) if mask else []
    except OpPrereqError as err:
        yield err
        return
    if len(sets) > 1 or None in sets:
        yield wrong_param("cpu_mask", f"{mask!r} is not one list of processors such as 0-3,6")


@dataclass(frozen=True, slots=True)
class Place:
    """What the node has for a container.

    ``scripts`` connect its network interfaces, in their order; ``devices`` are further disks:
    (index, path, numbers of the device).
    """

    root: str
    console_log: str
    scripts: Sequence[str]
    limits_swap: bool
    devices: Sequence[tuple[int, str, str]] = ()


def config_text(
    instance: RpcInstance, here: Hierarchies, nics: Sequence[NicBackend], place: Place
) -> str:
    """Return the configuration of a container."""
    params = HvParams(instance.hvparams)
    lines = [
        ("lxc.uts.name", instance.name),
        ("lxc.rootfs.path", f"dir:{place.root}"),
        ("lxc.pty.max", str(_PTYS)),
        ("lxc.tty.max", str(params.number("num_ttys"))),
        ("lxc.console.logfile", place.console_log),
        ("lxc.console.size", f"{_LOG_MIB}MB"),
        ("lxc.mount.auto", "cgroup:mixed proc:mixed sys:mixed"),
        *(("lxc.cap.drop", each) for each in listed(params.text("drop_capabilities"))),
        *_limits(instance, here, place),
        *_network(instance, nics, place),
    ]
    text = "".join(f"{key} = {value}\n" for key, value in lines)
    return text + "".join(f"{line}\n" for line in listed(params.text("extra_config")))


def _limits(instance: RpcInstance, here: Hierarchies, place: Place) -> Iterator[tuple[str, str]]:
    params, keys = HvParams(instance.hvparams), here.keys
    for key, value in memory_settings(here, instance.beparams["maxmem"], swap=place.limits_swap):
        yield f"{keys.prefix}.{key}", value
    if mask := params.text("cpu_mask"):
        yield f"{keys.prefix}.{keys.cpus}", mask
    yield f"{keys.prefix}.devices.deny", "a"
    for rule in device_rules(params):
        yield f"{keys.prefix}.devices.allow", rule
    for index, path, numbers in place.devices:
        yield f"{keys.prefix}.devices.allow", f"b {numbers} rwm"
        yield "lxc.mount.entry", f"{path} dev/disk{index} none bind,create=file 0 0"


def memory_settings(here: Hierarchies, memory_mib: int, *, swap: bool) -> list[tuple[str, str]]:
    """Return the settings that limit memory, in the order in which a lower limit is set."""
    keys, limit = here.keys, str(memory_mib * _MIB)
    found = [(keys.memory, limit)]
    if swap:
        found.append((keys.swap, limit if keys.swap_is_total else "0"))
    return found


def _network(
    instance: RpcInstance, nics: Sequence[NicBackend], place: Place
) -> Iterator[tuple[str, str]]:
    if not nics:
        yield "lxc.net.0.type", "empty"
    for index, (nic, backend) in enumerate(zip(instance.nics, nics, strict=True)):
        key = f"lxc.net.{index}"
        if backend.kind is not BackendKind.TAP:  # a virtual node without such a link
            yield f"{key}.type", "empty"
            continue
        yield f"{key}.type", "veth"
        yield f"{key}.name", f"eth{index}"
        yield f"{key}.hwaddr", nic.mac
        yield f"{key}.veth.pair", backend.tap
        yield f"{key}.flags", "up"
        yield f"{key}.script.up", place.scripts[index]
