"""Open vSwitches of this node: made as the node's parameters say, never taken away.

Source: constants.json, "ndparams" ovs, ovs_name, ovs_link; manual page ovs-vsctl(8).
"""

from __future__ import annotations

from typing import Final

from ganeti.base.errors import CommandError, GenericError
from ganeti.netdev.attachment import OVS_TIMEOUT_S
from ganeti.netdev.taps import is_interface, is_interface_name
from ganeti.system import process

_TIMEOUT_S: Final = OVS_TIMEOUT_S + 5.0


def ensure_switch(name: str, link: str) -> None:
    """Make a switch, and connect it to an interface of the node; both may be so already.

    Args:
        link: the interface that leads outside; "" for a switch of this node alone.

    Raises:
        GenericError: a name is none, the interface is not there, or Open vSwitch refuses.
    """
    for text in (name, link):
        if text and not is_interface_name(text):
            raise GenericError(f"{text!r} cannot be the name of a switch or interface")
    if link and not is_interface(link):
        raise GenericError(f"switch {name}: there is no interface {link} to connect it to")
    command = ["ovs-vsctl", f"--timeout={OVS_TIMEOUT_S}", "--may-exist", "add-br", name]
    if link:
        command += ["--", "--may-exist", "add-port", name, link]
    try:
        process.run(command, timeout_s=_TIMEOUT_S).check()
    except CommandError as err:
        raise GenericError(f"switch {name} cannot be made: {err.message}") from err
