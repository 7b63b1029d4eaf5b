"""``gnt-cluster backup``."""

from __future__ import annotations

import os
import sys
from typing import Final

from ganeti.base.errors import GenericError, NotMasterError, wrong_state
from ganeti.bootstrap import state_archive
from ganeti.cli.command import Context, Options, command, opt
from ganeti.store import ssconf
from ganeti.store.notes import renewal
from ganeti.system import clock, files
from ganeti.system.environment import own_hostname

STDOUT: Final = "-"
SECRETS: Final = (
    "It holds the keys of the cluster: who can read it can act as the master, and log in as root on"
    " all nodes.  Keep it as safe as root's password, and away from this machine."
)


def backup(context: Context, options: Options, args: list[str]) -> None:
    """Write the state of the cluster to a file."""
    [path] = args
    paths, own_name = context.paths, own_hostname()
    master = ssconf.read_key_or_none(paths, "master_node")
    if master != own_name:
        raise NotMasterError(f"this node ({own_name}) is not the master", master)
    if renewal.is_cut_off(paths):
        raise wrong_state(renewal.HINT)
    if path == STDOUT and context.terminal.is_screen:
        raise wrong_state("an archive is not for a terminal; give a file, or a pipe")
    if path != STDOUT and os.path.lexists(path) and not options.force:
        raise wrong_state(f"{path} exists; --force replaces it")
    try:
        state = state_archive.read_state(paths, own_name, now=clock.now())
        data = state_archive.pack(state)
        if path == STDOUT:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        else:
            owner = (os.geteuid(), os.getegid())  # so that the mode counts for an old file, too
            files.write_durable(path, data, state_archive.MODE, owner=owner)
    except OSError as err:
        raise GenericError(f"cannot use {err.filename or path}: {err.strerror}") from err
    head = state.head
    context.terminal.error(
        f"Cluster {head.cluster_name}: configuration with serial number {head.serial_no},"
        f" {state.job_count} jobs, {len(state.contents)} files in all."
    )
    if missing := state_archive.missing_ssh_keys(paths, state):
        is_managed = state_archive.manages_ssh(paths, state)
        why = "there are none here" if is_managed else "this cluster does not manage them"
        context.terminal.error(f"Not in it: {' and '.join(missing)}; {why}.")
    context.terminal.error(SECRETS)


COMMANDS: Final = (
    command(
        backup,
        "<file>",
        opt.flag("-f --force", "replace a file that exists"),
        description="""Runs on the master, while jobs run. The archive has the configuration, the
jobs in the queue that have ended, the keys, certificates and accounts of the cluster, and with
managed SSH keys the host keys and the master's own. It has no archived jobs, no disks, and no
files of the administrator (hooks, operating systems, /etc/default). Its mode is 0600; "-" writes
to the standard output, for a program that encrypts. 'gnt-cluster restore' makes a new master of
it. While a master candidate is left, 'gnt-cluster master-failover' there is better: it has
everything.""",
        examples="""
gnt-cluster backup /root/cluster.state  # on the master
gnt-cluster backup -  # to a program: | gpg --encrypt""",
    ),
)
