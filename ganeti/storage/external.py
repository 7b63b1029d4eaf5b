"""Disks of template ``ext``: volumes of an external storage provider.

A provider is a directory of the search path with scripts that make, attach and remove volumes; its
name is that of the directory, and the first one found counts.  Its file ``parameters.list`` names
the parameters that its disks may have.  The script ``attach`` prints how a volume is reached: a
local device or file, and addresses for hypervisors that reach it without one.  Each script is run
anew; nothing is kept.

Source: hooks_os_ext.json, "ext_storage"; constants.json, "ext_storage" and EXT_PLUGIN_MASK;
config.json, "disk_logical_id".
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ganeti.base.errors import BlockDeviceError, GenericError, NotSupportedError, failing_as
from ganeti.base.paths import Paths
from ganeti.base.text import is_plugin_name
from ganeti.objects.disk_templates import DiskAccess
from ganeti.storage.data import size_of, wipe
from ganeti.storage.interface import Assembled, BlockDevStatus, Dimensions, Storage, Volume
from ganeti.system import clock, process
from ganeti.system.files import ensure_directory, read_bytes_or_none, write_atomic
from ganeti.system.programs import is_runnable

REQUIRED_SCRIPTS: Final = ("create", "remove", "grow", "attach", "detach", "setinfo", "verify")
PARAMETERS_FILE: Final = "parameters.list"
SCRIPT_TIMEOUT_S: Final = 600.0  # less than the call has that waits for it (NORMAL, 900 s)
UNDO_TIMEOUT_S: Final = 240.0  # both together are less, too
MIB: Final = 1 << 20
_UNDO: Final = {"create": "remove"}  # a script that was killed, and the one that removes its work
_PARAMETERS_BYTES_MAX: Final = 1 << 20
_EXISTS: Final = "exists"  # an optional script: it prints one of these answers
_ANSWERS: Final = {"yes": True, "no": False}
_WITHOUT_LOG: Final = frozenset({"attach", _EXISTS})
_PATH: Final = "/sbin:/bin:/usr/sbin:/usr/bin"
_ACCESS: Final = "access"
_KVM: Final = "kvm:"


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider of this node; ``problem`` says why it cannot be used, "" if it can."""

    name: str
    path: str
    problem: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)  # name -> description

    def __str__(self) -> str:
        return f"external storage provider {self.name!r}"

    def has_script(self, action: str) -> bool:
        """Tell whether there is a script for an action."""
        return is_runnable(os.path.join(self.path, action))

    def to_wire(self) -> list[object]:
        """Return one element of the answer of extstorage_diagnose."""
        parameters = [[name, text] for name, text in self.parameters.items()]
        return [self.name, self.path, not self.problem, self.problem, parameters]


def parse_parameters(text: str) -> dict[str, str]:
    """Return {name: description} of a list of parameters, one on each line."""
    rows = (line.strip().partition(" ") for line in text.splitlines() if line.strip())
    return {name.lower(): description.strip() for name, _space, description in rows}


def read_provider(name: str, path: str) -> Provider:
    """Look at the directory of a provider."""
    if not os.path.isdir(path):
        return Provider(name, path, "it is not a directory")
    missing = [script for script in REQUIRED_SCRIPTS if not is_runnable(os.path.join(path, script))]
    if missing:
        return Provider(name, path, f"script(s) {', '.join(missing)} missing or not executable")
    try:
        data = read_bytes_or_none(os.path.join(path, PARAMETERS_FILE), _PARAMETERS_BYTES_MAX)
    except OSError as err:
        return Provider(name, path, f"{PARAMETERS_FILE} cannot be read: {err.strerror}")
    if data is None:
        return Provider(name, path, f"{PARAMETERS_FILE} is missing")
    return Provider(name, path, parameters=parse_parameters(data.decode("utf-8", "replace")))


def list_providers(paths: Paths) -> list[Provider]:
    """Look at all providers of this node, in the order of the search path."""
    found: list[Provider] = []
    for directory in paths.es_search_path:
        try:
            names = filter(is_plugin_name, sorted(os.listdir(directory)))
        except (FileNotFoundError, NotADirectoryError):
            continue
        found += [read_provider(name, os.path.join(directory, name)) for name in names]
    return found


