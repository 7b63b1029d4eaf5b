"""Declare the calls of a service once: a class whose typed methods are the table.

    class Greeting(Service):
        @declare("sayHello", Rules(limit_s=5))
        def say_hello(self, name: str, *, loudly: bool = False) -> str:
            "Greet somebody."

The declaration is the client as well: called on an object whose class has `invoke`, a method hands
its row and its arguments, in the order of the signature, to that.  The server's class overrides the
methods it serves; `handlers_of` checks their parameters against the declaration, and `Call.read`
turns values from the wire into values of the declared types.  Dispatch, argument checks, manual
pages and schemas are made from `Service.calls`.

Declaring a call costs a few microseconds, as every command line imports some services: signatures,
type hints and readers are worked out when a call is first used.

The rules of a kind of service for its calls, beside the signature (time limit, place, effect), are
a record of its own, the type parameter of `Call`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from types import MethodType
from typing import Any, ClassVar, Final, Generic, TypeVar, cast, get_args, get_type_hints

import msgspec

from ganeti.base.errors import GenericError, NotSupportedError, ProtocolError
from ganeti.objects.record import Record, decode_private, plain

Method = TypeVar("Method", bound=Callable[..., Any])
RulesT = TypeVar("RulesT")

REQUIRED: Final = msgspec.NODEFAULT
_ROW: Final = "__ganeti_call__"


class TextForm(msgspec.Struct, frozen=True, eq=False):
    """How a type is written as text, where not as JSON has it: ``Annotated[bool, TextForm(...)]``.

    Attributes:
        read: makes the value; raises ValueError or `GenericError` for any other text.
        words: names the expected values.
        schema: JSON schema of the text.
    """

    read: Callable[[str], object]
    words: str
    schema: Mapping[str, object] = {}


def text_form_of(kind: Any) -> TextForm | None:
    """Return the text form that an annotation names."""
    parts = getattr(kind, "__metadata__", ())
    return next((part for part in parts if isinstance(part, TextForm)), None)


class Argument(msgspec.Struct, frozen=True):
    """One typed argument: ``type`` is an annotation, limits included (``msgspec.Meta``)."""

    name: str
    type: Any
    # By a factory: as a plain default the value would mean that this field has none.
    default: Any = msgspec.field(default_factory=lambda: REQUIRED)
    help: str = ""

    @property
    def is_required(self) -> bool:
        """Whether it has no default."""
        return self.default is REQUIRED

    def read(self, value: object, *, is_text: bool = False) -> Any:
        """Turn a JSON value, or a text from a command line or URL, into a value of the type.

        Raises:
            ProtocolError: it is not of the type; the text names the argument.
        """
        try:
            return read_as(self.type, value, is_text=is_text)
        except (msgspec.ValidationError, GenericError, TypeError, ValueError) as err:
            text = err.message if isinstance(err, GenericError) else str(err)
            raise ProtocolError(f"wrong argument {self.name}: {text}") from err

    def describe(self) -> str:
        """Return the accepted values in words, for manual pages and messages."""
        from ganeti.objects.describe import describe_type  # slow, for texts only

        form = text_form_of(self.type)
        return form.words if form is not None else describe_type(self.type)


class Call(Generic[RulesT]):
    """One declared call: its name on the wire, the method that declares it, its rules."""

    def __init__(self, name: str, function: Callable[..., object], rules: RulesT) -> None:
        self.name = name
        self.method = function.__name__
        self.rules = rules
        self._function = function
        code = function.__code__
        self._by_place = code.co_argcount - 1
        count = self._by_place + code.co_kwonlyargcount
        self.names: tuple[str, ...] = code.co_varnames[1 : 1 + count]

    @property
    def summary(self) -> str:
        """The first sentence of the declaration's docstring."""
        import inspect  # 5 ms, for which no command line waits

        text = inspect.getdoc(self._function) or ""
        return text.partition("\n\n")[0].replace("\n", " ")

    @functools.cached_property
    def _defaults(self) -> tuple[object, ...]:
        by_place = self._function.__defaults__ or ()
        names = self.names[self._by_place - len(by_place) : self._by_place]
        known = {**dict(zip(names, by_place, strict=True)), **(self._function.__kwdefaults__ or {})}
        return tuple(known.get(name, REQUIRED) for name in self.names)

    def __repr__(self) -> str:
        return f"<call {self.name}>"

    @functools.cached_property
    def arguments(self) -> tuple[Argument, ...]:
        """The arguments in the order of the signature, with their types."""
        hints = self._hints
        return tuple(
            Argument(name, hints[name], default)
            for name, default in zip(self.names, self._defaults, strict=True)
        )

    @property
    def result(self) -> Any:
        """The type of the answer."""
        return self._hints["return"]

    def apply(self, method: Callable[..., Any], args: Sequence[object]) -> Any:
        """Call a method of the declared signature with all arguments in order."""
        count = self._by_place
        return method(*args[:count], **dict(zip(self.names[count:], args[count:], strict=True)))

    def write(self, args: Sequence[object]) -> list[object]:
        """Return arguments as they look on the wire."""
        return [
            plain(value) if is_own else value
            for value, is_own in zip(args, self._own_forms, strict=True)
        ]

    def write_result(self, value: object) -> object:
        """Return an answer as it looks on the wire."""
        return plain(value) if self._result_has_own_form else value

    def decode_answer(self, data: bytes | msgspec.Raw) -> Any:
        """Turn the JSON of an answer into a value of the result's type.

        Raises:
            ProtocolError: it is of another type; the text names the call.
        """
        if self.answers_nothing:
            return None
        try:
            return self._decoder.decode(data)
        except (msgspec.DecodeError, GenericError) as err:
            text = err.message if isinstance(err, GenericError) else str(err)
            raise ProtocolError(f"unexpected answer to {self.name}: {text}") from err

    @functools.cached_property
    def answers_nothing(self) -> bool:
        """Whether the answer holds no value."""
        return self.result is type(None)

    def prepare(self) -> None:
        """Build the tables that make this call and read its answer, which is slow once."""
        _ = self._defaults, self._own_forms
        with contextlib.suppress(ProtocolError):  # raised after the reader is there
            self.decode_answer(b"{}")

    @functools.cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        return msgspec.json.Decoder(self.result, dec_hook=_read_own)

    @functools.cached_property
    def _own_forms(self) -> tuple[bool, ...]:
        return tuple(_has_own_form(each.type) for each in self.arguments)

    @functools.cached_property
    def _result_has_own_form(self) -> bool:
        return _has_own_form(self.result)

    @functools.cached_property
    def _hints(self) -> Mapping[str, Any]:
        return get_type_hints(self._function, include_extras=True)

    def bind(self, args: Sequence[object], named: Mapping[str, object]) -> list[Any]:
        """Return all arguments in order, from those given by place and by name."""
        if not named and len(args) == len(self.names):
            return list(args)
        bound = [*args, *self._defaults[len(args) :]]
        for name, value in named.items():
            if name not in self.names[len(args) :]:
                raise TypeError(f"{self.name} takes no further argument {name!r}")
            bound[self.names.index(name)] = value
        missing = [
            name for name, value in zip(self.names, bound, strict=False) if value is REQUIRED
        ]
        if missing or len(bound) > len(self.names):
            raise TypeError(
                f"{self.name} takes ({', '.join(self.names)}); missing: {missing or 'none'}"
            )
        return bound

    def read(self, values: Sequence[object]) -> list[Any]:
        """Check arguments from the wire; those at the end may be missing if they have a default.

        Raises:
            ProtocolError: too few, too many, or one of a wrong type; the text names the call.
        """
        try:
            read = msgspec.convert(values, self._shape, dec_hook=_read_own)
            found: list[Any] = list(msgspec.structs.astuple(read))
            for index in self._self_reading:
                if index < len(values):
                    found[index] = self.arguments[index].read(found[index])
        except (msgspec.ValidationError, GenericError, TypeError) as err:
            raise self._wrong_argument(values) from err
        return found

    def _wrong_argument(self, values: Sequence[object]) -> ProtocolError:
        """Find the wrong argument; it takes its time."""
        required = sum(1 for each in self.arguments if each.is_required)
        if not required <= len(values) <= len(self.names):
            names = ", ".join(self.names) or "none"
            return ProtocolError(
                f"{self.name}: takes {len(self.names)} arguments ({names}), got {len(values)}"
            )
        for each, value in zip(self.arguments, values, strict=False):
            try:
                each.read(value)
            except ProtocolError as err:
                return ProtocolError(f"{self.name}: {err.message}")
        return ProtocolError(f"{self.name}: the arguments cannot be read")

    @functools.cached_property
    def _self_reading(self) -> list[int]:
        """The places of the arguments whose type reads itself."""
        return [
            index
            for index, each in enumerate(self.arguments)
            if getattr(each.type, "from_wire", None) is not None
        ]

    @functools.cached_property
    def _shape(self) -> type[msgspec.Struct]:
        """All arguments as one type, which msgspec prepares once and not for every call."""
        fields = [
            (each.name, Any if index in self._self_reading else each.type, each.default)
            for index, each in enumerate(self.arguments)
        ]
        return msgspec.defstruct(
            f"{self.method}_arguments", fields, array_like=True, forbid_unknown_fields=True
        )


