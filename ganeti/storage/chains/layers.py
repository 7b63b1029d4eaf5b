"""Contents of a disk put together from the whole and what changed later, as streams.

Each layer tells its own pieces in order (`ganeti.storage.stream`); of pieces at one place the
newest counts.  All layers are read side by side, once and to their ends, where their checksums
are: the memory needed does not grow with the disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ganeti.base.errors import StorageError
from ganeti.protocol.export_description import BLOCK_BYTES
from ganeti.storage.chains.sums import SUM_BYTES, new_root, sum_of
from ganeti.storage.stream import Run, StreamReader, encoded


@dataclass(frozen=True, slots=True)
class Layer:
    """The whole disk, or what changed on it, when it had so many bytes."""

    size: int
    runs: Iterator[Run]


def merged(layers: Sequence[Layer]) -> Iterator[Run]:
    """Yield the pieces of the disk as the last layer left it; the first layer is the oldest."""
    visible: list[Iterator[Run]] = []
    size = layers[-1].size
    for layer in reversed(layers):
        size = min(size, layer.size)  # what was once cut off does not come back
        visible.append(_until(layer.runs, size))
    return _pile(visible[::-1])


def _until(runs: Iterator[Run], size: int) -> Iterator[Run]:
    for run in runs:
        if run[0] < size and run[1]:
            yield _cut(run, run[0], min(run[0] + run[1], size))


def _cut(run: Run, begin: int, end: int) -> Run:
    offset, _, data = run
    return begin, end - begin, None if data is None else data[begin - offset : end - offset]


def _pile(layers: Sequence[Iterator[Run]]) -> Iterator[Run]:
    """Put layers over each other, in pairs, so that a thousand of them are ten steps deep."""
    if len(layers) == 1:
        return layers[0]
    middle = len(layers) // 2
    return _over(_pile(layers[:middle]), _pile(layers[middle:]))


def _over(lower: Iterator[Run], upper: Iterator[Run]) -> Iterator[Run]:
    below = next(lower, None)
    for run in upper:
        begin, end = run[0], run[0] + run[1]
        while below is not None and below[0] < end:
            start, stop = below[0], below[0] + below[1]
            if start < begin:
                yield _cut(below, start, min(stop, begin))
            below = _cut(below, end, stop) if stop > end else next(lower, None)
        yield run
    while below is not None:
        yield below
        below = next(lower, None)


class LayerFile:
    """A file with a stream; it is open only while it is read, as there may be a thousand."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._position = 0

    def read(self, count: int) -> bytes:
        """Return up to so many bytes; none at the end."""
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(descriptor, count, self._position)
        finally:
            os.close(descriptor)
        self._position += len(data)
        return data

    def layer(self) -> Layer:
        """Return the layer in it.

        Raises:
            StorageError: it is damaged; its pieces raise that, too.
        """
        try:
            stream = StreamReader(self)
        except StorageError as err:
            raise self._damaged(err) from err
        return Layer(stream.size, self._explained(stream))

    def _explained(self, stream: StreamReader) -> Iterator[Run]:
        try:
            yield from stream.runs()
        except StorageError as err:
            raise self._damaged(err) from err

    def _damaged(self, err: StorageError) -> StorageError:
        name = os.path.basename(self._path)
        return StorageError(f"file {name} of the export is damaged: {err.message}")


def restored(paths: Sequence[str], root: str) -> Iterator[bytes]:
    """Yield the stream of a whole disk, put together from files; the first one is the oldest.

    Raises:
        StorageError: a file is damaged, or the disk is not the one whose root that is.
    """
    layers = [LayerFile(path).layer() for path in paths]
    counter = RootCounter(layers[-1].size)
    return encoded(counter.compared(merged(layers), root), layers[-1].size)


class RootCounter:
    """Computes the root (`ganeti.storage.chains.sums`) of a disk whose pieces pass by in order."""

    def __init__(self, size: int) -> None:
        self._digest = new_root(size)
        self._size = size
        self._block = bytearray()
        self._end = 0

    def passing(self, runs: Iterator[Run]) -> Iterator[Run]:
        """Yield the pieces, which are counted meanwhile."""
        for run in runs:
            self._zeroes(run[0] - self._end)
            if run[2] is None:
                self._zeroes(run[1])
            else:
                self._take(run[2])
            yield run
        self._zeroes(self._size - self._end)
        if self._block:
            self._digest.update(sum_of(bytes(self._block)))

    def compared(self, runs: Iterator[Run], root: str) -> Iterator[Run]:
        """Yield the pieces, and raise in the end if they are not those of a root."""
        yield from self.passing(runs)
        if self.root() != root:
            raise StorageError("the disk that was put together differs from the one exported")

    def _zeroes(self, count: int) -> None:
        while count > 0:
            if not self._block and count >= BLOCK_BYTES:
                blocks = min(count // BLOCK_BYTES, BLOCK_BYTES)
                self._digest.update(bytes(blocks * SUM_BYTES))
                part = blocks * BLOCK_BYTES
                self._end += part
            else:
                part = min(count, BLOCK_BYTES - len(self._block))
                self._take(bytes(part))
            count -= part

    def _take(self, data: bytes) -> None:
        self._end += len(data)
        self._block += data
        while len(self._block) >= BLOCK_BYTES:
            self._digest.update(sum_of(bytes(self._block[:BLOCK_BYTES])))
            del self._block[:BLOCK_BYTES]

    def root(self) -> str:
        """Return the root, after all pieces have passed."""
        return self._digest.hexdigest()