def find_provider(name: str, paths: Paths) -> Provider:
    """Return a provider that can be used.

    Raises:
        BlockDeviceError: there is none of that name, or it is broken; names the fault.
    """
    if not is_plugin_name(name):
        raise BlockDeviceError(f"{name!r} cannot be the name of an external storage provider")
    for directory in paths.es_search_path:
        path = os.path.join(directory, name)
        if os.path.lexists(path):
            found = read_provider(name, path)
            if found.problem:
                raise BlockDeviceError(f"{found} in {path} is broken: {found.problem}")
            return found
    searched = ", ".join(paths.es_search_path)
    raise BlockDeviceError(f"external storage provider {name!r} is not in {searched}")


def parse_attached(output: str) -> tuple[str, list[str]]:
    """Return (device or file, addresses) from the output of ``attach``."""
    first, *rest = output.splitlines() or [""]
    return first.strip(), [line.strip() for line in rest if line.strip()]


class ExternalVolume(Volume):
    """A volume of an external storage provider."""

    def _locate(self, logical_id: list[object]) -> None:
        match logical_id:
            case [str(provider), str(name)]:
                self._name = name
            case _:
                raise self._malformed()
        self._provider = find_provider(provider, self._env.paths)

    def _environment(self) -> dict[str, str]:
        """Return the variables that every script gets."""
        env = {"PATH": _PATH, "VOL_NAME": self._name, "VOL_UUID": str(self._disk.uuid)}
        if self._disk.name is not None:
            env["VOL_CNAME"] = self._disk.name
        params = {name: value for name, value in self._params.items() if name != _ACCESS}
        return env | {f"EXTP_{name.upper()}": str(value) for name, value in params.items()}

    @property
    def _params(self) -> Mapping[str, object]:
        return self._disk.params or {}

    def _run(self, action: str, **values: object) -> str:
        """Run a script of the provider and return its standard output.

        Args:
            values: more variables for this action's script.

        Raises:
            NotSupportedError: the provider does not have that script, which is optional.
            BlockDeviceError: the script failed or hung; its last output is in the text.
        """
        return self._run_within(SCRIPT_TIMEOUT_S, action, values)

    def _run_within(self, timeout_s: float, action: str, values: Mapping[str, object]) -> str:
        provider = self._provider
        if not provider.has_script(action):
            text = f"has no script {action!r}, so its volumes cannot do that"
            raise NotSupportedError(f"{provider} {text}")
        env = self._environment() | {name: str(value) for name, value in values.items()}
        script = os.path.join(provider.path, action)
        try:
            result = process.run([script], timeout_s=timeout_s, env=env, cwd=provider.path)
        except GenericError as err:
            raise BlockDeviceError(f"{provider}: {err}") from err
        where = self._write_log(action, result.stdout + result.stderr)
        if result.status != 0 or result.timed_out or result.truncated:
            said = result.output_tail()
            left = self._undo(action) if result.timed_out or result.truncated else ""
            raise BlockDeviceError(
                f"script {action!r} of {provider} for volume {self._name}"
                f" {process.describe_end(result)}{where}"
                f"{f': {said}' if said else '; it printed nothing'}{left}"
            )
        return result.stdout.decode("utf-8", "replace")

    def _undo(self, action: str) -> str:
        """Remove what a script has made; returns words about what may be left."""
        try:
            if action in _UNDO:
                self._run_within(UNDO_TIMEOUT_S, _UNDO[action], {})
        except BlockDeviceError as err:
            return (
                f"; volume {self._name} may be left, remove it with the tools of the storage"
                f" ({err.message})"
            )
        return ""

    def _write_log(self, action: str, output: bytes) -> str:
        """Keep the output of a script; returns words that say where."""
        if action in _WITHOUT_LOG:
            return ""
        safe_name = self._name.replace("/", "_")
        directory = self._env.paths.log_es_dir
        path = f"{directory}/{action}-{self._provider.name}-{safe_name}-{int(clock.now())}.log"
        try:
            ensure_directory(directory, 0o750)
            write_atomic(path, output, 0o640)
        except OSError as err:
            return f" (no log file: {err.strerror})"
        return f" (log file {path})"

    def _run_if_there(self, action: str, **values: object) -> None:
        if self._provider.has_script(action):
            self._run(action, **values)

    def create(self, size_mib: int, *, exclusive_storage: bool = False) -> list[object] | None:
        """Let the provider check the parameters, then make the volume."""
        self._run("verify")
        self._run("create", VOL_SIZE=size_mib)
        return None

    def remove(self) -> None:
        """Let the provider remove the volume."""
        self._run("remove")

    def find(self) -> BlockDevStatus | None:
        """Attach the volume; None when the provider says that there is none.

        Raises:
            BlockDeviceError: it cannot be attached, but may be there all the same.
        """
        try:
            return BlockDevStatus(self.assemble().dev_path)
        except BlockDeviceError as err:
            if self._exists(err):
                raise
            return None

    def _exists(self, failure: BlockDeviceError) -> bool:
        """Ask the provider for a volume that cannot be attached; raises if it does not know."""
        provider = self._provider
        if not provider.has_script(_EXISTS):
            raise BlockDeviceError(
                f"{failure}; whether volume {self._name} exists is not known: {provider} has no"
                f" script {_EXISTS!r}, which would tell"
            ) from failure
        said = self._run(_EXISTS).strip()
        if said not in _ANSWERS:
            raise BlockDeviceError(
                f"script {_EXISTS!r} of {provider} for volume {self._name} says neither"
                f" {' nor '.join(map(repr, _ANSWERS))} but {said!r}"
            )
        return _ANSWERS[said]

    def assemble(self) -> Assembled:
        """Attach the volume, and choose how the hypervisor is to reach it."""
        path, addresses = parse_attached(self._run("attach"))
        provider, name = self._provider, self._name
        if path and not os.path.exists(path):
            text = f"attached volume {name} at {path}, which does not exist"
            raise BlockDeviceError(f"{provider} {text}")
        if self._params.get(_ACCESS) != DiskAccess.USERSPACE:
            if not path:
                raise BlockDeviceError(
                    f"{provider} has no device for volume {name}; its disks need access=userspace"
                )
            return Assembled(path)
        for address in addresses:
            if address.startswith(_KVM):
                return Assembled(path, address.removeprefix(_KVM))
        raise BlockDeviceError(
            f"{provider} has no address for KVM for volume {name}; its disks need"
            " access=kernelspace"
        )

    def shutdown(self) -> None:
        """Detach the volume."""
        self._run("detach")

    def open(self, *, exclusive: bool = True) -> None:
        """Tell the provider that the volume is about to be written here, if it wants to know."""
        self._run_if_there("open", VOL_OPEN_EXCLUSIVE=exclusive)

    def close(self) -> None:
        """Tell the provider that the volume is not written here any more."""
        self._run_if_there("close")

    def grow(self, amount_mib: int, *, dryrun: bool = False, backingstore: bool = True) -> None:
        """Let the provider make the volume larger."""
        if amount_mib <= 0:
            raise BlockDeviceError(f"volume {self._name} cannot grow by {amount_mib} MiB")
        if dryrun or not backingstore:
            return
        old_mib = self._disk.size
        self._run("grow", VOL_SIZE=old_mib, VOL_NEW_SIZE=old_mib + amount_mib)

    def snapshot(self, name: str, size_mib: int) -> list[object]:
        """Let the provider take a snapshot, if it can."""
        self._run("snapshot", VOL_SNAPSHOT_NAME=name, VOL_SNAPSHOT_SIZE=size_mib)
        return [self._provider.name, name]

    def set_info(self, text: str) -> None:
        """Note the volume's purpose on it."""
        self._run("setinfo", VOL_METADATA=text)

    def wipe(self, offset_mib: int, size_mib: int) -> None:
        """Write zeroes over a part of the volume."""
        path = parse_attached(self._run("attach"))[0]
        if not path:
            volume = f"volume {self._name} of {self._provider}"
            raise BlockDeviceError(f"{volume} has no device on this node")
        with failing_as(BlockDeviceError, f"cannot wipe {path}"):
            wipe(path, offset_mib * MIB, size_mib * MIB)

    def dimensions(self) -> Dimensions | None:
        """Return the size of the attached device; without a device, the recorded size."""
        try:
            path = parse_attached(self._run("attach"))[0]
        except BlockDeviceError:
            return None
        if not path:
            return Dimensions(self._disk.size * MIB)
        with failing_as(BlockDeviceError, f"cannot look at {path}"):
            return Dimensions(size_of(path))


class ExternalStorage(Storage):
    """Volumes of external storage providers; these do not tell how much space is left."""

    volume = ExternalVolume
