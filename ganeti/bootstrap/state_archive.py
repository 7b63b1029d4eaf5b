"""An archive of a cluster's state: all that a new master cannot make again.

It is read while jobs run: first the jobs that have ended, then keys and certificates, the
configuration after them, and the number of the last job at the end.  So it has the changes of each
of its jobs, and no higher job id was given out before it was complete.  Jobs that have not ended
are left out: they would be carried out a second time.  The configuration tells whether SSH keys
belong to the cluster; those that do not are left out, too.

The archive is a compressed tar file with the paths of the files; its first member tells its origin
and the digests of the others.

Source: config.json, "well_known_paths"; ARCHITECTURE, invariants 4 and 9.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zlib
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

import msgspec

from ganeti.base.errors import GenericError, JobFileCorrupted, OpPrereqError, ProtocolError
from ganeti.base.ids import JobId
from ganeti.base.json import dumps, loads_as
from ganeti.base.owned_files import FILE, OWNED
from ganeti.base.paths import Paths
from ganeti.config.config_data import split_config
from ganeti.config.overlay import decode_record
from ganeti.jobs.record import decode_job
from ganeti.objects.model import Cluster
from ganeti.store import config_file
from ganeti.store.job_files import FILE_MODE, JobFiles, job_id_of
from ganeti.system import certificates, files, ssh

FORMAT: Final = 1
MODE: Final = 0o600  # of an archive, and of the files in it that the table of owners has not
_HEAD: Final = "ganeti-state.json"
_BYTES_MAX: Final = 8 << 30  # unpacked; the configuration alone may have 1 GiB
_TRIES: Final = 5  # at a certificate that is replaced just now
_COMPRESSION: Final = 6
_KEYS: Final = (
    *("server_pem", "client_pem", "rapi_pem", "spice_pem", "spice_ca_pem", "hmac_key"),
    *("cluster_domain_secret", "rapi_users", "rapi_roles", "rapi_tokens", "vnc_password_file"),
    *("known_hosts", "ssh_pub_keys", "ssh_revoked_keys", "ssh_managed"),
)
_PLACES: Final = {row.place: row.mode for row in OWNED if row.kind == FILE and not row.pattern}


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of an archive.

    Attributes:
        node_name: the master that it was made on.
        time: when, in seconds since the epoch.
        serial_no: of its configuration.
        last_job_id: the highest job id that had been given out.
        unended: ids of the jobs that are left out, as they had not ended.
        digests: SHA-256 of each file, by its path without root and first slash.
    """

    format: int = FORMAT
    cluster_name: str
    cluster_uuid: str
    node_name: str
    time: float
    serial_no: int
    last_job_id: int
    unended: tuple[int, ...] = ()
    digests: Mapping[str, str] = {}


class State(msgspec.Struct, frozen=True):
    """The state of a cluster: its files by their paths, without root and first slash."""

    head: Head
    contents: Mapping[str, bytes]

    @property
    def job_count(self) -> int:
        """How many jobs it has."""
        return sum(job_id_of(os.path.basename(path)) is not None for path in self.contents)


def read_state(paths: Paths, node_name: str, *, now: float) -> State:
    """Read the state of a cluster on its master, while everything runs.

    Raises:
        ConfigurationError: there is no configuration, or it is broken.
        GenericError: it does not fit this node's certificate.
        OSError: a file cannot be read.
    """
    for _ in range(_TRIES):
        contents, unended = _read_files(paths)
        cluster, serial_no = _read_head(contents[inner(paths, paths.config_data)])
        if _is_trusted(paths, contents, cluster):
            break
    else:
        raise GenericError(
            f"the configuration does not trust {paths.client_pem}; try again when the certificates"
            " of this node are replaced, and see 'gnt-cluster verify'"
        )
    if not cluster.modify_ssh_setup:
        of_ssh = {inner(paths, path) for path in ssh_files(paths)}
        contents = {path: content for path, content in contents.items() if path not in of_ssh}
    head = Head(
        cluster_name=cluster.cluster_name,
        cluster_uuid=cluster.uuid,
        node_name=node_name,
        time=now,
        serial_no=serial_no,
        last_job_id=JobFiles(paths).last_id(),
        unended=tuple(unended),
        digests={path: sha256(content).hexdigest() for path, content in contents.items()},
    )
    return State(head, contents)


def _read_files(paths: Paths) -> tuple[dict[str, bytes], list[int]]:
    """Return the files of an archive, and the jobs that are left out."""
    found, unended = _read_jobs(paths)
    for path in (*(getattr(paths, name) for name in _KEYS), *ssh_files(paths)):
        content = files.read_bytes_or_none(path)
        if content is not None:
            found[path] = content
    found[paths.config_data] = config_file.read_config(paths)  # after all others
    return {inner(paths, path): content for path, content in found.items()}, unended


def _read_jobs(paths: Paths) -> tuple[dict[str, bytes], list[int]]:
    queue, ended, unended = JobFiles(paths), dict[str, bytes](), list[int]()
    for job_id in queue.ids():
        try:
            data = queue.read(job_id)
            if data is None:  # archived just now
                continue
            is_final = decode_job(data, job_id).is_final
        except JobFileCorrupted:  # LuxiD tells
            continue
        if is_final:
            ended[paths.job_file(job_id)] = data
        else:
            unended.append(int(job_id))
    return ended, unended


