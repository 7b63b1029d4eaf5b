"""The runtime file: the machine that runs, written down when it is started.

It says what cannot be read from the process alone: the devices and their places, and which taps
were made.  The same text, less what belongs to the node, tells another node what to build when the
instance is migrated.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from ganeti.base.errors import GenericError, HypervisorError
from ganeti.base.json import dumps, loads_as
from ganeti.hypervisor.kvm.files import MachineFiles
from ganeti.hypervisor.kvm.machine import Machine
from ganeti.netdev.backends import BackendKind, NicBackend
from ganeti.system.files import read_bytes_or_none, write_atomic

FORMAT: Final = 1
_FILE_BYTES_MAX: Final = 4 << 20
_MODE: Final = 0o600


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """What runs.

    ``taps`` are the interfaces made for it, ``modes`` how those are connected; ``paused``: its
    guest was left paused at the start; ``stopped``: its guest was stopped to be moved; ``uid`` is
    lent from the node's pool of user ids.
    """

    machine: Machine
    taps: tuple[str, ...] = ()
    modes: dict[str, str] = {}
    paused: bool = False
    stopped: bool = False
    uid: int | None = None
    format: int = FORMAT


def with_taps(runtime: Runtime, backends: Iterable[NicBackend]) -> Runtime:
    """Return the description with the taps of these network interfaces, instead of others."""
    made = {backend.tap: backend for backend in backends if backend.kind is BackendKind.TAP}
    modes = {name: str(backend.mode) for name, backend in made.items()}
    return replace(runtime, taps=tuple(made), modes=modes)


def save_runtime(files: MachineFiles, runtime: Runtime) -> None:
    """Write the runtime file."""
    write_atomic(files.runtime, dumps(runtime), _MODE)


def load_runtime(files: MachineFiles) -> Runtime | None:
    """Read the runtime file; None when there is none.

    Raises:
        HypervisorError: it cannot be understood.
    """
    data = read_bytes_or_none(files.runtime, _FILE_BYTES_MAX)
    return None if data is None else decode_runtime(data, files.runtime)


def decode_runtime(data: bytes | str, source: str) -> Runtime:
    """Decode a runtime text; ``source`` says in errors where it is from.

    Raises:
        HypervisorError: it cannot be understood.
    """
    try:
        runtime = loads_as(Runtime, data)
    except GenericError as err:
        raise HypervisorError(f"{source}: no description of a machine: {err.message}") from err
    if runtime.format != FORMAT:
        raise HypervisorError(f"{source}: machine description of unknown format {runtime.format}")
    return runtime


def runtime_for_migration(runtime: Runtime, *, paused: bool) -> str:
    """Return the text for the node that is to receive the machine."""
    return dumps(Runtime(machine=runtime.machine, paused=paused)).decode()
