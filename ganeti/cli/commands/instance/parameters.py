"""Parameter groups of instances as options name them.  Pure."""

from __future__ import annotations

from collections.abc import Mapping

from ganeti.base.errors import OpPrereqError

DEFAULT = "default"


def backend_parameters(given: Mapping[str, object]) -> dict[str, object]:
    """Return backend parameters; ``memory`` stands for both minmem and maxmem.

    Raises:
        OpPrereqError: memory is given together with one of these.
    """
    params = unset_as_default(given)
    if "memory" in params:
        if "minmem" in params or "maxmem" in params:
            raise OpPrereqError("give either memory, or minmem and maxmem")
        memory = params.pop("memory")
        params["minmem"] = params["maxmem"] = memory
    return params


def unset_as_default(given: Mapping[str, object]) -> dict[str, object]:
    """Return parameters with ``-name`` spelled as opcodes want it: the value "default"."""
    return {name: DEFAULT if value is None else value for name, value in given.items()}


def split_nodes(text: str | None) -> tuple[str | None, str | None]:
    """Split ``primary[:secondary]``."""
    if not text:
        return None, None
    primary, _, secondary = text.partition(":")
    return primary or None, secondary or None


def split_tags(text: str | None) -> list[str]:
    """Split tags at commas."""
    return [tag for tag in (text or "").split(",") if tag]
