"""Finds modules in a bundle: one file with the code of all that job processes usually import.

Looking a module up on the disk costs more than most modules do.  `ganeti.jobexec.pack` makes the
bundle, LuxiD keeps it and sees to it that it is as new as the modules (see `ganeti.luxid.bundle`).
What is not in there is found as always.

A bundle is a line of JSON for LuxiD, then the *head* for `ganeti.jobexec.launch`: the code of this
module, and the index {module: (path, kind, offset, size)}, with offsets from the head's end; then
the code of one module after the other, in Python's own serial form (``marshal``).

This module is run before any other of ours: it imports only what Python has loaded anyway.
"""

import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import ExtensionFileLoader
from marshal import loads
from posix import pread, set_inheritable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

MODULE, PACKAGE, EXTENSION = range(3)
Index = dict[str, tuple[str, int, int, int]]


class BundleImporter:
    """Finder and loader of the bundle's modules; tracebacks show their source as always."""

    def __init__(self, descriptor: int, offset: int, index: Index) -> None:
        self._descriptor = descriptor
        self._offset = offset
        self._index = index

    def find_spec(
        self, name: str, _path: object = None, _target: object = None
    ) -> ModuleSpec | None:
        """Return where a module is, or None if it is not in here."""
        entry = self._index.get(name)
        if entry is None:
            return None
        origin, kind, _offset, _size = entry
        if kind == EXTENSION:
            spec = ModuleSpec(name, ExtensionFileLoader(name, origin), origin=origin)
        else:
            is_package = kind == PACKAGE
            spec = ModuleSpec(name, self, origin=origin, is_package=is_package)  # type: ignore[arg-type]
            if kind == PACKAGE:
                spec.submodule_search_locations = [origin.rpartition("/")[0]]
        return spec

    def create_module(self, _spec: ModuleSpec) -> None:
        """Let the interpreter make the module."""

    def exec_module(self, module: "ModuleType") -> None:
        """Run the module's code."""
        origin, _kind, offset, size = self._index[module.__name__]
        module.__file__ = origin
        data = pread(self._descriptor, size, self._offset + offset)
        code = loads(data)  # noqa: S302 - LuxiD and its children alone can write there
        exec(code, module.__dict__)  # noqa: S102 - that is what importing is


def install(descriptor: int, offset: int, index: Index) -> None:
    """Look in a bundle first, from now on."""
    set_inheritable(descriptor, False)
    sys.meta_path.insert(0, BundleImporter(descriptor, offset, index))
