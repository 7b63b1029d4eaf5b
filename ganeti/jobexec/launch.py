"""Starts a job process with as little as possible: no site packages hooks, no unused imports.

LuxiD runs this file by its path, with an isolated interpreter (``python -I -S``), and hands over
the directories to import from as the only argument, separated by colons.  A job process costs what
it imports, so some things are kept out here, before anything else is imported:

- ``site``, which in a development tree runs import hooks that cost more than the interpreter;
- ``typing_extensions``, which msgspec imports if it is installed (it brings ``inspect``, ``ast``
  and ``dis`` along), although everything that it needs is in ``typing`` from Python 3.11 on;
- what msgspec imports for kinds of values and formats that we never use: ``uuid`` (which brings
  ``platform`` along), ``decimal``, its schemas, YAML and TOML.  Empty modules stand in for them
  while msgspec loads, and go away again: whoever imports one of them later gets the real one;
- ``pycurl.async_multi``, which newer pycurls import always (it brings ``dataclasses`` along),
  and which a program without an event loop has no use for.

The garbage collector is off while the modules load: nothing of what they make is ever garbage.
"""

import gc
import sys

# What stands in for modules while msgspec loads: {module: names that it looks up there}.
MSGSPEC_UNUSED = {
    "decimal": ("Decimal",),
    "uuid": ("UUID", "SafeUUID"),
    "msgspec._json_schema": ("schema", "schema_components"),
    "msgspec.inspect": (),
    "msgspec.toml": (),
    "msgspec.yaml": (),
}


def import_msgspec() -> None:
    """Import msgspec without what of it nobody here needs."""
    missing = [name for name in MSGSPEC_UNUSED if name not in sys.modules]
    for name in missing:
        module = type(sys)(name)
        for each in MSGSPEC_UNUSED[name]:
            setattr(module, each, type(each, (), {"unknown": None}))
        sys.modules[name] = module
    import msgspec

    for name in missing:
        del sys.modules[name]
        package, _, rest = name.rpartition(".")
        if package:
            vars(msgspec).pop(rest, None)  # "from msgspec import inspect" finds the real one


def leave_out_unused() -> None:
    """Keep modules that nobody here needs from being imported by others."""
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # "do not look for it"
    unused = type(sys)("pycurl.async_multi")
    unused.AsyncCurlMulti = None  # type: ignore[attr-defined]  # the one name that is asked for
    sys.modules["pycurl.async_multi"] = unused


if __name__ == "__main__":
    gc.disable()
    sys.path[:0] = sys.argv[1].split(":")
    leave_out_unused()
    import_msgspec()

    import os

    from ganeti.jobexec.main import main

    status = main()
    sys.stderr.flush()
    os._exit(status)  # taking the interpreter apart would cost as much as the job
