"""Which QEMU to run, and whether guests run with KVM on this node, found by running one.

The default of parameter ``kvm_path`` does not exist everywhere; other usual places are tried then.
A path that was set is taken as it is.

That ``/dev/kvm`` can be opened says little: there are machines where it exists and guests do not
boot, or crawl.  So a guest that fits into one boot sector is started twice, with KVM and with
QEMU's own emulation (TCG), and has some floating point work to do: KVM is usable when it is done
first.  Where KVM works it wins clearly, because that work is slow to emulate.

The answer is kept for as long as the kernel runs and QEMU stays the same.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from ganeti.base.errors import CommandError, ErrorCode, GenericError, OpPrereqError
from ganeti.base.json import dumps, loads_as
from ganeti.base.paths import Paths
from ganeti.hypervisor.kvm.params import PARAMETERS
from ganeti.hypervisor.params import missing_here
from ganeti.system import clock, process
from ganeti.system.filelock import FileLock
from ganeti.system.files import ensure_directory, read_bytes_or_none, remove_if_exists, write_atomic
from ganeti.system.programs import is_runnable

_DEFAULT_PATH: Final = str(PARAMETERS["kvm_path"].default)
_PLACES: Final = (  # the paths of distributions, and the default
    "/usr/bin/qemu-system-x86_64",
    "/usr/local/bin/qemu-system-x86_64",
    "/usr/bin/qemu-kvm",
    "/usr/libexec/qemu-kvm",
    _DEFAULT_PATH,
)


def is_usual_place(path: str) -> bool:
    """Tell whether a program is where distributions put QEMU, so that it needs no check."""
    return path in _PLACES


def find_qemu(kvm_path: str = _DEFAULT_PATH) -> str:
    """Return the path of QEMU.

    Raises:
        OpPrereqError: there is none.
    """
    if kvm_path != _DEFAULT_PATH:
        if is_runnable(kvm_path):
            return kvm_path
        raise missing_here("kvm_path", f"there is no program {kvm_path}")
    found = next(filter(is_runnable, _PLACES), None)
    if found is not None:
        return found
    raise OpPrereqError(
        f"no QEMU found at {', '.join(_PLACES)};"
        " install it (package qemu-system-x86) or set hypervisor parameter kvm_path",
        ErrorCode.ENVIRON,
    )


KVM: Final = "kvm"
TCG: Final = "tcg"
KVM_DEVICE: Final = "/dev/kvm"
_ROUNDS: Final = 1_000_000  # a third of a second of emulation on a machine of 2020
_PROBE_TIMEOUT_S: Final = 30.0  # a node that is itself emulated takes several seconds
_FILE_BYTES_MAX: Final = 1 << 16
_OUTPUT_BYTES_MAX: Final = 1 << 16
_DISK_BYTES: Final = 1 << 20


class ProbeResult(msgspec.Struct, frozen=True):
    """The result of a probe; it holds for one run of the kernel and one QEMU."""

    boot_id: str
    binary: str
    modified_ns: int
    usable: bool
    reason: str = ""


def choose_accelerator(kvm_flag: str, binary: str, paths: Paths) -> str:
    """Return kvm or tcg for a new machine.

    Args:
        kvm_flag: the parameter of that name; "" leaves the choice to us.

    Raises:
        OpPrereqError: KVM was asked for and cannot be used here.
    """
    if kvm_flag == "disabled":
        return TCG
    result = probe(binary, paths)
    if kvm_flag == "enabled" and not result.usable:
        raise OpPrereqError(
            f"hypervisor parameter kvm_flag is enabled, but KVM is not usable: {result.reason}",
            ErrorCode.ENVIRON,
        )
    return KVM if result.usable else TCG


def probe(binary: str, paths: Paths) -> ProbeResult:
    """Find out whether KVM can be used, or look up an earlier result."""
    path = f"{paths.kvm_dir}/accelerator"
    if (known := _lookup(path, binary)) is not None:
        return known
    ensure_directory(paths.kvm_dir)
    lock = FileLock(f"{paths.kvm_dir}/.accelerator.lock")
    lock.acquire(timeout_s=2 * _PROBE_TIMEOUT_S)  # one at a time: they would slow each other down
    with lock:
        return _lookup(path, binary) or _probe(path, binary, paths)


def _key(binary: str) -> tuple[str, str, int]:
    return clock.boot_id(), binary, os.stat(binary).st_mtime_ns


def _lookup(path: str, binary: str) -> ProbeResult | None:
    """Return an earlier result that still holds; None to probe again."""
    data = read_bytes_or_none(path, _FILE_BYTES_MAX)
    try:
        known = None if data is None else loads_as(ProbeResult, data)
    except GenericError:
        return None  # written by another version
    if known is None or (known.boot_id, known.binary, known.modified_ns) != _key(binary):
        return None
    return known


def _probe(path: str, binary: str, paths: Paths) -> ProbeResult:
    verdict = _try(binary, paths)
    result = ProbeResult(*_key(binary), verdict.usable, verdict.reason)
    if verdict.final:
        write_atomic(path, dumps(result))
    return result


def _try(binary: str, paths: Paths) -> Verdict:
    if not os.path.exists(KVM_DEVICE):
        return Verdict(False, f"there is no {KVM_DEVICE}")
    if not os.access(KVM_DEVICE, os.R_OK | os.W_OK):
        return Verdict(False, f"no right to use {KVM_DEVICE}")
    with contextlib.ExitStack() as stack:
        guests = {}
        for accelerator in (KVM, TCG):
            disk = f"{paths.kvm_dir}/.probe.{os.getpid()}.{accelerator}"
            stack.callback(remove_if_exists, disk)
            with open(disk, "wb") as file:
                file.write(boot_sector(_ROUNDS))
                file.truncate(_DISK_BYTES)
            try:
                guests[accelerator] = _Guest(binary, accelerator, disk)
            except CommandError as err:
                return Verdict(False, err.message)
            stack.callback(guests[accelerator].kill)
        return race(guests, _PROBE_TIMEOUT_S)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether KVM is usable, and if not, why; not ``final`` when another try may tell more."""

    usable: bool
    reason: str = ""
    final: bool = True


