"""Operating system definitions on this node: finding them, reading them, judging them.

A definition is a directory with scripts and a few text files.  Which ones it must contain depends
on the API versions that it declares.  Lists show a definition as valid by the rules of 3.0, which
wants all scripts; an operation needs only the scripts that it runs.

Source: hooks_os_ext.json, "os_api"; design-2.0, "OS interface", for scripts that are optional and
the file "hypervisors".
"""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.base.versions import OS_API_VERSIONS
from ganeti.node_ops import scripts
from ganeti.node_ops.context import NodeContext, NodeHandler
from ganeti.objects.disk_templates import OS_IMAGE
from ganeti.protocol.node_rpc_values import OS_CHECK_HYPERVISOR, OS_CHECK_IMAGE, OS_CHECK_SCRIPT
from ganeti.system import files, process, programs

API_FILE: Final = "ganeti_api_version"
VARIANTS_FILE: Final = "variants.list"
PARAMETERS_FILE: Final = "parameters.list"
HYPERVISORS_FILE: Final = "hypervisors"
API_WITH_VARIANTS: Final = 15
_API_WITH_PARAMETERS: Final = 20

CREATE: Final = "create"
CREATE_UNTRUSTED: Final = "create_untrusted"
RENAME: Final = "rename"
VERIFY: Final = "verify"
IMPORT: Final = "import"
EXPORT: Final = "export"
_ISOLATED: Final = (
    "OS {name!r} has only a create script that must not run on a node; set an image that runs it in"
    " a machine of its own with 'gnt-cluster modify --install-image=PATH'"
)
_OPTIONAL: Final = (EXPORT, IMPORT, RENAME)
_CHECK_PARAMETERS: Final = "parameters"
_TEXT_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class OsDefinition:
    """One operating system definition that can be used.

    Attributes:
        path: its directory on this node.
        api_versions: the versions that it declares, highest first.
        scripts: path of each script that is there.
        hypervisors: the ones that it can be installed for; empty for any.
    """

    name: str
    path: str
    api_versions: tuple[int, ...]
    scripts: Mapping[str, str]
    variants: tuple[str, ...]
    parameters: tuple[tuple[str, str], ...]
    hypervisors: tuple[str, ...] = ()

    @property
    def api_version(self) -> int:
        """The highest version that both sides know."""
        return max(version for version in self.api_versions if version in OS_API_VERSIONS)

    @property
    def is_trusted(self) -> bool:
        """Whether its create script may run on the node itself."""
        return CREATE in self.scripts

    def script(self, kind: str) -> str:
        """Return the path of a script.

        Raises:
            GenericError: the definition has no such script, or one that must not run on the node.
        """
        if kind in self.scripts:
            return self.scripts[kind]
        if kind == CREATE and CREATE_UNTRUSTED in self.scripts:
            raise GenericError(_ISOLATED.format(name=self.name))
        raise GenericError(f"OS {self.name!r} has no {kind} script ({self.path})")

    @property
    def missing(self) -> list[str]:
        """The scripts that 3.0 wants besides those that are there."""
        return [kind for kind in _OPTIONAL if kind not in self.scripts]

    def check_script(self, kind: str) -> None:
        """Check that the operation can be done that runs a script.

        Disks are exported and imported whole where there are no scripts for that; one of the two
        alone would write what the other cannot read.

        Raises:
            GenericError: the script is missing.
        """
        pair = {IMPORT, EXPORT}
        if kind in pair and not pair & self.scripts.keys():
            return
        if kind == CREATE and CREATE not in self.scripts and CREATE_UNTRUSTED in self.scripts:
            raise GenericError(_ISOLATED.format(name=self.name))
        for needed in sorted(pair) if kind in pair else [kind]:
            if needed not in self.scripts:
                raise GenericError(
                    f"OS {self.name!r} has no {needed} script in {self.path}, or it is not"
                    " executable"
                )

    def check_variant(self, full_name: str) -> None:
        """Check that a full name, ``<os>+<variant>``, fits the definition.

        Raises:
            GenericError: a variant is missing, unknown, or given where there are none.
        """
        variant = variant_of(full_name)
        if not self.variants:
            if variant:
                raise GenericError(f"OS {self.name!r} has no variants, {variant!r} was given")
            return
        if not variant:
            raise GenericError(f"OS {self.name!r} needs a variant: {', '.join(self.variants)}")
        if variant not in self.variants:
            known = ", ".join(self.variants)
            raise GenericError(f"OS {self.name!r} has no variant {variant!r}; it has {known}")

    def check_hypervisor(self, hypervisor: str) -> None:
        """Check that instances of a hypervisor can have this operating system.

        Raises:
            GenericError: it names other hypervisors.
        """
        if self.hypervisors and hypervisor not in self.hypervisors:
            raise GenericError(
                f"OS {self.name!r} is not made for hypervisor {hypervisor!r}, only for"
                f" {', '.join(self.hypervisors)} (file {HYPERVISORS_FILE} in {self.path})"
            )


