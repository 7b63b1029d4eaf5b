"""Make a configuration one that 3.0 itself can load.  Pure.

What is new here is written only for features that are switched on.  So a key that 3.0 does not
know can go without loss when its value is empty or false; when it is not, somebody is using what
3.0 does not have, and must decide to give it up first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.base.json import dumps, loads
from ganeti.config.upgrade.draft import Fields
from ganeti.config.upgrade.foreign_keys import ForeignKey, Path, find_foreign_keys
from ganeti.config.upgrade.upgrading import Upgraded, check_result
from ganeti.config.upgrade.versions import CURRENT, version_of

_NAMED_MAX: Final = 20  # keys in one refusal: as many as fit on a screen
_VALUE_CHARS_MAX: Final = 40


def downgrade_config(config: Mapping[str, object], *, now: float | None = None) -> Upgraded:
    """Return the configuration without the keys that 3.0 does not know; the one given stays.

    If anything changes, the serial number grows by one.

    Raises:
        OpPrereqError: it is of another version, or something would be lost; the text says what.
        ConfigurationError: what is left is no configuration of 3.0; names object and field.
    """
    version = version_of(config)
    if version != CURRENT:
        raise OpPrereqError(
            f"the configuration is of version {version}; --downgrade only takes out of one of"
            f" version {CURRENT} what this program added",
            ErrorCode.STATE,
        )
    found = find_foreign_keys(config)
    _refuse_loss(found)
    draft = cast("Fields", loads(dumps(config)))
    for key in found:
        _remove(draft, key.path)
    check_result(draft)
    if not found:
        return Upgraded(config, version, ())
    draft["serial_no"] = draft["serial_no"] + 1
    if now is not None:
        draft["mtime"] = now
    return Upgraded(draft, version, tuple(f"{key.label} removed, it was empty" for key in found))


def _refuse_loss(found: list[ForeignKey]) -> None:
    in_use = [key for key in found if not _is_empty(key.value)]
    if not in_use:
        return
    shown = [f"  {key.label} = {_shown(key.value)}" for key in in_use[:_NAMED_MAX]]
    if len(in_use) > _NAMED_MAX:
        shown.append(f"  and {len(in_use) - _NAMED_MAX} more")
    raise OpPrereqError(
        f"version {CURRENT} does not know these keys, and what they hold would be lost:\n"
        + "\n".join(shown)
        + "\nSwitch off what they belong to, or remove them, and try again.",
        ErrorCode.STATE,
    )


def _is_empty(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_empty, value.values()))
    if isinstance(value, list):
        return all(map(_is_empty, value))
    return not value


def _shown(value: object) -> str:
    """Return the beginning of a value that is no text: texts may be secrets."""
    if isinstance(value, str):
        return f"a text of {len(value)} characters"
    if isinstance(value, Mapping | list):
        return f"{'an object' if isinstance(value, Mapping) else 'a list'} of {len(value)}"
    return str(value)[:_VALUE_CHARS_MAX]


def _remove(config: Fields, path: Path) -> None:
    place: Any = config
    for step in path[:-1]:
        place = place[step]
    del place[path[-1]]