class Service:
    """Base of the classes that declare calls; a client overrides `invoke`, a server the calls."""

    calls: ClassVar[dict[str, Call[Any]]] = {}
    """The calls of this class and its bases, by their name on the wire."""

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        own = [row for value in vars(cls).values() if (row := row_of(value)) is not None]
        cls.calls = {
            name: row for base in cls.__bases__ for name, row in getattr(base, "calls", {}).items()
        } | {row.name: row for row in own}

    def invoke(self, call: Call[Any], args: list[Any]) -> Any:
        """Make a call; overridden by clients."""
        raise NotSupportedError(f"not supported yet: {call.name}")


def declare(name: str, rules: object) -> Callable[[Method], Method]:
    """Make a method the declaration of a call: its signature is the row, its body is the client's.

    Args:
        name: its name on the wire; "" for the name of the method.
        rules: the rules of this kind of service for the call.
    """

    def decorate(function: Method) -> Method:
        row = Call(name or function.__name__, function, rules)

        def invoke(self: Service, *args: object, **named: object) -> Any:
            return self.invoke(row, row.bind(args, named))

        invoke.__name__, invoke.__doc__ = function.__name__, function.__doc__
        setattr(invoke, _ROW, row)
        return cast("Method", invoke)

    return decorate


def row_of(method: object) -> Call[Any] | None:
    """Return the call that a method declares; None for any other method."""
    found = getattr(method, _ROW, None)
    return found if isinstance(found, Call) else None


