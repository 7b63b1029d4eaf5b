"""Keeps modules out of job processes that nobody in them needs: every job pays for its imports.

- ``typing_extensions``, which msgspec imports if it is installed (it brings ``inspect``, ``ast``
  and ``dis`` along), although everything that it needs is in ``typing`` from Python 3.11 on;
- what msgspec imports for kinds of values and formats that we never use: ``uuid`` (which brings
  ``platform`` along), ``decimal``, its schemas, YAML and TOML, and the half of ``datetime`` that is
  written in Python only to be replaced by the other half.  Stand-ins take their place while msgspec
  loads, and go away again: whoever imports one of them later gets the real one;
- ``string``, which ``logging`` wants for formats of lines that are not ours;
- ``traceback`` (which brings ``linecache``, ``tokenize`` and ``textwrap`` along) until something is
  asked of it, which is when an error is logged;
- ``pycurl.async_multi``, which newer pycurls import always (it brings ``dataclasses`` along),
  and which a program without an event loop has no use for.

Besides there is ``site``, which the interpreter is told to leave out: in a development tree it runs
import hooks that cost more than the interpreter.
"""

import sys
from importlib import import_module
from types import ModuleType

# What stands in for modules while msgspec loads: {module: names that it looks up there}.
MSGSPEC_UNUSED = {
    "decimal": ("Decimal",),
    "uuid": ("UUID", "SafeUUID"),
    "msgspec._json_schema": ("schema", "schema_components"),
    "msgspec.inspect": (),
    "msgspec.toml": (),
    "msgspec.yaml": (),
}
LATE = ("traceback",)


class _LateModule(ModuleType):
    """Is replaced by the module of its name when something is asked of it."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):  # the import system looks whether it is ready
            raise AttributeError(name)
        own_name = super().__getattribute__("__name__")
        if sys.modules.get(own_name) is self:
            del sys.modules[own_name]
        return getattr(import_module(own_name), name)


def leave_out_unused() -> None:
    """Keep modules that nobody here needs from being imported by others, now or ever."""
    for name in LATE:
        sys.modules.setdefault(name, _LateModule(name))
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # "do not look for it"
    unused = ModuleType("pycurl.async_multi")
    unused.AsyncCurlMulti = None  # type: ignore[attr-defined]  # the one name that is asked for
    sys.modules["pycurl.async_multi"] = unused
    if "msgspec" not in sys.modules:
        _import_msgspec()


def _import_msgspec() -> None:
    import _datetime  # type: ignore[import-not-found]  # Python's own, known to `datetime` only

    stand_ins = _stand_in(MSGSPEC_UNUSED)
    has_datetime = "datetime" in sys.modules
    sys.modules.setdefault("datetime", _datetime)
    import msgspec

    if not has_datetime:
        del sys.modules["datetime"]
    for name in stand_ins:
        del sys.modules[name]
        package, _, rest = name.rpartition(".")
        if package:
            vars(msgspec).pop(rest, None)  # "from msgspec import inspect" finds the real one


def import_logging() -> None:
    """Import ``logging`` without templates in the forms of ``string``, which it offers."""
    stand_ins = _stand_in({"string": ("Formatter", "Template")})
    import_module("logging")
    for name in stand_ins:
        del sys.modules[name]


def _stand_in(unused: dict[str, tuple[str, ...]]) -> list[str]:
    """Put empty modules with those names where there are none yet; returns which."""
    missing = [name for name in unused if name not in sys.modules]
    for name in missing:
        module = ModuleType(name)
        for each in unused[name]:
            setattr(module, each, type(each, (), {"unknown": None}))
        sys.modules[name] = module
    return missing
