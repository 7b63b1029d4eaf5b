"""The steps of an upgrade, in the order in which they are taken.

Theory of operation.  Every step looks at what is there, not at the version number: it changes what
is still in an old form and leaves the rest, so steps can be taken twice, and a configuration that
was brought half-way by hand comes out right.  An old configuration takes all steps.  One of the
current version takes only those of that version, which repair what may have been lost; a proper
one passes through them unchanged.

The version of a step is the one from which on files have the new form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from ganeti.config.upgrade import cluster, disks, identity, instances, keys, parameters
from ganeti.config.upgrade.draft import Draft
from ganeti.config.upgrade.versions import CURRENT, Version


class Step(NamedTuple):
    """One step; ``apply`` changes the draft and yields a sentence for each thing it did."""

    version: Version
    apply: Callable[[Draft], Iterator[str]]


STEPS: Final = (
    Step(Version(2, 6), keys.no_value_is_no_key),
    Step(Version(2, 6), instances.memory_has_bounds),
    Step(Version(2, 8), parameters.bounds_are_pairs),
    Step(Version(2, 8), identity.parts_have_uuids),
    Step(Version(2, 9), identity.tables_by_uuid),
    Step(Version(2, 9), identity.nodes_by_uuid),
    Step(Version(2, 9), identity.networks_by_uuid),
    Step(Version(2, 10), disks.types_are_templates),
    Step(Version(2, 10), cluster.templates_are_enabled),
    Step(Version(2, 14), disks.disks_have_a_table),
    Step(Version(2, 14), disks.disks_know_their_nodes),
    Step(Version(2, 14), instances.states_are_told_apart),
    Step(Version(2, 14), cluster.collectors_are_there),
    Step(Version(2, 14), keys.obsolete_keys_are_gone),
    Step(Version(2, 16), parameters.values_have_types),
    Step(Version(2, 16), parameters.hvparams_are_full),
    Step(Version(2, 16), keys.required_keys_are_there),
    Step(CURRENT, cluster.settings_are_there),
    Step(CURRENT, cluster.tables_are_there),
    Step(CURRENT, parameters.groups_are_full),
    Step(CURRENT, instances.cluster_wide_values_are_gone),
)


def steps_for(version: Version) -> list[Step]:
    """Return the steps that a configuration of that version takes."""
    return [step for step in STEPS if version < CURRENT or step.version == CURRENT]
