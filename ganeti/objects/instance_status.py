"""What an instance is meant to do together with what it does, as one word.

Source: constants.json, "instance_states".
"""

from __future__ import annotations

from enum import StrEnum


class InstanceStatus(StrEnum):
    """Value of the query field ``status``."""

    RUNNING = "running"
    ADMIN_DOWN = "ADMIN_down"
    ADMIN_OFFLINE = "ADMIN_offline"
    USER_DOWN = "USER_down"
    ERROR_DOWN = "ERROR_down"
    ERROR_UP = "ERROR_up"
    ERROR_NODEDOWN = "ERROR_nodedown"
    ERROR_NODEOFFLINE = "ERROR_nodeoffline"
    ERROR_WRONGNODE = "ERROR_wrongnode"


class LiveState:
    """State of an instance as the node daemon reports it, as numbers on the wire."""

    RUNNING = 0
    SHUTDOWN = 1
