"""Our hroller beside Debian's: the same nodes in no more groups, and groups that hold."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, combinations
from pathlib import Path

import pytest
from fakes import debian_htools
from fakes.run_tool import run_tool
from fakes.text_clusters import Shape, made_up

from ganeti.allocation.snapshot import Snapshot
from ganeti.allocation.sources.text_data import from_text

needs_debian = pytest.mark.skipif(not debian_htools.are_there(), reason=debian_htools.REASON)
CLUSTERS = 4
CHOICES = (
    *("", "--offline-maintenance", "--ignore-non-redundant"),
    *("--skip-non-redundant", "--node-tags=r:1", "--group=group1"),
)


def cluster(number: int, templates: Sequence[str]) -> str:
    """Return a cluster with one master node, or with none."""
    shape = Shape(
        templates=templates,
        groups=1 + number % 2,
        nodes=(3, 12),
        is_consistent=True,
        has_exclusive=False,
        has_forthcoming=number % 3 == 0,
    )
    text = re.sub(r"\|M\|uuid", "|N|uuid", made_up(number, shape))
    return text if number % 3 == 2 else text.replace("|N|uuid", "|M|uuid", 1)


def together(snapshot: Snapshot, group: Sequence[str], *, is_offline: bool) -> list[str]:
    """Return what forbids that these nodes are rebooted at the same time."""
    made = [each for each in snapshot.instances.values() if not each.is_forthcoming]
    pairs = [each for each in made if each.secondary]
    wrong = [each.name for each in pairs if set(each.nodes) <= set(group)]
    if not is_offline:
        for one, other in combinations(pairs, 2):
            shares = one.secondary == other.secondary and one.primary != other.primary
            if shares and {one.primary, other.primary} <= set(group):
                wrong.append(f"{one.name} and {other.name}")
    return wrong


@needs_debian
@pytest.mark.parametrize("choice", CHOICES)
def test_groups_are_as_few_as_theirs_and_hold(
    choice: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "cluster"
    for number in range(CLUSTERS):
        text = cluster(number, ("drbd", "drbd", "drbd", "plain") if number % 2 else ("drbd",))
        path.write_text(text)
        words = ("hroller", "-t", str(path), "-f", *filter(None, [choice]))
        theirs = debian_htools.run(*words)
        status, out, err = run_tool(monkeypatch, capsys, *words)
        assert status == theirs.returncode, (number, err, theirs.stderr)
        if status:
            continue
        assert err == theirs.stderr
        title, *lines = out.splitlines()
        groups = [line.split(",") for line in lines]
        assert title == theirs.stdout.splitlines()[0]
        their_groups = [line.split(",") for line in theirs.stdout.splitlines()[1:]]
        assert sorted(chain(*groups)) == sorted(chain(*their_groups)), number
        assert len(groups) <= len(their_groups), number
        snapshot = from_text(text)
        is_offline = choice == "--offline-maintenance"
        assert not [
            found for group in groups if (found := together(snapshot, group, is_offline=is_offline))
        ]
        masters = [name for name, node in snapshot.nodes.items() if node.is_master]
        if masters and masters[0] in chain(*groups):
            assert groups[-1][-1] == masters[0]
            groups = groups[:-1]
        assert [len(group) for group in groups] == sorted(map(len, groups), reverse=True)


def crowded(number: int) -> str:
    """Return a cluster whose nodes have little memory free, and instances that are down."""
    templates = ("drbd", "plain", "plain", "ext")
    shape = Shape((4, 9), templates=templates, has_exclusive=False, has_forthcoming=False)
    groups, nodes, *others = made_up(number, replace(shape, is_consistent=True)).split("\n\n")
    draw, rows = random.Random(number), []
    for line in nodes.replace("|M|uuid", "|N|uuid").replace("|N|uuid", "|M|uuid", 1).splitlines():
        name, total, own, free, *more = line.split("|")
        left = min(int(free), draw.randint(500, 7000))
        rows.append("|".join((name, str(int(total) - int(free) + left), own, str(left), *more)))
    return "\n\n".join((groups, "\n".join(rows), *others))


@needs_debian
@pytest.mark.parametrize("number", [10, 16, 23, 27, 33])
def test_groups_of_nodes_that_are_nearly_full_are_as_few(
    number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "cluster"
    path.write_text(crowded(number))
    words = ("hroller", "-t", str(path), "-f")
    theirs = debian_htools.run(*words)
    status, out, err = run_tool(monkeypatch, capsys, *words)
    assert (status, theirs.returncode) == (0, 0), err
    assert len(out.splitlines()) <= len(theirs.stdout.splitlines())


def text_of(memory: int, tags: str = "", down: int = 0) -> str:
    """Return three nodes, of which the first has an instance without a mirror.

    Args:
        down: memory of an instance of each other node that is down.
    """
    nodes = [
        f"n{number}|{9000 + memory * (number == 0)}|0|9000|99000|99000|8|"
        f"{'M' if number == 1 else 'N'}|u|9|{tags if number == 2 else ''}|N|3|0|1.0\n"
        for number in range(3)
    ]
    policies = made_up(0).split("\n\n")[-1].splitlines()[0]
    instance = f"i0|{memory}|0|1|running|N|n0||diskless||1|-|N\n"
    for number in (1, 2) if down else ():
        instance += f"i{number}|{down}|0|1|ADMIN_down|N|n{number}||diskless||1|-|N\n"
    return f"g|u|preferred||\n\n{''.join(nodes)}\n{instance}\n\n{policies}\n"


def test_an_instance_without_a_mirror_needs_another_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "cluster"
    path.write_text(text_of(3000))
    words = ("hroller", "-t", str(path))

    def groups(*more: str) -> list[str]:
        status, out, _ = run_tool(monkeypatch, capsys, *words, "--no-headers", *more)
        assert status == 0
        return out.splitlines()

    assert len(groups()) == 2  # one node stays for the instance
    assert groups("--ignore-non-redundant") == ["n0,n2,n1"]
    assert groups("--skip-non-redundant") == ["n2,n1"]
    assert groups("--ignore-non-redundant", "--one-step-only") == ["n0", "n2", "n1"]
    path.write_text(text_of(3000, down=8000))
    assert len(groups()) == 2  # those that are down stay so meanwhile
    path.write_text(text_of(20000))
    status, out, err = run_tool(monkeypatch, capsys, *words)
    assert (status, out) == (1, "")
    assert "Not enough capacity to move non-redundant instances away from node n0" in err


def test_a_master_node_is_needed_unless_forced_and_the_cluster_can_be_saved(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "cluster"
    path.write_text(text_of(3000, "t").replace("|M|", "|N|"))
    words = ("hroller", "-t", str(path))
    status, _, err = run_tool(monkeypatch, capsys, *words)
    assert (status, "No master node found" in err) == (1, True)
    saved = tmp_path / "saved"
    words = (*words, "-f", "--node-tags=t", "-S", str(saved))
    status, out, err = run_tool(monkeypatch, capsys, *words)
    assert status == 0
    assert out.splitlines()[1:] == ["'Node Reboot Groups'", "n2"]
    assert "Warning: No master node found" in err
    assert from_text(Path(f"{saved}.original").read_text()).nodes["n2"].tags == ("t",)


def moves_of(lines: Sequence[str]) -> list[tuple[list[str], dict[str, list[str]]]]:
    """Return the nodes of each group, and where its instances go."""
    groups: list[tuple[list[str], dict[str, list[str]]]] = []
    for line in lines:
        if line.startswith("  "):
            name, *nodes = line.split()
            groups[-1][1][name] = nodes
        else:
            groups.append((line.split(","), {}))
    return groups


@pytest.mark.parametrize("more", [(), ("--full-evacuation",), ("--ignore-non-redundant",)])
def test_moves_take_all_away_that_have_to_leave(
    more: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    path, told = tmp_path / "cluster", 0
    for number in range(12):
        text = cluster(number, ("drbd", "drbd", "plain"))
        path.write_text(text)
        words = ("hroller", "-t", str(path), "-f", "--print-moves", "--no-headers", *more)
        status, out, err = run_tool(monkeypatch, capsys, *words)
        if status:
            assert "Not enough capacity" in err
            continue
        snapshot = from_text(text)
        made = [each for each in snapshot.instances.values() if not each.is_forthcoming]
        for group, moves in moves_of(out.splitlines()):
            has_to_leave = {
                each.name
                for each in made
                if not set(each.nodes).isdisjoint(group)
                and (
                    "--full-evacuation" in more
                    if each.secondary
                    else not more[0:1] or more[0] != "--ignore-non-redundant"
                )
            }
            assert set(moves) == has_to_leave, number
            for name, nodes in moves.items():
                each = snapshot.instances[name]
                assert set(nodes).isdisjoint(group), name
                assert len(set(nodes)) == each.node_count
                if each.secondary:
                    assert nodes[0] == next(node for node in each.nodes if node not in group)
                told += 1
    assert told or more == ("--ignore-non-redundant",)


@needs_debian
def test_full_evacuation_is_possible_where_theirs_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "cluster"
    for number in (2, 4, 5):  # without forthcoming instances and offline nodes, that theirs moves
        path.write_text(cluster(number, ("drbd",)))
        words = ("hroller", "-t", str(path), "-f", "--full-evacuation", "--print-moves")
        theirs = debian_htools.run(*words)
        status, out, _ = run_tool(monkeypatch, capsys, *words)
        assert status <= theirs.returncode
        if not theirs.returncode:
            ours, expected = (moves_of(text.splitlines()[1:]) for text in (out, theirs.stdout))
            assert sorted(chain(*(group for group, _ in ours))) == sorted(
                chain(*(group for group, _ in expected))
            )
            assert sorted(chain(*(moves for _, moves in ours))) == sorted(
                chain(*(moves for _, moves in expected))
            )
