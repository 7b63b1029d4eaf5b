"""What a QEMU knows, asked of the program itself without a guest.

Each question starts it for some hundredths of a second, so only what a parameter names is asked.

Source: manual page qemu-system-x86_64(1); QEMU's QMP reference, query-migrate-capabilities.
"""

from __future__ import annotations

import os
from typing import Final

from ganeti.base.errors import CommandError, ErrorCode
from ganeti.base.json import loads
from ganeti.hypervisor.kvm.params import wrong_param
from ganeti.system import process

_TIMEOUT_S: Final = 30.0
_ITSELF: Final = "QEMU emulator version"
_KEYMAPS: Final = "keymaps"
_ALONE: Final = ("-machine", "none", "-nodefaults", "-no-user-config", "-display", "none")
_QUESTIONS: Final = b"".join(
    b'{"execute": "%s"}\n' % command
    for command in (b"qmp_capabilities", b"query-migrate-capabilities", b"quit")
)


def check_is_qemu(binary: str) -> None:
    """Check that a program says of itself that it is QEMU.

    Raises:
        OpPrereqError: it does not.
    """
    if _ITSELF not in _ask(binary, "--version"):
        raise wrong_param("kvm_path", f"{binary} is not QEMU", ErrorCode.ENVIRON)


def words_for(binary: str, option: str) -> set[str]:
    """Return the words that QEMU lists for an option."""
    words: set[str] = set()
    for line in _ask(binary, option, "help").splitlines():
        words.update(line.split()[:2])
    return words


def keymaps(binary: str) -> set[str] | None:
    """Return the names of the keyboards that QEMU has descriptions of; None if that is unknown."""
    for directory in _ask(binary, "-L", "help").splitlines():
        path = os.path.join(directory.strip(), _KEYMAPS)
        if os.path.isdir(path):
            return set(os.listdir(path))
    return None


def migration_capabilities(binary: str) -> set[str]:
    """Return the names of the migration capabilities that QEMU knows."""
    names: set[str] = set()
    for line in _ask(binary, *_ALONE, "-qmp", "stdio", stdin=_QUESTIONS).splitlines():
        match loads(line):
            case {"return": [*found]}:
                names |= {str(each.get("capability")) for each in found if isinstance(each, dict)}
    return names


def _ask(binary: str, *arguments: str, stdin: bytes | None = None) -> str:
    """Run QEMU and return what it printed.

    Raises:
        OpPrereqError: it failed.
    """
    try:
        done = process.run([binary, *arguments], timeout_s=_TIMEOUT_S, stdin=stdin).check()
    except CommandError as err:
        raise wrong_param("kvm_path", err.message, ErrorCode.ENVIRON) from err
    return done.stdout.decode("utf-8", "replace")
