"""Bring a configuration of 2.0 to 2.16 into the form of 3.0, step by step.  Pure.

Theory of operation.  Every step looks at the objects, not at the version number: it changes those
still in an old form and leaves the rest, so steps can be taken twice, and a configuration that
was brought half-way by hand comes out right.  An old configuration takes all steps.  One of the
current version takes only the steps of that version, which repair fields that may have been lost; a
proper one passes through them unchanged.

Reading and writing the file, with a backup, is `ganeti.store.config_upgrade`.

Source: config.json, "objects"; design-2.1, "UUID"; constants.json, the parameter tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

from msgspec import Raw

from ganeti.base.errors import ConfigurationError, ProtocolError
from ganeti.base.json import dumps, loads
from ganeti.base.versions import CONFIG_VERSION
from ganeti.config.config_data import ConfigData, split_config
from ganeti.config.upgrade import cluster, identity, instances, keys, parameters
from ganeti.config.upgrade.draft import Draft, Fields, NewUuid, check_shape
from ganeti.config.upgrade.versions import CURRENT, Version, version_of
from ganeti.objects.hypervisors import HVPARAMS


class Step(NamedTuple):
    """One step: the version from which on files have the new form, and the work.

    ``apply`` changes the draft and yields a sentence for each thing that it did.
    """

    version: Version
    apply: Callable[[Draft], Iterator[str]]


STEPS: Final = (
    Step(Version(2, 1), keys.no_value_is_no_key),
    Step(Version(2, 1), cluster.default_hypervisor_is_first),
    Step(Version(2, 1), parameters.bridges_are_links),
    Step(Version(2, 4), identity.nodes_have_a_group),
    Step(Version(2, 6), instances.states_are_words),
    Step(Version(2, 6), instances.memory_has_bounds),
    Step(Version(2, 8), parameters.bounds_are_pairs),
    Step(Version(2, 8), identity.parts_have_uuids),
    Step(Version(2, 9), identity.tables_by_uuid),
    Step(Version(2, 9), identity.nodes_by_uuid),
    Step(Version(2, 9), identity.networks_by_uuid),
    Step(Version(2, 10), instances.types_are_templates),
    Step(Version(2, 10), cluster.templates_are_enabled),
    Step(Version(2, 14), instances.disks_have_a_table),
    Step(Version(2, 14), instances.disks_know_their_nodes),
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


_CLUSTER_WIDE: Final = re.compile(
    b"|".join(
        sorted(
            {
                b'"' + name.encode() + b'"'
                for table in HVPARAMS.values()
                for name, spec in table.items()
                if spec.cluster_wide
            }
        )
    )
)
"""Finds, in the text of an instance, parameters that only the cluster may set."""


@dataclass(frozen=True, slots=True)
class Upgraded:
    """A configuration of the current version and how it came to be.

    ``notes`` names the changes, one sentence each; without notes there were none, and ``config``
    equals the one given.
    """

    config: Mapping[str, object]
    version: Version
    notes: tuple[str, ...]


def upgrade_config(
    config: Mapping[str, object], *, new_uuid: NewUuid, now: float | None = None
) -> Upgraded:
    """Return the configuration in the form of the current version; the one given stays.

    Keys that nobody knows are kept.  If anything changes, the serial number grows by one.

    Args:
        now: time of the change, if it is to be noted.

    Raises:
        ConfigurationError: it cannot be understood, before or after the steps; names the object.
        UnsupportedVersion: it is of a version that cannot be upgraded; the message names the way.
    """
    version = version_of(config)
    check_shape(config)
    draft = Draft(cast("Fields", loads(dumps(config))), version, new_uuid)
    notes = [note for step in steps_for(version) for note in step.apply(draft)]
    if version != CURRENT:
        notes.append(f"version {version} became {CURRENT}")
    if not notes:
        return Upgraded(config, version, ())
    draft.config["version"] = CONFIG_VERSION
    draft.config["serial_no"] = draft.config.get("serial_no", 0) + 1
    if now is not None:
        draft.config["mtime"] = now
    check_result(draft.config)
    return Upgraded(draft.config, version, tuple(notes))


def check_result(config: Fields) -> None:
    """Refuse a result that is no configuration of the current version.

    Raises:
        ConfigurationError: names object and field.
    """
    try:
        ConfigData.from_wire(config)
    except ConfigurationError as err:
        raise ConfigurationError(f"the result would not be usable: {err.message}") from err


def upgrade_bytes(
    data: bytes, *, new_uuid: NewUuid, now: float | None = None
) -> tuple[bytes, Upgraded]:
    """As `upgrade_config`, on the content of the file; without changes that stays byte by byte."""
    upgraded = upgrade_config(decode_config(data), new_uuid=new_uuid, now=now)
    return (dumps(upgraded.config) if upgraded.notes else data), upgraded


def decode_config(data: bytes) -> Fields:
    """Decode a whole configuration of any version.

    Raises:
        ConfigurationError: it is not JSON (the text names the byte), or not a configuration.
    """
    split_config(data)  # its errors name the byte
    try:
        return cast("Fields", loads(data))
    except ProtocolError as err:
        raise ConfigurationError(f"the configuration is damaged: {err.message}") from err


def needs_upgrade(data: bytes) -> bool:
    """Tell whether `upgrade_bytes` would change anything, reading as little as possible.

    Of a configuration of the current version only the cluster is decoded, and instances in whose
    text a parameter stands that they must not set: some 10 ms for 5,000 instances.

    Raises:
        ConfigurationError: it is not a configuration.
        UnsupportedVersion: it is of a version that cannot be upgraded; the message names the way.
    """
    split = split_config(data)
    version = version_of(_decoded({key: raw for key, raw in split.top.items() if key == "version"}))
    if version != CURRENT:
        return True
    suspects = {
        uuid: raw
        for uuid, raw in split.tables["instances"].items()
        if _CLUSTER_WIDE.search(bytes(raw))
    }
    part: dict[str, object] = {name: {} for name in split.tables if name in split.order}
    part |= _decoded({**split.top, "cluster": split.cluster})
    if "instances" in part:
        part["instances"] = _decoded(suspects)
    check_shape(part)
    draft = Draft(part, version, _no_uuid)
    return any(note for step in steps_for(version) for note in step.apply(draft))


def _decoded(raw: Mapping[str, Raw]) -> Fields:
    try:
        return {key: loads(bytes(value)) for key, value in raw.items()}
    except ProtocolError as err:
        raise ConfigurationError(f"the configuration is damaged: {err.message}") from err


def _no_uuid() -> str:
    raise AssertionError("steps of the current version give no UUIDs")
