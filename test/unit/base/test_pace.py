"""How many things may be beginning at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.pace import Pace


def test_a_place_is_free_when_its_holder_has_ended_or_after_a_moment() -> None:
    pace = Pace(2, 0.25)
    assert pace.try_begin("a", 10.0)
    assert pace.try_begin("b", 10.1)
    assert not pace.try_begin("c", 10.2)
    assert pace.free_at_s() == 10.25
    pace.end("b")
    assert pace.try_begin("c", 10.2)
    assert not pace.try_begin("d", 10.2)
    assert pace.try_begin("d", 10.25)
    assert pace.free_at_s() == 10.45
    pace.end("a")  # its place had gone already
    assert not pace.try_begin("e", 10.3)


@given(st.lists(st.tuples(st.floats(0, 0.5), st.booleans()), max_size=60))
def test_never_more_than_the_places_begin_within_the_time_of_one(
    steps: list[tuple[float, bool]],
) -> None:
    pace, now_s, begun = Pace(3, 1.0), 0.0, dict[int, float]()
    for number, (pause_s, ends) in enumerate(steps):
        now_s += pause_s
        holders = [each for each, since_s in begun.items() if since_s + 1.0 > now_s]
        if ends and holders:
            pace.end(holders[0])
            del begun[holders[0]]
        elif pace.try_begin(number, now_s):
            assert len(holders) < 3
            begun[number] = now_s
        else:
            assert len(holders) == 3
            assert pace.free_at_s() == min(begun[each] for each in holders) + 1.0
