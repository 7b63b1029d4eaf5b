"""The commands of ``gnt-cluster`` that take its settings: ``init`` and ``modify``."""

from __future__ import annotations

from ganeti.cli.declaration import common as opt
from ganeti.cli.declaration import options
from ganeti.cli.declaration.program import (
    ArgKind,
    Argument,
    Command,
    Option,
    unflag,
)
from ganeti.cli.declaration.values import ValueType

# what both init and modify take
_CLUSTER_PARAMETERS = (
    opt.BACKEND_PARAMETERS,
    options.number(
        "-C",
        "--candidate-pool-size",
        help="how many master candidates",
        metavar="CANDIDATE_POOL_SIZE",
    ),
    options.text(
        "--compression-tools",
        help="compression tools for exports, separated by commas",
        metavar="COMPRESSION_TOOLS",
    ),
    Option(
        ("-I", "--default-iallocator"),
        "allocator that . stands for",
        metavar="<NAME>",
        completes=ArgKind.IALLOCATOR,
    ),
    Option(
        ("--default-iallocator-params",),
        "options of the default allocator",
        type=ValueType.KEYVAL,
        metavar="DEFAULT_IALLOCATOR_PARAMS",
    ),
    opt.DISK_PARAMETERS,
    opt.DISK_STATE,
    options.text("--drbd-usermode-helper", help="helper of DRBD", metavar="DRBD_HELPER"),
    options.text(
        "--enabled-disk-templates",
        help="disk templates that instances may have, separated by commas",
        metavar="ENABLED_DISK_TEMPLATES",
    ),
    options.text(
        "--enabled-hypervisors",
        help="hypervisors, separated by commas; the first is the default one",
        metavar="ENABLED_HYPERVISORS",
    ),
    options.text("--file-storage-dir", help="directory for disks in files", metavar="DIR"),
    opt.HYPERVISORS_PARAMETERS,
    opt.HYPERVISOR_STATE,
    options.text("--install-image", help="image of the helper instance", metavar="INSTALL_IMAGE"),
    *opt.IPOLICY_CLUSTER,
    options.text(
        "-m", "--mac-prefix", help="first half of MAC addresses, as aa:00:00", metavar="PREFIX"
    ),
    options.yes_no("--maintain-node-health", help="whether nodes stop what should not run there"),
    options.text(
        "--master-netdev", help="interface that carries the master address", metavar="NETDEV"
    ),
    options.text("--master-netmask", help="prefix length of the master address", metavar="NETMASK"),
    opt.NIC_PARAMETERS,
    opt.NODE_PARAMETERS,
    options.yes_no("--prealloc-wipe-disks", help="whether new disks are overwritten first"),
    options.text(
        "--shared-file-storage-dir",
        help="directory for disks in files that all nodes share",
        metavar="SHAREDDIR",
    ),
    options.text("--uid-pool", help="user ids for guests, as 5000-5999,7000", metavar="UID_POOL"),
    options.yes_no(
        "--use-external-mip-script", help="whether an own script sets the master address"
    ),
    options.yes_no(
        "--user-shutdown",
        help="whether a guest that shuts itself down stays down",
        metavar="ENABLED_USER_SHUTDOWN",
        dest="enabled_user_shutdown",
    ),
    options.text(
        "--vg-name", help="volume group for logical volumes; empty for none", metavar="VG"
    ),
    options.text(
        "--zeroing-image", help="image that fills free space with zeroes", metavar="ZEROING_IMAGE"
    ),
)

