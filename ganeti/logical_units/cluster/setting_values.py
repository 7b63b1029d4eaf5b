"""What single settings of the cluster must look like.

Each function takes a value from an opcode and returns it as it is stored, or raises OpPrereqError
with a text that names the setting and what would be right.

Source: constants.json, "export_import" and "network"; manual page gnt-cluster(8).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.objects.cluster import IpFamily
from ganeti.objects.uid_pool import UidRange, problem_of
from ganeti.system.programs import is_plugin_name

Fields = dict[str, object]

IEC_GZIP: Final = "gzip"  # what a node of another cluster can always unpack
IEC_NONE: Final = "none"  # a word of its own: no compression
_MAC_PREFIX: Final = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){2}")
_TOOL: Final = re.compile(r"[A-Za-z0-9_-]+")
_NETWORK_DEVICE: Final = re.compile(r"(?!\.{1,2}$)[^\s/]{1,15}")  # names that the kernel allows
_NETMASK_MAX: Final = {IpFamily.IPV4: 32, IpFamily.IPV6: 128}


def wrong(text: str) -> OpPrereqError:
    """Return the error about a wrong value."""
    return OpPrereqError(text, ErrorCode.INVAL)


def some_names(what: str, value: Sequence[str]) -> list[str]:
    """Return names, each once; there must be one at least."""
    if not value:
        raise wrong(f"{what}: the list must not be empty")
    return [str(name) for name in dict.fromkeys(value)]


def directory(what: str, value: str) -> str:
    """Return an absolute path in its shortest form; an empty one unsets the directory."""
    if not value:
        return ""
    if not posixpath.isabs(value):
        raise wrong(f"{what}: {value!r} is not an absolute path")
    path = posixpath.normpath("/" + value.lstrip("/"))
    if path == "/" or ".." in value.split("/"):
        raise wrong(
            f"{what}: {value!r} cannot hold disks; give a directory of its own, without '..'"
        )
    return path


def mac_prefix(value: str) -> str:
    """Return the first half of a MAC address in lower case."""
    prefix = value.lower()
    if _MAC_PREFIX.fullmatch(prefix) is None or int(prefix[:2], 16) & 1:
        raise wrong(
            f"{value!r} is not a MAC prefix; use three bytes such as aa:00:00, the first one even"
        )
    return prefix


def network_device(value: str) -> str:
    """Return the name of a network device."""
    if _NETWORK_DEVICE.fullmatch(value) is None:
        raise wrong(f"master_netdev: {value!r} is not the name of a network device, such as eth0")
    return value


def netmask(value: int, family: IpFamily) -> int:
    """Return the length of a prefix."""
    longest = _NETMASK_MAX[family]
    if not 1 <= value <= longest:
        raise wrong(
            f"master_netmask: {value} is not the length of a prefix; IPv{family.version} has"
            f" lengths from 1 to {longest}"
        )
    return value


def compression_tools(value: Sequence[str]) -> list[str]:
    """Return names of programs that compress; gzip must be among them."""
    names = some_names("compression_tools", value)
    for name in names:
        if _TOOL.fullmatch(name) is None or name == IEC_NONE:
            raise wrong(
                f"compression_tools: {name!r} is not the name of a program of letters, digits, '-'"
                " and '_'"
            )
    if IEC_GZIP not in names:
        raise wrong(f"compression_tools: {IEC_GZIP} must be among them, for other clusters")
    return names


def volume_patterns(value: Sequence[str]) -> list[str]:
    """Return regular expressions that match whole names of logical volumes."""
    for pattern in value:
        try:
            re.compile(pattern)
        except re.error as err:
            raise wrong(f"reserved_lvs: {pattern!r} is not a regular expression: {err}") from err
    return list(dict.fromkeys(value))


def uid_ranges(value: Sequence[UidRange]) -> list[UidRange]:
    """Return ranges of user ids."""
    for uids in value:
        problem = problem_of(uids)
        if problem is not None:
            raise wrong(problem)
    return list(value)


def diagnose_command(value: str) -> str:
    """Return the name of the command that diagnoses nodes; empty for none."""
    if value and not is_plugin_name(value):
        raise wrong(
            f"diagnose_data_collector_filename: {value!r} is not a name of letters, digits, - and"
            " _; give the name of a file in /etc/ganeti/node-diagnose-commands on the nodes"
        )
    return value


def interval_us(name: str, value: int) -> int:
    """Return the interval of a data collector, in microseconds."""
    if value <= 0:
        raise wrong(f"data_collector_interval: {name} must have an interval above 0, got {value}")
    return value
