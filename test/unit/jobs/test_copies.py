import pytest

from ganeti.jobs.copies import copies_needed, describe_shortage, only_mends


@pytest.mark.parametrize(
    ("candidates", "needed"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (10, 5)]
)
def test_half_of_the_candidates_rounded_up(candidates: int, needed: int) -> None:
    assert copies_needed(candidates) == needed


def test_a_shortage_names_who_is_missing_and_what_to_type() -> None:
    text = describe_shortage("job 5", 1, 2, ["n3", "n2"])
    assert "n2, n3" in text
    assert "gnt-node modify --offline=yes" in text


def test_jobs_that_mend_a_shortage() -> None:
    mends = {"OP_ID": "OP_NODE_SET_PARAMS", "offline": True}
    assert only_mends([mends])
    assert not only_mends([mends, {"OP_ID": "OP_TEST_DELAY"}])
    assert not only_mends([{"OP_ID": "OP_NODE_SET_PARAMS", "ndparams": {}}])