def base_name(full_name: str) -> str:
    """Return an OS name without its variant."""
    return full_name.partition("+")[0]


def variant_of(full_name: str) -> str:
    """Return the variant in an OS name, "" without one."""
    return full_name.partition("+")[2]


def find(paths: Paths, name: str) -> str | None:
    """Return the directory of an OS definition, or None if there is none of that name."""
    programs.check_plugin_name(name, "OS name")
    for directory in paths.os_search_path:
        path = os.path.join(directory, name)
        if os.path.isdir(path):
            return path
    return None


def load(paths: Paths, full_name: str) -> OsDefinition:
    """Return an OS definition by its name, with or without variant.

    Raises:
        GenericError: there is none, or it is not valid.
    """
    name = base_name(full_name)
    path = find(paths, name)
    if path is None:
        searched = ", ".join(map(paths.globalize, paths.os_search_path))
        raise GenericError(f"OS {name!r} is not in {searched}")
    return read(name, path)


def read(name: str, path: str) -> OsDefinition:
    """Read and check one OS definition.

    Raises:
        GenericError: it is not valid; the text says why.
    """
    versions = _read_versions(path)
    api_version = max(set(versions) & set(OS_API_VERSIONS))
    found = _find_scripts(path)
    required = (VERIFY,) if api_version >= _API_WITH_PARAMETERS else ()
    missing = [kind for kind in required if kind not in found]
    if CREATE not in found and CREATE_UNTRUSTED not in found:
        missing.insert(0, CREATE)
    if missing:
        raise GenericError(_names_missing(missing))
    return OsDefinition(
        name=name,
        path=path,
        api_versions=versions,
        scripts=found,
        variants=_read_names(path, VARIANTS_FILE) if api_version >= API_WITH_VARIANTS else (),
        parameters=_read_parameters(path) if api_version >= _API_WITH_PARAMETERS else (),
        hypervisors=_read_names(path, HYPERVISORS_FILE),
    )


class OsDefinitions(NodeHandler):
    """Operating systems."""

    def os_diagnose(self) -> list[list[object]]:
        return [_diagnose(self.paths, name, path) for name, path in _all_directories(self.paths)]

    def os_validate(
        self,
        required: bool,
        name: str,
        checks: Sequence[str],
        params: Mapping[str, object],
        force_variant: bool,
    ) -> bool:
        with_value = (OS_CHECK_HYPERVISOR, OS_CHECK_SCRIPT, OS_CHECK_IMAGE)
        unknown = [
            check
            for check in checks
            if check != _CHECK_PARAMETERS and not check.startswith(with_value)
        ]
        if unknown:
            raise GenericError(f"unknown checks for an OS: {', '.join(unknown)}")
        if find(self.paths, base_name(name)) is None and not required:
            return False
        definition = load(self.paths, name)
        if not force_variant:
            definition.check_variant(name)
        for check in checks:
            kind, colon, value = check.partition(":")
            if kind + colon == OS_CHECK_HYPERVISOR:
                definition.check_hypervisor(value)
            elif kind + colon == OS_CHECK_SCRIPT:
                definition.check_script(value)
            elif kind + colon == OS_CHECK_IMAGE:
                _check_image(value)
        if _CHECK_PARAMETERS in checks and definition.api_version >= _API_WITH_PARAMETERS:
            _check_parameters(self.node, definition, name, params)
        return True


def core_environment(
    definition: OsDefinition, full_name: str, params: Mapping[str, object], debug: int
) -> dict[str, str]:
    """Return the variables that every OS script gets.

    Source: hooks_os_ext.json, "env_all_scripts".
    """
    variant = variant_of(full_name) or (definition.variants[0] if definition.variants else "")
    if definition.api_version < API_WITH_VARIANTS:
        variant = ""
    env = {
        "OS_API_VERSION": str(definition.api_version),
        "OS_NAME": definition.name,
        "OS_VARIANT": variant,
        "DEBUG_LEVEL": str(debug),
        "PATH": scripts.PATH,
    }
    for name, value in params.items():
        env[f"OSP_{name.upper().replace('-', '_')}"] = str(value)
    return env


