"""What Debian's htools said about a hundred made-up clusters, and what ours say.

    .venv/bin/python test/compat/recordings.py     # asks Debian's, and writes the answers

A cluster is known by its number: `test/data/placements/debian.json` has the answers, and a digest
of each cluster, so that a change of what is made up is seen.  Asked are the score, what balancing
comes to, a place for a new instance, another secondary node for one, and how one leaves its nodes.

Where the two are meant to differ is left out of the questions: Debian's keeps 4 GB for a KVM node
whatever it reports (told not to here), takes no account of the room for disks in files, and
restarts instances elsewhere whose disks are local.  Above all it refuses every new instance while
anything is wrong with N+1 that was wrong before, be it a mirror on a node that is offline, or tags
that keep instances from restarting together.  It balances with instances whose nodes are both
offline, which nothing can carry out, so clusters to be balanced have no offline nodes.  When an
instance is moved it counts others that are down as if they ran, and lets exclusion tags pass at a
change of roles: neither is asked about.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "test")]

from fakes import debian_htools  # noqa: E402
from fakes.allocator_questions import Draw, Json, decoded, question  # noqa: E402
from fakes.naive_placement import View, as_existing, with_instance  # noqa: E402
from fakes.text_clusters import Shape, made_up  # noqa: E402
from msgspec.structs import replace  # noqa: E402

from ganeti.allocation.answers import Question, answer  # noqa: E402
from ganeti.allocation.balancing.search import USUAL_ENDS, Search  # noqa: E402
from ganeti.allocation.balancing.steps import Limits  # noqa: E402
from ganeti.allocation.model import Rules  # noqa: E402
from ganeti.allocation.questions import state_of  # noqa: E402
from ganeti.allocation.sources.text_data import from_text  # noqa: E402
from ganeti.allocation.state import make_state  # noqa: E402
from ganeti.allocation.tags import meanings_of  # noqa: E402

RECORD: Final = ROOT / "test" / "data" / "placements" / "debian.json"
CLUSTERS: Final = 100
CLOSE: Final = 1e-6
EVACUATIONS: Final = ("all", "primary-only", "secondary-only")
_TAGS: Final = ("service:a", "service:b")
_NO_CAPACITY: Final = "--no-capacity-checks"
_BALANCED: Final = Shape(
    nodes=(4, 8),
    per_node=(2, 5),
    templates=("drbd", "drbd", "rbd", "plain"),
    is_consistent=True,
    has_exclusive=False,
    has_forthcoming=False,
    has_tags=False,
)
_SCORE: Final = re.compile(r"^(?:Initial score: |Cluster score improved from \S+ to )(\S+)$", re.M)


def to_balance(number: int) -> str:
    """Return a cluster without offline nodes as text."""
    sections = made_up(number, _BALANCED).split("\n\n")
    sections[1] = sections[1].replace("|Y|uuid", "|N|uuid")
    return "\n\n".join(sections)


def draw_cluster(
    number: int, *, capacity: bool, states: tuple[str, ...] = ("up", "up", "down")
) -> tuple[Draw, Json]:
    """Return a question about a new instance on a cluster where nothing is wrong with N+1."""
    draw = Draw(number)
    templates = ("drbd", "ext", "diskless") if capacity else ("drbd", "ext", "plain", "rbd")
    while True:
        nodes, instances = draw.cluster(
            draw.random.randint(2, 7),
            draw.random.randint(0, 20),
            templates,
            states=states,
            tags=() if capacity else _TAGS,
            odd=0.0 if capacity else 0.1,
            memory=(8000, 16000),
        )
        content = question(
            draw.wish(templates) | {"tags": draw.random.sample(_TAGS, draw.random.randint(0, 1))},
            nodes,
            instances,
            cluster_tags=["htools:iextags:service"],
        )
        view = View(content)
        if not any(view.deficit(name) or view.lost(name) for name in view.usable):
            return draw, content


def questions(number: int) -> dict[str, Json]:
    """Return the questions to an allocator about a cluster, by their names."""
    draw, content = draw_cluster(number, capacity=bool(number % 2))
    found = {"allocate": content}
    draw, content = draw_cluster(CLUSTERS + number, capacity=True, states=("up",))
    instances = content["instances"]
    mirrored = [name for name, each in instances.items() if len(each["nodes"]) == 2]
    if mirrored:
        name = draw.random.choice(mirrored)
        found["relocate"] = content | {
            "request": {
                "type": "relocate",
                "name": name,
                "disk_space_total": instances[name]["disk_space_total"],
                "required_nodes": 1,
                "relocate_from": instances[name]["nodes"][1:],
            }
        }
    if instances:
        name = draw.random.choice(list(instances))
        for mode in EVACUATIONS:
            request = {"type": "node-evacuate", "instances": [name], "evac_mode": mode}
            found[f"evacuate {mode}"] = content | {"request": request}
    return found


def digest(number: int) -> str:
    """Return what a cluster and the questions about it can be known by."""
    told = json.dumps([made_up(number), to_balance(number), questions(number)], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def shape_of(name: str, result: Any) -> Any:
    """Return the part of an answer that has to be the same; of the places the scores count."""
    if not name.startswith("evacuate"):
        return None
    moved, failed, jobs = result
    return [len(moved), len(failed), [[op["OP_ID"] for op in job] for job in jobs]]


def ask_debians(number: int, directory: Path) -> Json:
    """Return what Debian's tools say about a cluster."""
    path = directory / "file"
    found: Json = {"digest": digest(number)}
    found["components"] = debian_htools.components(made_up(number), path)
    path.write_text(to_balance(number))
    scores = _SCORE.findall(debian_htools.run("hbal", "-t", str(path)).stdout)
    found["balanced"] = [float(scores[0]), float(scores[-1])]
    for name, content in questions(number).items():
        path.write_text(json.dumps(content))
        options = [] if number % 2 or name != "allocate" else [_NO_CAPACITY]
        said = debian_htools.ask_allocator(str(path), *options)
        found[name] = {"success": said["success"], "result": said["result"]}
    return found


