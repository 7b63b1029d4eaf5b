"""``gnt-instance adopt``: a virtual machine of libvirt or Proxmox VE becomes an instance.

The description is read and turned into a command line of ``gnt-instance add``, which then does
the work: so everything that it shows with ``--dry-run`` can be typed, and changed, by hand.
"""

from __future__ import annotations

import os
import shlex
from typing import Final

from ganeti.base.errors import GenericError, OpPrereqError, ProtocolError
from ganeti.cli.adopting.libvirt import read_domain
from ganeti.cli.adopting.machine import BYTES_MAX, Machine, Wishes, add_words
from ganeti.cli.adopting.proxmox import read_machine, read_storages
from ganeti.cli.command import EXIT_SUCCESS, Context, Options, command, opt
from ganeti.cli.declaration.parser import parse
from ganeti.cli.programs import named
from ganeti.cli.run.main import carry_out
from ganeti.system.files import read_regular

_PROGRAM: Final = "gnt-instance"
_STORAGES: Final = "/etc/pve/storage.cfg"


def adopt(context: Context, options: Options, args: list[str]) -> int:
    """Make an instance of a virtual machine of another program, with its disks."""
    [path] = args
    machine = read(path, options.storage_config)
    wishes = Wishes(
        name=options.name or "",
        node=options.node or "",
        os_type=options.os_type or "",
        link=options.link or "",
        incomplete=options.incomplete,
        flags=[
            flag
            for flag, wanted in (
                ("--no-name-check", not options.name_check),
                ("--no-ip-check", not options.ip_check),
            )
            if wanted
        ],
    )
    try:
        words = add_words(machine, wishes)
    except OpPrereqError as err:
        raise OpPrereqError(f"{path}: {err.message}") from err
    for text in machine.left_out:
        context.terminal.error(f"Not carried over: {text}")
    if options.dry_run:
        context.write(shlex.join([_PROGRAM, "add", *words]))
        return EXIT_SUCCESS
    line = parse(named(_PROGRAM), ["add", *words], {})
    with Context(_PROGRAM, line.command, line.options, context.terminal) as inner:
        return carry_out(inner, line)


def read(path: str, storage_config: str | None) -> Machine:
    """Read the description of a virtual machine.

    Raises:
        GenericError: a file cannot be read.
        OpPrereqError: it describes no machine that can be adopted.
    """
    data = _content(path)
    try:
        if data.lstrip().startswith(b"<"):
            return read_domain(data)
        storages = ""
        if storage_config or os.path.exists(_STORAGES):
            storages = _content(storage_config or _STORAGES).decode("utf-8", "replace")
        return read_machine(data.decode("utf-8", "replace"), read_storages(storages))
    except ProtocolError as err:
        raise OpPrereqError(f"{path}: {err.message}") from err


def _content(path: str) -> bytes:
    try:
        data = read_regular(path, BYTES_MAX)
    except OSError as err:
        raise GenericError(f"cannot read {path}: {err.strerror}") from err
    if data is None:
        raise GenericError(f"cannot read {path}: there is no such file")
    return data


COMMANDS: Final = (
    command(
        adopt,
        "<file> --os-type --no-name-check --no-ip-check",
        opt.with_help(opt.NODE, "the node with the disks, which becomes its primary node"),
        opt.flag("--dry-run", "show the command that would make the instance, and do nothing"),
        opt.flag("--incomplete", "leave out disks that cannot be adopted, instead of refusing"),
        opt.option("--link=LINK", "bridge of the network interfaces whose own is not known"),
        opt.option("--name=NAME", "name of the instance, if not that of the machine"),
        opt.option(
            "--storage-config=FILE",
            f"the storages of Proxmox VE, by default {_STORAGES} where there is one",
        ),
        description="""The file is the XML of a domain of libvirt ('virsh dumpxml NAME') or a
configuration of Proxmox VE (/etc/pve/qemu-server/VMID.conf).  The instance gets the machine's
processors, memory, network interfaces with their MAC addresses, consoles and boot device, and its
disks as they are: logical volumes keep their names, files their places (below a directory that
/etc/ganeti/file-storage-paths lists), devices below /dev/disk/ are of template blockdev.  From then
on they are the instance's, and are removed with it.  What cannot be carried over is listed.

The machine must be off, and must not be started by its old program any more.  The instance is
made for KVM and not started.""",
        examples="""
gnt-instance adopt --dry-run -n node1 --name=web1.example.com web1.xml \
 # the command that would make an instance of a domain of libvirt
gnt-instance adopt -n node1 --name=web1.example.com web1.xml \
 # an instance with the disks of that domain
gnt-instance adopt -n node2 --storage-config=storage.cfg --link=br0 102.conf \
 # a machine of Proxmox VE""",
    ),
)
