"""``tools/ovfconverter``: machines of other programs come as exports, and exports go to them.

Source: cli.json, "ovfconverter".
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.cli.command import ArgKind, Context, Options, command, opt
from ganeti.cli.declaration.program import DEBUG, Program
from ganeti.cli.instance.devices import DISK_TEMPLATES
from ganeti.cli.ovf.envelope import FORMATS
from ganeti.cli.ovf.exporting import Target, export_ovf
from ganeti.cli.ovf.importing import Wish, import_ovf
from ganeti.cli.run.endings import interrupt_at_endings
from ganeti.cli.run.failures import told_by

NAME: Final = "ovfconverter"
_FILE: Final = opt.Argument(ArgKind.FILE, metavar="FILE")
_NAME: Final = opt.option("-n --name", "name of the instance; by default that in the file")
_VERBOSE: Final = opt.flag("-v --verbose", "tell more")


def import_(context: Context, options: Options, args: list[str]) -> None:
    """Make an export of an OVF or OVA."""
    interrupt_at_endings()
    directory = options.output_dir or context.paths.export_dir
    wish = Wish(
        name=options.name,
        os=options.os_type,
        hypervisor=options.hypervisor or "",
        disk_template=options.disk_template or "",
    )
    name = import_ovf(args[0], os.path.abspath(directory), wish, _teller(context, options))
    context.write(f"The export is {os.path.join(directory, name)}.")
    if os.path.abspath(directory) == context.paths.export_dir:
        context.write(f"On the master: gnt-backup import --src-node=<this node> -n <node> {name}")


def export(context: Context, options: Options, args: list[str]) -> None:
    """Make an OVF or OVA of an export."""
    interrupt_at_endings()
    directory = options.output_dir or context.paths.export_dir
    target = Target(os.path.abspath(directory), options.name, options.format, options.ova)
    context.write(f"Written: {export_ovf(args[0], target, _teller(context, options))}")


def _teller(context: Context, options: Options) -> Callable[[str], None]:
    return context.write if options.verbose else lambda _text: None


PROGRAM: Final = Program(
    NAME,
    "convert machines between OVF and exports",
    """Makes an export that 'gnt-backup import' takes of a virtual machine in the Open
Virtualization Format, and the other way.  qemu-img converts the disks.""",
    (
        command(
            import_,
            _FILE,
            _NAME,
            _VERBOSE,
            opt.option("--output-dir", "directory for the export", completes=ArgKind.FILE),
            opt.option("-o --os-type=<os>", "its operating system definition", default="noop"),
            opt.option("-H --hypervisor", "its hypervisor; by default the cluster's"),
            opt.option("-t --disk-template", "its disk template", choices=DISK_TEMPLATES),
            title="import: make an export of an OVF or OVA",
            examples="""
ovfconverter import -n web1.example.com -o cloud machine.ova  # then gnt-backup import""",
        ),
        command(
            export,
            _FILE,
            _NAME,
            _VERBOSE,
            opt.option("--output-dir", "directory for the files", completes=ArgKind.FILE),
            opt.option(
                "-f --format", "format of the disks", choices=tuple(FORMATS), default="vmdk"
            ),
            opt.flag("--ova", "one archive instead of a directory"),
            examples="""
ovfconverter export --ova /var/lib/ganeti/export/web1.example.com  # after gnt-backup export""",
        ),
    ),
    common_options=(DEBUG,),
    is_interspersed=True,
    explain=told_by(NAME),
    expected_errors=(GenericError, OSError),
)
