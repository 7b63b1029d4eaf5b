"""YAML as text, values with the lines that they stand on, and back.

Words mean what they say: ``no``, ``on`` and ``12:30:00`` are text, as YAML 1.2 has it; only null,
true, false and plain numbers are values of other types.  A key that stands twice is refused; ``<<``
brings in the keys of another mapping.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import yaml

from ganeti.base.errors import OpPrereqError

Path = tuple[str | int, ...]

DEPTH_MAX: Final = 24  # a policy in a group has seven
VALUES_MAX: Final = (
    2_000_000  # fifty thousand instances; references make large values of small texts
)

_WORDS: Final[Mapping[str, object]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER: Final = re.compile(r"[-+]?(0|[1-9]\d{0,17})", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?\d+\.\d+([eE][-+]\d+)?", re.ASCII)
_MERGE: Final = "<<"


class Document(NamedTuple):
    """The value of a text, and the line of each value in it, counted from 1."""

    value: object
    lines: Mapping[Path, int]

    def line_of(self, path: Path) -> int:
        """Return the line of a value, or that of the nearest thing around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def parse(text: str, name: str) -> Document:
    """Read one document.

    Raises:
        OpPrereqError: it is no YAML, or has keys twice; begins with ``name`` and the line.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        node = yaml.compose(text, loader)
    except yaml.MarkedYAMLError as err:
        mark = err.problem_mark or err.context_mark
        line = min(mark.line, text.rstrip().count("\n")) + 1 if mark else 1
        raise OpPrereqError(f"{name}:{line}: {err.problem or err.context}") from err
    except (yaml.YAMLError, RecursionError) as err:
        raise OpPrereqError(f"{name}: {str(err) or 'nested too deep'}") from err
    reader = _Reader(name)
    value = None if node is None else reader.value(node, ())
    return Document(value, reader.lines)


class _Reader:
    """Makes values of the nodes of one document."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._count = 0
        self.lines: dict[Path, int] = {}

    def value(self, node: yaml.Node, path: Path) -> object:
        self._count += 1
        if len(path) > DEPTH_MAX or self._count > VALUES_MAX:
            raise self._wrong(node, "nested too deep, or too large")
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(each, (*path, number)) for number, each in enumerate(node.value)]
        return self._mapping(node, path)

    def _mapping(self, node: yaml.Node, path: Path) -> dict[str, object]:
        own: dict[str, object] = {}
        merged: dict[str, object] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._wrong(key_node, "a key must be a word")
            key = str(key_node.value)
            if key == _MERGE and not key_node.style:
                for name, value in self._merged(value_node, path).items():
                    merged.setdefault(name, value)
                continue
            if key in own:
                raise self._wrong(key_node, f"{key!r} stands here for the second time")
            self.lines[(*path, key)] = key_node.start_mark.line + 1
            own[key] = self.value(value_node, (*path, key))
        return {**merged, **own}

    def _merged(self, node: yaml.Node, path: Path) -> dict[str, object]:
        """Return the keys that other mappings bring in; of several the first one counts."""
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        found: dict[str, object] = {}
        for each in nodes:
            if not isinstance(each, yaml.MappingNode):
                raise self._wrong(each, "<< takes mappings")
            if len(path) >= DEPTH_MAX:
                raise self._wrong(each, "nested too deep, or too large")
            found = {**self._mapping(each, (*path, _MERGE)), **found}
        return found

    def _wrong(self, node: yaml.Node, text: str) -> OpPrereqError:
        return OpPrereqError(f"{self._name}:{node.start_mark.line + 1}: {text}")


def _scalar(node: yaml.ScalarNode) -> object:
    text = str(node.value)
    if node.style:  # in quotes, or a block
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def write(value: object) -> str:
    """Return the text of a value, which `parse` reads back."""
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=96)
