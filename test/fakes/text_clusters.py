"""Clusters as text, made up with everything that a score looks at; the same for the same number."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

TAGS = (
    *("htools:iextags:e", "htools:nlocation:p", "htools:nlocation:r"),
    *("htools:desiredlocation:p", "htools:desiredlocation:r"),
    *("htools:migration:h", "htools:allowmigration:h:1::h:2"),
)
LOCAL = ("drbd", "plain")
ALL = (*LOCAL, "ext", "rbd", "file", "sharedfile", "diskless", "blockdev", "gluster")
STATUSES = (
    *("running",) * 8,
    *("ADMIN_down", "ADMIN_offline", "ERROR_down", "ERROR_up", "USER_down", "ERROR_nodedown"),
)
SPECS = "128,1,1024,1,1,1|1,1,0,0,0,1;32768,8,1048576,16,8,12"


@dataclass(frozen=True)
class Shape:
    """What a cluster may have."""

    nodes: tuple[int, int] = (2, 8)
    per_node: tuple[int, int] = (1, 5)
    templates: Sequence[str] = ALL
    statuses: Sequence[str] = STATUSES
    has_tags: bool = True
    has_exclusive: bool = True
    has_forthcoming: bool = True
    groups: int = 1
    is_consistent: bool = False  # the nodes report what their instances leave


def made_up(number: int, shape: Shape = Shape()) -> str:
    """Return the text of a cluster."""
    draw = random.Random(number)
    groups = [f"group{each}" for each in range(1, shape.groups + 1)]
    nodes: list[str] = []
    instances: list[str] = []
    policies = [f"|{SPECS}|{','.join(ALL)}|4.0|32.0"]
    for place, group in enumerate(groups):
        policies.append(f"{group}|{SPECS}|{','.join(ALL)}|{draw.choice((2.0, 4.0, 8.0))}|32.0")
        _fill(draw, shape, f"uuid-{place}", f"g{place}", nodes, instances)
    sections = (
        [f"{name}|uuid-{place}|preferred||" for place, name in enumerate(groups)],
        nodes,
        instances,
        TAGS if shape.has_tags else (),
        policies,
    )
    return "\n".join("".join(f"{line}\n" for line in section) for section in sections)


def _fill(
    draw: random.Random,
    shape: Shape,
    group: str,
    prefix: str,
    nodes: list[str],
    instances: list[str],
) -> None:
    names = [f"{prefix}n{each}" for each in range(draw.randint(*shape.nodes))]
    exclusive = shape.has_exclusive and draw.random() < 0.2
    tagged = shape.has_tags and draw.random() < 0.6
    first = len(instances)
    used = {name: [0, 0] for name in names}  # memory, disk
    for number in range(len(names) * draw.randint(*shape.per_node)):
        template = draw.choice(shape.templates)
        pair = draw.sample(names, 2) if template == "drbd" else [draw.choice(names), ""]
        tags = draw.sample(("e:1", "e:2", "p:1", "p:2", "r:1", "x"), draw.randint(0, 3))
        memory, disk = draw.choice((128, 500, 1000, 1024, 3000)), draw.choice((1024, 5000, 10000))
        status = draw.choice(shape.statuses)
        for place, name in enumerate(filter(None, pair)):
            if place == 0 and status == "running":
                used[name][0] += memory
            used[name][1] += disk if template in LOCAL else 0
        columns = (
            f"{prefix}i{number}",
            memory,
            0 if template == "diskless" else disk,
            draw.randint(1, 4),
            status,
            draw.choice("YYYN"),
            *pair,
            template,
            ",".join(tags) if tagged and draw.random() < 0.5 else "",
            draw.randint(1, 4),
            draw.randint(1, 2) if exclusive else "-",
            draw.choice("NNNNNNY") if shape.has_forthcoming else "N",
        )
        instances.append("|".join(map(str, columns)))
    assert len(instances) > first
    for name in names:
        total, disk = draw.choice((16000, 20000)), draw.choice((100000, 200000))
        own = draw.randint(0, 500)
        free, free_disk = draw.randint(1, total - 1000), draw.randint(1, disk)
        if shape.is_consistent:
            total += used[name][0]
            disk += used[name][1]
            free, free_disk = total - own - used[name][0], disk - used[name][1]
        tags = [f"{kind}:{draw.randint(1, 2)}" for kind in "pr" if draw.random() < 0.7]
        if draw.random() < 0.3:
            tags.append(f"h:{draw.randint(1, 2)}")
        columns = (
            name,
            *(total, own, free, disk, free_disk, draw.choice((4, 8)), draw.choice("NNNNNNYM")),
            *(group, draw.randint(1, 12), ",".join(tags) if tagged else ""),
            "Y" if exclusive and draw.random() < 0.8 else "N",
            *(draw.randint(0, 6), draw.choice((0, 0, 1)), draw.choice((1.0, 1.0, 0.5, 2.0))),
        )
        nodes.append("|".join(map(str, columns)))


def utilisation(number: int, text: str) -> str:
    """Return a file of dynamic utilisation for some of the instances of a cluster."""
    draw = random.Random(number)
    names = [line.split("|")[0] for line in text.split("\n\n")[2].splitlines()]
    return "".join(
        f"{name} {' '.join(str(round(draw.uniform(0, 3), 2)) for _ in range(4))}\n"
        for name in names
        if draw.random() < 0.7
    )