def _check_parameters(
    context: NodeContext, definition: OsDefinition, full_name: str, params: Mapping[str, object]
) -> None:
    """Check that parameters are declared, then let the verify script judge their values."""
    declared = {name for name, _description in definition.parameters}
    unknown = sorted(set(params) - declared)
    if unknown:
        asked, known = ", ".join(unknown), ", ".join(sorted(declared)) or "none"
        raise GenericError(f"OS {definition.name!r} has no parameter {asked}; it has {known}")
    result = process.run(
        [definition.script(VERIFY), _CHECK_PARAMETERS],
        timeout_s=context.script_timeout_s(),
        env=core_environment(definition, full_name, params, 0),
        cwd=definition.path,
    )
    if result.status != 0 or result.timed_out:
        said = result.output_tail() or "it printed nothing"
        raise GenericError(
            f"parameters of OS {definition.name!r} are not valid: verify script"
            f" {process.describe_end(result)}: {said}"
        )


def _check_image(path: str) -> None:
    """Check that scripts find a file or a block device at a path."""
    if not os.path.exists(path):
        raise GenericError(f"{OS_IMAGE}: there is no file {path}")
    if not os.path.isfile(path) and not stat.S_ISBLK(os.stat(path).st_mode):
        raise GenericError(f"{OS_IMAGE}: {path} is neither a file nor a block device")


def _all_directories(paths: Paths) -> Iterator[tuple[str, str]]:
    """Return (name, path) of each definition, in the order in which they are searched."""
    for directory in paths.os_search_path:
        try:
            names = sorted(os.listdir(directory))
        except (FileNotFoundError, NotADirectoryError):
            continue
        for name in names:
            path = os.path.join(directory, name)
            if not name.startswith(".") and os.path.isdir(path):
                yield name, path


def _diagnose(paths: Paths, name: str, path: str) -> list[object]:
    """Return one row of `os_diagnose`."""
    try:
        programs.check_plugin_name(name, "OS name")
        found = read(name, path)
    except (GenericError, OSError) as err:
        text = err.message if isinstance(err, GenericError) else str(err)
        return [name, paths.globalize(path), False, text, [], [], [], True]
    parameters, versions = list(map(list, found.parameters)), list(found.api_versions)
    tail = [list(found.variants), parameters, versions, found.is_trusted]
    text = _names_missing(found.missing) if found.missing else ""
    return [name, paths.globalize(path), not found.missing, text, *tail]


def _names_missing(kinds: Sequence[str]) -> str:
    return f"{', '.join(kinds)}: script missing or not executable"


def _read_lines(path: str, name: str) -> list[str] | None:
    """Return the lines of a small text file without blanks; None if it is not there."""
    data = files.read_bytes_or_none(os.path.join(path, name), _TEXT_BYTES_MAX)
    if data is None:
        return None
    return [line.strip() for line in data.decode("utf-8", "replace").splitlines() if line.strip()]


def _read_required(path: str, name: str) -> list[str]:
    lines = _read_lines(path, name)
    if lines is None:
        raise GenericError(f"the file {name} is missing")
    return lines


def _read_versions(path: str) -> tuple[int, ...]:
    """Return the declared API versions, highest first."""
    lines = _read_required(path, API_FILE)
    if not all(line.isdigit() for line in lines):
        raise GenericError(f"the file {API_FILE} holds something else than numbers")
    versions = tuple(sorted({int(line) for line in lines}, reverse=True))
    if not set(versions) & set(OS_API_VERSIONS):
        known = list(OS_API_VERSIONS)
        raise GenericError(f"API versions {list(versions)} are declared, {known} are known")
    return versions


def _find_scripts(path: str) -> dict[str, str]:
    """Return the executable scripts of a definition."""
    kinds = (CREATE, CREATE_UNTRUSTED, EXPORT, IMPORT, RENAME, VERIFY)
    paths = {kind: os.path.join(path, kind) for kind in kinds}
    return {kind: script for kind, script in paths.items() if programs.is_runnable(script)}


def _read_names(path: str, name: str) -> tuple[str, ...]:
    """Return the names in a file, one in a line; of variants the first is the default."""
    lines = _read_lines(path, name) or []
    return tuple(line for line in lines if not line.startswith("#"))


def _read_parameters(path: str) -> tuple[tuple[str, str], ...]:
    """Return the declared parameters with their descriptions."""
    lines = _read_required(path, PARAMETERS_FILE)
    pairs = (line.split(None, 1) for line in lines)
    return tuple((pair[0].lower(), pair[1] if len(pair) > 1 else "") for pair in pairs)
