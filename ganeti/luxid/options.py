"""The name and the options of LuxiD."""

from __future__ import annotations

from typing import Annotated, Final

from ganeti.daemon.options import MasterOptions, option

NAME: Final = "ganeti-luxid"


class Options(MasterOptions, frozen=True, kw_only=True):
    """The options of LuxiD."""

    exec_jobs: Annotated[
        bool, option("start each job process as a program of its own, which may be confined")
    ] = False
