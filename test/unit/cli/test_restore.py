"""How many candidates must answer before an old copy counts as the newest."""

from __future__ import annotations

import pytest

from ganeti.copies.quorum import copies_needed
from ganeti.jobs.votes import answers_beside_old_copy, answers_needed


@pytest.mark.parametrize("count", range(1, 12))
def test_whatever_counts_is_on_one_that_answers(count: int) -> None:
    """The lost master had one of the copies of each record; others answer for the rest."""
    names = [f"n{i}" for i in range(count)]
    others_answering = answers_beside_old_copy(names, answers_needed(names)) - 1
    others_with_a_copy = copies_needed(count) - 1
    others_without = count - 1 - others_with_a_copy
    assert others_answering > others_without or others_answering == count - 1