def call_of(method: Callable[..., object]) -> Call[Any]:
    """Return the call behind a reference such as ``NodeCalls.version``."""
    found = row_of(method)
    assert found is not None, f"{method} declares no call"
    return found


@functools.cache
def _parameter_names(function: Callable[..., Any]) -> tuple[str, ...]:
    import inspect

    return tuple(inspect.signature(function).parameters)


def handlers_of(
    service: type[Service], server: object, *, leading: int | Callable[[Call[Any]], int] = 0
) -> dict[str, Callable[..., Any]]:
    """Return {name on the wire: method} of the calls that an object serves itself.

    A server that answers by coroutines cannot be a subclass that mypy accepts, so it may be any
    object with methods of the same names; their parameters are compared here.

    Args:
        leading: how many parameters of its own a method takes before the declared ones, or a
            function that tells it of a call.

    Raises:
        TypeError: parameters differ from the declaration's.
    """
    found = {}
    for name, row in service.calls.items():
        method = getattr(server, row.method, None)
        if method is None or row_of(method) is not None:
            continue
        own = leading if isinstance(leading, int) else leading(row)
        names = _parameter_names(getattr(method, "__func__", method))
        names = names[own + isinstance(method, MethodType) :]
        if names != row.names:
            raise TypeError(
                f"{type(server).__name__}.{row.method}{names} does not take {row.names}"
            )
        found[name] = method
    return found


def read_as(kind: Any, value: object, *, is_text: bool = False) -> Any:
    """Return a value as one of the given type; types with ``from_wire`` read themselves.

    Raises:
        msgspec.ValidationError: it is not of the type.
        ValueError, GenericError: a text is not in the text form of the type.
    """
    if is_text and (form := text_form_of(kind)) is not None:
        assert isinstance(value, str)
        return form.read(value)
    if hasattr(kind, "from_wire"):
        return _from_wire(kind, value)
    return msgspec.convert(value, kind, strict=not is_text, str_keys=True, dec_hook=_read_own)


def _read_own(kind: type, value: object) -> object:
    """Let msgspec read types of ours inside containers; ``object`` takes any value."""
    if kind is object:
        return value
    return _from_wire(kind, value) if hasattr(kind, "from_wire") else decode_private(kind, value)


def _from_wire(kind: Any, value: object) -> object:
    """Let a type of ours read itself; a record reads objects only."""
    if issubclass(kind, Record) and not isinstance(value, Mapping):
        raise ProtocolError(f"{kind.__name__}: expected object")
    return kind.from_wire(value)


def _has_own_form(kind: Any) -> bool:
    """Tell whether values of a type contain any that write themselves."""
    return hasattr(kind, "to_wire") or any(map(_has_own_form, get_args(kind)))