def manages_ssh(paths: Paths, state: State) -> bool:
    """Tell whether it is the state of a cluster that manages the SSH keys of its nodes."""
    cluster, _ = _read_head(state.contents[inner(paths, paths.config_data)])
    return cluster.modify_ssh_setup


def missing_ssh_keys(paths: Paths, state: State) -> list[str]:
    """Return the words for those of a machine's SSH keys that are not in an archive."""
    of_root = ssh.directory_of(paths)
    found = [path for path in ssh_files(paths) if inner(paths, path) in state.contents]
    has_roots = any(path.startswith(of_root) for path in found)
    has_hosts = any(not path.startswith(of_root) for path in found)
    return [*([] if has_hosts else ["SSH host keys"]), *([] if has_roots else ["root's SSH keys"])]


def ssh_files(paths: Paths) -> list[str]:
    """Return the paths of the host keys and of root's keys, private ones before public ones."""
    forms = (paths.root + ssh.HOST_KEY, ssh.directory_of(paths) + "/id_{}")
    private = [form.format(kind) for form in forms for kind in ssh.KEY_KINDS]
    return [path + end for path in private for end in ("", ".pub")]


def inner(paths: Paths, path: str) -> str:
    """Return a path as an archive has it: without root and first slash."""
    return path.removeprefix(f"{paths.root}/")


def _read_head(config: bytes) -> tuple[Cluster, int]:
    """Return the cluster and the serial number of a configuration; raises ConfigurationError."""
    split = split_config(config)
    return decode_record(split.cluster, Cluster), loads_as(int, bytes(split.top["serial_no"]))


def _is_trusted(paths: Paths, contents: Mapping[str, bytes], cluster: Cluster) -> bool:
    """Tell whether a configuration trusts the certificate beside it."""
    client = contents.get(inner(paths, paths.client_pem))
    if client is None or not cluster.candidate_certs:  # as 3.0 may leave it
        return True
    digest = certificates.facts(client, paths.client_pem).digest
    return digest in cluster.candidate_certs.values()


# The file.


def pack(state: State) -> bytes:
    """Return the archive as the content of a file."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=_COMPRESSION) as archive:
        for name, content in {_HEAD: dumps(state.head), **state.contents}.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(content), MODE, int(state.head.time)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def unpack(data: bytes) -> State:
    """Read an archive, and compare the digests.

    Raises:
        OpPrereqError: it is no such archive, of another format, or damaged.
    """
    try:
        members = _members(data)
        head = loads_as(Head, members.pop(_HEAD))
    except (tarfile.TarError, EOFError, zlib.error, OSError) as err:
        raise _unusable(f"it is no compressed tar file, or damaged ({err})") from err
    except KeyError as err:
        raise _unusable(f"it has no {_HEAD}") from err
    except ProtocolError as err:
        raise _unusable(f"{_HEAD} cannot be read: {err.message}") from err
    if head.format != FORMAT:
        raise _unusable(f"it has format {head.format}, and this version reads format {FORMAT}")
    found = {path: sha256(content).hexdigest() for path, content in members.items()}
    if found != head.digests:
        wrong = sorted(path for path, _digest in found.items() ^ head.digests.items())
        raise _unusable(f"these files in it are missing, or not as they were: {set(wrong)}")
    return State(head, members)


def _members(data: bytes) -> dict[str, bytes]:
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
        whole = packed.read(_BYTES_MAX)  # to the end, where its checksum is
    found = dict[str, bytes]()
    with tarfile.open(fileobj=io.BytesIO(whole), mode="r:") as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is None:
                raise _unusable(f"{member.name} in it is no file")
            found[member.name] = file.read()
    return found


def _unusable(why: str) -> OpPrereqError:
    return OpPrereqError(f"this is no state of a cluster that can be used: {why}")


def write_files(paths: Paths, contents: Mapping[str, bytes]) -> None:
    """Put files of an archive where they belong; directories are made.

    Raises:
        OpPrereqError: a file has no place on a node; nothing was written.
        OSError: one cannot be written; those before it stay.
    """
    modes = {inner(paths, getattr(paths, name)): _PLACES.get(name, MODE) for name in _KEYS}
    modes[inner(paths, paths.config_data)] = config_file.FILE_MODE
    for path in ssh_files(paths):
        modes[inner(paths, path)] = 0o644 if path.endswith(".pub") else MODE
    for path in contents:
        job_id = job_id_of(os.path.basename(path))
        if job_id is not None and path == inner(paths, paths.job_file(JobId(job_id))):
            modes[path] = FILE_MODE
    if strange := sorted(set(contents) - modes.keys()):
        raise _unusable(f"{', '.join(strange)} does not belong to a cluster")
    for path, content in contents.items():
        target = f"{paths.root}/{path}"
        files.ensure_directory(os.path.dirname(target), 0o755, inherits_owner=True)
        files.write_durable(target, content, modes[path])
