"""The table of what each disk template can do, in the guide to storage.

The guide is written by hand; the table between the two marks is made from the traits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from ganeti.objects.disk_templates import Adoption, DiskTemplate, Mirroring, Traits

_BEGIN: Final = "<!-- begin: made by 'make docs' from the traits of disk templates -->"
_END: Final = "<!-- end -->"

_DATA: Final[Mapping[Mirroring, str]] = {
    Mirroring.NONE: "on the primary node",
    Mirroring.INTERNAL: "on two nodes",
    Mirroring.EXTERNAL: "outside, reached by every node",
}
_OTHER_NODE: Final[Mapping[Mirroring, str]] = {
    Mirroring.NONE: "moved there, stopped",
    Mirroring.INTERNAL: "live, to the second node",
    Mirroring.EXTERNAL: "live, to any node",
}
_ADOPTION: Final[Mapping[Adoption, str]] = {
    Adoption.NEVER: "no",
    Adoption.POSSIBLE: "if asked",
    Adoption.ALWAYS: "always",
}


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"


def _space(traits: Traits) -> str:
    units = traits.storage.units
    if units is None:
        return "not known"
    if units.parameter:
        return f"{traits.storage} (disk parameter `{units.parameter}`)"
    option = units.setting.replace("_", "-") if units.is_directory else "vg-name"
    return f"{traits.storage} (`--{option}`)"


_COLUMNS: Final[Mapping[str, Callable[[Traits], str]]] = {
    "data": lambda traits: _DATA[traits.mirroring],
    "space from": _space,
    "to another node": lambda traits: _OTHER_NODE[traits.mirroring],
    "grows": lambda traits: _yes(traits.can_grow),
    "snapshots": lambda traits: _yes(traits.has_snapshots),
    "QEMU reaches it without the node": lambda traits: _yes(traits.has_access),
    "adopts what exists": lambda traits: _ADOPTION[traits.adoption],
    "built": lambda traits: _yes(traits.is_supported),
}


def table() -> str:
    """Return the table in Markdown."""
    templates = [each for each in DiskTemplate if each.traits.has_disks]
    head = ["template", *_COLUMNS]
    rows = [[f"`{each}`", *(cell(each.traits) for cell in _COLUMNS.values())] for each in templates]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def with_table(guide: str) -> str:
    """Return the guide with the table as it is now.

    Raises:
        ValueError: it has no place for the table.
    """
    place = re.compile(f"{re.escape(_BEGIN)}\n.*?{re.escape(_END)}", re.DOTALL)
    if not place.search(guide):
        raise ValueError(f"no place between {_BEGIN} and {_END}")
    return place.sub(lambda _found: f"{_BEGIN}\n\n{table()}\n\n{_END}", guide)
