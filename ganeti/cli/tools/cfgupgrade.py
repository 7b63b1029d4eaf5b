"""``tools/cfgupgrade``: bring the configuration file of an older version to this one.

It looks, decides, asks, keeps a copy of the old file, and writes.

Source: cli.json, "tools".
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from ganeti.base.errors import ErrorCode, GenericError, NotMasterError, OpPrereqError, wrong_state
from ganeti.base.json import dumps
from ganeti.base.paths import Paths
from ganeti.base.text import listed_paths
from ganeti.cli.command import Context, Options, confirm, opt
from ganeti.cli.declaration.program import DEBUG, single_program
from ganeti.cli.run.failures import explain, told_by
from ganeti.config.deltas.journal import intact_records, replay
from ganeti.config.state import problems_in
from ganeti.config.upgrade.downgrade import downgrade_config
from ganeti.config.upgrade.upgrading import Upgraded, decode_config, upgrade_config
from ganeti.config.upgrade.versions import CURRENT
from ganeti.objects.disk_templates import file_templates
from ganeti.store.config_file import only_writer
from ganeti.store.config_upgrade import read_config_at, replace_with_backup
from ganeti.system import clock
from ganeti.system.daemon_control import running_pid
from ganeti.system.environment import own_hostname
from ganeti.system.files import fsync_directory, read_bytes_or_none, remove_if_exists, write_durable

NAME = "cfgupgrade"

OPTIONS = (
    opt.flag("--dry-run", "name the changes, make none"),
    opt.flag("-f --force", "do not ask before writing"),
    DEBUG,
    opt.flag("-v --verbose", "say more: every problem found, files looked at"),
    opt.flag("--ignore-hostname", "do not mind that this is not the master node"),
    opt.option("--path", "directory of config.data and ssconf files", metavar="DATA_DIR"),
    opt.option("--confdir", "directory of file-storage-paths", metavar="CONF_DIR"),
    opt.flag("--no-verify", "do not look for problems in the result"),
    opt.flag("--downgrade", "take out the keys that Ganeti 3.0 does not know"),
)
WRITERS: Final = ("ganeti-wconfd", "ganeti-masterd")  # the second up to 2.11
PROBLEMS_SHOWN: Final = 10
SMALL_FILE_BYTES_MAX: Final = 1 << 20


def upgrade(context: Context, options: Options, _args: list[str]) -> None:
    """Upgrade or downgrade one configuration file.

    Raises:
        GenericError: it cannot be done; nothing was written.
        OSError: a file cannot be read or written; the configuration is as it was.
    """
    paths = _paths_of(context, options)
    data_dir = options.path or paths.data_dir
    path = os.path.join(data_dir, os.path.basename(paths.config_data))
    obstacle = _obstacle(paths, data_dir, options)
    if obstacle is not None and not options.dry_run:
        raise obstacle
    journal = os.path.join(data_dir, os.path.basename(paths.config_journal))
    with nullcontext() if options.dry_run else _writing(paths, data_dir):
        data = _fold(context, path, journal, is_dry=options.dry_run)
        foreign = read_bytes_or_none(journal)
    now = clock.now()
    plan = _plan(data, options, now)
    if not plan.notes:
        _say_that_all_is_well(context, options, path, data)
        return
    result = dumps(plan.config)
    _announce(context, options, path, plan)
    _tell_problems(context, options, result)
    _tell_directories(context, options, paths, plan.config)
    if options.dry_run:
        if obstacle is not None:
            context.write(f"Without --dry-run this would be refused: {obstacle.message}")
        context.write("Nothing was written (--dry-run).")
        return
    if not options.force:
        confirm(context, f"Write this to {path}?")
    with _writing(paths, data_dir):
        if obstacle := _obstacle(paths, data_dir, options):  # the answer may have taken its time
            raise obstacle
        if (read_config_at(path), read_bytes_or_none(journal)) != (data, foreign):
            raise wrong_state(f"{path} has changed meanwhile; run this again")
        backup = replace_with_backup(path, data, result, version=plan.version, now=now)
    context.write(f"{path} is written. The file as it was: {backup}")


def _writing(paths: Paths, data_dir: str) -> AbstractContextManager[None]:
    """Keep the daemons of the node whose file it is from writing it meanwhile."""
    return only_writer(paths) if _is_of(paths, data_dir) else nullcontext()


def _is_of(paths: Paths, data_dir: str) -> bool:
    return os.path.realpath(data_dir) == os.path.realpath(paths.data_dir)


def _fold(context: Context, path: str, journal: str, *, is_dry: bool) -> bytes:
    """Bring the changes of a journal into the file beside it; returns the configuration.

    Raises:
        JournalDamaged: one that was acknowledged cannot be read; nothing was written.
    """
    present = read_config_at(path)
    lines = read_bytes_or_none(journal)
    if lines is None:
        return present
    data = replay(present, intact_records(lines, journal))
    if data is None:
        context.write(f"{journal} does not belong to {path}; it is left alone.")
        return present
    if data is not present:
        context.write(f"{journal} has changes that {path} has not; they are brought into it.")
    if not is_dry:
        if data is not present:
            write_durable(path, data)
        else:
            fsync_directory(os.path.dirname(path))  # whoever wrote it may have died before that
        remove_if_exists(journal)
    return data


def _paths_of(context: Context, options: Options) -> Paths:
    """Return the paths of the node whose file it is: its daemons must not run."""
    if not options.path:
        return context.paths
    if not os.path.isdir(options.path):
        raise OpPrereqError(f"{options.path} is not a directory", ErrorCode.NOENT)
    directory = os.path.realpath(options.path)
    inner = Paths("").data_dir
    return Paths(directory.removesuffix(inner)) if directory.endswith(inner) else context.paths


def _obstacle(paths: Paths, data_dir: str, options: Options) -> GenericError | None:
    """Return why the file must not be written now, if there is a reason."""
    if _is_of(paths, data_dir):
        for daemon in WRITERS:
            pid = running_pid(paths, daemon)
            if pid is not None:
                return OpPrereqError(
                    f"{daemon} is running (process {pid}) and would write over the file; stop the"
                    " daemons of the cluster first",
                    ErrorCode.STATE,
                )
    if options.ignore_hostname:
        return None
    master = read_bytes_or_none(
        os.path.join(data_dir, os.path.basename(paths.ssconf_file("master_node"))),
        SMALL_FILE_BYTES_MAX,
    )
    name = "" if master is None else master.decode("utf-8", "replace").strip()
    if name and name != own_hostname():
        return NotMasterError(
            f"this is {own_hostname()}, but the master node is {name}; run it there, or with"
            " --ignore-hostname if that is no longer true",
            name,
        )
    return None


def _plan(data: bytes, options: Options, now: float) -> Upgraded:
    config = decode_config(data)
    if options.downgrade:
        return downgrade_config(config)
    return upgrade_config(config, new_uuid=clock.new_uuid, now=now)


def _say_that_all_is_well(context: Context, options: Options, path: str, data: bytes) -> None:
    what = (
        "holds nothing that Ganeti 3.0 does not know"
        if options.downgrade
        else f"is of version {CURRENT} and as it should be"
    )
    _tell_problems(context, options, data)
    context.write(f"{path} {what}; nothing to do.")


def _announce(context: Context, options: Options, path: str, plan: Upgraded) -> None:
    if options.downgrade:
        context.write(f"{path}, for use with Ganeti 3.0:")
    else:
        context.write(f"{path}, from version {plan.version} to {CURRENT}:")
    for note in plan.notes:
        context.write(f"  - {note}")


def _tell_problems(context: Context, options: Options, data: bytes) -> None:
    """Name the problems of the result; no reason to stop, as they were there before."""
    if options.no_verify:
        return
    problems = problems_in(data)
    if not problems:
        return
    shown = problems if options.verbose else problems[:PROBLEMS_SHOWN]
    context.write("The configuration has problems, to be mended once the cluster runs again:")
    for problem in shown:
        context.write(f"  - {problem}")
    if len(shown) < len(problems):
        context.write(f"  and {len(problems) - len(shown)} more (--verbose shows all)")


def _tell_directories(
    context: Context, options: Options, paths: Paths, config: Mapping[str, object]
) -> None:
    """Say which directories of files that serve as disks this node does not allow yet."""
    name = os.path.basename(paths.file_storage_paths_file)
    path = os.path.join(options.confdir or paths.conf_dir, name)
    content = read_bytes_or_none(path, SMALL_FILE_BYTES_MAX)
    if content is None:
        if options.verbose:
            context.write(f"{path} does not exist: the default directories are allowed.")
        return
    allowed = listed_paths(content.decode("utf-8", "replace"))
    for directory in _directories_in_use(config):
        if not _lies_below(directory, allowed):
            context.write(
                f"{directory} is not listed in {path}: add it there, on every node, or disks below"
                " it cannot be used."
            )


def _directories_in_use(config: Mapping[str, object]) -> Iterator[str]:
    cluster = config["cluster"]
    assert isinstance(cluster, Mapping)
    for template in file_templates():
        key = template.traits.directory_setting
        if template in cluster["enabled_disk_templates"] and cluster[key]:
            yield os.path.normpath(cluster[key])


def _lies_below(directory: str, allowed: Sequence[str]) -> bool:
    return any(directory == one or directory.startswith(one + "/") for one in allowed)


PROGRAM: Final = single_program(
    NAME,
    "upgrade the configuration file of an older version",
    """Brings config.data of version 2.0 to 2.16 into the form of this version, in one step, and
