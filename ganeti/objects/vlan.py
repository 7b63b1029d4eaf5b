"""VLANs of a network interface: what parameter ``vlan`` says.

    10          access: frames are untagged for the guest, in VLAN 10 outside; stored as ``.10``
    .10         the same
    :20:30      trunk: the guest sees frames of VLANs 20 and 30 with their tags
    .10:20:30   both: untagged frames are in VLAN 10

Source: constants.json, "nicparams"; manual page gnt-instance(8), "--net".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import ParameterError

VLAN_MAX: Final = 4094  # IEEE 802.1Q; 0 and 4095 mean something else
_FORM: Final = re.compile(r"(?P<access>\.?\d{1,4})?(?P<trunks>(:\d{1,4})*)")


@dataclass(frozen=True, slots=True)
class Vlan:
    """The VLANs of an interface; ``access`` is the one of untagged frames."""

    access: int | None = None
    trunks: tuple[int, ...] = ()

    def __str__(self) -> str:
        """Return the form that is stored."""
        access = "" if self.access is None else f".{self.access}"
        return access + "".join(f":{tag}" for tag in self.trunks)


def parse_vlan(text: str) -> Vlan:
    """Parse the text of the parameter; "" means none.

    Raises:
        ParameterError: it has none of the forms, or a number is not a VLAN's.
    """
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise ParameterError(f"{text!r} is not a VLAN; use 10, :20:30 (trunk) or .10:20:30")
    access = found["access"]
    trunks = tuple(dict.fromkeys(int(tag) for tag in found["trunks"].split(":") if tag))
    vlan = Vlan(None if access is None else int(access.removeprefix(".")), trunks)
    for tag in (*trunks, *(() if vlan.access is None else (vlan.access,))):
        if not 1 <= tag <= VLAN_MAX:
            raise ParameterError(f"VLAN {tag} in {text!r} does not lie between 1 and {VLAN_MAX}")
    return vlan
