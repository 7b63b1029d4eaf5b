"""Checking parameters against the node: files, programs, users, what QEMU knows.

Source: constants.json, "hvparams"; manual page gnt-instance(8).
"""

from __future__ import annotations

import os
import pwd
from typing import Final

from ganeti.base.errors import CommandError, ErrorCode
from ganeti.base.paths import Paths
from ganeti.hypervisor.kvm.accelerator import choose_accelerator
from ganeti.hypervisor.kvm.node_files import (
    DIRECTORY_PARAMETERS,
    FILE_PARAMETERS,
    local_file,
    read_password,
)
from ganeti.hypervisor.kvm.params import KvmParams, wrong_param
from ganeti.hypervisor.kvm.qemu_binary import find_qemu
from ganeti.hypervisor.user_ids import pool_of
from ganeti.system import process

_HELP_TIMEOUT_S: Final = 30.0


def validate_on_node(params: KvmParams, paths: Paths) -> None:
    """Check that this node has what the parameters name.

    Raises:
        OpPrereqError: naming the parameter and what is missing.
    """
    binary = find_qemu(params.text("kvm_path"))
    _check_files(params, paths)
    for name in ("vnc_password_file", "spice_password_file"):
        if params.text(name):
            read_password(name, params.text(name), paths)
    _check_user(params, paths)
    if params.text("kvm_flag"):
        choose_accelerator(params.text("kvm_flag"), binary, paths)
    machine = params.text("machine_version").partition(",")[0]
    if machine and machine not in _known(binary, "-machine"):
        raise wrong_param("machine_version", f"{binary} has no machine {machine!r}; see -machine ?")
    cpu = params.text("cpu_type").partition(",")[0]
    if cpu and cpu not in _known(binary, "-cpu"):
        raise wrong_param("cpu_type", f"{binary} has no processor {cpu!r}; see -cpu ?")


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
        pool_of(paths)
    if os.geteuid() != 0:
        text = "needs a node daemon that runs as root"
        raise wrong_param("security_model", text, ErrorCode.ENVIRON)


def _check_account(name: str) -> None:
    try:
        found = pwd.getpwnam(name)
    except KeyError as err:
        raise wrong_param("security_domain", f"no user {name!r}", ErrorCode.ENVIRON) from err
    if found.pw_uid == 0:
        raise wrong_param("security_domain", f"user {name!r} is the superuser")


def _known(binary: str, option: str) -> set[str]:
    """Return the words that QEMU lists for an option."""
    try:
        output = process.run([binary, option, "help"], timeout_s=_HELP_TIMEOUT_S).check().stdout
    except CommandError as err:
        raise wrong_param("kvm_path", err.message, ErrorCode.ENVIRON) from err
    words: set[str] = set()
    for line in output.decode("utf-8", "replace").splitlines():
        words.update(line.split()[:2])
    return words
