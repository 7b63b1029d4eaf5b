"""``gnt-cluster``: the cluster as a whole."""

from __future__ import annotations

from ganeti.cli.declaration import common as opt
from ganeti.cli.declaration.program import (
    Action,
    ArgKind,
    Argument,
    Command,
    Option,
    Program,
    flag,
    unflag,
)
from ganeti.cli.declaration.values import ValueType

VERIFY_ERROR_CODES = (
    "EINSTANCEWRONGNODE",
    "ENODEGLUSTERSTORAGEPATHUNUSABLE",
    "ENODEVERSION",
    "ENODEFILESTORAGEPATHS",
    "ENODEORPHANINSTANCE",
    "ECLUSTERCERT",
    "ECLUSTERDANGLINGNODES",
    "EINSTANCELAYOUT",
    "ENODETIME",
    "ENODESSH",
    "EINSTANCEMISSINGCFGPARAMETER",
    "EINSTANCEBADNODE",
    "ECLUSTERCLIENTCERT",
    "ENODEUSERSCRIPTS",
    "ECLUSTERCFG",
    "ENODENET",
    "ENODEHV",
    "ENODEOOBPATH",
    "ENODEFILESTORAGEPATHUNUSABLE",
    "EGROUPDIFFERENTPVSIZE",
    "ENODEOS",
    "EEXTAGS",
    "EINSTANCEDOWN",
    "EINSTANCEFAULTYDISK",
    "ECLUSTERDANGLINGINST",
    "ENODEFILECHECK",
    "ENODEN1",
    "ENODERPC",
    "ENODELVM",
    "EINSTANCESPLITGROUPS",
    "ENODEDRBDVERSION",
    "EINSTANCEMISSINGDISK",
    "ENODESETUP",
    "ENODESHAREDFILESTORAGEPATHUNUSABLE",
    "EINSTANCEPOLICY",
    "ENODEDRBDHELPER",
    "ENODEORPHANLV",
    "ECLUSTERFILECHECK",
    "ENODEDRBD",
    "EINSTANCEUNSUITABLENODE",
    "ENODEHOOKS",
)


def _text(*flags: str, help: str, metavar: str, default: object = None) -> Option:
    return Option(flags, help, metavar=metavar, default=default)


def _yes_no(*flags: str, help: str, metavar: str = "yes|no", dest: str = "") -> Option:
    return Option(flags, help, type=ValueType.BOOL, metavar=metavar, dest=dest)


def _number(*flags: str, help: str, metavar: str) -> Option:
    return Option(flags, help, type=ValueType.INT, metavar=metavar)


def _key_values(*flags: str, help: str, metavar: str) -> Option:
    return Option(flags, help, type=ValueType.KEYVAL, metavar=metavar, default={})


