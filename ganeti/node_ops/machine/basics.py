"""Small reads and flags of a node: version, master name, addresses, watcher pause, Open vSwitch."""

import os
import threading

from ganeti.base.errors import GenericError
from ganeti.base.versions import PROTOCOL_VERSION
from ganeti.netdev.taps import ensure_switch
from ganeti.node_ops.context import NodeHandler
from ganeti.store import watcher_pause
from ganeti.system import environment, files

_FLAG_BYTES_MAX = 4096


class Basics(NodeHandler):
    """Small reads and flags."""

    def version(self) -> int:
        return PROTOCOL_VERSION

    def master_node_name(self) -> str:
        data = files.read_bytes_or_none(self.paths.ssconf_file("master_node"), _FLAG_BYTES_MAX)
        if data is None:
            raise GenericError(f"node {self.hostname} does not know a master node")
        return data.decode().strip()

    def node_has_ip_address(self, address: str) -> bool:
        return environment.is_own_address(address)

    def get_file_info(self, file_path: str) -> tuple[bool, dict[str, int]]:
        try:
            size_bytes = os.stat(self.paths.localize(file_path)).st_size
        except (FileNotFoundError, NotADirectoryError):
            return False, {}
        return True, {"size": size_bytes}

    def get_watcher_pause(self) -> float | None:
        until = watcher_pause.read(self.paths)
        if until is None:
            watcher_pause.write(self.paths, None)
        return until

    def set_watcher_pause(self, until: float | None) -> None:
        watcher_pause.write(self.paths, until)

    def test_delay(self, duration: float) -> None:
        if duration < 0:
            raise GenericError(f"{self.context.call}: duration {duration} is negative")
        threading.Event().wait(duration)

    def node_configure_ovs(self, ovs_name: str, ovs_link: str | None) -> None:
        ensure_switch(ovs_name, ovs_link or "")
