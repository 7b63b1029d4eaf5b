"""The template that job processes are forked from: what it has loaded, and what its death means."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from fakes.grown_tree import GrownTree
from fakes.luxid_node import LuxidNode, delay, kill_and_wait, messages, wait_status
from fakes.waiting import wait_until

from ganeti.base.ids import JobId
from ganeti.clients.luxi import LuxiClient
from ganeti.luxid.queue.processes import FORK_S_MAX, WARM_DEFAULT, launch_argv
from ganeti.protocol.job_start import REHEARSAL_PREFIX

WARM_NAME = "gnt-job-warm"
RELOAD_S_MAX = 8.0  # loading everything takes a second; the machine may be busy

# None of these is of use in a job process; some start threads, which a template must not have.
NEVER = {
    "_ssl",
    "aiohttp",
    "asyncio",
    "concurrent",
    "cryptography",
    "json",
    "multiprocessing",
    "pathlib",
    "psutil",
    "pyinotify",
    "pyparsing",
    "ssl",
    "subprocess",
    "urllib",
}
FOREIGN = {"bitarray", "msgspec", "pycurl", "typing_extensions"}

SCRIPT = """
import sys
sys.path[:0] = sys.argv[1].split(":")
from ganeti.jobexec import template
list(template.load_all())
from ganeti.base.paths import Paths
assert "a job" in list(template.rehearse(Paths(sys.argv[2]), template.run))
import threading
assert threading.active_count() == 1
print(" ".join(sys.modules))
"""


@pytest.fixture
def node() -> Iterator[LuxidNode]:
    with LuxidNode() as made:
        yield made


def loaded_modules(root: Path) -> set[str]:
    argv = [sys.executable, "-I", "-S", "-c", SCRIPT, launch_argv()[-1], str(root)]
    shown = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    return {name.partition(".")[0] for name in shown.split()}


def test_what_a_template_has_loaded(tmp_path: Path) -> None:
    found = loaded_modules(tmp_path)
    assert not found & NEVER
    assert found - set(sys.stdlib_module_names) - {"ganeti", "__main__", "sitecustomize"} <= FOREIGN


# Only words for a certificate that is refused come from there, and it brings all of `ssl`.
LATE = {
    # Where high availability is on; it brings asyncio.
    "ganeti.logical_units.cluster.availability imports ganeti.clients.etcd",
    "ganeti.transport.curl_pool imports ganeti.transport.tls",
}

# Modules of ours that functions of loaded modules import, and that are not loaded yet.
LATE_SCRIPT = """
import ast, sys
sys.path[:0] = sys.argv[1].split(":")
from ganeti.jobexec import template
list(template.load_all())
for name, module in list(sys.modules.items()):
    if name.startswith("ganeti."):
        with open(module.__file__) as file:
            for node in ast.walk(ast.parse(file.read())):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    for each in ast.walk(node):
                        found = [each.module] if isinstance(each, ast.ImportFrom) else []
                        if isinstance(each, ast.Import):
                            found = [alias.name for alias in each.names]
                        for late in found:
                            if late.startswith("ganeti") and late not in sys.modules:
                                print(name, "imports", late)
"""


def test_nothing_of_ours_is_left_for_a_job_to_load() -> None:
    argv = [sys.executable, "-I", "-S", "-c", LATE_SCRIPT, launch_argv()[-1]]
    late = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()
    assert [line for line in late if line not in LATE] == []


class GrownNode(LuxidNode):
    """LuxiD runs from a copy of the package."""

    def __init__(self, tree: GrownTree) -> None:
        super().__init__()
        self.tree = tree

    def environment(self) -> dict[str, str]:
        more = {"PYTHONPATH": str(self.tree.base), "PYTHONDONTWRITEBYTECODE": "1"}
        return {**super().environment(), **more}


def test_files_that_are_replaced_under_a_running_luxid_do_not_matter(tmp_path: Path) -> None:
    """Even the first job, whose process waited since the start, has everything."""
    with GrownNode(GrownTree(tmp_path)) as node:
        client = node.start()
        template = template_of(node)
        wait_until(lambda: len(template.children()) == WARM_DEFAULT, "warm processes")
        for path in ("instance/creation/create.py", "testing.py", "processor.py", "locks.py"):
            node.tree.append(f"ganeti/logical_units/{path}", "raise RuntimeError('replaced')")
        node.tree.append("ganeti/jobexec/runner.py", "raise RuntimeError('replaced')")
        for _ in range(WARM_DEFAULT + 1):
            run(client)
        assert "replaced" not in node.log()


def template_of(node: LuxidNode) -> psutil.Process:
    """Return the template of this node's LuxiD."""
    assert node.process is not None
    luxid = psutil.Process(node.process.pid)
    wait_until(lambda: len(luxid.children()) == 1, "a template")
    (found,) = luxid.children()
    return found


