"""A template whose job processes stop being one at a given step of the hand-over.

    cut_job_process.py STEP FLAG [job]

STEP: ``begin`` before it is ready, ``ready`` right after, ``assign`` when it gets its job, ``named``
after it has named its lock file.  While the file FLAG exists it ends there; with ``FLAG.hang`` it
hangs instead, its number in ``FLAG.pid``; without either it is a normal job process.  With "job" it
is such a process itself.
"""

from __future__ import annotations

import os
import sys
import time
from typing import NoReturn

CHECKOUT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, CHECKOUT)

from ganeti.jobexec import template  # noqa: E402
from ganeti.protocol.job_start import Assign, Named, Ready  # noqa: E402


def cut(flag: str) -> None:
    """End or hang here, if one of the files says so; a file is good for one process."""
    for path in (flag, f"{flag}.hang"):
        try:
            os.unlink(path)
        except FileNotFoundError:
            continue
        if path.endswith(".hang"):
            with open(f"{flag}.pid", "w", encoding="ascii") as file:
                file.write(str(os.getpid()))
        stop(hang=path.endswith(".hang"))


def stop(*, hang: bool) -> NoReturn:
    while hang:
        time.sleep(3600)
    os._exit(9)


class CutLink(template.LuxidLink):
    """the dialog, cut at a step."""

    step, flag = sys.argv[1:3]

    def say(self, message: object) -> None:
        if isinstance(message, Ready) and self.step == "begin":
            cut(self.flag)
        super().say(message)  # type: ignore[arg-type]
        if isinstance(message, Ready) and self.step == "ready":
            cut(self.flag)
        if isinstance(message, Named) and self.step == "named":
            cut(self.flag)

    def hear(self) -> object:  # type: ignore[override]
        message = super().hear()
        if isinstance(message, Assign) and self.step == "assign":
            cut(self.flag)
        return message


if __name__ == "__main__":
    template.LuxidLink = CutLink  # type: ignore[misc, assignment]
    template.be_one() if sys.argv[3:] else template.main()
