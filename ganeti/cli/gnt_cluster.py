"""``gnt-cluster``: the cluster as a whole."""

from __future__ import annotations

from ganeti.cli.declaration import common as opt
from ganeti.cli.declaration import options
from ganeti.cli.declaration.cluster_settings import INIT, MODIFY
from ganeti.cli.declaration.cluster_verification import VERIFY
from ganeti.cli.declaration.program import (
    ArgKind,
    Argument,
    Command,
    Option,
    Program,
    flag,
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
        options.text(
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
        flag("--new-ssh-keys", help="new SSH keys for root of the nodes"),
        opt.NO_SSH_KEY_CHECK,
        options.text("--rapi-certificate", help="file with the certificate", metavar="RAPI_CERT"),
        options.text(
            "--spice-ca-certificate", help="file with the authority", metavar="SPICE_CACERT"
        ),
        options.text("--spice-certificate", help="file with the certificate", metavar="SPICE_CERT"),
        opt.SSH_KEY_BITS,
        opt.SSH_KEY_TYPE,
        opt.VERBOSE,
    ),
    description="""A new secret, or a certificate for the remote API or for SPICE, is put on the
master and sent to all nodes.  For --new-cluster-certificate and --new-node-certificates the queue
must be empty; all daemons stop, each node is told by SSH (nodes of a virtual cluster directly), and
the master candidates get new client certificates by a job.  Instances run on meanwhile.  Nodes that
are offline keep what they have and must be taken in again by 'gnt-node add --readd'.  New SSH keys
are made and told by a job, of the type and length that --ssh-key-type and --ssh-key-bits say from
then on; nodes let in old and new ones until all have theirs.  A command that was interrupted, by a
power failure too, is completed by running it again.""",
    examples=(
        ("gnt-cluster renew-crypto --new-cluster-certificate", "before the old one ends"),
        ("gnt-cluster renew-crypto --rapi-certificate=/root/rapi.pem", "one of your own"),
        ("gnt-cluster renew-crypto --new-ssh-keys --ssh-key-type=ecdsa", "another kind"),
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
            options.text("--to", help="the version", metavar="TO"),
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
            (INIT, MODIFY, *VERIFY, *_MASTER, *_SHOW, *_QUEUE, *_NODES, _CRYPTO, *_OTHERS),
            key=lambda command: command.name,
        )
    ),
)


def main() -> int:
    """Run ``gnt-cluster`` with the words of the command line."""
    from ganeti.cli.run.main import run

    return run(PROGRAM)
