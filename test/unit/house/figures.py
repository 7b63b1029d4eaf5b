"""Figures of the sources: how much code, how it is spread, how far one thought reaches.

``python test/unit/house/figures.py`` prints them.  `test_figures` compares them with what is recorded.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SMALL_LINES = 40  # a module below it, with one importer, is part of that importer
FOLDER_MODULES_MAX = 15

_NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
_ROW = re.compile(r'"(ganeti[\w.]+):[A-Z]\w+"')
_UNIT = re.compile(r"^class LU\w+\(", re.MULTILINE)
_THIN = re.compile(r"[\[\](){},:]*|[\w.\"'*]+[,:]?")  # lone brackets, or one word


@dataclass(frozen=True)
class Source:
    """One module.

    ``imports`` are names of the package's own modules; a name that is imported from a module may be
    a module as well, so both stand there.
    """

    path: str
    code_lines: int
    thin_lines: int
    deferred_imports: int
    imports: frozenset[str]

    @property
    def module(self) -> str:
        return self.path.removesuffix(".py").replace("/", ".")

    @property
    def package(self) -> str:
        return self.path.split("/")[1]

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]


@cache
def sources() -> tuple[Source, ...]:
    """Return all modules of the package but the empty package files."""
    return tuple(
        _read(path)
        for path in sorted((ROOT / "ganeti").rglob("*.py"))
        if path.name != "__init__.py"
    )


def _read(path: Path) -> Source:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    code = _code_lines(text, tree)
    imported = {line for node in _imports(tree) for line in range(node.lineno, _end(node) + 1)}
    lines = text.split("\n")
    thin = sum(1 for n in code if n in imported or _THIN.fullmatch(lines[n - 1].strip()))
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    deferred = {id(node) for function in functions for node in _imports(function)}
    return Source(
        str(path.relative_to(ROOT)), len(code), thin, len(deferred), frozenset(_own_modules(tree))
    )


def _imports(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _own_modules(tree: ast.AST) -> Iterator[str]:
    for node in _imports(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ganeti"):
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _code_lines(text: str, tree: ast.AST) -> set[int]:
    """Return the lines with code: no comments, docstrings, blank lines."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body:
                case [ast.Expr(value=ast.Constant(value=str())) as docstring, *_]:
                    lines -= set(range(docstring.lineno, _end(docstring) + 1))
    return lines


def lines_by_package() -> Mapping[str, int]:
    """Return {package: code lines}."""
    found: dict[str, int] = defaultdict(int)
    for source in sources():
        found[source.package] += source.code_lines
    return dict(sorted(found.items()))


def thin_share() -> float:
    """Return the share of imports, lone brackets and single words in all code."""
    return sum(each.thin_lines for each in sources()) / sum(each.code_lines for each in sources())


def listed_modules() -> frozenset[str]:
    """Return the members of families: rows name their classes as text, logical units are loaded."""
    found: set[str] = set()
    for source in sources():
        text = (ROOT / source.path).read_text(encoding="utf-8")
        found.update(_ROW.findall(text))
        if _UNIT.search(text):
            found.add(source.module)
    return frozenset(found)


def single_importer_modules(tables: Collection[str]) -> list[str]:
    """Return the modules that one other module imports, but those that a table lists."""
    listed = listed_modules()
    importers: dict[str, set[str]] = defaultdict(set)
    for source in sources():
        for name in source.imports:
            importers[name].add(source.module)
    return [
        source.module
        for source in sources()
        if len(importers[source.module]) == 1
        and source.module not in listed
        and not importers[source.module] & set(tables)
    ]


def small_modules(modules: Collection[str]) -> list[str]:
    """Return those of the modules that have few lines, all lines counted."""
    return [
        name
        for name in modules
        if (ROOT / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8").count("\n")
        < SMALL_LINES
    ]


def large_folders() -> Mapping[str, int]:
    """Return {folder: modules} of the folders above the limit."""
    found: dict[str, int] = defaultdict(int)
    for source in sources():
        found[source.folder] += 1
    return {folder: count for folder, count in sorted(found.items()) if count > FOLDER_MODULES_MAX}


def deferred_imports() -> Mapping[str, int]:
    """Return {module: imports inside functions} of the modules that have any."""
    return {each.module: each.deferred_imports for each in sources() if each.deferred_imports}


def classes_named(name: str) -> list[str]:
    """Return the modules that declare a class of that name."""
    pattern = re.compile(rf"^class {name}\b", re.MULTILINE)
    return [s.module for s in sources() if pattern.search((ROOT / s.path).read_text("utf-8"))]


def report(tables: Collection[str]) -> str:
    """Return all figures as text."""
    by_package = lines_by_package()
    single = single_importer_modules(tables)
    rows = [
        ("code lines of ganeti/", f"{sum(by_package.values()):,}"),
        ("imports, lone brackets, single words", f"{thin_share():.1%}"),
        ("modules", str(len(sources()))),
        ("modules with one importer", str(len(single))),
        (f"of these under {SMALL_LINES} lines", str(len(small_modules(single)))),
        ("imports inside functions", str(sum(deferred_imports().values()))),
        (f"folders above {FOLDER_MODULES_MAX} modules", str(large_folders() or "none")),
        ("classes named Argument", str(len(classes_named("Argument")))),
    ]
    lines = [f"{name:40} {value}" for name, value in rows]
    return "\n".join(
        [*lines, "", *(f"  {name:20} {count:6,}" for name, count in by_package.items())]
    )


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    from test_figures import TABLES

    sys.stdout.write(report(TABLES) + "\n")
