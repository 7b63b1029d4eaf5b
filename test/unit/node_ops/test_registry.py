"""Every served call has a handler that takes the call's arguments."""

from pathlib import Path

import pytest

from ganeti.base.errors import NotSupportedError
from ganeti.node_ops import dispatch, registry
from ganeti.protocol.node_rpc import NODE_RPC, NodeCall

SERVED = [call for call in NODE_RPC.values() if call.supported]
REFUSED = [call for call in NODE_RPC.values() if not call.supported]


def test_the_table_of_handlers_is_that_of_the_served_calls() -> None:
    assert set(registry.MODULES) == {call.name for call in SERVED}


@pytest.mark.parametrize("call", SERVED, ids=lambda call: call.name)
def test_a_handler_takes_the_arguments_of_its_call(call: NodeCall) -> None:
    handler = registry.find_handler(call)
    assert len(dispatch._parameter_types(handler)) == len(call.arguments)


@pytest.mark.parametrize("call", REFUSED, ids=lambda call: call.name)
def test_what_is_not_served_says_so(call: NodeCall) -> None:
    with pytest.raises(NotSupportedError, match=f"not supported yet: {call.name}"):
        registry.find_handler(call)


@pytest.mark.parametrize("call", REFUSED, ids=lambda call: call.name)
def test_what_is_not_served_stands_in_the_status(call: NodeCall) -> None:
    status = Path(__file__).parents[3] / "doc" / "status.md"
    assert f"`{call.name}`" in status.read_text().partition("## Not yet")[2]
