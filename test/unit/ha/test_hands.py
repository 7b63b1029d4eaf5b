"""What the agent does on its node, with helpers that hang."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ganeti.availability.proof import Power
from ganeti.base.paths import Paths
from ganeti.ha.hands import NodeHands
from ganeti.store import availability
from ganeti.store.availability import Settings, State

THREADS = 2  # of the loop; as many as a small machine has would do, with more nodes
NODES = [f"n{number}" for number in range(2, 2 + 2 * THREADS)]


def test_helpers_that_hang_do_not_keep_the_daemons_of_the_node_from_hearing_of_the_lease(
    tmp_path: Path,
) -> None:
    """The master would believe that it holds its lease no more, and nothing would be restarted."""
    go_on, helper, paths = tmp_path / "go-on", tmp_path / "helper", Paths(str(tmp_path))
    helper.write_text(
        f"#!/bin/sh\nuntil [ -e {go_on} ]; do sleep 0.1; done\necho '{{\"powered\": false}}'\n"
    )
    helper.chmod(0o755)
    Path(paths.run_dir).mkdir(parents=True)
    settings = Settings(endpoints=[], prefix="", helpers=dict.fromkeys(NODES, "/helper"))
    hands = NodeHands(paths, settings, "n1")

    async def act() -> list[tuple[Power, str]]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
        switching = [asyncio.create_task(hands.switch_off(name)) for name in NODES]
        try:
            await asyncio.sleep(0)
            await asyncio.wait_for(hands.publish(State(time=1.0)), 5.0)
        finally:
            go_on.touch()
        return await asyncio.gather(*switching)

    assert asyncio.run(act()) == [(Power.OFF, "")] * len(NODES)
    state = availability.read_state(paths)
    assert state is not None
    assert state.time == 1.0
