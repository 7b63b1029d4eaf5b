"""Checking parameters against the node: files, programs, users, what QEMU knows.

QEMU is asked without a guest.  Each question starts it for some hundredths of a second, so only
words that a parameter names are asked for.

Source: constants.json, "hvparams"; manual pages gnt-instance(8) and qemu-system-x86_64(1); QEMU's
QMP reference, query-migrate-capabilities.
"""

from __future__ import annotations

import os
import pwd
from typing import Final

from ganeti.base.errors import CommandError, ErrorCode, OpPrereqError
from ganeti.base.json import loads
from ganeti.base.paths import Paths
from ganeti.hypervisor.interface import NodeEnv
from ganeti.hypervisor.kvm.consoles import check_on_node
from ganeti.hypervisor.kvm.files import (
    DIRECTORY_PARAMETERS,
    FILE_PARAMETERS,
    local_file,
    read_password,
)
from ganeti.hypervisor.kvm.params import KvmParams, parse_cpu_mask, wrong_param
from ganeti.hypervisor.kvm.qemu import choose_accelerator, find_qemu, is_usual_place
from ganeti.hypervisor.user_ids import pool_of
from ganeti.system import process
from ganeti.system.files import read_bytes_or_none

_SHORT_BYTES_MAX: Final = 4096
_SHOWN_MAX: Final = 8
_VHOST: Final = "/dev/vhost-net"
_ONLINE: Final = "/sys/devices/system/cpu/online"


def validate_on_node(params: KvmParams, env: NodeEnv) -> None:
    """Check that this node has the files, users and features that the parameters name.

    Raises:
        OpPrereqError: naming the parameter and the missing thing.
    """
    paths = env.paths
    binary = find_qemu(params.text("kvm_path"))
    if not is_usual_place(binary):
        check_is_qemu(binary)
    _check_files(params, paths)
    for name in ("vnc_password_file", "spice_password_file"):
        if params.text(name):
            read_password(name, params.text(name), paths)
    _check_user(params, paths)
    if params.text("kvm_flag"):
        choose_accelerator(params.text("kvm_flag"), binary, paths)
    _check_words(params, binary)
    _check_cpus(params, env)
    check_on_node(params, env)
    if params.flag("vhost_net") and not os.path.exists(_VHOST):
        text = f"there is no {_VHOST} on node {env.hostname}"
        raise wrong_param("vhost_net", text, ErrorCode.ENVIRON)


def _check_words(params: KvmParams, binary: str) -> None:
    """Check what only QEMU knows the names of."""
    machine = params.text("machine_version").partition(",")[0]
    if machine and machine not in words_for(binary, "-machine"):
        raise wrong_param("machine_version", f"{binary} has no machine {machine!r}; see -machine ?")
    cpu = params.text("cpu_type").partition(",")[0]
    if cpu and cpu not in words_for(binary, "-cpu"):
        raise wrong_param("cpu_type", f"{binary} has no processor {cpu!r}; see -cpu ?")
    if keymap := params.text("keymap"):
        known = keymaps(binary)
        if known is not None and keymap not in known:
            text = f"{binary} knows no keyboard {keymap!r}; it knows {', '.join(sorted(known))}"
            raise wrong_param("keymap", text)
    if wanted := params.migration_capabilities():
        able = migration_capabilities(binary)
        for capability in wanted:
            if capability not in able:
                text = f"{binary} cannot {capability!r}; it can {', '.join(sorted(able))}"
                raise wrong_param("migration_caps", text)


def _check_cpus(params: KvmParams, env: NodeEnv) -> None:
    """Check that the node has the processors that guests are to be bound to."""
    masks = parse_cpu_mask(params.text("cpu_mask"))
    wanted = {number for mask in masks for number in mask or ()}
    online = read_bytes_or_none(_ONLINE, _SHORT_BYTES_MAX)
    if not wanted or online is None:
        return
    text = online.decode("ascii", "replace").strip()
    (here,) = parse_cpu_mask(text)
    if here is not None and not wanted <= here:
        lacking = ", ".join(map(str, sorted(wanted - here)[:_SHOWN_MAX]))
        text = f"node {env.hostname} has processors {text}, not {lacking}"
        raise wrong_param("cpu_mask", text, ErrorCode.ENVIRON)


def _check_files(params: KvmParams, paths: Paths) -> None:
    for name in FILE_PARAMETERS:
        path = params.text(name)
        if path.startswith("/") and not os.path.isfile(local_file(path, paths)):
            hint = "; set it to nothing to boot from the disk" if name == "kernel_path" else ""
            raise wrong_param(name, f"there is no file {path}{hint}", ErrorCode.ENVIRON)
    for name in DIRECTORY_PARAMETERS:
        path = params.text(name)
        if path and not os.path.isdir(local_file(path, paths)):
            raise wrong_param(name, f"there is no directory {path}", ErrorCode.ENVIRON)


def _check_user(params: KvmParams, paths: Paths) -> None:
    model = params.text("security_model")
    if model == "none":
        return
    if model == "user":
        _check_account(params.text("security_domain"))
    else:
        _check_pool(paths)
    if os.geteuid() != 0:
        text = "needs a node daemon that runs as root"
        raise wrong_param("security_model", text, ErrorCode.ENVIRON)


def _check_pool(paths: Paths) -> None:
    try:
        pool_of(paths)
    except OpPrereqError as err:
        raise wrong_param("security_model", f"pool: {err.message}", ErrorCode.ENVIRON) from err


def _check_account(name: str) -> None:
    try:
        found = pwd.getpwnam(name)
    except KeyError as err:
        raise wrong_param("security_domain", f"no user {name!r}", ErrorCode.ENVIRON) from err
    if found.pw_uid == 0:
        raise wrong_param("security_domain", f"user {name!r} is the superuser")


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
    """Run QEMU and return its output.

    Raises:
        OpPrereqError: it failed.
    """
    try:
        done = process.run([binary, *arguments], timeout_s=_TIMEOUT_S, stdin=stdin).check()
    except CommandError as err:
        raise wrong_param("kvm_path", err.message, ErrorCode.ENVIRON) from err
    return done.stdout.decode("utf-8", "replace")
