"""Clusters as text whose instances are mirrored and unevenly spread; the same for the same number.

``kind`` is "random": instances anywhere, some nodes more liked; "new": a tenth of the nodes are
empty; "large": as "random", with disks of very different sizes.
"""

from __future__ import annotations

import random

SPECS = "128,1,1024,1,1,1|1,1,0,0,0,1;131072,32,8388608,16,8,64"
MEMORY, DISK, OWN = 131_072, 4_000_000, 1024
SIZES = {"large": (5, 10, 50, 400), "random": (10, 20, 50, 100, 200)}


def uneven(nodes: int, per_node: int, number: int = 0, kind: str = "random") -> str:
    """Return the text of a cluster."""
    draw = random.Random(number * 1000 + nodes)
    names = [f"n{place}" for place in range(nodes)]
    used = {name: [0, 0] for name in names}  # memory, disk
    guarded: dict[tuple[str, str], int] = {}
    pool = names[: -max(1, nodes // 10)] if kind == "new" else names
    likes = [draw.uniform(0.5, 1.5) for _ in pool]
    instances = []
    for place in range(nodes * per_node):
        memory = draw.choice((2048, 4096, 4096, 8192, 16384))
        disk = 1024 * draw.choice(SIZES.get(kind, SIZES["random"]))
        vcpus = draw.choice((1, 2, 2, 4, 8))
        p, s = draw.choices(pool, likes, k=2)
        reserve = guarded.get((s, p), 0) + memory
        if p == s or used[p][0] + memory > 100_000 or reserve > MEMORY - used[s][0] - 4 * OWN:
            continue
        if max(used[p][1], used[s][1]) + disk > DISK * 0.95:
            continue
        guarded[s, p] = reserve
        used[p][0] += memory
        for name in (p, s):
            used[name][1] += disk
        instances.append(f"i{place}|{memory}|{disk}|{vcpus}|running|Y|{p}|{s}|drbd||1|-|N")
    rows = [
        f"{name}|{MEMORY}|{OWN}|{MEMORY - OWN - memory}|{DISK}|{DISK - disk}|32"
        f"|{'M' if name == names[0] else 'N'}|uuid|12||N|0|0|1.0"
        for name, (memory, disk) in used.items()
    ]
    policies = [f"|{SPECS}|drbd,plain|8.0|32.0", f"group|{SPECS}|drbd,plain|8.0|32.0"]
    sections = (["group|uuid|preferred||"], rows, instances, [], policies)
    return "\n".join("".join(f"{line}\n" for line in section) for section in sections)
