"""Many nodes that answer, in one process: what a large cluster asks of its master.

Each node has an address of 127.0.0.0/8 and a directory of its own; protocol, certificates and
handlers are those of the node daemon.  Only the processes are left out: a call that the daemon
gives to a child runs in a thread here.  What a node says in a vote is remembered until it is told
something, since a thousand nodes have to do with one processor here.

    python test/fakes/answering_nodes.py DIRECTORY

serves the nodes of DIRECTORY/nodes.json, {name: address}, each with its files in DIRECTORY/NAME,
and writes a line when all of them can be called.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Final

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(__file__))))

from ganeti.base.paths import Paths
from ganeti.node_ops import dispatch
from ganeti.node_ops.context import NodeContext
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc import BODY_BYTES_MAX, DEFAULT_PORT
from ganeti.transport import tls
from ganeti.transport.http_message import HttpRequest, HttpResponse
from ganeti.transport.http_server import HttpLimits, serve_http

NODES: Final = "nodes.json"
_READY: Final = "ready\n"
_THREADS: Final = 8
_FACTS: Final = "master_facts"
_DESCRIPTORS: Final = 65536
_LEFT_OUT: Final = ("config.data", "queue", "*.sock", "socket", "livelocks", "*.pid", "log")


@contextmanager
def answering(directory: str, nodes: Mapping[str, str], like: Paths) -> Iterator[int]:
    """Have nodes answer; yields the number of the process that they are.

    Args:
        nodes: addresses by name.
        like: a real node of the cluster, of whose files each gets its own.
    """
    template = f"{directory}/template"
    shutil.copytree(like.root, template, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    for name in nodes:
        # Files are replaced and never changed, so all nodes may begin with the same.
        shutil.copytree(template, f"{directory}/{name}", copy_function=os.link)
        paths = Paths(f"{directory}/{name}")
        for missing in (paths.lock_dir, paths.log_dir, paths.queue_dir):
            os.makedirs(missing, exist_ok=True)
    Path(directory, NODES).write_text(json.dumps(dict(nodes)), encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, __file__, directory], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == _READY, "the nodes did not start"
            yield process.pid
        finally:
            process.terminate()


class _Node:
    """One of them."""

    def __init__(self, paths: Paths, name: str, threads: ThreadPoolExecutor) -> None:
        self._paths, self._name, self._threads = paths, name, threads
        self._policy = tls.CandidatePolicy(paths, node_name=name)
        self._facts: bytes | None = None

    def authorize(self, request: HttpRequest) -> HttpResponse | None:
        refusal = self._policy.refusal(request.peer)
        return None if refusal is None else HttpResponse.text(403, refusal, close=True)

    async def handle(self, request: HttpRequest) -> HttpResponse:
        call = NodeCalls.calls.get(request.path.removeprefix("/"))
        if call is None:
            return HttpResponse.text(404, f"there is no call {request.path!r}")
        if call.name == _FACTS and self._facts is not None:
            return HttpResponse(body=self._facts)
        peer = "" if request.peer is None else request.peer.common_name
        context = NodeContext(self._paths, self._name, call.name, peer_name=peer)
        loop = asyncio.get_running_loop()
        body = await loop.run_in_executor(
            self._threads, dispatch.answer, context, call, request.body
        )
        if call.rules.changes:
            self._facts = None
        elif call.name == _FACTS:
            self._facts = body
        return HttpResponse(body=body)


async def _serve(directory: str) -> None:
    nodes = json.loads(Path(directory, NODES).read_text(encoding="utf-8"))
    threads = ThreadPoolExecutor(_THREADS)
    context = None
    async with AsyncExitStack() as stack:
        for name, address in nodes.items():
            paths = Paths(f"{directory}/{name}")
            context = context or tls.node_server_context(paths)
            node = _Node(paths, name, threads)
            await stack.enter_async_context(
                serve_http(
                    address,
                    DEFAULT_PORT,
                    node.handle,
                    tls=context,
                    authorize=node.authorize,
                    limits=HttpLimits(body_bytes_max=BODY_BYTES_MAX),
                )
            )
        sys.stdout.write(_READY)
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_DESCRIPTORS, hard), hard))
    asyncio.run(_serve(sys.argv[1]))
