"""External storage providers: what the nodes say, added up."""

from __future__ import annotations

from ganeti.logical_units.query import ProviderOnNode, provider_rows
from ganeti.objects.query_words import QueryResource
from ganeti.query.engine import fields_of

POOL = ("pool", "which pool")
COPIES = ("copies", "how many")


def good(name: str, *parameters: tuple[str, str]) -> ProviderOnNode:
    return ProviderOnNode(name, f"/ext/{name}", True, "", list(parameters))


def test_a_group_can_use_what_all_its_nodes_have() -> None:
    broken = ProviderOnNode("half", "/ext/half", False, "script(s) grow missing")
    answers = {
        "n1": [good("all", POOL, COPIES), good("half", POOL)],
        "n2": [good("all", COPIES)],
        "n3": [good("all", COPIES, POOL), broken, good("half")],
    }
    groups = {"left": ["n1"], "right": ["n2", "n3"], "empty": []}
    every, half = provider_rows(answers, groups)
    described = fields_of(QueryResource.EXTSTORAGE, None)["fields"]
    assert set(every) == {field["name"] for field in described}
    assert every["name"] == "all"
    assert every["parameters"] == [list(COPIES)]
    assert every["nodegroup_status"] == {
        "left": [True, [list(POOL), list(COPIES)]],
        "right": [True, [list(COPIES)]],
    }
    assert half["nodegroup_status"] == {"left": [True, [list(POOL)]], "right": [False, []]}
    assert half["node_status"] == {
        "n1": [["/ext/half", True, "", [list(POOL)]]],
        "n2": [],
        "n3": [["/ext/half", False, "script(s) grow missing", []], ["/ext/half", True, "", []]],
    }


def test_no_answers_no_providers() -> None:
    assert provider_rows({}, {"default": []}) == []
    assert provider_rows({"n1": []}, {"default": ["n1"]}) == []