class Contestant(Protocol):
    """A guest that prints when it is done."""

    def fileno(self) -> int:
        """Return the descriptor that it prints to."""

    def read(self) -> bytes:
        """Return everything that it printed so far; ends with a zero byte once it has ended."""


def race(guests: Mapping[str, Contestant], timeout_s: float) -> Verdict:
    """Wait until one guest has done its work; KVM is usable if it was KVM's."""
    deadline = clock.monotonic() + timeout_s
    poller = select.poll()
    by_descriptor = {guest.fileno(): name for name, guest in guests.items()}
    for descriptor in by_descriptor:
        poller.register(descriptor, select.POLLIN)
    while (left_s := deadline - clock.monotonic()) > 0:
        for descriptor, _events in poller.poll(left_s * 1000):
            name = by_descriptor[descriptor]
            output = guests[name].read()
            if WORK_DONE_TEXT in output:
                if name == KVM:
                    return Verdict(True)
                return Verdict(False, "a guest runs faster without it")
            if not output.endswith(b"\0"):
                continue
            if name == KVM:
                text = output.rstrip(b"\0").decode("utf-8", "replace").strip()
                return Verdict(False, f"QEMU ended: {text[-500:]}")
            poller.unregister(descriptor)  # only the result of KVM matters then
    return Verdict(False, f"no guest was done within {timeout_s:g} seconds", final=False)


SECTOR_BYTES: Final = 512
WORK_DONE_TEXT: Final = b"work done"
_WORK_COUNT: Final = slice(5, 9)  # place of the work count, little endian

_CODE: Final = bytes.fromhex(
    "ea097c00000000000031c08ed88ec08ed0bc007c8816167dfbbee67ce89d00668b0e057c67e316dbe3d9eed9"
    "e8dcc1dd16007e664975f6bef17ce87f00b442e865007215ff06007eb80043e859007209befd7ca1007ee858"
    "00ba0206ed0d0001eff4ba0006ed83f8ff7405a90001751fa16c042b06177d83f80872e50106177dff06197d"
    "a1197dbe047de82400ebd2ba0006b80001efbe0a7de82000ba0406b80020effaf4ebfc8a16167dbe1c7dcd13"
    "c350e8070058e80d00be137dac84c07424e81400ebf631d2bb0a00f7f35285c07403e8f1ff58043052baf803"
    "eeb40ebb0700cd105ac367756573742075700d0a00776f726b20646f6e650d0a007374617274200062656174"
    "2000706f776572206f66660d0a0000000000009010000100007e000001"
)


def boot_sector(work_count: int = 0) -> bytes:
    """Return a guest that fits into one boot sector.

    It says on the serial console that it is up, counts its starts in the second sector of its disk,
    prints a counter twice a second and powers off when the ACPI button is pressed.  Its source is
    ``test/guests/boot_sector.S``; a test assembles that and compares.

    Args:
        work_count: rounds of floating point work to do first; a million takes a few milliseconds
            on a processor and a third of a second where it is emulated.
    """
    sector = bytearray(_CODE.ljust(SECTOR_BYTES, b"\0"))
    sector[_WORK_COUNT] = work_count.to_bytes(4, "little")
    sector[510:] = b"\x55\xaa"
    return bytes(sector)


class _Guest:
    """A QEMU with the probe guest; its serial console and its messages come through one pipe."""

    def __init__(self, binary: str, accelerator: str, disk: str) -> None:
        self._output = bytearray()
        self._reader, writer = os.pipe2(os.O_CLOEXEC)
        command = [
            *(binary, "-nodefaults", "-no-user-config", "-display", "none", "-m", "16"),
            *("-machine", "pc", "-accel", accelerator, "-serial", "stdio"),
            *("-drive", f"file={disk.replace(',', ',,')},format=raw,if=ide"),
        ]
        try:
            self._child = process.spawn(command, stdout=writer, stderr=writer, cwd="/")
        except CommandError:
            os.close(self._reader)
            raise
        finally:
            os.close(writer)

    def fileno(self) -> int:
        return self._reader

    def read(self) -> bytes:
        data = os.read(self._reader, 4096)
        if len(self._output) < _OUTPUT_BYTES_MAX:
            self._output += data or b"\0"
        return bytes(self._output)

    def kill(self) -> None:
        self._child.kill()
        self._child.wait()
        os.close(self._reader)