def lives(process: psutil.Process) -> bool:
    """Tell whether a process is there, and is no zombie."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def locks(node: LuxidNode) -> list[str]:
    return os.listdir(node.paths.livelock_dir)


def run(client: LuxiClient, **params: object) -> JobId:
    job_id = client.submit_job([delay(**params)])
    wait_status(client, job_id, "success")
    return job_id


@pytest.mark.shows("2.12/luxid/process-per-job")
def test_each_job_has_a_process_of_its_own(node: LuxidNode) -> None:
    client = node.start()
    jobs = [run(client) for _ in range(3)]
    pids = {node.job(job_id).process_id for job_id in jobs}
    template = template_of(node)
    assert len(pids | {template.pid}) == 4
    # It holds what it was given, and none of what belongs to jobs.
    assert not [file for file in template.open_files() if "livelocks" in file.path]


def test_a_job_outlives_the_template_and_the_next_gets_another_one(node: LuxidNode) -> None:
    client = node.start()
    lasting = client.submit_job([delay(60.0)])
    wait_status(client, lasting, "running")
    template = template_of(node)
    kill_and_wait(template.pid)
    run(client)
    assert template_of(node).pid != template.pid
    assert client.query_jobs([lasting], ["status"]) == [["running"]]
    assert client.cancel_job(lasting, kill=True)[0]
    wait_status(client, lasting, "error")


def test_a_template_that_hangs_is_ended_with_luxid(node: LuxidNode) -> None:
    client = node.start()
    run(client)
    template = template_of(node)
    os.kill(template.pid, signal.SIGSTOP)
    assert node.stop() == 0
    # The warm ones end by themselves: they heard that LuxiD went.
    wait_until(lambda: locks(node) == [], "the lock files to go")
    wait_until(lambda: not lives(template), "the template to end")


def test_a_template_that_hangs_ends_with_a_luxid_that_is_killed(node: LuxidNode) -> None:
    client = node.start()
    lasting = client.submit_job([delay(60.0)])
    wait_status(client, lasting, "running")
    template = template_of(node)
    os.kill(template.pid, signal.SIGSTOP)
    node.stop(signal.SIGKILL)
    wait_until(lambda: not lives(template), "the template to end")
    client = node.start()
    assert client.query_jobs([lasting], ["status"]) == [["running"]]  # jobs go on
    assert client.cancel_job(lasting, kill=True)[0]


def test_a_template_that_hangs_under_load_is_replaced(node: LuxidNode) -> None:
    client = node.start()
    run(client)
    template = template_of(node)
    wait_until(lambda: len(template.children()) == WARM_DEFAULT, "warm processes")
    os.kill(template.pid, signal.SIGSTOP)
    started = time.monotonic()
    jobs = [client.submit_job([delay()]) for _ in range(3 * WARM_DEFAULT)]
    for job_id in jobs:
        wait_status(client, job_id, "success")
    assert time.monotonic() - started < FORK_S_MAX + RELOAD_S_MAX
    assert "hangs, it is killed" in node.log()
    assert "cannot be started now" not in node.log()
    assert template_of(node).pid != template.pid


def test_jobs_pass_by_warm_processes_that_hang(node: LuxidNode) -> None:
    client = node.start()
    run(client)
    template = template_of(node)

    def warm() -> list[psutil.Process]:  # without the process of that job, which may still end
        return [each for each in template.children() if each.name() == WARM_NAME]

    wait_until(lambda: len(warm()) == WARM_DEFAULT, "warm processes")
    hung = warm()
    for each in hung:
        os.kill(each.pid, signal.SIGSTOP)
    run(client)
    wait_until(lambda: not any(each.is_running() for each in hung), "they are killed")
    assert "cannot be started now" not in node.log()
    pids = {f"_{each.pid}_" for each in hung}
    wait_until(
        lambda: not any(pid in name for name in locks(node) for pid in pids), "no lock file stays"
    )


def test_a_warm_process_that_ends_leaves_no_lock_file(node: LuxidNode) -> None:
    client = node.start()
    job_id = run(client)
    template = template_of(node)
    wait_until(lambda: bool(template.children()), "a warm process")
    for warm in template.children():
        kill_and_wait(warm.pid)
        wait_until(
            lambda: not any(f"_{warm.pid}_" in name for name in locks(node)),  # noqa: B023
            f"the lock file of {warm.pid} to go",
        )
    assert run(client) > job_id


def rehearsals(node: LuxidNode) -> list[str]:
    names = os.listdir(node.paths.luxid_message_dir)
    return [name for name in names if name.startswith(REHEARSAL_PREFIX)]


def test_what_a_process_left_that_was_killed_in_its_rehearsal_goes(node: LuxidNode) -> None:
    client = node.start()
    run(client)
    template = template_of(node)
    wait_until(lambda: len(template.children()) == WARM_DEFAULT, "warm processes")
    # The first may be that of the job, which is about to end.
    warm = max(template.children(), key=lambda child: child.create_time())
    for pid in (warm.pid, template.pid):
        os.kill(pid, signal.SIGSTOP)  # it may be in one
        place = f"{node.paths.luxid_message_dir}/{REHEARSAL_PREFIX}{pid}/var"
        os.makedirs(place, exist_ok=True)
        Path(place, "file").touch()
        kill_and_wait(pid)
        wait_until(
            lambda: not os.path.exists(os.path.dirname(place)),  # noqa: B023
            f"the rehearsal of {pid} to go",
        )
    run(client)
    assert node.stop() == 0
    place = f"{node.paths.luxid_message_dir}/{REHEARSAL_PREFIX}{template.pid}"
    os.makedirs(place)
    run(node.start())
    wait_until(lambda: rehearsals(node) == [], "all rehearsals to end")


def test_what_a_job_logs_is_found_in_the_log_of_jobs(node: LuxidNode) -> None:
    client = node.start()
    job_id = client.submit_job([messages("something", fail=True)])
    wait_status(client, job_id, "error")

    def has_logged(text: str) -> bool:
        with open(f"{node.paths.log_dir}/jobs.log", encoding="utf-8") as file:
            return any(f" job={job_id} " in line and text in line for line in file)

    assert has_logged("Job starts: OP_TEST_JQUEUE")
    wait_until(lambda: has_logged("Job ended: error"), "the last line")
