"""LuxiD on a machine whose name service is slow: it never looks as if it hung."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fakes import slow_names
from fakes.luxid_node import LuxidNode, delay
from fakes.slow_names import ANSWER_S, LATE_NAME

from ganeti.daemon.partner import LOOK_S, LOOKS_MAX, Patience, look
from ganeti.luxid.options import NAME
from ganeti.system import filelock


class SlowNode(LuxidNode):
    """A node whose name service is slow."""

    def luxid_argv(self) -> list[str]:
        return [slow_names.__file__, "-f"]


@contextmanager
def watched(node: LuxidNode) -> Iterator[list[bool]]:
    """Look after LuxiD as WConfD does; what it says of each look is in the list."""
    looks: list[bool] = []
    is_over = threading.Event()

    def watch() -> None:
        patience = Patience()
        path = node.paths.pid_file(NAME)
        while not is_over.wait(LOOK_S):
            pid = filelock.running_pid(path)
            looks.append(patience.ends(pid and look(pid, os.stat(path).st_mtime_ns)))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield looks
    finally:
        is_over.set()
        thread.join()


def test_a_slow_name_service_does_not_look_like_a_hang() -> None:
    assert ANSWER_S > (LOOKS_MAX + 1) * LOOK_S
    with SlowNode() as node, watched(node) as looks:
        client = node.start()
        client.submit_job([delay()])
        time.sleep(ANSWER_S)
        client.submit_job([delay()])
        lines = Path(f"{node.paths.log_dir}/audit.log").read_text().splitlines()
    assert len(looks) > LOOKS_MAX
    assert not any(looks)
    # Nobody waits for his own name; it is known later.
    assert [json.loads(line)["user"] for line in lines] == [str(os.getuid()), LATE_NAME]
