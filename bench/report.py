"""One line of a measurement: printed for people, and kept for the table of all (`scoreboard.py`).

A program of this directory prints its figures by `row`.  Where the variable
GANETI_BENCH_RECORD names a file, each is added to it as a line of JSON, with the machine's load.
Where GANETI_BENCH_LEFT names a directory, clusters are left there, stopped.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import Final, TypeAlias

RECORD: Final = "GANETI_BENCH_RECORD"
LEFT: Final = "GANETI_BENCH_LEFT"
HEAD: Final = "reached"  # the title of a column, and no figure
Point: TypeAlias = tuple[str, float, float]
"""The curve ("PICTURE: SERIES") and x and y on it."""


@dataclass(frozen=True)
class Figure:
    """One figure, as it is told.

    Attributes:
        value: the measured value with its unit.
        aim: the target, "" for none.
        curve: the growth curve that it is a point of, "" for none; ``x`` and ``y`` are the point.
    """

    text: str
    value: str
    aim: str = ""
    load: float = 0.0
    curve: str = ""
    x: float = 0.0
    y: float = 0.0


def row(text: str, value: str, aim: str = "", *, point: Point | None = None) -> None:
    """Print one line of a table, and record it."""
    print(f"{text:<54}{value:>22}  {aim}".rstrip(), flush=True)
    record(text, value, aim, point=point)


def record(text: str, value: str, aim: str = "", *, point: Point | None = None) -> None:
    """Keep a figure for the table of all, if one is wanted."""
    path = os.environ.get(RECORD)
    if not path or value in ("", HEAD):
        return
    curve, x, y = point or ("", 0.0, 0.0)
    figure = Figure(text, value, aim, os.getloadavg()[0], curve, x, y)
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(figure)) + "\n")
