import pytest

from ganeti.base.errors import ProtocolError
from ganeti.query.live import lock_states
from ganeti.query.view import LockState

OWNERS = [
    ["cluster/BGL", [[[7, "/l", 1], "shared"], [[12, "/k", 4], "shared"]]],
    ["instance/i1", [[[7, "/l", 1], "exclusive"]]],
    ["node/free", []],
]
WAITING = [
    [10, [8, "/m", 2], [["instance/i1", "exclusive"], ["node/n1", "shared"]]],
    [-5, ["luxid-3", "/n", 3], [["instance/i1", "exclusive"], ["node/n2", "release"]]],
]


def test_owners_and_waiters_by_lock() -> None:
    assert lock_states([OWNERS, WAITING]) == [
        LockState(name="cluster/BGL", mode="shared", owners=("job12", "job7")),
        LockState(
            name="instance/i1",
            mode="exclusive",
            owners=("job7",),
            pending=(("exclusive", ("luxid-3", "job8")),),
            priorities=(("luxid-3", -5), ("job8", 10)),
        ),
        LockState(name="node/free"),
        LockState(name="node/n1", pending=(("shared", ("job8",)),), priorities=(("job8", 10),)),
    ]


def test_no_locks() -> None:
    assert lock_states([[], []]) == []


@pytest.mark.parametrize("answer", [None, [], [[]], [[], [], []], [[1], []], [[["x", [[5]]]], []]])
def test_other_shapes_are_refused(answer: object) -> None:
    with pytest.raises(ProtocolError):
        lock_states(answer)
