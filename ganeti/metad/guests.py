"""The guests that the metadata daemon knows: in its memory, and in files that outlive it.

A file of each guest lies in the run directory, which a boot of the node empties, as it ends the
guests.  Secret parameters are in the memory alone: they are for an installation under way, and
never written down.
"""

from __future__ import annotations

import logging
import os

from ganeti.base.errors import GenericError, ProtocolError
from ganeti.base.json import dumps, loads
from ganeti.base.paths import Paths
from ganeti.metad.answers import Pages, pages
from ganeti.node_ops.context import check_instance_name
from ganeti.protocol.node_rpc_values import GuestMetadata
from ganeti.system import files

logger = logging.getLogger(__name__)

_DIRECTORY_MODE = 0o700
_FILE_MODE = 0o600
_ENDING = ".json"
METADATA_BYTES_MAX = 1 << 20  # parameters of operating systems are some KiB


class Guests:
    """The guests of this node, by name and by address."""

    def __init__(self, paths: Paths) -> None:
        self._directory = paths.metadata_dir
        self._by_name: dict[str, GuestMetadata] = {}
        self._by_address: dict[str, tuple[GuestMetadata, Pages]] = {}

    def load(self) -> None:
        """Read the guests that an earlier daemon knew; a file that cannot be read is passed over.

        Raises:
            OSError: the directory cannot be made or read.
        """
        files.ensure_directory(self._directory, _DIRECTORY_MODE)
        for name in sorted(os.listdir(self._directory)):
            if not name.endswith(_ENDING):
                continue
            path = os.path.join(self._directory, name)
            try:
                data = files.read_bytes(path, METADATA_BYTES_MAX)
                self._remember(GuestMetadata.from_wire(loads(data)))
            except (GenericError, OSError) as err:
                logger.warning("Cannot use %s: %s; ignoring", path, err)
        logger.info("Know %d instances", len(self._by_name))

    def put(self, guest: GuestMetadata) -> None:
        """Take in a guest, in place of what was known of it or of its address.

        Raises:
            ProtocolError: it cannot be kept.
            OSError: the same.
        """
        check_instance_name(guest.name)
        data = dumps(guest.without_secrets().to_wire())
        if len(data) > METADATA_BYTES_MAX:
            raise ProtocolError(f"metadata of instance {guest.name!r} are too large")
        other = self._by_address.get(guest.address)
        if other is not None and other[0].name != guest.name:
            self.forget(other[0].name)  # the address is another's by now
        files.write_atomic(self._path(guest.name), data, _FILE_MODE)
        self._remember(guest)

    def forget(self, name: str) -> bool:
        """Forget a guest that is not here any more; tells whether it was known."""
        check_instance_name(name)
        files.remove_if_exists(self._path(name))
        guest = self._by_name.pop(name, None)
        if guest is not None:
            self._by_address.pop(guest.address, None)
        return guest is not None

    def at(self, address: str) -> tuple[GuestMetadata, Pages] | None:
        """Return the guest of an address, with its pages."""
        return self._by_address.get(address)

    def addresses(self) -> dict[str, str]:
        """Return the address of each guest, by name."""
        return {name: guest.address for name, guest in sorted(self._by_name.items())}

    def _remember(self, guest: GuestMetadata) -> None:
        before = self._by_name.get(guest.name)
        if before is not None:
            self._by_address.pop(before.address, None)
        self._by_name[guest.name] = guest
        self._by_address[guest.address] = (guest, pages(guest))

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name + _ENDING)
