"""Disk images: files of this node, or at a URL, that disks are filled from."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import IO, Final

from ganeti.base.errors import BlockDeviceError, TransportError, failing_as
from ganeti.base.paths import Paths

_COPIED_BYTES: Final = 1 << 20  # at a time
_TIMEOUT_S: Final = 60.0
_LENGTH: Final = re.compile("[0-9]{1,18}")
_URL: Final = re.compile(r"https?://[^/]", re.IGNORECASE)


@contextmanager
def _at_url(url: str) -> Iterator[tuple[int, IO[bytes]]]:
    """Yield (bytes, stream) of what lies at a URL.

    Raises:
        TransportError: there is nothing; or its server does not say how long it is.
    """
    from http.client import HTTPException  # few calls need them, and they take long to load
    from urllib.request import urlopen

    try:
        answer = urlopen(url, timeout=_TIMEOUT_S)  # noqa: S310 - `_URL` allows no others
    except (OSError, ValueError, HTTPException) as err:
        why = " ".join(str(err).split()) or type(err).__name__
        raise TransportError(f"cannot read {url}: {why}") from err
    with closing(answer):
        length = answer.headers.get("Content-Length", "")
        if not _LENGTH.fullmatch(length):
            raise TransportError(f"cannot read {url}: its server does not say how long it is")
        yield int(length), answer


@contextmanager
def _opened(image: str, paths: Paths) -> Iterator[tuple[int, IO[bytes]]]:
    """Yield (bytes, stream) of an image."""
    if _URL.match(image):
        with _at_url(image) as found:
            yield found
        return
    with open(paths.localize(image), "rb") as file:
        yield os.fstat(file.fileno()).st_size, file


def image_bytes(image: str, paths: Paths) -> int | None:
    """Return how large an image is; None where there is no such file.

    Raises:
        GenericError: it cannot be read.
    """
    with failing_as(BlockDeviceError, f"cannot look at {image}"):
        try:
            with _opened(image, paths) as (length, _source):
                return length
        except FileNotFoundError:
            return None


def copy_image(image: str, target: str, size: int, paths: Paths) -> None:
    """Write an image to the beginning of a disk of ``size`` bytes.

    Raises:
        GenericError: it cannot be read or written, or is larger than the disk.
    """
    with (
        failing_as(BlockDeviceError, f"cannot copy {image} to {target}"),
        _opened(image, paths) as (length, source),
        open(target, "r+b") as disk,
    ):
        if length > size:
            raise BlockDeviceError(f"{image} is larger than the disk")
        left = length
        while left:
            data = source.read(min(left, _COPIED_BYTES))
            if not data:
                raise BlockDeviceError(f"{image} ended {left} bytes before its end")
            disk.write(data)
            left -= len(data)
        disk.flush()
        os.fsync(disk.fileno())
