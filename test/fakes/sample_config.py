"""A small configuration as 3.0 writes it, with one object or two of every kind."""

from __future__ import annotations

import json
import os
from typing import Any

_DATA = os.path.join(os.path.dirname(__file__), os.pardir, "data", "model")


def load_sample(name: str) -> Any:
    """Load one of the golden files below ``test/data/model``."""
    with open(os.path.join(_DATA, f"{name}.json"), encoding="utf-8") as stream:
        return json.load(stream)


CONFIG: dict[str, Any] = load_sample("config")
CONFIG_BYTES = json.dumps(CONFIG, separators=(",", ":")).encode()


def only(table: str, name: str | None = None) -> dict[str, Any]:
    """Return the only object of a table, or the one of that name."""
    found = [item for item in CONFIG[table].values() if name is None or item.get("name") == name]
    assert len(found) == 1
    return dict(found[0])