def our_components(text: str) -> dict[str, float]:
    """Return the components of the score of a cluster, the score first."""
    (group,) = make_state(from_text(text)).groups.values()
    return {"overall": group.exact_score} | {each.name: each.value for each in group.components}


def our_balance(text: str) -> list[float]:
    """Return the score before and after balancing."""
    state = make_state(from_text(text))
    (uuid,) = state.groups
    search = Search(state, uuid, Limits(), USUAL_ENDS)
    steps = list(search.steps())
    first = state.groups[uuid].exact_score
    return [first, steps[-1].score if steps else first]


def our_answer(content: Json, rules: Rules) -> Any:
    """Return our answer to a question."""
    request = decoded(content)
    asked = Question(state_of(request), meanings_of(request.cluster_tags), rules)
    return answer(asked, request.request).response


def score_after(name: str, content: Json, result: Any) -> float:
    """Return the score once an answer is followed that tells places."""
    if name == "allocate":
        made = as_existing(content["request"], tuple(result))
        state = state_of(decoded(with_instance(content, "new", made)))
    elif name.startswith("evacuate"):
        state = state_of(decoded(content))
        for instance, _group, nodes in result[0]:
            before = state.instances[instance]
            after = replace(before, nodes=tuple(nodes))
            state = state.without_instance(before).with_instance(after)
    else:
        state = state_of(decoded(content))
        before = state.instances[content["request"]["name"]]
        after = replace(before, nodes=(before.primary, *result))
        state = state.without_instance(before).with_instance(after)
    (group,) = state.groups.values()
    return group.exact_score


def differences(number: int, recorded: Json) -> list[str]:
    """Return where our answers about a cluster are other ones, or worse."""
    wrong = []
    ours, theirs = our_components(made_up(number)), recorded["components"]
    if list(ours) != list(theirs):
        wrong.append(f"components {list(ours)}")
    wrong += [
        f"component {name}: {ours[name]}, theirs {value}"
        for name, value in theirs.items()
        if abs(ours[name] - value) > CLOSE
    ]
    (first, last), (their_first, their_last) = our_balance(to_balance(number)), recorded["balanced"]
    if abs(first - their_first) > CLOSE or last > their_last + CLOSE:
        wrong.append(f"balanced from {first} to {last}, theirs {their_first} to {their_last}")
    for name, content in questions(number).items():
        said = recorded[name]
        rules = Rules(checks_capacity=name != "allocate" or bool(number % 2))
        found = our_answer(content, rules)
        if found.success != said["success"]:
            wrong.append(f"{name}: {found.info}, theirs {said}")
        if found.success != said["success"] or not found.success:
            continue
        result = json.loads(json.dumps(found.result))
        if shape_of(name, result) != shape_of(name, said["result"]):
            wrong.append(f"{name}: {result}, theirs {said['result']}")
            continue
        own, other = (score_after(name, content, each) for each in (result, said["result"]))
        if own > other + CLOSE:
            wrong.append(f"{name}: {result} with {own}, theirs {said['result']} {other}")
    return wrong


def main() -> None:
    """Write the record."""
    with tempfile.TemporaryDirectory(prefix="recordings-") as directory:
        found = [ask_debians(number, Path(directory)) for number in range(CLUSTERS)]
    RECORD.parent.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(each, separators=(",", ":")) for each in found)
    RECORD.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
