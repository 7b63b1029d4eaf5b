"""Addresses at which QEMU reaches a disk by itself, and its own descriptions of what lies there.

    /path or file:/path            a file or device of the node
    gluster://HOST[:PORT]/VOLUME/PATH
    nbd://HOST[:PORT]/EXPORT       nbd+unix:///EXPORT?socket=PATH
    rbd:POOL/IMAGE[@SNAPSHOT][:OPTION=VALUE]
    http://... https://...
    json:{...}                     QEMU's own description, for everything else

Drivers of storage and external storage providers name their disks so.

Source: QEMU's QMP reference, BlockdevOptions; hooks_os_ext.json, "attach_stdout".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from ganeti.base.errors import HypervisorError, ProtocolError
from ganeti.base.json import loads

_NBD_PORT: Final = 10809
_GLUSTER_PORT: Final = 24007

Options = dict[str, object]


def image_from_uri(uri: str) -> Options:
    """Return QEMU's description of the image at an address.

    Raises:
        HypervisorError: it is of no kind that is known here.
    """
    if uri.startswith("/"):
        return _file(uri)
    scheme = uri.partition(":")[0]
    reader = _READERS.get(scheme)
    if reader is None:
        text = f"{scheme!r} is not supported; supported are {', '.join(_READERS)} and paths"
        raise HypervisorError(f"disk address {uri!r}: {text}")
    return reader(uri)


def _file(uri: str) -> Options:
    return {"driver": "file", "filename": uri.removeprefix("file:").removeprefix("//")}


def _nbd(uri: str) -> Options:
    parts = urlsplit(uri)
    if not parts.hostname:
        raise HypervisorError(f"disk address {uri!r} has no host")
    server = {"type": "inet", "host": parts.hostname, "port": str(parts.port or _NBD_PORT)}
    return _with_export({"driver": "nbd", "server": server}, parts.path)


def _nbd_unix(uri: str) -> Options:
    parts = urlsplit(uri)
    sockets = parse_qs(parts.query).get("socket", [])
    if len(sockets) != 1:
        raise HypervisorError(f"disk address {uri!r} needs ?socket=PATH")
    server = {"type": "unix", "path": sockets[0]}
    return _with_export({"driver": "nbd", "server": server}, parts.path)


def _with_export(options: Options, path: str) -> Options:
    export = unquote(path.removeprefix("/"))
    return {**options, "export": export} if export else options


def _gluster(uri: str) -> Options:
    parts = urlsplit(uri)
    volume, _slash, path = parts.path.removeprefix("/").partition("/")
    if not parts.hostname or not volume or not path:
        raise HypervisorError(f"disk address {uri!r} is not gluster://HOST[:PORT]/VOLUME/PATH")
    server = {"type": "inet", "host": parts.hostname, "port": str(parts.port or _GLUSTER_PORT)}
    return {"driver": "gluster", "volume": volume, "path": unquote(path), "server": [server]}


def _rbd(uri: str) -> Options:
    place, *rest = uri.removeprefix("rbd:").split(":")
    pool, _slash, image = place.partition("/")
    if not pool or not image:
        raise HypervisorError(f"disk address {uri!r} is not rbd:POOL/IMAGE")
    image, _at, snapshot = image.partition("@")
    options: Options = {"driver": "rbd", "pool": pool, "image": image}
    if snapshot:
        options["snapshot"] = snapshot
    given = dict(part.partition("=")[::2] for part in rest)
    for name, ours in (("id", "user"), ("conf", "conf")):
        if name in given:
            options[ours] = given.pop(name)
    if given:
        raise HypervisorError(f"disk address {uri!r}: unknown option {', '.join(given)}")
    return options


def _web(uri: str) -> Options:
    return {"driver": urlsplit(uri).scheme, "url": uri}


def _json(uri: str) -> Options:
    try:
        value = loads(uri.removeprefix("json:"))
    except ProtocolError as err:
        raise HypervisorError(f"disk address {uri!r}: {err.message}") from err
    if not isinstance(value, dict) or "driver" not in value:
        raise HypervisorError(f"disk address {uri!r} does not describe a disk")
    return value


_READERS: Final[Mapping[str, Callable[[str], Options]]] = {
    "file": _file,
    "gluster": _gluster,
    "http": _web,
    "https": _web,
    "json": _json,
    "nbd": _nbd,
    "nbd+unix": _nbd_unix,
    "rbd": _rbd,
}
