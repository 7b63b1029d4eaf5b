"""The programs, manual pages, completion and prompt that a shell on a virtual node has.

BASE/shell/absent/      programs of 3.0 that we do not have: they say so, instead of those of
                        another installation on this machine, which lie behind on the PATH
BASE/shell/man/         manual pages
BASE/shell/bashrc       read by `vcluster shell`
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from typing import Final

from ganeti.bootstrap.virtual.layout import VirtualCluster
from ganeti.system import daemon_control, files

_INSTEAD: Final = {
    "ganeti-kvmd": "ganeti-noded sees that a guest of KVM was shut down from inside",
    "ganeti-listrunner": "'gnt-cluster command' runs a command on all nodes",
    "htools": "hail, hbal, hspace and the others are programs of their own",
}
"""The programs of 3.0 that there will not be, and what does their work."""
# Source: manual page ganeti(7), "See also".
PROGRAMS_OF_3_0: Final = (
    *("ganeti-cleaner", "ganeti-luxid", "ganeti-maintd"),
    *("ganeti-confd", "ganeti-metad", "ganeti-mond", "ganeti-noded"),
    *("ganeti-rapi", "ganeti-wconfd", "ganeti-watcher"),
    *(f"gnt-{name}" for name in ("backup", "cluster", "debug", "filter", "group", "instance")),
    *(f"gnt-{name}" for name in ("job", "network", "node", "os", "storage")),
    *("hail", "harep", "hbal", "hcheck", "hinfo", "hroller", "hscan", "hspace", "hsqueeze"),
    *_INSTEAD,
)
_SECTIONS: Final = ("man1", "man7", "man8")


def absent_program(name: str) -> str:
    """Return the script that stands in for a program of 3.0 which is not here."""
    instead = f"; {_INSTEAD[name]}" if name in _INSTEAD else ""
    text = f"{name}: this version does not have that program{instead}"
    return f"#!/bin/sh\necho {shlex.quote(text)} >&2\nexit 127\n"


def search_path(cluster: VirtualCluster) -> list[str]:
    """Return the directories of our programs, and of the stand-ins for missing programs."""
    return [*daemon_control.program_directories(), _below(cluster, "absent")]


def absent_programs(directories: Iterable[str]) -> list[str]:
    """Return the programs of 3.0 that are in none of these directories."""
    here = {name for each in directories if os.path.isdir(each) for name in os.listdir(each)}
    return [name for name in PROGRAMS_OF_3_0 if name not in here]


def prepare(cluster: VirtualCluster) -> None:
    """Make the files that a shell needs, anew where there are some already."""
    absent, pages = _below(cluster, "absent"), _below(cluster, "man")
    for directory in (absent, pages):
        files.ensure_directory(directory, 0o755)
    for name in absent_programs(daemon_control.program_directories()):
        path = os.path.join(absent, name)
        files.write_atomic(path, absent_program(name).encode(), 0o755)
    for section in _SECTIONS:
        link = os.path.join(pages, section)
        if not os.path.islink(link):
            os.symlink(daemon_control.bundled("man", f"share/man/{section}"), link)
    files.write_atomic(_below(cluster, "bashrc"), _bashrc(cluster).encode(), 0o644)


def shell_command(cluster: VirtualCluster) -> list[str]:
    """Return the command that is a shell on a node; `prepare` came first."""
    return ["bash", "--rcfile", _below(cluster, "bashrc")]


def _bashrc(cluster: VirtualCluster) -> str:
    completion = daemon_control.bundled(
        "doc/examples/bash_completion", "share/bash-completion/completions/gnt-node"
    )
    path = os.pathsep.join(search_path(cluster))
    return f"""# read by the shell that `vcluster shell` starts
[ -r ~/.bashrc ] && . ~/.bashrc
export PATH={shlex.quote(path)}:"$PATH"
export MANPATH={shlex.quote(_below(cluster, "man"))}:"${{MANPATH-}}"
. {shlex.quote(completion)}
PS1='[${{GANETI_HOSTNAME%%.*}}] \\w\\$ '
unset PROMPT_COMMAND
"""


def _below(cluster: VirtualCluster, name: str) -> str:
    return os.path.join(cluster.base, "shell", name)
