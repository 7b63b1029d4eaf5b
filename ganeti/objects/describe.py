"""Describe the values of a declared type in words, for error messages and documentation.

Slow, and imported only where a message is needed.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import inspect

from ganeti.objects.record import PrivateParams, Record

_STEP = re.compile(r"\[(\d+|\.\.\.)\]|\.?([A-Za-z_]\w*)")

_SIMPLE: dict[type[inspect.Type], str] = {
    inspect.AnyType: "any value",
    inspect.NoneType: "null",
    inspect.BoolType: "bool",
}


def describe_type(annotation: object) -> str:
    """Describe an annotation, for example ``null or one of live, non-live``."""
    return _describe(inspect.type_info(annotation))


def describe_place(struct: type[msgspec.Struct], path: str) -> str:
    """Describe the expected value at a path such as ``disks[0][...]`` inside a struct."""
    return _describe(_type_at(struct, path))


def describe_key(struct: type[msgspec.Struct], path: str) -> str:
    """Describe the expected keys of an object at a path inside a struct."""
    return _describe(_type_at(struct, path, key=True))


def _type_at(struct: type[msgspec.Struct], path: str, *, key: bool = False) -> inspect.Type:
    steps = [match.group(1) or match.group(2) for match in _STEP.finditer(path)]
    found = _field_type(struct, steps[0])
    for step in [*steps[1:], *(["<key>"] if key else [])]:
        inner = _inner_type(found, step)
        if inner is None:
            break
        found = inner
    return found


def _field_type(struct: type[msgspec.Struct], name: str) -> inspect.Type:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    return next(field.type for field in info.fields if field.encode_name == name)


def _inner_type(outer: inspect.Type, step: str) -> inspect.Type | None:
    if isinstance(outer, inspect.Metadata):
        return _inner_type(outer.type, step)
    if isinstance(outer, inspect.UnionType):
        found = (_inner_type(member, step) for member in outer.types)
        return next((inner for inner in found if inner is not None), None)
    if isinstance(outer, inspect.TupleType) and step.isdigit():
        return outer.item_types[int(step)] if int(step) < len(outer.item_types) else None
    if isinstance(outer, inspect.CollectionType) and step.isdigit():
        return outer.item_type
    if isinstance(outer, inspect.DictType):
        return outer.key_type if step == "<key>" else outer.value_type
    if isinstance(outer, inspect.StructType):
        return next((field.type for field in outer.fields if field.encode_name == step), None)
    return None


def _describe(info: inspect.Type) -> str:
    simple = _SIMPLE.get(type(info))
    if simple is not None:
        return simple
    match info:
        case inspect.Metadata():
            given = (info.extra_json_schema or {}).get("description")
            return str(given) if given else _describe(info.type)
        case inspect.UnionType():
            names = [_describe(member) for member in info.types if not _is_null(member)]
            nulls = ["null"] if any(map(_is_null, info.types)) else []
            return " or ".join(nulls + names)
        case inspect.EnumType():
            return f"one of {', '.join(str(member.value) for member in info.cls)}"
        case inspect.StrType():
            return _describe_str(info)
        case inspect.IntType() | inspect.FloatType():
            return _describe_number(info)
        case inspect.CustomType():
            return _describe_custom(info.cls)
    return _describe_container(info)


def _describe_container(info: inspect.Type) -> str:
    match info:
        case inspect.TupleType():
            return f"[{', '.join(map(_describe, info.item_types))}]"
        case inspect.CollectionType():
            return f"list of ({_describe(info.item_type)})"
        case inspect.DictType():
            return f"object of ({_describe(info.value_type)}) by {_describe(info.key_type)}"
        case inspect.StructType() if issubclass(info.cls, Record):
            return f"{info.cls.__name__} object"
        case inspect.StructType(array_like=True):
            return f"[{', '.join(field.encode_name for field in info.fields)}]"
        case inspect.StructType() | inspect.TypedDictType():
            keys = ", ".join(field.encode_name for field in info.fields)
            return f"object with {keys}"
    return "a value of another type"


def _is_null(info: inspect.Type) -> bool:
    return isinstance(info, inspect.NoneType)


def _describe_str(info: inspect.StrType) -> str:
    if info.pattern is not None:
        return f"text matching {info.pattern}"
    return "text that is not empty" if info.min_length else "text"


def _describe_number(info: inspect.IntType | inspect.FloatType) -> str:
    name = "integer" if isinstance(info, inspect.IntType) else "number"
    limits = [
        f"{sign} {limit}"
        for sign, limit in ((">=", info.ge), (">", info.gt), ("<=", info.le), ("<", info.lt))
        if limit is not None
    ]
    return " ".join([name, *limits])


def _describe_custom(cls: type) -> str:
    if issubclass(cls, PrivateParams):
        return "object of private values by name"
    return str(getattr(cls, "DESCRIPTION", cls.__name__))
