"""``gnt-instance`` modify and rename."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import OpPrereqError
from ganeti.base.text import shown
from ganeti.cli.command import Context, Options, command, opt
from ganeti.cli.instance import devices
from ganeti.cli.run.binding import NOTHING_TO_CHANGE, ask, bound, has_changes, show_changes, submit
from ganeti.cli.run.jobs import execute
from ganeti.opcodes.instance import OpInstanceRename, OpInstanceSetParams


def device_changes(options: Options) -> Mapping[str, object]:
    """Return the changes of disks and interfaces, and of whether the instance is offline."""
    return {
        "disks": devices.changes(options.disks, devices.disk_settings),
        "nics": devices.changes(options.nics, devices.nic_settings),
        "offline": True if options.offline else False if options.online else None,
    }


def modify(context: Context, options: Options, args: list[str]) -> None:
    """Change an instance."""
    is_marked = options.offline or options.online
    if not is_marked and not has_changes(context.command, options):
        raise OpPrereqError(NOTHING_TO_CHANGE)
    opcode = bound(context.command, options, args)
    [result] = execute(context, options, opcode)
    show_changes(context, opcode, result)
    names = [str(name) for name, _ in result] if isinstance(result, list) else []
    has_hotplug = options.hotplug or options.hotplug_if_possible
    waiting = [name for name in names if waits_for_start(name, has_hotplug=has_hotplug)]
    if waiting and context.client.query_instances(args, ["oper_state"]) == [[True]]:
        context.write(
            "Please don't forget that this takes effect only at the next start of the instance"
            " ('gnt-instance reboot -t full'), not when its guest restarts by itself:"
            f" {shown(waiting)}"
        )


_GROWS: Final = ("be/maxmem", "be/minmem", "be/vcpus")
_NAMES: Final = ("disk.name/", "nic.name/")  # the guest knows none
_AT_ONCE: Final = (  # read where they matter: by jobs, and when it is migrated
    *("be/always_failover", "be/auto_balance", "be/minmem", "be/spindle_use"),
    *("hv/migration_caps", "hv/migration_downtime"),
)


def waits_for_start(name: str, *, has_hotplug: bool) -> bool:
    """Tell whether a change of that name means nothing to a guest that runs already."""
    if name.startswith(_NAMES):
        return False
    if name.startswith(("disk", "nic")):
        return not has_hotplug
    if has_hotplug and name in _GROWS:
        return False
    return name.startswith(("be/", "hv/")) and name not in _AT_ONCE


def rename(context: Context, options: Options, args: list[str]) -> None:
    """Rename an instance."""
    name, new_name = args
    if not options.name_check:
        question = f"The name {new_name} is taken as it is, resolved or not.  Go on?"
        ask(context, context.command, options, args, question)
    ip_check = options.ip_check and options.name_check
    final_name = submit(context, options, args, ip_check=ip_check)
    if isinstance(final_name, str):
        context.write(f"Instance {name} is now called {final_name}")


COMMANDS: Final = (
    command(
        modify,
        "<instance> --backend-parameters --communication --disk --dry-run",
        "--file-storage-dir --force --force-variant --iallocator --ignore-ipolicy",
        "--net --no-conflicts-check --no-wait-for-sync --os-parameters --os-parameters-private",
        "SUBMISSION",
        devices.DISK_KIND,
        opt.pairs("-e --ext-params", "parameters for the conversion to external storage"),
        opt.flag("--hotplug", "change devices and size of the running instance, or fail"),
        opt.flag(
            "--hotplug-if-possible", "change devices and size of the running instance where it can"
        ),
        opt.INSTANCE_HYPERVISOR_PARAMETERS,
        opt.option("--new-primary=<node> -> pnode", "the new primary node"),
        opt.with_help(opt.NODE, "the new secondary node", "remote_node"),
        opt.flag("--offline", "mark the instance as offline: never to be started"),
        opt.flag("--online", "mark an offline instance as down"),
        replace(opt.OS_TYPE, dest="os_name"),
        opt.size("-m --runtime-memory=<size> -> runtime_mem", "memory of the running guest"),
        opcode=OpInstanceSetParams,
        makes=device_changes,
        exclusive=(("--offline", "--online"),),
        description="""Parameters of hypervisor and back-end of a running instance take effect at
its next start ('gnt-instance reboot -t full'); the command says which.  So do changes of disks and
network interfaces, and more processors and memory, unless --hotplug is given.  A machine of KVM
gets these while it runs as far as max_vcpus and max_memory had made room when it started, memory in
steps of 128 MiB; one of type q35 takes disks and network interfaces if it was started with
pcie_ports.

A disk is changed by --disk N:..., where N is its number (-1 is the last one), its name or its UUID:
--disk add:size=10g or --disk N:add,size=10g makes one, at the end or in that place; --disk N:remove
removes one with its data; --disk N:detach keeps the data, and --disk attach:uuid=UUID gives it to
an instance again; --disk N:name=data,mode=ro changes one ('gnt-instance grow-disk' makes it
larger).

A network interface is changed the same way: --net add:link=br0,mac=auto, --net N:remove, --net
N:ip=192.0.2.7.  An IP address of none is none, pool takes a free one of the network, and pool6 a
free IPv6 address of a network that has both kinds.""",
        examples="""
gnt-instance modify -B memory=2g,vcpus=4 web1  # more memory and processors, from the next start on
gnt-instance modify --hotplug -B memory=2g,vcpus=4 web1  # at once
gnt-instance modify -H boot_order=cdrom,cdrom_image_path=/srv/debian.iso web1  # start from a CD
gnt-instance modify -H boot_order=default,cdrom_image_path= web1  # the default again
gnt-instance modify --disk add:size=10g,name=data web1  # one more disk
gnt-instance modify --disk 1:remove web1  # remove the second disk and its data
gnt-instance modify --disk data:mode=ro web1  # a disk by its name
gnt-instance modify --net add:link=br1 web1  # one more network interface
gnt-instance modify --net 0:ip=192.0.2.7,network=net1 web1  # change the first one
gnt-instance modify --hotplug --net -1:remove web1  # the last one, while it runs
gnt-instance modify -t sharedfile web1  # other disks; it has to be stopped""",
    ),
    command(
        rename,
        "<instance> <new-name>:host=new_name --force --no-ip-check --no-name-check CHANGE",
        description="""The instance must be stopped.  A rename that was cut off is completed by
running it again; with the name that the instance has as the new one, the directory of its disks is
put back.""",
        opcode=OpInstanceRename,
        examples="""
gnt-instance rename --no-name-check web1 web2.example.com  # a name that no name server knows""",
    ),
)
