import pytest

from ganeti.copies.quorum import Tally, copies_needed


@pytest.mark.parametrize(
    ("candidates", "needed"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (10, 5)]
)
def test_half_of_the_candidates_rounded_up(candidates: int, needed: int) -> None:
    assert copies_needed(candidates) == needed


def test_the_copy_of_the_master_counts() -> None:
    assert Tally(["n2"], []).is_enough
    assert not Tally(["n2", "n3"], []).is_enough
    assert Tally(["n2", "n3"], ["n3"]).is_enough


def test_a_node_that_is_no_candidate_does_not_count() -> None:
    tally = Tally(["n2", "n3"], ["n4", "n5"])
    assert not tally.is_enough
    assert tally.copies == 1


def test_a_shortage_names_the_missing_nodes_and_the_command_to_type() -> None:
    text = Tally(["n3", "n2"], []).shortage("job 5")
    assert text.startswith("job 5 is on 1 of the 2 master candidates")
    assert "n2, n3" in text
    assert "gnt-node modify --offline=yes n2" in text


def test_more_may_be_asked_for() -> None:
    assert not Tally(["n2"], [], 2).is_enough
    assert Tally(["n2"], ["n2"], 2).is_enough
