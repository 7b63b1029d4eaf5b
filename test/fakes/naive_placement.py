"""Placement done slowly and obviously, from the JSON of a question: what the fast one must agree with."""

from __future__ import annotations

import copy
from collections import Counter
from itertools import permutations

from fakes.allocator_questions import Json

LOCAL = ("drbd", "plain", "file")
FIXED = ("plain", "file")


def with_instance(content: Json, name: str, made: Json) -> Json:
    """Return the question with an instance that runs, on nodes that have less free for it."""
    found = copy.deepcopy(content)
    found["instances"][name] = made
    change_free(found, made, 1)
    return found


def change_free(content: Json, made: Json, sign: int) -> None:
    """Take an instance's memory and disk space from its nodes, or give them back (-1)."""
    local = made["disk_template"] in LOCAL
    for place, node in enumerate(made["nodes"]):
        values = content["nodes"][node]
        if "free_memory" not in values:
            continue
        if place == 0 and made["admin_state"] == "up":
            values["free_memory"] -= sign * made["memory"]
        if local:
            values["free_disk"] -= sign * made["disk_space_total"]


def as_existing(wish: Json, nodes: tuple[str, ...]) -> Json:
    """Return a wished instance as one that runs on these nodes."""
    gone = ("type", "name", "group_name", "required_nodes")
    return {name: value for name, value in wish.items() if name not in gone} | {
        "admin_state": "up",
        "disks_active": True,
        "nodes": list(nodes),
    }


class View:
    """What follows from a question for one of its groups."""

    def __init__(self, content: Json) -> None:
        self.content = content
        tags = content["cluster_tags"]
        prefixes = [
            tag.removeprefix("htools:iextags:") + ":"
            for tag in tags
            if tag.startswith("htools:iextags:")
        ]
        self.exclusion_prefixes = tuple(prefixes)
        self.usable = {
            name: node
            for name, node in content["nodes"].items()
            if not node["offline"] and not node["drained"] and node["vm_capable"]
        }

    def memory_of(self, made: Json) -> int:
        return 0 if made["admin_state"] == "offline" else int(made["memory"])

    def primaries(self, node: str) -> list[Json]:
        return [made for made in self.content["instances"].values() if made["nodes"][0] == node]

    def mirrors(self, node: str) -> list[Json]:
        return [made for made in self.content["instances"].values() if node in made["nodes"][1:]]

    def free_memory(self, node: str) -> int:
        down = [made["memory"] for made in self.primaries(node) if made["admin_state"] != "up"]
        return int(self.usable[node]["free_memory"]) - sum(down)

    def present_free_memory(self, node: str) -> int:
        """Return the memory that is free while instances are down, at most as much as can be."""
        found = self.usable[node]
        up = sum(made["memory"] for made in self.primaries(node) if made["admin_state"] == "up")
        possible = found["total_memory"] - found["reserved_memory"] - up
        return int(min(found["free_memory"], possible))

    def vcpus(self, node: str) -> int:
        mine = [made for made in self.primaries(node) if made["admin_state"] != "offline"]
        return sum(made["vcpus"] for made in mine) + self.usable[node]["reserved_cpus"]

    def spindle_use(self, node: str) -> int:
        found = [*self.primaries(node), *self.mirrors(node)]
        return sum(made["spindle_use"] for made in found if made["disk_template"] in LOCAL)

    def conflicts(self, node: str) -> int:
        if not self.exclusion_prefixes:
            return 0
        counts: Counter[str] = Counter()
        for made in self.primaries(node):
            counts.update(tag for tag in made["tags"] if tag.startswith(self.exclusion_prefixes))
        return sum(count - 1 for count in counts.values())

    def deficit(self, node: str) -> int:
        """Return the memory missing on a node to take over from the worst of the others."""
        needed: Counter[str] = Counter()
        for made in self.mirrors(node):
            needed[made["nodes"][0]] += self.memory_of(made)
        worst = max(needed.values(), default=0)
        return max(0, worst - self.present_free_memory(node) + 1) if worst else 0

    def lost(self, failed: str) -> int:
        """Return the memory of the instances of a node that find no other when it fails."""
        free = {name: self.present_free_memory(name) for name in self.usable if name != failed}
        mine = [made for made in self.primaries(failed) if made["admin_state"] == "up"]
        for made in mine:
            if made["disk_template"] == "drbd" and made["nodes"][1] in free:
                free[made["nodes"][1]] -= self.memory_of(made)
        movable = [made for made in mine if made["disk_template"] not in (*FIXED, "drbd")]
        lost = 0
        for memory in sorted((self.memory_of(made) for made in movable), reverse=True):
            best = max(free, key=lambda name: free[name], default=None)
            if best is None or free[best] <= memory:
                lost += memory
            else:
                free[best] -= memory
        return lost


def is_feasible(content: Json, made: Json, *, capacity: bool = True) -> bool:
    """Tell whether an instance may run on its nodes: nothing is exceeded and nothing gets worse."""
    before, after = View(content), View(with_instance(content, "new", made))
    policy = content["nodegroups"]["g1"]["ipolicy"]
    if any(name not in before.usable for name in made["nodes"]):
        return False
    if made["disk_template"] == "drbd" and _is_double_risk(content, made, capacity=capacity):
        return False
    primary = made["nodes"][0]
    if after.free_memory(primary) <= 0 and made["memory"]:
        return False
    for name in made["nodes"]:
        node = after.usable[name]
        if made["disk_template"] in LOCAL and made["disk_space_total"] and node["free_disk"] <= 0:
            return False
        most = node["total_cpus"] * policy["vcpu-ratio"]
        if after.vcpus(name) > max(most, before.vcpus(name)):
            return False
        most = node["ndparams"]["spindle_count"] * policy["spindle-ratio"]
        if after.spindle_use(name) > max(most, before.spindle_use(name)):
            return False
        if after.conflicts(name) > before.conflicts(name):
            return False
        if after.deficit(name) > before.deficit(name):
            return False
    return not capacity or all(after.lost(name) <= before.lost(name) for name in before.usable)


def _is_double_risk(content: Json, made: Json, *, capacity: bool) -> bool:
    """Tell whether the primary node alone makes anything worse, whatever its mirror."""
    alone = {**made, "nodes": made["nodes"][:1], "disk_template": "plain"}
    before, after = View(content), View(with_instance(content, "new", alone))
    return capacity and any(after.lost(name) > before.lost(name) for name in before.usable)


def feasible_places(content: Json, *, capacity: bool = True) -> set[tuple[str, ...]]:
    """Return all places where the wished instance may go."""
    wish = content["request"]
    count = wish["required_nodes"]
    return {
        nodes
        for nodes in permutations(content["nodes"], count)
        if is_feasible(content, as_existing(wish, nodes), capacity=capacity)
    }
