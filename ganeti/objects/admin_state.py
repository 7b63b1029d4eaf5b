"""What an instance is meant to do, and who said so.

Source: constants.json, "instance_states".
"""

from __future__ import annotations

from enum import StrEnum


class AdminState(StrEnum):
    """What an instance is meant to do."""

    UP = "up"
    DOWN = "down"
    OFFLINE = "offline"


class AdminStateSource(StrEnum):
    """Who decided: an administrator, or the user from inside the instance."""

    ADMIN = "admin"
    USER = "user"
