"""LuxiD has no more descriptors for a while: it goes on, and no job is taken for dead."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator

import pytest
from fakes.held_jobs import DEADLINE_S, HELD, let_go, wait_held
from fakes.luxid_node import LuxidNode, delay, is_final, wait_status
from fakes.waiting import wait_until

from ganeti.base.errors import GenericError
from ganeti.luxid.queue.processes import WARM_DEFAULT
from ganeti.system.process import wait_gone


@contextlib.contextmanager
def no_more_descriptors(pid: int) -> Iterator[None]:
    """Let a process open nothing more."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


class Node(LuxidNode):
    """A node whose LuxiD gets more options."""

    options: tuple[str, ...] = ()

    def luxid_argv(self) -> list[str]:
        return [*super().luxid_argv(), *self.options]


@pytest.mark.parametrize("options", [(), ("--exec-jobs",)])
def test_jobs_end_as_they_did_while_nothing_could_be_opened(options: tuple[str, ...]) -> None:
    with Node() as node:
        node.options = options
        with node.start() as client:
            assert node.process is not None
            held = client.submit_job([HELD])
            place = wait_held(client, held)
            process_id = node.job(held).process_id
            assert process_id is not None
            with no_more_descriptors(node.process.pid):
                for _number in range(WARM_DEFAULT + 2):
                    with contextlib.suppress(GenericError):
                        client.submit_job([delay()])
                let_go(place)
                assert wait_gone(process_id, DEADLINE_S)
                wait_until(lambda: "Cannot tell how job" in node.log(), "a look")
                wait_until(lambda: "Cannot tell whether all" in node.log(), "a sweep")
                assert node.process.poll() is None, node.log()
            assert wait_status(client, held, is_final) == "success", node.log()
            job_id = client.submit_job([delay()])
            assert wait_status(client, job_id, is_final) == "success", node.log()
        assert node.stop() == 0, node.log()
        assert "Traceback" not in node.log()
