"""The search of hbal: no step makes anything worse, and steps add up to what is printed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

import pytest
from fakes.run_tool import run_tool
from fakes.text_clusters import Shape, made_up

from ganeti.allocation.balancing.search import Done, Ends, Search
from ganeti.allocation.balancing.steps import Limits
from ganeti.allocation.limits import Redundancy, obstacle
from ganeti.allocation.model import Rules
from ganeti.allocation.snapshot import Snapshot
from ganeti.allocation.sources.text_data import read_text
from ganeti.allocation.state import ClusterState, make_state, snapshot_after

CLUSTERS = 12
SHAPE = Shape(nodes=(3, 7), is_consistent=True)
RUNNING = Shape(nodes=(6, 8), is_consistent=True, has_forthcoming=False, statuses=("running",))
TO_THE_END = Ends(1e-9, 0.01, 0.1)
ALL = Limits()
STRICT = Rules(checks_capacity=False)


def loaded(number: int, shape: Shape = SHAPE) -> tuple[Snapshot, ClusterState, str]:
    """Return a cluster and the UUID of its group."""
    snapshot = read_text(made_up(number, shape).encode(), "cluster", ())
    return snapshot, make_state(snapshot), next(iter(snapshot.groups))


class Found(NamedTuple):
    """A step, and the cluster before and after it."""

    before: ClusterState
    done: Done
    after: ClusterState


def steps_of(number: int, limits: Limits = ALL, shape: Shape = SHAPE) -> list[Found]:
    """Return the steps for a cluster."""
    _, cluster, group = loaded(number, shape)
    search = Search(cluster, group, limits, TO_THE_END)
    found = []
    for done in search.steps():
        found.append(Found(cluster, done, search.cluster()))
        cluster = found[-1].after
    return found


def test_each_step_makes_the_score_better_and_keeps_the_limits() -> None:
    count = 0
    for number in range(CLUSTERS):
        for before, done, after in steps_of(number):
            group = before.nodes[done.step.before.primary].group
            old, new = before.groups[group], after.groups[group]
            assert done.score == pytest.approx(new.exact_score, abs=1e-9)
            assert new.exact_score < old.exact_score
            told = before.without_instance(done.step.before).with_instance(done.step.after)
            assert told.instances[done.step.after.name] == done.step.after
            assert told.groups[group].exact_score == pytest.approx(done.score, abs=1e-9)
            for name in done.step.after.nodes:
                assert obstacle(old.loads[name], new.loads[name], STRICT) is None
            usable = [before.nodes[name].is_usable for name in done.step.before.nodes]
            if all(usable):
                assert not Redundancy(old.loads).gets_worse(new.loads)
                assert all(
                    new.loads[name].deficit <= old.loads[name].deficit
                    for name in done.step.after.nodes
                )
            source, target = (
                before.nodes[each.primary] for each in (done.step.before, done.step.after)
            )
            if source != target and len(done.step.actions) == 1:
                assert source.is_offline or target.accepts_from(source)
            count += 1
    assert count > CLUSTERS


def test_the_state_made_again_from_what_is_saved_has_the_same_score() -> None:
    for number in range(CLUSTERS):
        snapshot, _, group = loaded(number, RUNNING)
        steps = steps_of(number, shape=RUNNING)
        if steps:
            _, done, after = steps[-1]
            again = make_state(snapshot_after(snapshot, after))
            assert again.groups[group].exact_score == pytest.approx(done.score, abs=1e-9)


def test_restrictions_hold() -> None:
    draw = random.Random(1)
    for number in draw.sample(range(40), CLUSTERS):
        for _, done, _ in steps_of(number, Limits(moves_disks=False)):
            assert set(done.step.before.nodes) == set(done.step.after.nodes) or (
                done.step.before.secondary is None
            )
        for _, done, _ in steps_of(number, Limits(moves_instances=False)):
            assert done.step.before.primary == done.step.after.primary
        for before, done, _ in steps_of(number, Limits(only_evacuates=True)):
            assert not all(before.nodes[name].is_usable for name in done.step.before.nodes)


def test_jobs_need_the_master_daemon(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, out, err = run_tool(monkeypatch, capsys, "hbal", "-t", str(tmp_path), "-X")
    assert (status, out) == (1, "")
    assert "use --luxi" in err


def test_states_before_and_after_are_saved(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path, saved = tmp_path / "cluster", tmp_path / "saved"
    path.write_text(made_up(24, RUNNING))
    words = ("-t", str(path), f"--save={saved}")
    _, out, err = run_tool(monkeypatch, capsys, "hbal", *words)
    assert f"{saved}.balanced" in err
    final = out.split("Cluster score improved from ")[1].split()[2]
    _, again, _ = run_tool(monkeypatch, capsys, "hbal", "-t", f"{saved}.balanced", "-l0")
    assert f"Initial score: {final}" in again
