"""What a job process imports, kept as lists: every job pays for it.

A module that has to be added here should be worth its milliseconds to every job.
"""

from __future__ import annotations

import subprocess
import sys

from ganeti.luxid.pool import launch_argv

OWN_AT_READY = [
    "base",
    "base.daemons",
    "base.errors",
    "base.json",
    "base.paths",
    "jobexec",
    "jobexec.control",
    "jobexec.hand",
    "jobexec.lean",
    "jobexec.main",
    "protocol",
    "protocol.framing",
    "protocol.job_start",
    "system",
    "system.clock",
    "system.environment",
    "system.filelock",
    "system.files",
]
OTHERS_AT_READY = {"msgspec"}

# What a job adds that asks no node.
OWN_LATER = [
    "base.ids",
    "base.secret",
    "base.versions",
    "clients",
    "clients.lazy_node_rpc",
    "clients.wconfd",
    "clients.wconfd_stub",
    "clients.wconfd_values",
    "daemon",
    "daemon.log",
    "jobexec.copies",
    "jobexec.job_file",
    "jobexec.preparation",
    "jobexec.runner",
    "jobs",
    "jobs.changes",
    "jobs.copies",
    "jobs.record",
    "jobs.status",
    "locking",
    "locking.names",
    "logical_units",
    "logical_units.context",
    "logical_units.hooks",
    "logical_units.lock_plan",
    "logical_units.locks",
    "logical_units.node_calls",
    "logical_units.processor",
    "logical_units.recorder",
    "logical_units.registry",
    "objects",
    "objects.disk_templates",
    "objects.json_value",
    "objects.private",
    "objects.record",
    "opcodes",
    "opcodes.opcode",
    "opcodes.registry",
    "opcodes.values",
    "protocol.envelope",
    "protocol.wconfd",
    "store",
    "store.job_files",
    "store.ssconf",
    "transport",
    "transport.unix_client",
]

# Each of these would cost more than all that a job with nothing to do does.
NEVER = {
    "asyncio",
    "dataclasses",
    "decimal",
    "inspect",
    "json",
    "pathlib",
    "platform",
    "random",
    "selectors",
    "socket",
    "ssl",
    "subprocess",
    "tempfile",
    "typing_extensions",
    "urllib",
    "uuid",
    "pycurl",
    "pyinotify",
    "cryptography",
}

SCRIPT = """
import sys
sys.path[:0] = sys.argv[1].split(":")
from ganeti.jobexec.lean import leave_out_unused
leave_out_unused()
import ganeti.jobexec.main
if sys.argv[2] == "all":
    ganeti.jobexec.main._load_the_rest()
names = [name for name, module in sys.modules.items() if module is not None]
print(" ".join(names))
"""

CPU_SCRIPT = """
import gc, sys
gc.disable()
sys.path[:0] = sys.argv[1].split(":")
if sys.argv[2:]:
    from ganeti.jobexec.lean import leave_out_unused
    leave_out_unused()
    import ganeti.jobexec.main
import time
print(time.process_time())
"""


def modules(stage: str) -> set[str]:
    directories = launch_argv()[-1]
    argv = [sys.executable, "-I", "-S", "-c", SCRIPT, directories, stage]
    return set(subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split())


def own(names: set[str]) -> set[str]:
    return {name.removeprefix("ganeti.") for name in names if name.startswith("ganeti.")}


def foreign(names: set[str]) -> set[str]:
    """Packages that are neither ours nor Python's own."""
    tops = {name.partition(".")[0] for name in names}
    return tops - set(sys.stdlib_module_names) - {"ganeti", "__main__", "sitecustomize"}


def test_modules_at_ready() -> None:
    found = modules("ready")
    assert own(found) == set(OWN_AT_READY)
    assert foreign(found) <= OTHERS_AT_READY | {"pycurl"}  # an empty stand-in for a part of it
    assert not found & (NEVER | {"logging", "pycurl"})


def test_modules_of_a_job_that_asks_no_node() -> None:
    found = modules("all")
    assert own(found) == set(OWN_AT_READY) | set(OWN_LATER)
    assert foreign(found) <= OTHERS_AT_READY | {"pycurl"}  # an empty stand-in for a part of it
    assert not {name for name in found if name.partition(".")[0] in NEVER - {"pycurl"}}
    assert "pycurl" not in found


def test_what_msgspec_was_loaded_without_is_there_for_others() -> None:
    script = (
        "import sys; sys.path[:0] = sys.argv[1].split(':')\n"
        "from ganeti.jobexec.lean import leave_out_unused\n"
        "leave_out_unused()\n"
        "import datetime, decimal, traceback, uuid, msgspec\n"
        "from msgspec import inspect\n"
        "assert datetime.datetime_CAPI and datetime.__file__\n"
        "assert traceback.format_exception_only(ValueError(1)) == ['ValueError: 1\\n']\n"
        "print(decimal.Decimal('1.5') + 1, uuid.UUID(int=5).int, inspect.type_info(int))\n"
        "print(msgspec.json.decode(b'[1.5, 7, 123456789012345678901234567890]'))\n"
    )
    argv = [sys.executable, "-I", "-S", "-c", script, launch_argv()[-1]]
    shown = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split("\n")
    assert shown[0].startswith("2.5 5 IntType(")
    assert shown[1] == "[1.5, 7, 123456789012345678901234567890]"


def cpu_s(*args: str) -> float:
    """The least of some tries: what else the machine does only adds to it."""
    argv = [sys.executable, "-I", "-S", "-c", CPU_SCRIPT, launch_argv()[-1], *args]
    return min(
        float(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
        for _ in range(10)
    )


def test_ready_costs_few_times_the_bare_interpreter() -> None:
    # 30 ms where the interpreter takes 6, and a little for the noise of a busy machine
    assert cpu_s("ready") < 6 * cpu_s()
