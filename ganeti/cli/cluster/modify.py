"""``gnt-cluster`` modify, redist-conf and rename."""

from __future__ import annotations

from typing import Final

from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, Context, Options, command, job, opt
from ganeti.cli.declaration.values import (
    AllocatorLists,
    Float,
    Intervals,
    Netmask,
    Settings,
    Switches,
    UidPool,
)
from ganeti.cli.policy import ipolicy_of
from ganeti.cli.run.binding import ask, bound
from ganeti.cli.run.failures import JobSubmitted
from ganeti.cli.run.jobs import encode, execute, follow, results_of_all, submitted_jobs
from ganeti.opcodes.cluster import OpClusterRedistConf, OpClusterRename, OpClusterSetParams
from ganeti.opcodes.opcode import OpCode


def follow_parts(context: Context, _opcode: OpCode, result: object) -> int:
    """Follow the jobs that a change has submitted."""
    failures, _ = results_of_all(context, submitted_jobs(result))
    return EXIT_FAILURE if failures else EXIT_SUCCESS


def redist_conf(context: Context, options: Options, args: list[str]) -> None:
    """Copy the configuration and all other files that nodes need to all nodes again."""
    opcode = bound(context.command, options, args)
    if not options.yes_do_it:
        execute(context, options, opcode)
        return
    job_id = context.client.submit_job_to_drained_queue([encode(context, options, opcode)])
    if options.print_jobid:
        context.write(str(job_id))
    if options.submit:
        raise JobSubmitted(job_id)
    follow(context, job_id)


def remove_repair(context: Context, _options: Options, args: list[str]) -> None:
    """Forget an event of a node that maintenance acts on."""
    context.client.remove_repair(args[0])


def rename(context: Context, options: Options, args: list[str]) -> None:
    """Rename the cluster."""
    opcode = bound(context.command, options, args)
    [old] = context.client.query_config_values(["cluster_name"])
    ask(
        context,
        context.command,
        options,
        [],
        f"This renames the cluster {old} to {args[0]}.  Clients connected to its address may be cut"
        " off, and have to be told the new name.  Go on?",
    )
    [new] = execute(context, options, opcode)
    if not options.dry_run:
        context.write(f"The cluster is called {new} now.")


