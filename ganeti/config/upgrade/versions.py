"""Versions of the configuration: the readable ones, and the messages for the others.

A version is one number: a million times major, ten thousand times minor, plus a revision that was
never used.

Source: config.json, "config_version"; constants.json, "versions".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ganeti.base.errors import ConfigurationError, ConfigVersionMismatch
from ganeti.base.versions import CONFIG_VERSION

_MAJOR: Final = 1_000_000
_MINOR: Final = 10_000


class Version(NamedTuple):
    """Major and minor version; prints as ``2.16``."""

    major: int
    minor: int

    @classmethod
    def of(cls, number: int) -> Version:
        """Take a version number apart."""
        return cls(number // _MAJOR, number % _MAJOR // _MINOR)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


OLDEST: Final = Version(2, 0)
LAST_OF_2: Final = Version(2, 16)  # 2.17 and 2.18 were tried out, but never released
CURRENT: Final = Version.of(CONFIG_VERSION)


class UnsupportedVersion(ConfigVersionMismatch):
    """The configuration is of a version that cannot be upgraded; the message names the way."""

    def __init__(self, number: int, advice: str) -> None:
        super().__init__(CONFIG_VERSION, number)
        self.advice = advice

    @property
    def message(self) -> str:
        """The message for people."""
        number = self.args[1]
        return f"the configuration is of version {Version.of(number)} ({number}); {self.advice}"


def version_of(config: Mapping[str, object]) -> Version:
    """Return the version of a configuration that can be used or upgraded.

    Raises:
        UnsupportedVersion: it is too old, of the future, or was never released.
        ConfigurationError: it has no version.
    """
    number = config.get("version")
    if not isinstance(number, int) or isinstance(number, bool):
        raise ConfigurationError(
            f"the configuration has the version {number!r}, which is not a number"
            if "version" in config
            else "the configuration has no version"
        )
    check_version(number)
    return Version.of(number)


def check_version(number: int) -> None:
    """Refuse the number of a version that cannot be upgraded.

    Raises:
        UnsupportedVersion: the text names the version and the way.
    """
    version = Version.of(number)
    if number > CONFIG_VERSION:
        raise UnsupportedVersion(
            number,
            f"this program knows versions up to {CURRENT} and would lose newer additions."
            f" Use the software of version {version}, or take the configuration back with its"
            " own cfgupgrade --downgrade",
        )
    if version < OLDEST:
        raise UnsupportedVersion(
            number,
            f"upgrades start from {OLDEST}. Upgrade with the software of any version between"
            f" {OLDEST} and {LAST_OF_2} first, then with this one",
        )
    if LAST_OF_2 < version < CURRENT:
        raise UnsupportedVersion(
            number,
            f"no such version was ever released. Take the configuration back to {LAST_OF_2} with"
            " the cfgupgrade --downgrade of the software that wrote it",
        )
