"""One declaration is table, client and check of the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import pytest

from ganeti.base.errors import NotSupportedError, ProtocolError
from ganeti.objects.rpc_instance import RpcDisk
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.service import Call, Service, call_of, declare, handlers_of, read_as


class Limit(msgspec.Struct, frozen=True):
    seconds: float


Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]


class Doors(Service):
    @declare("openDoor", Limit(5))
    def open_door(self, name: str, port: Port, *, loudly: bool = False) -> str | None:
        """Open a door.

        More about it.
        """

    @declare("", Limit(1))
    def close_all(self) -> list[str]:
        """Close what is open."""
        raise AssertionError


class Client(Doors):
    def __init__(self) -> None:
        self.made: list[tuple[str, list[object]]] = []

    def invoke(self, call: Call[Any], args: list[Any]) -> Any:
        self.made.append((call.name, args))
        return args


@pytest.mark.shows("2.12/config/extensible", "2.0/master-caveats/separate")
def test_the_declaration_is_the_table() -> None:
    assert set(Doors.calls) == {"openDoor", "close_all"}
    row = Doors.calls["openDoor"]
    assert row.summary == "Open a door."
    assert row.rules == Limit(5)
    assert [(each.name, each.is_required) for each in row.arguments] == [
        ("name", True),
        ("port", True),
        ("loudly", False),
    ]
    assert row.result == str | None
    assert call_of(Doors.open_door) is row


@pytest.mark.shows("2.12/steps/wconfd-ipc", "2.12/config/stub")
def test_the_declaration_is_the_client() -> None:
    client = Client()
    client.open_door("front", 7, loudly=True)
    client.open_door(port=8, name="back")
    client.close_all()
    assert client.made == [
        ("openDoor", ["front", 7, True]),
        ("openDoor", ["back", 8, False]),
        ("close_all", []),
    ]
    with pytest.raises(TypeError, match="openDoor takes"):
        client.open_door("front")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="openDoor takes no further argument"):
        client.open_door("front", 7, name="back")  # type: ignore[misc]


def test_arguments_from_the_wire_are_checked() -> None:
    row = Doors.calls["openDoor"]
    assert row.read(["front", 7]) == ["front", 7, False]
    with pytest.raises(
        ProtocolError, match=r"openDoor: takes 3 arguments \(name, port, loudly\), got 1"
    ):
        row.read(["front"])
    with pytest.raises(ProtocolError, match=r"openDoor: wrong argument port: .*<= 65535"):
        row.read(["front", 70000])
    assert row.arguments[1].read("12", is_text=True) == 12
    assert row.arguments[1].describe() == "integer >= 1 <= 65535"


@pytest.mark.parametrize("value", [[], [[]], ["web1", 7], 7, True, "web1", None])
@pytest.mark.parametrize(
    ("call", "argument"),
    [(NodeCalls.blockdev_find, "disk"), (NodeCalls.instance_reboot, "instance")],
)
def test_what_is_no_object_is_no_disk_and_no_instance(
    call: Callable[..., object], argument: str, value: object
) -> None:
    """A disk and an instance look at what they read by themselves."""
    row = call_of(call)
    values = [value if each.name == argument else "" for each in row.arguments]
    with pytest.raises(ProtocolError, match=f"{row.name}: wrong argument {argument}: .* object"):
        row.read(values)
    with pytest.raises(ProtocolError, match="expected object"):
        read_as(RpcDisk, value)


@pytest.mark.shows("2.12/config/extensible")
def test_a_server_serves_what_it_overrides_with_the_declared_parameters() -> None:
    class Half(Doors):
        def close_all(self) -> list[str]:
            return ["front"]

    class Slow:
        async def open_door(self, peer: str, name: str, port: int, *, loudly: bool = False) -> None:
            raise AssertionError

    class Wrong:
        async def open_door(self, name: str) -> None:
            raise AssertionError

    assert set(handlers_of(Doors, Half())) == {"close_all"}
    assert set(handlers_of(Doors, Slow(), leading=1)) == {"openDoor"}
    with pytest.raises(TypeError, match=r"Wrong\.open_door"):
        handlers_of(Doors, Wrong())
    with pytest.raises(NotSupportedError, match="openDoor"):
        Half().open_door("front", 7)