INIT = Command(
    "init",
    "make a cluster, with this machine as its first node",
    "cluster.init:init",
    (Argument(ArgKind.HOST, metavar="<cluster-name>"),),
    (
        *_CLUSTER_PARAMETERS,
        options.text(
            "--gluster-storage-dir",
            help="directory for gluster mounts",
            metavar="GLUSTERDIR",
            default="/var/run/ganeti/gluster",
        ),
        unflag("--no-etc-hosts", help="do not change /etc/hosts", dest="modify_etc_hosts"),
        unflag("--no-ssh-init", help="do not set up SSH keys", dest="modify_ssh_setup"),
        Option(("--primary-ip-version",), "IP version of the nodes", metavar="4|6", default=4),
        options.text(
            "-s", "--secondary-ip", help="address in the replication network", metavar="ADDRESS"
        ),
        options.key_values(
            "--specs-cpu-count", help="min, max and std CPUs", metavar="ISPECS_CPU_COUNT"
        ),
        options.key_values(
            "--specs-disk-count", help="min, max and std disks", metavar="ISPECS_DISK_COUNT"
        ),
        options.key_values(
            "--specs-disk-size", help="min, max and std disk size", metavar="ISPECS_DISK_SIZE"
        ),
        options.key_values(
            "--specs-mem-size", help="min, max and std memory", metavar="ISPECS_MEM_SIZE"
        ),
        options.key_values(
            "--specs-nic-count", help="min, max and std interfaces", metavar="ISPECS_NIC_COUNT"
        ),
        opt.SSH_KEY_BITS,
        opt.SSH_KEY_TYPE,
    ),
    description="""The name of the cluster must resolve to an address that is free; it becomes the
address of the master.  Nothing is left behind when a step fails.""",
    examples=(
        (
            (
                "gnt-cluster init --enabled-hypervisors=kvm --enabled-disk-templates=file "
                "cluster.example.com"
            ),
            "a cluster that runs KVM guests from files",
        ),
    ),
)

MODIFY = Command(
    "modify",
    "change parameters of the cluster",
    "cluster.modify:modify",
    (),
    (
        *_CLUSTER_PARAMETERS,
        options.text("--add-uids", help="more user ids", metavar="ADD_UIDS"),
        options.text("--remove-uids", help="fewer user ids", metavar="REMOVE_UIDS"),
        options.key_values(
            "--data-collector-interval",
            help="seconds between two runs: collector=seconds,...",
            metavar="DATA_COLLECTOR_INTERVAL",
        ),
        options.key_values(
            "--enabled-data-collectors",
            help="collectors to run: collector=yes,...",
            metavar="ENABLED_DATA_COLLECTORS",
        ),
        options.text(
            "--diagnose-data-collector-filename",
            help="command in /etc/ganeti/node-diagnose-commands that diagnoses a node; '' for none",
            metavar="FILE",
        ),
        opt.FORCE,
        options.text(
            "--instance-communication-network",
            help="network for the internal communication interface",
            metavar="INSTANCE_COMMUNICATION_NETWORK",
        ),
        options.number(
            "--max-running-jobs", help="how many jobs run at a time", metavar="MAX_RUNNING_JOBS"
        ),
        options.number(
            "--max-tracked-jobs",
            help="how many jobs LuxiD of 3.0 watches at a time; this one watches all",
            metavar="MAX_TRACKED_JOBS",
        ),
        options.yes_no("--modify-etc-hosts", help="whether /etc/hosts is kept up to date"),
        options.text(
            "--reserved-lvs",
            help="patterns of logical volumes to leave alone, separated by commas",
            metavar="RESERVED_LVS",
        ),
        *opt.CHANGE,
    ),
    description="""Every value is checked before anything is changed, and all changes are made
together or not at all.  Parameters are laid over those that are there: key=default (or -key)
forgets an own value.  Hypervisors and disk templates can only be disabled while no instance uses
them, and the instance policy may allow only enabled disk templates.  User ids are a set: ranges
may overlap, --add-uids adds to it, --remove-uids takes ids out of ranges; an empty --uid-pool
switches the pool off.  When the size of the candidate pool changes, nodes are promoted or demoted
until it fits.  Another --master-netdev or --master-netmask moves the cluster's address on the
master node at once.  Changed hypervisor parameters are tried on all nodes, unless --force is
given.  Not supported yet, and refused: --vg-name, --drbd-usermode-helper, --zeroing-image and
--instance-communication-network.""",
    examples=(
        ("gnt-cluster modify -B memory=512", "new instances get 512 MiB"),
        ("gnt-cluster modify -H kvm:vga=std", "a default of one hypervisor"),
        ("gnt-cluster modify --max-running-jobs=40", "more jobs at a time"),
        ("gnt-cluster modify --add-uids=5000-5999,7000", "more user ids for guests"),
        (
            "gnt-cluster modify --ipolicy-std-specs=memory-size=1g",
            "the usual instance has 1 GiB",
        ),
    ),
)
