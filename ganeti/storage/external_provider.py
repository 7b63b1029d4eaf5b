"""External storage providers: directories of scripts that make, attach and remove volumes.

A provider is a directory of the search path, and its name is that of the directory; the first one
found counts.  Its file ``parameters.list`` names the parameters that its disks may have.

Source: hooks_os_ext.json, "ext_storage"; constants.json, "ext_storage" and EXT_PLUGIN_MASK.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ganeti.base.errors import BlockDeviceError, GenericError, NotSupportedError
from ganeti.base.paths import Paths
from ganeti.system import clock, process
from ganeti.system.files import ensure_directory, read_bytes_or_none, write_atomic
from ganeti.system.programs import is_plugin_name, is_runnable

REQUIRED_SCRIPTS: Final = ("create", "remove", "grow", "attach", "detach", "setinfo", "verify")
PARAMETERS_FILE: Final = "parameters.list"
SCRIPT_TIMEOUT_S: Final = 600.0  # less than the call has that waits for it (NORMAL, 900 s)
_PARAMETERS_BYTES_MAX: Final = 1 << 20
_WITHOUT_LOG: Final = frozenset({"attach"})
_PATH: Final = "/sbin:/bin:/usr/sbin:/usr/bin"


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider of this node; ``problem`` says why it cannot be used, "" if it can."""

    name: str
    path: str
    problem: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)  # name -> description

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
            names = sorted(os.listdir(directory))
        except (FileNotFoundError, NotADirectoryError):
            continue
        found += [
            read_provider(name, os.path.join(directory, name))
            for name in names
            if is_plugin_name(name)
        ]
    return found


def find_provider(name: str, paths: Paths) -> Provider:
    """Return a provider that can be used.

    Raises:
        BlockDeviceError: there is none of that name, or it is broken; says what is wrong.
    """
    if not is_plugin_name(name):
        raise BlockDeviceError(f"{name!r} cannot be the name of an external storage provider")
    for directory in paths.es_search_path:
        path = os.path.join(directory, name)
        if os.path.lexists(path):
            found = read_provider(name, path)
            if found.problem:
                raise BlockDeviceError(
                    f"external storage provider {name!r} in {path} is broken: {found.problem}"
                )
            return found
    raise BlockDeviceError(
        f"external storage provider {name!r} is not in {', '.join(paths.es_search_path)}"
    )


@dataclass(frozen=True, slots=True)
class ScriptVolume:
    """One volume of a provider, as its scripts get to know it."""

    name: str
    uuid: str
    given_name: str | None
    parameters: Mapping[str, object]

    def environment(self) -> dict[str, str]:
        """Return what every script is told."""
        env = {"PATH": _PATH, "VOL_NAME": self.name, "VOL_UUID": self.uuid}
        if self.given_name is not None:
            env["VOL_CNAME"] = self.given_name
        return env | {f"EXTP_{name.upper()}": str(value) for name, value in self.parameters.items()}


def run_script(
    provider: Provider, action: str, volume: ScriptVolume, paths: Paths, **values: object
) -> str:
    """Run a script of a provider and return what it printed to its standard output.

    Args:
        values: what this action's script is told besides, by the names of its environment.

    Raises:
        NotSupportedError: the provider does not have that script, which is optional.
        BlockDeviceError: the script failed or hung; its last output is in the text.
    """
    if not provider.has_script(action):
        raise NotSupportedError(
            f"external storage provider {provider.name!r} has no script {action!r}, so its volumes"
            " cannot do that"
        )
    env = volume.environment() | {name: str(value) for name, value in values.items()}
    script = os.path.join(provider.path, action)
    try:
        result = process.run([script], timeout_s=SCRIPT_TIMEOUT_S, env=env, cwd=provider.path)
    except GenericError as err:
        raise BlockDeviceError(f"external storage provider {provider.name!r}: {err}") from err
    where = _write_log(provider, action, volume, paths, result.stdout + result.stderr)
    if result.status != 0 or result.timed_out or result.truncated:
        said = result.output_tail()
        raise BlockDeviceError(
            f"script {action!r} of external storage provider {provider.name!r} for volume"
            f" {volume.name} {process.describe_end(result)}{where}"
            f"{f': {said}' if said else '; it printed nothing'}"
        )
    return result.stdout.decode("utf-8", "replace")


def _write_log(
    provider: Provider, action: str, volume: ScriptVolume, paths: Paths, output: bytes
) -> str:
    """Keep what a script printed; returns words that say where."""
    if action in _WITHOUT_LOG:
        return ""
    safe_volume = volume.name.replace("/", "_")
    name = f"{action}-{provider.name}-{safe_volume}-{int(clock.now())}.log"
    path = os.path.join(paths.log_es_dir, name)
    try:
        ensure_directory(paths.log_es_dir, 0o750)
        write_atomic(path, output, 0o640)
    except OSError as err:
        return f" (no log file: {err.strerror})"
    return f" (log file {path})"
