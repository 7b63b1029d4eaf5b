"""The program ``xl`` on one node, and the files of its domains.

    /etc/xen/<name>                             the configuration of a domain, from start to stop
    RUN_DIR/xen-hypervisor/incoming/<name>      there while the instance is being received
    RUN_DIR/xen-hypervisor/migration/<name>.*   log and exit status of the last transfer from here

Source: xl(1); config.json, "well_known_paths" (XEN_CONFIG_DIR).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import GenericError, HypervisorError, failing_as
from ganeti.base.paths import Paths
from ganeti.hypervisor.interface import NodeEnv, check_name
from ganeti.hypervisor.xen.output import PROGRAM, Domain, guests, parse_list, parse_types
from ganeti.system import clock, process
from ganeti.system.files import ensure_directory, read_bytes_or_none, remove_if_exists

_LOOK_S: Final = 60.0
_CHANGE_S: Final = 300.0  # a domain is made in half a minute where processors are emulated
_GONE_S: Final = 60.0
_POLL_S: Final = 0.2
_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class DomainFiles:
    """The files of one instance's domain on one node."""

    paths: Paths
    name: str

    def __post_init__(self) -> None:
        check_name(self.name)

    @property
    def config(self) -> str:
        """The configuration."""
        return f"{self.paths.xen_config_dir}/{self.name}"

    @property
    def incoming(self) -> str:
        """A mark: the instance is being received, and must not run by itself."""
        return f"{self.paths.xen_dir}/incoming/{self.name}"

    def transfer(self, kind: str) -> str:
        """Return the path of a file about a transfer: log, status or image."""
        return f"{self.paths.xen_dir}/migration/{self.name}.{kind}"

    def make_directories(self) -> None:
        """Make the directories for all of these files."""
        for path in (self.config, self.incoming, self.transfer("log")):
            ensure_directory(os.path.dirname(path))

    @property
    def is_incoming(self) -> bool:
        """Whether the instance is being received."""
        return os.path.exists(self.incoming)

    @property
    def has_left(self) -> bool:
        """Whether all of the domain that stands still here has been sent to another node."""
        return (read_bytes_or_none(self.transfer("status"), _BYTES_MAX) or b"").strip() == b"0"

    def read_config(self) -> str:
        """Return the configuration; "" without one."""
        data = read_bytes_or_none(self.config, _BYTES_MAX)
        return "" if data is None else data.decode("utf-8", "replace")

    def remove(self) -> None:
        """Remove all of them but what is told about a transfer."""
        for path in (self.config, self.incoming):
            remove_if_exists(path)


class Xl:
    """The program, on one node."""

    def __init__(self, env: NodeEnv) -> None:
        self._env = env

    @property
    def environment(self) -> dict[str, str] | None:
        """The environment of the program: on a virtual node it is told which one that is."""
        root = self._env.paths.root
        return {**os.environ, "GANETI_ROOTDIR": root} if root else None

    def ask(self, *words: str) -> str:
        """Return what a question prints.

        Raises:
            CommandError: it failed.
        """
        done = process.run([PROGRAM, *words], timeout_s=_LOOK_S, env=self.environment).check()
        return done.stdout.decode("utf-8", "replace")

    def change(self, what: str, *words: str, timeout_s: float = _CHANGE_S) -> None:
        """Change something.

        Raises:
            HypervisorError: it failed; ``what`` begins the text.
        """
        with failing_as(HypervisorError, what):
            process.run([PROGRAM, *words], timeout_s=timeout_s, env=self.environment).check()

    def tried(self, *words: str, timeout_s: float = _CHANGE_S) -> bool:
        """Try to change something; returns whether that worked."""
        done = process.run([PROGRAM, *words], timeout_s=timeout_s, env=self.environment)
        return done.status == 0

    def domains(self) -> list[Domain]:
        """Return all domains, the node's own included.

        Raises:
            HypervisorError: Xen does not tell them.
        """
        try:
            return parse_list(self.ask("list"))
        except GenericError as err:
            raise HypervisorError(f"cannot list the domains of Xen: {err}") from err

    def types(self) -> dict[str, str]:
        """Return the type of each domain, as far as Xen tells it."""
        try:
            return parse_types(self.ask("list", "-l"))
        except GenericError as err:
            raise HypervisorError(f"cannot list the domains of Xen: {err}") from err

    def find(self, name: str) -> Domain | None:
        """Return the domain of an instance, None without one."""
        check_name(name)
        return next((each for each in guests(self.domains()) if each.name == name), None)

    def wait_gone(self, name: str, timeout_s: float = _GONE_S) -> bool:
        """Wait until there is no domain of that name; returns whether it is so."""
        deadline = clock.monotonic() + timeout_s
        while self.find(name) is not None:
            if clock.monotonic() >= deadline:
                return False
            clock.pause(_POLL_S)  # xl tells nobody of the end of a domain that is being removed
        return True

    def wait_rebooted(self, before: Domain, timeout_s: float) -> bool:
        """Wait until a domain has started anew, by another number; returns whether it has."""
        deadline = clock.monotonic() + timeout_s
        while clock.monotonic() < deadline:
            found = self.find(before.name)
            if found is not None and found.number != before.number and not found.is_over:
                return True
            clock.pause(_POLL_S)
        return False
