"""``show-ispecs-cmd`` of clusters and groups: policies as the options that would make them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_SUCCESS

_BOUNDS: Final = "--ipolicy-bounds-specs"
_STD: Final = "--ipolicy-std-specs"


def show_of_cluster(context: Context, _options: Options, _args: list[str]) -> int:
    """Show the command line that would make a cluster with the same instance policy."""
    found = context.client.query_cluster_info()
    words = ["gnt-cluster", "init", *policy_options(found.get("ipolicy")), str(found.get("name"))]
    context.write(shlex.join(words))
    return EXIT_SUCCESS


def show_of_groups(context: Context, options: Options, args: list[str]) -> int:
    """Show the command lines that would make groups with the same instance policies."""
    field = "ipolicy" if options.include_defaults else "custom_ipolicy"
    rows = context.client.query_groups(args, ["name", "uuid", field])
    unknown = set(args) - {str(key) for row in rows for key in row[:2]}
    if unknown:
        raise OpPrereqError(f"no such group: {', '.join(sorted(unknown))}", ErrorCode.NOENT)
    for name, _, policy in rows:
        options_of_bounds = policy_options(policy, with_std=False)
        context.write(shlex.join(["gnt-group", "add", *options_of_bounds, str(name)]))
    return EXIT_SUCCESS


def policy_options(policy: object, *, with_std: bool = True) -> list[str]:
    """Return the options for the specifications of a policy; none for what it does not have."""
    words: list[str] = []
    if not isinstance(policy, Mapping):
        return words
    if with_std and isinstance(policy.get("std"), Mapping):
        words += [_STD, _specs(policy["std"])]
    if isinstance(policy.get("minmax"), Sequence) and policy["minmax"]:
        words += [_BOUNDS, "//".join(_pair(pair) for pair in policy["minmax"])]
    return words


def _pair(pair: Mapping[str, Mapping[str, object]]) -> str:
    return "/".join(f"{which}:{_specs(pair[which])}" for which in ("min", "max"))


def _specs(values: Mapping[str, object]) -> str:
    return ",".join(f"{name}={values[name]}" for name in sorted(values))
