"""From a disk to its driver, and looks at disks of any templates together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pkgutil import resolve_name
from typing import TypeVar, cast

from ganeti.base.errors import GenericError, NotSupportedError, OpPrereqError
from ganeti.objects.disk_templates import DiskTemplate, StorageType, supported_templates
from ganeti.protocol.node_rpc_values import KeptSnapshot
from ganeti.storage.interface import (
    NO_PARAMS,
    Dimensions,
    DiskLike,
    Look,
    Params,
    Storage,
    StorageEnv,
    Volume,
)

T = TypeVar("T")


@cache
def _driver(template: DiskTemplate) -> type[Storage]:
    """Return the driver that the row of a template names."""
    assert template.traits.driver is not None
    return cast("type[Storage]", resolve_name(template.traits.driver))


def driver_modules() -> list[str]:
    """Return the modules of all drivers, for a process that wants them imported beforehand."""
    named = [template.traits.driver for template in DiskTemplate if template.traits.driver]
    named += [kind.units.driver for kind in StorageType if kind.units and kind.units.driver]
    return sorted({driver.partition(":")[0] for driver in named})


def storage_of(disk: DiskLike, env: StorageEnv) -> Storage:
    """Return the driver of a disk's template on a node.

    Raises:
        OpPrereqError: the disk's template is unknown, or has no disks at all.
        NotSupportedError: the template has no driver.
    """
    name = str(disk.dev_type)
    if name == DiskTemplate.DISKLESS:
        raise OpPrereqError(f"disk {disk.uuid}: a diskless instance has no disks")
    if name not in frozenset(DiskTemplate):
        raise OpPrereqError(f"disk {disk.uuid}: unknown template {name!r}")
    template = DiskTemplate(name)
    if not template.traits.is_supported:
        known = ", ".join(supported_templates())
        raise NotSupportedError(f"disk template {name!r} is not supported; use one of {known}")
    return _driver(template)(template.traits.storage, env)


def storage_of_kind(kind: str, env: StorageEnv, params: Params = NO_PARAMS) -> Storage:
    """Return the driver that looks after storage units of a kind; one that refuses, without any.

    Args:
        params: the parameters of the disks on these units.

    Raises:
        NotSupportedError: the kind is unknown.
    """
    units = StorageType(kind).units if kind in frozenset(StorageType) else None
    if units is not None and units.driver:
        driver = cast("type[Storage]", resolve_name(units.driver))
        return driver(StorageType(kind), env)
    for template in DiskTemplate:
        if template.traits.storage == kind and template.traits.driver is not None:
            return _driver(template)(template.traits.storage, env, params)
    if kind in frozenset(StorageType):
        return Storage(StorageType(kind), env)
    raise NotSupportedError(f"storage units of type {kind!r} are not supported")


def volume_of(disk: DiskLike, env: StorageEnv) -> Volume:
    """Return a disk on a node, with its children; errors as `storage_of`."""
    children = [volume_of(child, env) for child in disk.children]
    return storage_of(disk, env).volume_of(disk, children)


def look(disks: Sequence[DiskLike], env: StorageEnv) -> list[Look]:
    """Return the state of each disk: one question for each template, however many disks."""
    return _ask_all(disks, env, lambda storage, volumes: storage.look(volumes))


def dimensions(disks: Sequence[DiskLike], env: StorageEnv) -> list[Dimensions | None]:
    """Return the real size of each disk, in the same way; None for one that does not exist.

    Raises:
        GenericError: one cannot be looked at.
    """
    return _all_of(_ask_all(disks, env, lambda storage, volumes: storage.dimensions(volumes)))


def snapshots(disks: Sequence[DiskLike], env: StorageEnv) -> list[list[KeptSnapshot]]:
    """Return the snapshots that each disk keeps, in the same way; errors as `dimensions`."""
    found = _ask_all(disks, env, lambda storage, volumes: storage.snapshots(volumes))
    return [each or [] for each in _all_of(found)]


def _all_of(answers: Iterable[T | GenericError | None]) -> list[T | None]:
    found: list[T | None] = []
    for answer in answers:
        if isinstance(answer, GenericError):
            raise answer
        found.append(answer)
    return found


def _ask_all(
    disks: Sequence[DiskLike],
    env: StorageEnv,
    ask: Callable[[Storage, Sequence[Volume]], Sequence[T]],
) -> list[T | GenericError | None]:
    """Ask the driver of each template for all of its disks; an error stands for its disk."""
    found: list[T | GenericError | None] = [None] * len(disks)
    by_template: dict[str, list[tuple[int, Volume]]] = {}
    for index, disk in enumerate(disks):
        try:
            volume = volume_of(disk, env)
        except GenericError as err:
            found[index] = err
        else:
            by_template.setdefault(str(disk.dev_type), []).append((index, volume))
    for placed in by_template.values():
        answers = ask(storage_of(disks[placed[0][0]], env), [volume for _, volume in placed])
        for (index, _), answer in zip(placed, answers, strict=True):
            found[index] = answer
    return found