# what both init and modify take
_CLUSTER_PARAMETERS = (
    opt.BACKEND_PARAMETERS,
    _number(
        "-C",
        "--candidate-pool-size",
        help="how many master candidates",
        metavar="CANDIDATE_POOL_SIZE",
    ),
    _text(
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
    _text("--drbd-usermode-helper", help="helper of DRBD", metavar="DRBD_HELPER"),
    _text(
        "--enabled-disk-templates",
        help="disk templates that instances may have, separated by commas",
        metavar="ENABLED_DISK_TEMPLATES",
    ),
    _text(
        "--enabled-hypervisors",
        help="hypervisors, separated by commas; the first is the default one",
        metavar="ENABLED_HYPERVISORS",
    ),
    _text("--file-storage-dir", help="directory for disks in files", metavar="DIR"),
    opt.HYPERVISORS_PARAMETERS,
    opt.HYPERVISOR_STATE,
    _text("--install-image", help="image of the helper instance", metavar="INSTALL_IMAGE"),
    *opt.IPOLICY_CLUSTER,
    _text("-m", "--mac-prefix", help="first half of MAC addresses, as aa:00:00", metavar="PREFIX"),
    _yes_no("--maintain-node-health", help="whether nodes stop what should not run there"),
    _text("--master-netdev", help="interface that carries the master address", metavar="NETDEV"),
    _text("--master-netmask", help="prefix length of the master address", metavar="NETMASK"),
    opt.NIC_PARAMETERS,
    opt.NODE_PARAMETERS,
    _yes_no("--prealloc-wipe-disks", help="whether new disks are overwritten first"),
    _text(
        "--shared-file-storage-dir",
        help="directory for disks in files that all nodes share",
        metavar="SHAREDDIR",
    ),
    _text("--uid-pool", help="user ids for guests, as 5000-5999,7000", metavar="UID_POOL"),
    _yes_no("--use-external-mip-script", help="whether an own script sets the master address"),
    _yes_no(
        "--user-shutdown",
        help="whether a guest that shuts itself down stays down",
        metavar="ENABLED_USER_SHUTDOWN",
        dest="enabled_user_shutdown",
    ),
    _text("--vg-name", help="volume group for logical volumes; empty for none", metavar="VG"),
    _text(
        "--zeroing-image", help="image that fills free space with zeroes", metavar="ZEROING_IMAGE"
    ),
)

_INIT = Command(
    "init",
    "make a cluster, with this machine as its first node",
    "cluster.init:init",
    (Argument(ArgKind.HOST, metavar="<cluster-name>"),),
    (
        *_CLUSTER_PARAMETERS,
        _text(
            "--gluster-storage-dir",
            help="directory for gluster mounts",
            metavar="GLUSTERDIR",
            default="/var/run/ganeti/gluster",
        ),
        unflag("--no-etc-hosts", help="do not change /etc/hosts", dest="modify_etc_hosts"),
        unflag("--no-ssh-init", help="do not set up SSH keys", dest="modify_ssh_setup"),
        Option(("--primary-ip-version",), "IP version of the nodes", metavar="4|6", default=4),
        _text("-s", "--secondary-ip", help="address in the replication network", metavar="ADDRESS"),
        _key_values("--specs-cpu-count", help="min, max and std CPUs", metavar="ISPECS_CPU_COUNT"),
        _key_values(
            "--specs-disk-count", help="min, max and std disks", metavar="ISPECS_DISK_COUNT"
        ),
        _key_values(
            "--specs-disk-size", help="min, max and std disk size", metavar="ISPECS_DISK_SIZE"
        ),
        _key_values("--specs-mem-size", help="min, max and std memory", metavar="ISPECS_MEM_SIZE"),
        _key_values(
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

_MODIFY = Command(
    "modify",
    "change parameters of the cluster",
    "cluster.modify:modify",
    (),
    (
        *_CLUSTER_PARAMETERS,
        _text("--add-uids", help="more user ids", metavar="ADD_UIDS"),
        _text("--remove-uids", help="fewer user ids", metavar="REMOVE_UIDS"),
        _key_values(
            "--data-collector-interval",
            help="seconds between two runs: collector=seconds,...",
            metavar="DATA_COLLECTOR_INTERVAL",
        ),
        _key_values(
            "--enabled-data-collectors",
            help="collectors to run: collector=yes,...",
            metavar="ENABLED_DATA_COLLECTORS",
        ),
        _text(
            "--diagnose-data-collector-filename",
            help="command in /etc/ganeti/node-diagnose-commands that diagnoses a node; '' for none",
            metavar="FILE",
        ),
        opt.FORCE,
        _text(
            "--instance-communication-network",
            help="network for the internal communication interface",
            metavar="INSTANCE_COMMUNICATION_NETWORK",
        ),
        _number(
            "--max-running-jobs", help="how many jobs run at a time", metavar="MAX_RUNNING_JOBS"
        ),
        _number(
            "--max-tracked-jobs",
            help="how many jobs LuxiD of 3.0 watches at a time; this one watches all",
            metavar="MAX_TRACKED_JOBS",
        ),
        _yes_no("--modify-etc-hosts", help="whether /etc/hosts is kept up to date"),
        _text(
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

_IGNORE_ERRORS = Option(
    ("-I", "--ignore-errors"),
    "count this error as a warning",
    type=ValueType.CHOICE,
    action=Action.APPEND,
    metavar="IGNORE_ERRORS",
    choices=VERIFY_ERROR_CODES,
)
_VERIFY = (
    Command(
        "verify",
        "check the whole cluster",
        "cluster.verify:verify",
        (),
        (
            flag("--debug-simulate-errors", help="end as if an error had been found"),
            opt.DRY_RUN,
            flag("--error-codes", help="report in a form for programs"),
            _IGNORE_ERRORS,
            flag("--no-nplus1-mem", help="do not check that any one node may fail"),
            opt.NODE_GROUP,
            opt.PRIORITY,
            opt.VERBOSE,
            flag("--verify-ssh-clutter", help="look for old SSH keys that still let somebody in"),
        ),
    ),
    Command(
        "verify-config",
        "check the configuration and the certificates, asking no node",
        "cluster.verify:verify_config",
        (),
        (
            flag("--debug-simulate-errors", help="end as if an error had been found"),
            flag("--error-codes", help="report in a form for programs"),
            _IGNORE_ERRORS,
            opt.PRIORITY,
            opt.VERBOSE,
        ),
        description="""Reports names, UUIDs, addresses, ports and DRBD minors that are used
twice, references to what is not there, values of a wrong type or out of range, policies that
contradict themselves, too few master candidates, and address maps of networks that do not fit
what instances use.  The exit status is 1 when there is an error.  The configuration daemon
refuses changes that would introduce such an error, so what is found has been there before, or
came in by editing the file.""",
        examples=(("gnt-cluster verify-config", "see that the configuration is sound"),),
    ),
    Command(
        "verify-disks",
        "check the disks of all instances and activate those that are not",
        "cluster.disks:verify_disks",
        (),
        (opt.NODE_GROUP, opt.PRIORITY),
    ),
    Command(
        "repair-disk-sizes",
        "record the real sizes of disks",
        "cluster.disks:repair_disk_sizes",
        (Argument(ArgKind.INSTANCE, 0, None),),
        (opt.DRY_RUN, opt.PRIORITY),
    ),
)

_MASTER = (
    Command("getmaster", "show the name of the master node", "cluster.info:getmaster"),
    Command("master-ping", "see whether the master daemon answers", "cluster.info:master_ping"),
    Command(
        "master-failover",
        "make this node the master",
        "cluster.failover:master_failover",
        (),
        (
            Option(
                ("--ignore-offline-nodes",),
                "do not ask nodes that are offline",
                metavar="IGNORE_OFFLINE_NODES",
                default=True,
            ),
            flag("--no-voting", help="whatever the other nodes say; their files are overwritten"),
            flag("--yes-do-it", help="do not ask"),
        ),
        aliases=("masterfailover",),
        description="""Runs on the master candidate that is to become master.  A living master first
finishes its jobs and stops.  With a dead one, half of all nodes plus one must answer, and so many
master candidates that the newest configuration and every job are among what they have; the jobs
that were running are marked as failed.  Every refusal names who is missing and what helps.""",
        examples=(
            ("gnt-cluster master-failover", "on the node that is to become master"),
            (
                "gnt-cluster master-failover --no-voting --yes-do-it",
                "when too few nodes are left, and the old master is known to be off",
            ),
        ),
    ),
    Command("activate-master-ip", "bring the master address up", "cluster.master_ip:activate"),
    Command(
        "deactivate-master-ip",
        "take the master address down",
        "cluster.master_ip:deactivate",
        (),
        (flag("--yes", help="do not ask", dest="confirm"),),
    ),
)

_SHOW = (
    Command(
        "info",
        "show the parameters of the cluster",
        "cluster.info:info",
        (),
        (flag("--roman", help="show some numbers the Roman way"),),
        aliases=("show",),
    ),
    Command("version", "show the versions of the software", "cluster.info:version"),
    Command("list-tags", "list the cluster's tags", "tags:list_cluster"),
    Command(
        "add-tags",
        "give the cluster tags",
        "tags:add_cluster",
        (opt.ANY_TAGS,),
        (opt.TAGS_FROM, *opt.SUBMISSION),
    ),
    Command(
        "remove-tags",
        "take tags from the cluster",
        "tags:remove_cluster",
        (opt.ANY_TAGS,),
        (opt.TAGS_FROM, *opt.SUBMISSION),
    ),
    Command(
        "search-tags",
        "find tags of all objects by a regular expression",
        "tags:search",
        (Argument(ArgKind.TEXT, metavar="<pattern>"),),
        (opt.PRIORITY,),
    ),
    Command(
        "show-ispecs-cmd",
        "show the command line that would recreate the instance policy",
        "policy:show_of_cluster",
    ),
)

_QUEUE = (
    Command(
        "queue",
        "stop or allow the submission of jobs",
        "cluster.queue:queue",
        (Argument(ArgKind.CHOICE, choices=("drain", "info", "undrain")),),
        examples=(("gnt-cluster queue drain", "accept no new jobs"),),
    ),
    Command(
        "watcher",
        "pause the watcher",
        "cluster.queue:watcher",
        (
            Argument(ArgKind.CHOICE, choices=("continue", "info", "pause")),
            Argument(ArgKind.SUGGEST, 0, 1, choices=("1h", "30m", "4h"), metavar="<time>"),
        ),
        examples=(("gnt-cluster watcher pause 1h", "no watcher for an hour"),),
    ),
)

_NODES = (
    Command(
        "command",
        "run a command on nodes",
        "cluster.remote:command",
        (Argument(ArgKind.COMMAND, 1, None),),
        (
            flag("--failure-only", help="show only what failed"),
            opt.NODES,
            opt.NODE_GROUP,
            flag("-M", "--show-machine-names", help="put the node's name before each line"),
        ),
    ),
    Command(
        "copyfile",
        "copy a file to nodes",
        "cluster.remote:copyfile",
        (Argument(ArgKind.FILE),),
        (
            opt.NODES,
            opt.NODE_GROUP,
            flag("--use-replication-network", help="copy through the replication network"),
        ),
    ),
    Command(
        "epo",
        "switch nodes off in an emergency",
        "cluster.epo:epo",
        (Argument(ArgKind.TEXT, 0, None),),
        (
            flag("--all", help="all nodes", dest="show_all"),
            opt.FORCE,
            flag("--groups", help="the arguments are groups"),
            flag("--on", help="switch them on again"),
            opt.OOB_TIMEOUT,
            opt.POWER_DELAY,
            opt.SHUTDOWN_TIMEOUT,
        ),
        description="""Stops the instances of the nodes, marks the nodes offline and switches them
off by the out-of-band helper; with --on the same backwards: power, waiting until the nodes answer,
and the instances that ran before.  Nothing is switched off while an instance does not stop.  The
master node is never switched; when it is among the nodes, all must be meant (--all).""",
        examples=(
            ("gnt-cluster epo --all", "the air conditioning has failed"),
            ("gnt-cluster epo --on --all", "it works again"),
            ("gnt-cluster epo --groups rack1", "the nodes of one group"),
        ),
    ),
)

_CRYPTO = Command(
    "renew-crypto",
    "replace keys and certificates",
    "cluster.crypto:renew_crypto",
    (),
    (
        _text(
            "--cluster-domain-secret",
            help="file with the new secret",
            metavar="CLUSTER_DOMAIN_SECRET",
        ),
        opt.FORCE,
        flag("--new-cluster-certificate", help="a new cluster certificate"),
        flag("--new-cluster-domain-secret", help="a new secret between clusters"),
        flag("--new-confd-hmac-key", help="a new key for the configuration daemon"),
        flag("--new-node-certificates", help="new certificates for all nodes"),
        flag("--new-rapi-certificate", help="a new certificate for the remote API"),
        flag("--new-spice-certificate", help="a new certificate for SPICE"),
        flag("--new-ssh-keys", help="new SSH keys"),
        opt.NO_SSH_KEY_CHECK,
        _text("--rapi-certificate", help="file with the certificate", metavar="RAPI_CERT"),
        _text("--spice-ca-certificate", help="file with the authority", metavar="SPICE_CACERT"),
        _text("--spice-certificate", help="file with the certificate", metavar="SPICE_CERT"),
        opt.SSH_KEY_BITS,
        opt.SSH_KEY_TYPE,
        opt.VERBOSE,
    ),
    description="""A new secret, or a certificate for the remote API or for SPICE, is put on the
master and sent to all nodes.  For --new-cluster-certificate and --new-node-certificates the queue
must be empty; all daemons stop, each node is told by SSH (nodes of a virtual cluster directly), and
the master candidates get new client certificates by a job.  Instances run on meanwhile.  Nodes that
are offline keep what they have and must be taken in again by 'gnt-node add --readd'.  After a
command that was interrupted, run it again.""",
    examples=(
        ("gnt-cluster renew-crypto --new-cluster-certificate", "before the old one ends"),
        ("gnt-cluster renew-crypto --rapi-certificate=/root/rapi.pem", "one of your own"),
    ),
)

_OTHERS = (
    Command(
        "destroy",
        "destroy the cluster: no instances and no other nodes may be left",
        "cluster.init:destroy",
        (),
        (opt.YES_DO_IT,),
        examples=(("gnt-cluster destroy --yes-do-it", "stop the daemons, remove the files"),),
    ),
    Command(
        "redist-conf",
        "copy the configuration and all other files that nodes need to all nodes again",
        "cluster.modify:redist_conf",
        (),
        (flag("--yes-do-it", help="also while the queue accepts no jobs"), *opt.CHANGE),
        description="""The configuration goes to the master candidates, the simple configuration
to all nodes; besides these, the files that are there on the master: known_hosts, the keys for the
configuration daemon and between clusters, certificates of the remote API and of SPICE, the users
of the remote API (to master candidates), the files of enabled hypervisors, and /etc/hosts if the
cluster keeps it up to date.  Offline nodes are left out; each node that does not take something
is named.""",
    ),
    Command(
        "rename",
        "rename the cluster",
        "cluster.rename:rename",
        (Argument(ArgKind.HOST, metavar="<new-name>"),),
        (opt.DRY_RUN, opt.FORCE),
        description="""The new name must resolve, to the address that the cluster has or to one
that is free; the address moves with the name.  Clients have to be told.""",
        examples=(("gnt-cluster rename cluster2.example.com", ""),),
    ),
    Command(
        "upgrade",
        "change to another version of the software",
        "",
        (),
        (
            flag("--resume", help="go on with an upgrade that was interrupted"),
            _text("--to", help="the version", metavar="TO"),
        ),
    ),
)

PROGRAM = Program(
    "gnt-cluster",
    "manage the cluster as a whole",
    """Makes a cluster, changes its parameters, checks it and destroys it.  Runs on the master
node.""",
    tuple(
        sorted(
            (_INIT, _MODIFY, *_VERIFY, *_MASTER, *_SHOW, *_QUEUE, *_NODES, _CRYPTO, *_OTHERS),
            key=lambda command: command.name,
        )
    ),
)


def main() -> int:
    """Run ``gnt-cluster`` with the words of the command line."""
    from ganeti.cli.run.main import run

    return run(PROGRAM)
