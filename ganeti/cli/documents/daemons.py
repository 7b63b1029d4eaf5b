"""What the manual pages of the daemons say besides their options: a table.

Source: config.json, "paths_ensured_by_installation"; wconfd.json.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ganeti.cli.declaration.program import Section
from ganeti.collectors.registry import COLLECTORS
from ganeti.objects.describe import describe_type
from ganeti.protocol import confd
from ganeti.protocol.confd_queries import QUERIES, Query, Takes
from ganeti.protocol.service import Call
from ganeti.protocol.wconfd import CLIENT_SHOWN, Need, Rules, WConfCalls, wire_names

Entry = tuple[str, str]  # a term, what it is


@dataclass(frozen=True, slots=True)
class DaemonText:
    """The text about one daemon."""

    name: str
    prose: str
    sections: Sequence[Section] = ()


EXIT_STATUS: Final = Section(
    "EXIT STATUS",
    (),
    (
        ("0", "The daemon runs in the background now, or was told to stop."),
        ("1", "It cannot run; the reason is on standard error and in the log."),
        ("2", "The configuration cannot be used."),
        ("11", "This node is not the master."),
    ),
)
SIGNALS: Final = Section(
    "SIGNALS",
    (),
    (
        ("SIGTERM, SIGINT", "Finish what was begun and stop."),
        ("SIGHUP", "Open the log file again, after it was rotated."),
    ),
)

_WCONFD_FILES: Final = Section(
    "FILES",
    (),
    (
        (
            "/var/lib/ganeti/config.data",
            """the configuration; one JSON object.  Do not edit it while the daemon runs, and check
            it with gnt-cluster verify-config afterwards""",
        ),
        ("/var/lib/ganeti/locks.data", "who holds which lock, and who waits"),
        ("/var/lib/ganeti/tempres.data", "what jobs have reserved: addresses, names, secrets"),
        ("/var/lib/ganeti/locks-own.data", "who waits for locks by the old, signalled call"),
        ("/var/lib/ganeti/tempres-own.data", "reservations of kinds that Ganeti 3.0 does not know"),
        ("/var/lib/ganeti/ssconf_*", "the simple configuration, one value in each file"),
        ("/var/run/ganeti/livelocks/", "one locked file for each job process: its sign of life"),
        ("/var/run/ganeti/socket/ganeti-wconfd", "the socket on which the daemon is asked"),
        ("/var/run/ganeti/ganeti-wconfd.pid", "its process id"),
        ("/var/log/ganeti/wconf-daemon.log", "its log"),
    ),
)
_WCONFD_LOCKS: Final = Section(
    "LOCKS",
    (
        """Locks are taken in the order of their levels: cluster, instance, nodegroup, node,
        node-res, network, config.  The lock set of a level, written instance/[lockset], stands for
        all its locks at once.  A request gets all its locks or none; those who wait are served by
        priority, then by age, and become more urgent while they wait.  gnt-debug locks shows who
        holds and who waits.""",
        """Whoever holds a lock or a reservation keeps a file locked.  When that lock is free, its
        owner is dead: the daemon frees everything of its within two seconds.""",
        """A change of the configuration names its owner, and is refused if that one is dead or does
        not hold the lock that the change needs; each method below says which.  cluster/BGL held
        exclusively is enough for all.  The methods of Ganeti 3.0 need none.""",
    ),
)
_WCONFD_CONSISTENCY: Final = Section(
    "CONSISTENCY",
    (
        """A change is answered once it is on the disk; nobody sees it before.  A change that would
        introduce an error is refused: a name, UUID, address, port or DRBD minor that is in use, a
        reference to what does not exist, a value of a wrong type, a policy that contradicts itself.
        Errors that are there already do not keep anybody from changing something else;
        gnt-cluster verify-config reports them.""",
        """After a change, the configuration goes to all master candidates and the simple
        configuration to all nodes.  A node that cannot be reached is tried again and again; the log
        says once that it is gone and once that it is back.  gnt-cluster redist-conf sends
        everything again.""",
        """A configuration that cannot be read is refused at start, with the place of the mistake
        and with the copies that could take its place.  One of version 2.7 to 2.16 is kept as a
        backup and upgraded; one from the future is refused.""",
    ),
)


def _call(call: Call[Rules]) -> Entry:
    types = {each.name: each.describe() for each in call.arguments}
    words = [f"{name}: {types[name]}" if name in types else name for name in wire_names(call)]
    arguments = f"Arguments: {'; '.join(words)}." if words else "No arguments."
    answer = "nothing" if call.answers_nothing else describe_type(call.result)
    needs = "" if call.rules.needs is Need.NONE else f"  Needs {call.rules.needs}."
    origin = "" if call.rules.is_own else "  As in Ganeti 3.0."
    effect = f"{str(call.rules.effect).capitalize()}."
    return (call.name, f"{call.summary}  {effect}  {arguments}  Answers {answer}.{needs}{origin}")


_WCONFD_METHODS: Final = Section(
    "METHODS",
    (
        """A request is a JSON object {"method": NAME, "args": [...]}, ended by one byte of value 3;
        the answer is {"success": true or false, "result": ...}.  Objects have the fields that they
        have in config.data.  gnt-debug wconfd calls a method by hand.""",
        f"""A client is {CLIENT_SHOWN}: the owner of locks and reservations.""",
    ),
    tuple(_call(call) for call in WConfCalls.calls.values()),
)

_CONFD_PACKETS: Final = Section(
    "PACKETS",
    (
        """A packet is plj0, then a JSON object of three texts: msg, itself JSON; salt; and hmac,
        the HMAC-SHA1 of salt and msg in hexadecimal digits, with the content of hmac.key as the
        key.""",
        """The msg of a question is {"protocol": 1, "type": NUMBER, "query": WHAT, "rsalt": TEXT},
        its salt the time in seconds.  The msg of an answer is {"protocol": 1, "status": 0,
        "answer": WHAT, "serial": NUMBER}, its salt the rsalt of the question.  The serial number is
        that of the cluster, of the node or of the instance; of several answers the one with the
        highest is the newest.""",
        f"""The status is 1 for a question that has no answer, the answer then 0 if there is no such
        entry, 1 for an internal error, 2 for an argument of a wrong form, or a text.  An answer of
        more than {confd.DATAGRAM_BYTES_MAX} bytes is refused in this way, as no datagram holds
        it.""",
        f"""Packets that are too long, of another form, wrongly signed, more than
        {confd.CLOCK_SKEW_S_MAX} seconds off, or of an unknown type get no answer; the log says how
        many there were, and what was wrong with the last of them.""",
    ),
)


def _confd_query(query: Query) -> Entry:
    takes = "" if query.takes is Takes.NOTHING else f"Takes {query.takes}.  "
    return f"{query.type:d} {query.constant}", f"{takes}Answers {query.answer}."


_CONFD_QUERIES: Final = Section(
    "QUERIES",
    (
        """Nodes and instances are found by name, UUID, or a short name that fits nothing else.
        Addresses and links come in an object with these keys: 0 a link, by default the cluster's; 1
        an address; 2 a list of addresses; 3 a list of fields.""",
    ),
    tuple(_confd_query(query) for query in QUERIES.values()),
)
_CONFD_FRESHNESS: Final = Section(
    "FRESHNESS",
    (
        """A change of the configuration is answered from a fraction of a second after it arrived
        on the node.  While a configuration cannot be used, answers come from the one before.  On a
        node that is no master candidate, or has no key, the daemon runs and is silent; it says so
        in its log, and begins to answer as soon as the node becomes one.""",
    ),
)
_CONFD_FILES: Final = Section(
    "FILES",
    (),
    (
        ("/var/lib/ganeti/config.data", "the node's copy of the configuration"),
        ("/var/lib/ganeti/hmac.key", "the key of the cluster"),
        ("/var/lib/ganeti/ssconf_master_candidates", "which nodes are master candidates"),
        ("/var/log/ganeti/conf-daemon.log", "its log"),
    ),
)

_RAPI_USERS: Final = Section(
    "USERS",
    (
        """The file rapi/users has one line for each user: name, password, and after another blank
        rights with commas between.  Lines that begin with # are comments.  Whoever has the right
        read or write may do what asks for that right; most reading asks for none.  gnt-rapi(8)
        writes the file; changes count at once.""",
    ),
    (
        ("secret, {CLEARTEXT}secret", "a password as it is"),
        ("{HA1}hex", "the MD5 digest of user:Ganeti Remote API:password"),
        ("{SCRYPT}N$r$p$salt$hash", "a scrypt hash; what gnt-rapi writes"),
        ("{NONE}", "no password: the user has tokens only"),
        ("read, write", "rights on everything"),
        ("role:NAME", "the rights of a role"),
    ),
)
_RAPI_ROLES: Final = Section(
    "ROLES AND TOKENS",
    (
        """A role is a list of grants: rights, and patterns of resources that they are for.  A grant
        with names or tags is for instances of these names (patterns) or tags only: it covers
        requests about such instances and nothing else.  The list of instances shows only them, the
        list of jobs those that are about them alone; with the right write such jobs can also be
        canceled.""",
        """Who may change all parameters of an instance can reach files of its node by some of them.
        Who is not to be trusted with that gets write for some resources only, such as
        /2/instances/*/startup.""",
        """A token stands for its user in a header Authorization: Bearer TOKEN, until it expires or
        is removed; of its secret only a digest is kept.""",
    ),
)
_RAPI_PAGES: Final = Section(
    "PAGES",
    (
        """For people there is a dashboard: nodes, instances, jobs with their logs, and which node
        backs which.  Who signs in there, with a password or a token, can do what his rights allow.
        It needs nothing from other servers.""",
    ),
    (
        ("/ui/", "the dashboard"),
        ("/2/docs", "a page with all resources, their arguments and rights"),
        ("/2/openapi.json", "the same for programs, as OpenAPI 3.1 document"),
    ),
)
_RAPI_REQUESTS: Final = Section(
    "REQUESTS",
    (
        """Requests and answers are JSON over HTTPS.  Beside the resources of Ganeti 3.0 there is
        one for each opcode, /2/opcodes/OP_NAME.  /2/jobs?bulk=1&limit=100 answers the newest
        hundred jobs, before=ID those before one.  Errors are objects of code, message and explain.
        An answer carries an ETag, and is not sent again to a client that names it in
        If-None-Match.""",
        """A new certificate, or a change of users, roles or tokens, is taken up without a restart;
        connections that are open stay.  A certificate that has expired, or will within a month, is
        complained of in the log, daily.""",
    ),
)
_RAPI_FILES: Final = Section(
    "FILES",
    (),
    (
        ("/var/lib/ganeti/rapi.pem", "key and certificate"),
        ("/var/lib/ganeti/rapi/users", "the users"),
        ("/var/lib/ganeti/rapi/roles", "the roles"),
        ("/var/lib/ganeti/rapi/tokens", "the tokens"),
        ("/var/log/ganeti/rapi-daemon.log", "the log of the daemon"),
        ("/var/log/ganeti/rapi-access.log", "one line for each request, in the common log format"),
    ),
)

_MOND_ADDRESSES: Final = Section(
    "ADDRESSES",
    (
        """Only GET is understood, everything else is answered with 405.  Answers are JSON, but for
        the metrics.""",
    ),
    (
        ("/", "the versions of the interface: [1]"),
        ("/1/list/collectors", "[name, category, kind] of each collector that is switched on"),
        ("/1/report/all", "a list of the reports of all of them"),
        (
            "/1/report/CATEGORY/NAME",
            "the report of one; a collector without a category is found under default",
        ),
        ("/metrics", "all of it for Prometheus; doc/metrics.md lists the names"),
    ),
)
_MOND_REPORTS: Final = Section(
    "REPORTS",
    (
        """A report is an object of name, version, format_version, timestamp (in nanoseconds),
        category, kind (0 performance, 1 status) and data.  A status is an object of code (0 fine,
        1 repairing itself, 2 unknown, 4 bad) and message; it stands in the data of a status
        collector.  A performance collector that cannot do its work gives empty data, and a status
        beside it.""",
        """What takes time is not done while somebody waits: such a collector works at its interval
        and its last report is given.  It rests when it has not been asked for ten minutes; averages
        are always kept.""",
    ),
    tuple((row.name, row.summary) for row in COLLECTORS.values()),
)
_MOND_DIAGNOSE: Final = Section(
    "DIAGNOSE",
    (
        """gnt-cluster modify --diagnose-data-collector-filename names a command, and a node allows
        it by a file of that name in node-diagnose-commands.  Neither the file nor the directory may
        be a link, or be owned or writable by others than root.  Without a command all is taken to
        be well.""",
        """The command gets no arguments and has 30 seconds; it prints one JSON object.  Its status
        is Ok, live-repair, evacuate or evacuate-failover; for live-repair, command may name what is
        to be run; details may hold anything.  The data of the report is an object of three texts:
        msg, this object as JSON; salt, the time in seconds; and hmac, which signs both as in
        packets of ganeti-confd(8).  It is good for 300 seconds.""",
    ),
)
_MOND_FILES: Final = Section(
    "FILES",
    (),
    (
        ("/etc/ganeti/node-diagnose-commands/", "the commands that may diagnose this node"),
        ("/var/lib/ganeti/hmac.key", "the key of the cluster"),
        ("/var/log/ganeti/monitoring-daemon.log", "its log"),
    ),
)

DAEMONS: Final = (
    DaemonText(
        "ganeti-noded",
        """Runs on every node and does there what the master asks for: disks, instances, files.
        Listens on port 1811 (HTTPS); every request must come with the certificate of a master
        candidate.""",
        (SIGNALS,),
    ),
    DaemonText(
        "ganeti-wconfd",
        """Runs on the master node.  It is the only writer of config.data, copies it to the other
        master candidates, and owns all locks.  Jobs ask it for locks, for names and addresses that
        nobody else has, and for every change of the configuration.""",
        (_WCONFD_LOCKS, _WCONFD_CONSISTENCY, _WCONFD_FILES, SIGNALS, EXIT_STATUS, _WCONFD_METHODS),
    ),
    DaemonText(
        "ganeti-confd",
        """Runs on every node and answers on those that are master candidates: questions about the
        configuration, from the node's own copy of it, so also while the master is away.  Questions
        come in datagrams to UDP port 1814, over IPv4 and IPv6, and are signed with the key of the
        cluster, as are the answers.  confd-client asks them by hand.""",
        (_CONFD_PACKETS, _CONFD_QUERIES, _CONFD_FRESHNESS, _CONFD_FILES, SIGNALS, EXIT_STATUS),
    ),
    DaemonText(
        "ganeti-mond",
        """Runs on every node and tells over HTTP, on port 1815, how the node is.  What it must know
        of the cluster it asks of RConfD, so it works while the master is away.  gnt-cluster modify
        --enabled-data-collectors and --data-collector-interval switch collectors and say how often
        they work; a change is obeyed within 15 seconds.  mon-collector runs one by hand.""",
        (_MOND_ADDRESSES, _MOND_REPORTS, _MOND_DIAGNOSE, _MOND_FILES, SIGNALS, EXIT_STATUS),
    ),
    DaemonText(
        "ganeti-luxid",
        """Runs on the master node.  It keeps the job queue, starts one process for each job, and
        answers queries.""",
        (SIGNALS, EXIT_STATUS),
    ),
    DaemonText(
        "ganeti-rapi",
        """Runs on the master node and serves the remote API on port 5080 (HTTPS).  It asks LuxiD
        and nobody else: whatever it does, a command on the master can do as well.""",
        (_RAPI_USERS, _RAPI_ROLES, _RAPI_PAGES, _RAPI_REQUESTS, _RAPI_FILES, SIGNALS, EXIT_STATUS),
    ),
)

SEE_ALSO: Final[Mapping[str, tuple[str, ...]]] = {
    "ganeti-noded": ("ganeti-luxid", "ganeti-wconfd", "gnt-node"),
    "ganeti-wconfd": ("ganeti-luxid", "gnt-cluster", "gnt-debug", "cfgupgrade", "query-config"),
    "ganeti-confd": ("confd-client", "ganeti-wconfd", "gnt-cluster"),
    "ganeti-luxid": ("ganeti-wconfd", "gnt-job", "gnt-debug"),
    "ganeti-mond": ("mon-collector", "ganeti-confd", "gnt-cluster"),
    "ganeti-rapi": ("ganeti-luxid", "gnt-rapi", "gnt-cluster"),
}
