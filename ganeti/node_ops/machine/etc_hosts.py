"""Entries for nodes in the hosts file of this node."""

from typing import Final

from ganeti.base.errors import GenericError
from ganeti.node_ops.context import NodeHandler
from ganeti.system import files

_MODE: Final = 0o644
_BYTES_MAX: Final = 16 << 20


class EtcHosts(NodeHandler):
    """Names in the hosts file."""

    def etc_hosts_modify(self, mode: str, name: str, ip: str | None) -> bool:
        path = self.paths.etc_hosts
        before = (files.read_bytes_or_none(path, _BYTES_MAX) or b"").decode(
            "utf-8", "surrogateescape"
        )
        if mode == "add":
            if not ip:
                raise GenericError("adding a name to the hosts file needs an address")
            after = with_entry(before, ip, name)
        elif mode == "remove":
            if ip:
                raise GenericError("removing a name from the hosts file takes no address")
            after = without_name(before, name)
        else:
            raise GenericError(f"unknown way to change the hosts file: {mode!r}")
        if after != before:
            files.write_durable(path, after.encode("utf-8", "surrogateescape"), _MODE)
        return True


def with_entry(text: str, ip: str, name: str) -> str:
    """Return a hosts file where a full name and its short form stand for one address.

    Other names of that address stay on its line; the name is taken off other lines.
    """
    names = list(dict.fromkeys([name, name.partition(".")[0]]))
    kept = without_names(text, names)
    lines = kept.splitlines()
    for index, line in enumerate(lines):
        entry, hash_sign, comment = line.partition("#")
        words = entry.split()
        if words and words[0] == ip:
            joined = "\t".join([ip, " ".join([*names, *words[1:]])])
            lines[index] = f"{joined} #{comment}" if hash_sign else joined
            return "\n".join(lines) + "\n"
    return "\n".join([*lines, f"{ip}\t{' '.join(names)}"]) + "\n"


def without_name(text: str, name: str) -> str:
    """Return a hosts file that knows neither a full name nor its short form."""
    return without_names(text, [name, name.partition(".")[0]])


def without_names(text: str, names: list[str]) -> str:
    """Return a hosts file without some names; lines left without a name go."""
    lines = []
    for line in text.splitlines():
        entry, hash_sign, comment = line.partition("#")
        words = entry.split()
        left = [word for word in words[1:] if word not in names]
        if len(left) == len(words[1:]):
            lines.append(line)
        elif left:
            joined = "\t".join([words[0], " ".join(left)])
            lines.append(f"{joined} #{comment}" if hash_sign else joined)
    return "".join(line + "\n" for line in lines)
