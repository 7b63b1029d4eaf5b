"""Ways to run a program on a machine that is not (yet) a node: SSH, or straight on.

Node RPC needs the cluster's certificate on both sides; before a node has it, its set-up goes
through one of these.  A virtual node lives on this machine, so the program is simply run in its
place.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ganeti.base.paths import Paths
from ganeti.system import process, ssh
from ganeti.system.daemon_control import environment_of
from ganeti.system.process import CommandResult
from ganeti.system.ssh import SSH_PORT, SSH_USER


class NodeTransport(Protocol):
    """Runs programs on one other machine."""

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes,
        timeout_s: float,
        stop_fd: int | None = None,
        output_bytes_max: int = process.OUTPUT_BYTES_MAX,
    ) -> CommandResult:
        """Run a program there with this input; its output may be shown to the user.

        Args:
            stop_fd: once this descriptor can be read, the program's time is over.

        Raises:
            CommandError: it could not even be started.
        """

    def describe(self) -> str:
        """Return how the machine is reached, for messages."""


@dataclass(frozen=True, slots=True)
class SshTransport:
    """A real machine, reached by SSH as root; without ``known_hosts`` as the user knows it.

    Attributes:
        password: of root there, if no key opens it.
        identity: the file of a private key that is tried before those of root.
    """

    node_name: str
    known_hosts: str
    host_key_alias: str
    port: int = SSH_PORT
    check_host_key: bool = True
    ssh: str = "ssh"
    password: str | None = field(default=None, repr=False)
    identity: str = ""

    def command_line(self, argv: Sequence[str]) -> list[str]:
        """Return the arguments that run a program there; see `ssh.command_line`."""
        return ssh.command_line(
            self.node_name,
            argv,
            known_hosts=self.known_hosts,
            alias=self.host_key_alias,
            port=self.port,
            check_host_key=self.check_host_key,
            ssh=self.ssh,
            asks=self.password is not None,
            identity=self.identity,
        )

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes,
        timeout_s: float,
        stop_fd: int | None = None,
        output_bytes_max: int = process.OUTPUT_BYTES_MAX,
    ) -> CommandResult:
        """Run a program on the machine; errors as of `NodeTransport.run`."""
        argv = self.command_line(argv)
        with ssh.answering(self.password) as env:
            return process.run(
                argv,
                timeout_s=timeout_s,
                stdin=stdin,
                stop_fd=stop_fd,
                env=env,
                output_bytes_max=output_bytes_max,
            )

    def describe(self) -> str:
        """Return how the machine is reached."""
        return f"SSH as {SSH_USER} to port {self.port} of {self.node_name}"


@dataclass(frozen=True, slots=True)
class VirtualTransport:
    """A virtual node: a directory and a name on this machine."""

    node_name: str
    paths: Paths
    extra_environment: dict[str, str] = field(default_factory=dict)

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes,
        timeout_s: float,
        stop_fd: int | None = None,
        output_bytes_max: int = process.OUTPUT_BYTES_MAX,
    ) -> CommandResult:
        """Run a program in the node's place; errors as of `NodeTransport.run`."""
        env = environment_of(self.paths, self.node_name)
        env.update(self.extra_environment)
        return process.run(
            argv,
            timeout_s=timeout_s,
            env=env,
            stdin=stdin,
            stop_fd=stop_fd,
            output_bytes_max=output_bytes_max,
        )

    def describe(self) -> str:
        """Return where the node lives."""
        return f"the virtual node in {self.paths.root}"


def virtual_sibling(paths: Paths, node_name: str) -> Paths:
    """Return the paths of another node of the virtual cluster that this process runs in.

    The root directory of a virtual node ends in its name.
    """
    return Paths(os.path.join(os.path.dirname(paths.root), node_name))


def transport_to(
    paths: Paths,
    node_name: str,
    *,
    cluster_name: str,
    address: str = "",
    port: int = SSH_PORT,
    check_host_key: bool = True,
) -> NodeTransport:
    """Return the way to run programs on a node of the cluster that this process runs in.

    Args:
        address: where a real node is reached, if not by its name.
    """
    if paths.root:
        return VirtualTransport(node_name, virtual_sibling(paths, node_name))
    return SshTransport(
        address or node_name,
        paths.known_hosts,
        cluster_name,
        port=port,
        check_host_key=check_host_key,
    )
