"""Parameters of clusters and groups as options name them.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ganeti.base.errors import OpPrereqError, ParameterError, TypeEnforcementError
from ganeti.cli.declaration.parser import Options
from ganeti.cli.declaration.values import parse_bool
from ganeti.objects import uid_pool
from ganeti.objects.parameters import ISPEC_TABLE, VALUE_DEFAULT, enforce_types


def split_list(text: str | None) -> list[str]:
    """Split at commas; nothing given is an empty list."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def by_name(what: str, given: Sequence[tuple[str, object]]) -> dict[str, dict[str, object]]:
    """Return repeated ``NAME:key=value`` options as {name: values}.

    Raises:
        OpPrereqError: a name is given twice, or without values.
    """
    found: dict[str, dict[str, object]] = {}
    for name, values in given:
        if not isinstance(values, Mapping):
            raise OpPrereqError(f"{what} {name!r} takes NAME:parameter=value,...")
        if name in found:
            raise OpPrereqError(f"{what} {name!r} is given twice")
        found[name] = {key: "default" if value is None else value for key, value in values.items()}
    return found


def ipolicy_of(options: Options) -> dict[str, object]:
    """Return the instance policy that the options give, only what they name.

    The word "default" makes a group follow the cluster again.

    Raises:
        OpPrereqError: a specification names what there is not, or is no number.
    """
    policy: dict[str, object] = {}
    if options.ipolicy_bounds_specs == [{VALUE_DEFAULT: {}}]:
        policy["minmax"] = VALUE_DEFAULT
    elif options.ipolicy_bounds_specs is not None:
        policy["minmax"] = [
            {which: _specs(which, values) for which, values in pair.items()}
            for pair in options.ipolicy_bounds_specs
        ]
    if options.get("ipolicy_std_specs") is not None:
        policy["std"] = _specs("std", options.ipolicy_std_specs)
    if options.ipolicy_disk_templates is not None:
        templates = list(options.ipolicy_disk_templates)
        policy["disk-templates"] = VALUE_DEFAULT if templates == [VALUE_DEFAULT] else templates
    if options.ipolicy_vcpu_ratio is not None:
        policy["vcpu-ratio"] = options.ipolicy_vcpu_ratio
    if options.ipolicy_spindle_ratio is not None:
        policy["spindle-ratio"] = options.ipolicy_spindle_ratio
    return policy


def _specs(which: str, values: Mapping[str, object]) -> dict[str, object]:
    """Return numbers; sizes may have come with a unit, as 32g."""
    try:
        return enforce_types(values, ISPEC_TABLE, what=f"specification of {which}")
    except TypeEnforcementError as err:
        raise OpPrereqError(f"instance policy: {err.message}") from err


def parse_uid_pool(text: str) -> list[tuple[int, int]]:
    """Parse ``5000-5999,7000`` to pairs of bounds.

    Raises:
        OpPrereqError: not numbers, out of range, or upside down.
    """
    try:
        return uid_pool.parse_uid_pool(text)
    except ParameterError as err:
        raise OpPrereqError(err.message) from err


def parse_netmask(text: str | None) -> int | None:
    """Parse the length of a prefix.

    Raises:
        OpPrereqError: it is no number, or longer than any address.
    """
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or not 0 < int(text) <= 128:
        raise OpPrereqError(f"the netmask {text!r} is not the length of a prefix, such as 24")
    return int(text)


def switches(given: Mapping[str, object]) -> dict[str, bool]:
    """Return ``name=yes,...`` as booleans; a bare name means yes, ``no_name`` no.

    Raises:
        OpPrereqError: a value is neither yes nor no.
    """
    found = {}
    for name, value in given.items():
        try:
            found[name] = value if isinstance(value, bool) else parse_bool(str(value))
        except ParameterError as err:
            raise OpPrereqError(f"{name}: {err.message}") from err
    return found


def intervals_us(given: Mapping[str, object]) -> dict[str, int]:
    """Return intervals in microseconds, from seconds.

    Raises:
        OpPrereqError: one is not a number above zero.
    """
    found = {}
    for name, value in given.items():
        try:
            found[name] = int(float(str(value)) * 1_000_000)
        except (ValueError, OverflowError) as err:
            raise OpPrereqError(f"interval {value!r} of {name} is not a number") from err
        if found[name] <= 0:
            raise OpPrereqError(f"the interval of {name} must be above zero, got {value}")
    return found
