"""Makes the bundle of modules for job processes (see `ganeti.jobexec.bundle`) on standard output.

LuxiD runs this file by its path, as it runs `launch.py`: argument and interpreter are the same, so
what is found here is what a job process would find.
"""

import marshal
import sys

if __name__ == "__main__":
    sys.path[:0] = sys.argv[1].split(":")
    from ganeti.jobexec import lean

    lean.leave_out_unused()
    lean.import_logging()

import json
import os
from importlib import import_module
from importlib.machinery import ExtensionFileLoader, ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from typing import BinaryIO

from ganeti.jobexec.bundle import EXTENSION, MODULE, PACKAGE, Index

# What brings all along that jobs usually import, those that talk to nodes included.
ROOTS = (
    "ganeti.jobexec.bundle",
    "ganeti.jobexec.main",
    "ganeti.jobexec.preparation",
    "ganeti.clients.node_rpc",
    "ganeti.logical_units.base",
    "ganeti.logical_units.lookup",
)

Sources = dict[str, tuple[int, int]]


def stamp(path: str) -> tuple[int, int]:
    """Return what changes when a file does: the time of its change, and its size."""
    state = os.stat(path)
    return state.st_mtime_ns, state.st_size


def loaded_modules() -> list[ModuleSpec]:
    """Return all modules in memory that came from files."""
    specs = [getattr(module, "__spec__", None) for module in list(sys.modules.values())]
    return [
        spec
        for spec in specs
        if spec is not None and isinstance(spec.loader, SourceFileLoader | ExtensionFileLoader)
    ]


def pack(out: BinaryIO) -> None:
    """Write the bundle."""
    for name in ROOTS:
        import_module(name)
    sources: Sources = {sys.executable: stamp(sys.executable)}
    index: Index = {}
    blobs: list[bytes] = []
    offset = 0
    for spec in loaded_modules():
        path, loader = spec.origin, spec.loader
        if path is None:
            continue
        sources[path] = stamp(path)  # before the code is read
        kind, blob = EXTENSION, b""
        if isinstance(loader, SourceFileLoader):
            kind = MODULE if spec.submodule_search_locations is None else PACKAGE
            blob = marshal.dumps(loader.get_code(spec.name))
        index[spec.name] = (path, kind, offset, len(blob))
        blobs.append(blob)
        offset += len(blob)
    importer = find_spec("ganeti.jobexec.bundle")
    assert importer is not None
    assert isinstance(importer.loader, SourceFileLoader)
    head = marshal.dumps((importer.loader.get_code(importer.name), index))
    line = json.dumps({"head_bytes": len(head), "sources": sources})
    out.write(b"".join([line.encode(), b"\n", head, *blobs]))


if __name__ == "__main__":
    pack(sys.stdout.buffer)