says what it changes.  It runs on the master node while the cluster's daemons are stopped.  The file
as it was is kept beside the new one, as config.data.backup-VERSION-TIME.  A file that is as it
should be is left alone, so the program may be run again at any time.

ganeti-wconfd does the same by itself when it finds an old file; this program shows beforehand what
will happen (--dry-run) and prepares a file that lies somewhere else (--path).

Where ganeti-wconfd was killed while it kept a journal (its --config-journal), the last changes lie
in config.journal beside the file.  This program brings them into the file first, with or without
--downgrade, so Ganeti 3.0 finds them there.  A journal of which an acknowledged change cannot be
read is refused.

With --downgrade it takes keys out that Ganeti 3.0 does not know and would refuse to load, so that
3.0 itself can go on with the file.  That is refused if anything would be lost.

Exit status: 0 done, or nothing to do; 1 failure; 2 the file cannot be used, or an option is wrong;
11 this is not the master node; 13 not confirmed.""",
    upgrade,
    options=OPTIONS,
    examples=(
        ("cfgupgrade --dry-run", "show the changes"),
        ("cfgupgrade --force", "upgrade without a question"),
        ("cfgupgrade --path /root/copy --ignore-hostname", "upgrade a copy made elsewhere"),
    ),
    explain=told_by(NAME, lambda error: explain(error)[1]),
    expected_errors=(GenericError, OSError),
)
