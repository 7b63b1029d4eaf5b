"""The audit log: a line of JSON for each change that somebody asked a daemon of the master for.

LuxiD writes one for each call that changes something, one for each job of a submission, and RapiD
one for each such request, with the user of the remote API; a job that comes through both has the
same number in both files.  Neither parameters of opcodes nor bodies of requests are in it, and so
no secrets.

Like any log it never keeps anybody waiting, and never stops the work: lines that a full disk does
not take are counted, and the next line that is written follows ``{"lost": COUNT}``.  It may be
rotated away.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from ganeti.base.errors import GenericError
from ganeti.base.json import dumps
from ganeti.daemon.log import FileHandler
from ganeti.opcodes.summary import summary
from ganeti.system import clock, files

ACCEPTED: Final = "accepted"
REFUSED: Final = "refused"
UNKNOWN: Final = "unknown"  # the daemon stopped, or failed, before there was an answer
_TEXT_LENGTH_MAX: Final = 500
_OPCODES_MAX: Final = 20  # named of one job
_SUBMISSIONS: Final = {"SubmitJob", "SubmitJobToDrainedQueue"}
_MANY: Final = "SubmitManyJobs"
_HIDDEN: Final = "secret"  # in the names of all parameters that are one


class Entry(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One line.

    Attributes:
        user: the Unix user whose program asked, or the user of the remote API; "" for nobody.
        program: of the client, with its process id; of a client on this machine.
        address: of the client; of one that came over the network.
        what: the call, or method and path.
        opcodes: summaries of those of a job.
        reason: sources and texts by which the client explains the job.
        arguments: of a call that submits no job.
        why: the reason of a refusal, or the answer in words.
    """

    time: str = ""
    daemon: str
    user: str
    program: str = ""
    pid: int = 0
    address: str = ""
    what: str
    opcodes: list[str] = []
    reason: list[str] = []
    arguments: Sequence[object] = ()
    job: int = 0
    outcome: str = ""
    status: int = 0
    why: str = ""


class AuditLog:
    """Writes the lines of one daemon."""

    def __init__(self, path: str) -> None:
        self._handler = FileHandler(path, lost_note=b'{"lost":%d}\n')
        self._handler.setFormatter(logging.Formatter("%(message)s"))
        self.reopen = self._handler.reopen

    def write(self, *entries: Entry) -> None:
        """Write entries, with the time of now."""
        now = datetime.fromtimestamp(clock.now(), UTC)
        for entry in entries:
            entry.time = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            entry.why = entry.why[:_TEXT_LENGTH_MAX]
            self._handler.handle(logging.makeLogRecord({"msg": dumps(entry).decode()}))


def entries_of_call(about: Entry, args: Sequence[Any], answer: object) -> Iterator[Entry]:
    """Return the entries of a call of LUXI that changes something, one for each job.

    Args:
        about: what is known of it, and of its client.
        args: none if they could not be read.
        answer: what it was answered; an exception if it was refused.
    """
    if args and about.what == _MANY:
        jobs, answers = args[0], answer
        if not isinstance(answers, list):  # all of them are refused
            answers = [answer] * len(jobs)
        pairs = zip(jobs, answers, strict=True)
    elif args and about.what in _SUBMISSIONS:
        pairs = zip([args[0]], [answer], strict=True)
    else:
        entry = msgspec.structs.replace(about, arguments=list(args))
        yield _with_outcome(entry, answer, job=0)
        return
    for opcodes, its in pairs:
        entry = msgspec.structs.replace(
            about,
            opcodes=[summary(op)[:_TEXT_LENGTH_MAX] for op in opcodes[:_OPCODES_MAX]],
            reason=list(_reasons(opcodes)),
        )
        job = its[1] if isinstance(its, tuple) and its[0] else its
        entry = _with_outcome(entry, its, job=job if isinstance(job, int) else 0)
        if any(_HIDDEN in name for op in opcodes for name in op):
            entry.why = ""  # it may quote one
        yield entry


def _with_outcome(entry: Entry, answer: object, *, job: int) -> Entry:
    outcome, why = ACCEPTED, ""
    if isinstance(answer, GenericError):
        outcome, why = REFUSED, answer.message
    elif isinstance(answer, BaseException):
        outcome, why = UNKNOWN, type(answer).__name__
    elif isinstance(answer, tuple) and answer and isinstance(answer[0], bool):
        outcome = ACCEPTED if answer[0] else REFUSED
        why = answer[1] if isinstance(answer[1], str) else ""
    return msgspec.structs.replace(entry, outcome=outcome, why=why, job=job)


def _reasons(opcodes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Return the words of the first opcode's reason trail."""
    trail = opcodes[0].get("reason") if opcodes else None
    for step in (trail if isinstance(trail, list) else [])[:_OPCODES_MAX]:
        if isinstance(step, list | tuple) and len(step) > 1:
            yield f"{step[0]} {step[1]}".strip()[:_TEXT_LENGTH_MAX]


def program_of(pid: int) -> str:
    """Return the name of a running program, or script, without its arguments; "" if unknown."""
    try:
        words = files.read_bytes(f"/proc/{pid}/cmdline", 1 << 20).split(b"\0")
    except OSError:
        return ""
    names = [os.path.basename(word) for word in words[:_OPCODES_MAX] if word[:1] not in (b"", b"-")]
    is_script = len(names) > 1 and names[0].startswith(b"python")
    name = names[1] if is_script else names[0] if names else b""
    return name.decode("utf-8", "replace")[:_TEXT_LENGTH_MAX]