CLUSTER_PARAMETERS = (
    "--backend-parameters --disk-parameters --disk-state --hypervisor-state --nic-parameters",
    "--node-parameters IPOLICY --ipolicy-std-specs",
    opt.HYPERVISORS_PARAMETERS,
    opt.number("-C --candidate-pool-size=N", "how many master candidates"),
    opt.names("--compression-tools", "compression tools for exports, separated by commas"),
    opt.option(
        "-I --default-iallocator=<NAME>",
        "allocator that . stands for; several, separated by commas, are tried in this order",
    ),
    opt.option("--default-iallocator-params", "options of the default allocator", Settings),
    opt.option("--drbd-usermode-helper -> drbd_helper", "helper of DRBD", str),
    opt.names(
        "--enabled-disk-templates",
        "disk templates of the cluster, separated by commas; see --ipolicy-disk-templates",
    ),
    opt.names(
        "--enabled-hypervisors", "hypervisors, separated by commas; the first is the default one"
    ),
    opt.option("--file-storage-dir=DIR", "directory for disks in files"),
    opt.option("--install-image", "image of the helper instance: a path or URL; '' for none"),
    opt.option("-m --mac-prefix=PREFIX", "first half of MAC addresses, as aa:00:00"),
    opt.yes_no("--maintain-node-health", "whether nodes stop instances that should not run there"),
    opt.option("--master-netdev=NETDEV", "interface that carries the master address"),
    opt.option("--master-netmask=NETMASK", "prefix length of the master address", Netmask),
    opt.yes_no("--prealloc-wipe-disks", "whether new disks are overwritten first"),
    opt.option(
        "--shared-file-storage-dir=SHAREDDIR", "directory for disks in files that all nodes share"
    ),
    opt.option("--uid-pool", "user ids for guests, as 5000-5999,7000", UidPool),
    opt.yes_no("--use-external-mip-script", "whether an own script sets the master address"),
    opt.yes_no(
        "--user-shutdown -> enabled_user_shutdown",
        "whether a guest that shuts itself down stays down",
    ),
    opt.option("--vg-name=VG", "volume group for logical volumes; empty for none"),
    opt.option(
        "--zeroing-image", "image that fills free space with zeroes: a path or URL; '' for none"
    ),
)
COMMANDS: Final = (
    command(
        redist_conf,
        "CHANGE",
        opt.flag("--yes-do-it", "also while the queue accepts no jobs"),
        description="""The configuration goes to the master candidates, the simple configuration
to all nodes; besides these, the files that are there on the master: known_hosts, the keys for the
configuration daemon and between clusters, certificates of the remote API and of SPICE, the users
of the remote API (to master candidates), the files of enabled hypervisors, the files with passwords
of consoles that parameters of the cluster, of operating systems and of instances name (of instances
only those in /etc/ganeti named vnc-* or spice-*), and /etc/hosts if the cluster keeps it up to
date.  A file that is larger than 16 MiB, or no regular file, is told and left out.

More files, one absolute path per line, can be listed in /etc/ganeti/distributed-files on the
master; the list is distributed, too.  A node takes these only if its administrator listed them in
/etc/ganeti/accepted-files there, which belongs to root; it always takes /etc/ganeti/vnc-* and
spice-*.
gnt-cluster verify compares all these files.  Offline nodes are left out; each node that does not
take something is named.""",
        opcode=OpClusterRedistConf,
        examples="""
gnt-cluster redist-conf  # send the configuration to all nodes again""",
    ),
    command(
        remove_repair,
        "<uuid>:unknown=uuid",
        description="""The incident is forgotten whatever its state is; its jobs and the tag of its
node stay.  While the node still reports it, it is noted anew.  To have nobody act on it use
gnt-maint cancel.""",
        examples="gnt-cluster remove-repair 2f6b4b06-1b5c-4c0f-8f0e-6d2a2f6c1a55  # its id",
    ),
    command(
        rename,
        "<new-name>:host=name --dry-run --force",
        description="""The new name must resolve, to the address that the cluster has or to one
that is free; the address moves with the name.  Clients have to be told.""",
        examples="gnt-cluster rename cluster2.example.com  # its address moves with it",
        opcode=OpClusterRename,
    ),
    job(
        "modify: change parameters of the cluster",
        OpClusterSetParams,
        "--force CHANGE",
        CLUSTER_PARAMETERS,
        opt.option("--add-uids", "more user ids", UidPool),
        opt.option("--remove-uids", "fewer user ids", UidPool),
        opt.option("--gluster-storage-dir=GLUSTERDIR", "directory for gluster mounts"),
        opt.option(
            "--data-collector-interval",
            "seconds between two runs: collector=seconds,...",
            Intervals,
            default={},
        ),
        opt.option(
            "--enabled-data-collectors",
            "collectors to run: collector=yes,...",
            Switches,
            default={},
        ),
        opt.option(
            "--diagnose-data-collector-filename=FILE",
            "command in /etc/ganeti/node-diagnose-commands that diagnoses a node; '' for none",
        ),
        opt.number(
            "--maintenance-interval=SECONDS -> maint_round_delay",
            "switch maintenance on, and look at the balance so often; 0 switches it off",
        ),
        opt.yes_no(
            "--auto-balance-cluster -> maint_balance", "whether maintenance balances the cluster"
        ),
        opt.option(
            "--auto-balance-threshold=SCORE -> maint_balance_threshold",
            "least gain of a node group's score for which instances are moved (default 0.1)",
            Float,
        ),
        opt.yes_no(
            "--auto-balance-load -> maint_use_load",
            "whether balancing looks at the CPU load that nodes report",
        ),
        opt.yes_no(
            "--auto-balance-disk-moves -> maint_move_disks",
            "whether balancing may copy disks to other nodes",
        ),
        opt.yes_no(
            "--auto-repair-instances -> maint_auto_repair",
            "whether maintenance repairs instances as far as their tags allow it, as harep does",
        ),
        opt.option(
            "--instance-communication-network",
            "network by which nodes talk to instances; '' for none",
        ),
        opt.number(
            "--max-disk-transfers=N",
            "how many migrations, exports and resynchronizations a node has at a time; 0: all",
        ),
        opt.number(
            "--max-running-jobs=N", "how many jobs work at a time; those that wait do not count"
        ),
        opt.number(
            "--max-tracked-jobs=N",
            "how many jobs have a process, to work or to wait for locks (more than work)",
        ),
        opt.option(
            "--iallocators-for -> default_iallocators",
            "other default allocators for some kinds of requests, tried in this order; an empty"
            " list for those of -I",
            AllocatorLists,
        ),
        opt.yes_no("--modify-etc-hosts", "whether /etc/hosts is kept up to date"),
        opt.number(
            "--silent-node-tries=N",
            "how often the watcher tries a silent node by SSH before it sets it offline; 0: never",
        ),
        opt.names(
            "--reserved-lvs", "patterns of logical volumes to leave alone, separated by commas"
        ),
        description="""Every value is checked before anything is changed, and all changes are made
together or not at all.  Parameters are laid over those that are there: key=default (or -key)
forgets an own value.  Hypervisors and disk templates can only be disabled while no instance uses
them, and the instance policy may allow only enabled disk templates.  User ids are a set: ranges
may overlap, --add-uids adds to it, --remove-uids takes ids out of ranges; an empty --uid-pool
switches the pool off.  When the size of the candidate pool changes, nodes are promoted or demoted
until it fits.  Another --master-netdev or --master-netmask moves the cluster's address on the
master node at once.  Changed hypervisor parameters are tried on all nodes, unless --force is
given.

--instance-communication-network makes a network of that name if there is none (169.254.0.0/16,
fe80::/10) and connects it to all groups, in jobs of its own, and to groups that are added later; an
empty name disconnects it again.  Images are paths on nodes or URLs; they are kept, but the helper
instances that use them are not supported yet.  A volume group and a helper of DRBD are looked for
on every node before they are set.

Maintenance is done by ganeti-maintd(8), once --maintenance-interval switches it on: nodes whose
diagnose command asks for it are repaired, or emptied and set offline.  It balances each node group
and repairs instances only if it is told to; the moves are those that hbal(1) finds.

Several default allocators are tried one after the other, until one gives an answer that can be
used: one that fails, finds no place or talks nonsense is told in the job's log.  Requests are
allocate, allocate-secondary, change-group, multi-allocate, node-evacuate and relocate.  Options of
--default-iallocator-params go to the first of -I only.""",
        examples="""
gnt-cluster modify -B memory=512  # new instances get 512 MiB
gnt-cluster modify -H kvm:vga=std  # a default of one hypervisor
gnt-cluster modify -I hail,spare  # spare is asked where hail finds no place
gnt-cluster modify --iallocators-for=relocate=spare:hail  # the other way round for one request
gnt-cluster modify --max-running-jobs=40  # more jobs at a time
gnt-cluster modify --add-uids=5000-5999,7000  # more user ids for guests
gnt-cluster modify --ipolicy-std-specs=memory-size=1g  # the usual instance has 1 GiB""",
        makes=ipolicy_of,
        changes=True,
        result=follow_parts,
    ),
)
