"""What the manual page of the allocator says besides its options."""

from __future__ import annotations

from typing import Final

from ganeti.cli.documents.daemons import Section

SECTION: Final = 1  # of the manual

SECTIONS: Final = (
    Section(
        "PLACEMENT",
        (
            """Of all nodes that can have an instance the one is taken with which the node group
            gets the lowest score; of all pairs of nodes, for instances with mirrors. No other
            instance is moved to make room. Groups are taken by their allocation policy, then by
            score. Equal places are taken in natural order of the names of the nodes, so the
            same question always gets the same answer.""",
            """The score adds up how unevenly memory, disk space, virtual CPUs, spindles and
            instances are spread over the nodes of the group, and counts, with much more weight,
            what should not be: instances on nodes that are offline or drained, nodes that could
            not take over for another one, exclusion tags twice on a node or in a failure
            domain, mirrors within one failure domain, unmet wishes for a location.""",
        ),
    ),
    Section(
        "WHAT A NODE MUST HAVE",
        (
            """A limit that is exceeded already forbids only what makes it worse. The answer says
            how many nodes were refused for what.""",
        ),
        (
            ("memory", "more than the instance takes; instances that are down are thought to run"),
            ("disk", "more than its disks take, for templates drbd, plain and file"),
            (
                "spindles",
                """spindle use within the ratio of the instance policy, for the same templates; with
                exclusive storage enough free spindles""",
            ),
            ("virtual CPUs", "within the ratio of the instance policy"),
            ("exclusion tags", "none that one of its primary instances has"),
            ("migration tags", "those of the node that an instance is migrated from"),
            (
                "N+1",
                """each node must be able to take over the mirrored instances of any other one, and
                the instances on shared storage of a node must find memory on others if it fails.
                The latter is looked at for new instances and changes of the group, not when
                instances leave a node""",
            ),
        ),
    ),
    Section(
        "TAGS OF THE CLUSTER",
        ("These tell what tags of instances and nodes mean.",),
        (
            (
                "htools:iextags:NAME",
                "no two instances with the same tag NAME:... belong on one node",
            ),
            ("htools:nlocation:NAME", "nodes with the same tag NAME:... fail together"),
            (
                "htools:desiredlocation:NAME",
                "an instance with a tag NAME:... would like a node that has it as a location",
            ),
            (
                "htools:migration:NAME",
                "an instance can be migrated only to nodes that have all tags NAME:... of its own",
            ),
            (
                "htools:allowmigration:X::Y",
                "a node with migration tag Y takes instances as if it had tag X",
            ),
        ),
    ),
    Section(
        "EXIT STATUS",
        (),
        (
            ("0", "the question was answered, be it that there is no place"),
            ("1", "the question cannot be read or makes no sense, or an option is wrong"),
        ),
    ),
)
