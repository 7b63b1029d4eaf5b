"""Which tags are allowed."""

from __future__ import annotations

import pytest

from ganeti.base.errors import TagError
from ganeti.objects.tags import add_tags, check_tag, remove_tags


@pytest.mark.parametrize("tag", ["a", "owner:me@example.com", "a.b+c*d/e:f@g-h_i", "ü", "x" * 128])
def test_allowed(tag: str) -> None:
    assert check_tag(tag) == tag


@pytest.mark.parametrize("tag", ["", "a b", "a\n", "x" * 129, "a,b", "é!", 3, None])
def test_refused(tag: object) -> None:
    with pytest.raises(TagError):
        check_tag(tag)


def test_adding_and_removing() -> None:
    assert add_tags(["a", "b"], ["b", "c", "c"]) == ["a", "b", "c"]
    assert remove_tags(["a", "b", "c"], ["b"]) == ["a", "c"]
    with pytest.raises(TagError, match=r"tag\(s\) not found: x, y"):
        remove_tags(["a"], ["y", "a", "x"])
    with pytest.raises(TagError, match="at most 4096 tags"):
        add_tags(map(str, range(4096)), ["one more"[:3]])
