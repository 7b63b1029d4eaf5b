"""What a node is sent of the simple configuration, after what it took before."""

import pytest

from ganeti.wconfd.distribution import WHOLE_SSCONF_S, SentSsconf

SENT = SentSsconf(7, {"master_node": "n1", "node_list": "n1\nn2", "cluster_tags": ""}, 100.0)


def test_what_differs_is_sent_and_always_the_name_of_the_master() -> None:
    assert SENT.changed({**SENT.values, "cluster_tags": "t", "new": ""}) == {
        "master_node": "n1",
        "cluster_tags": "t",
        "new": "",
    }
    assert SENT.changed(SENT.values) == {"master_node": "n1"}


@pytest.mark.parametrize(
    ("acknowledged", "later_s", "is_certain"),
    [
        (7, 0.0, True),
        (7, WHOLE_SSCONF_S, True),
        (7, WHOLE_SSCONF_S + 1, False),
        (8, 0.0, False),  # of another trip, whose end is not known
        (None, 0.0, False),  # it was away, or all is to be sent again
    ],
)
def test_it_counts_only_while_the_node_is_sure_to_have_it(
    acknowledged: int | None, later_s: float, is_certain: bool
) -> None:
    assert SENT.is_certain(acknowledged, 100.0 + later_s) is is_certain
