"""``show-ispecs-cmd`` of clusters and groups: policies as the options that would make them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError, TypeEnforcementError
from ganeti.cli.command import Context, Options, command, opt
from ganeti.objects.parameters import ISPEC_TABLE, VALUE_DEFAULT, enforce_types

_BOUNDS: Final = "--ipolicy-bounds-specs"
_STD: Final = "--ipolicy-std-specs"


def show_of_cluster(context: Context, _options: Options, _args: list[str]) -> None:
    """Show the command line that would make a cluster with the same instance policy."""
    found = context.client.query_cluster_info()
    words = ["gnt-cluster", "init", *policy_options(found.get("ipolicy")), str(found.get("name"))]
    context.write(shlex.join(words))


def show_of_groups(context: Context, options: Options, args: list[str]) -> None:
    """Show the command lines that would make groups with the same instance policies."""
    field = "ipolicy" if options.include_defaults else "custom_ipolicy"
    rows = context.client.query_groups(args, ["name", "uuid", field])
    unknown = set(args) - {str(key) for row in rows for key in row[:2]}
    if unknown:
        raise OpPrereqError(f"no such group: {', '.join(sorted(unknown))}", ErrorCode.NOENT)
    for name, _, policy in rows:
        options_of_bounds = policy_options(policy, with_std=False)
        context.write(shlex.join(["gnt-group", "add", *options_of_bounds, str(name)]))


def ipolicy_of(options: Options) -> Mapping[str, Mapping[str, object]]:
    """Return the instance policy that the options give, with the parts that they name.

    The word "default" makes a group follow the cluster again.

    Raises:
        OpPrereqError: a specification is unknown, or is not a number.
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
    return {"ipolicy": policy} if policy else {}


def _specs(which: str, values: Mapping[str, object]) -> dict[str, object]:
    """Return numbers; sizes may have come with a unit, as 32g."""
    try:
        return enforce_types(values, ISPEC_TABLE, what=f"specification of {which}")
    except TypeEnforcementError as err:
        raise OpPrereqError(f"instance policy: {err.message}") from err


def policy_options(policy: object, *, with_std: bool = True) -> list[str]:
    """Return the options for the specifications that a policy has."""
    words: list[str] = []
    if not isinstance(policy, Mapping):
        return words
    if with_std and isinstance(policy.get("std"), Mapping):
        words += [_STD, _specs_text(policy["std"])]
    if isinstance(policy.get("minmax"), Sequence) and policy["minmax"]:
        words += [_BOUNDS, "//".join(_pair(pair) for pair in policy["minmax"])]
    return words


def _pair(pair: Mapping[str, Mapping[str, object]]) -> str:
    return "/".join(f"{which}:{_specs_text(pair[which])}" for which in ("min", "max"))


def _specs_text(values: Mapping[str, object]) -> str:
    return ",".join(f"{name}={values[name]}" for name in sorted(values))


COMMANDS: Final = {
    "gnt-cluster": (
        command(
            show_of_cluster,
            title="show-ispecs-cmd: show the command line that would recreate the instance policy",
        ),
    ),
    "gnt-group": (
        command(
            show_of_groups,
            "[<group>...]",
            opt.flag("--include-defaults", "with the cluster's values"),
            title="show-ispecs-cmd: show the command line that would recreate a group's instance"
            " policy",
        ),
    ),
}
