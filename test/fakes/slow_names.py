"""Runs LuxiD on a machine whose name service takes seconds to answer."""

from __future__ import annotations

import pwd
import socket
import sys
import time
from typing import NoReturn

from ganeti.daemon.main import run_daemon
from ganeti.luxid.main import SPEC

ANSWER_S = 4.0
UNKNOWN_USER = "gnt-confd"
LATE_NAME = "somebody"


def _find_name(name: str) -> NoReturn:
    if name == UNKNOWN_USER:  # the files of the machine have the others
        time.sleep(ANSWER_S)
    raise KeyError(name)


def _find_number(uid: int) -> pwd.struct_passwd:
    time.sleep(ANSWER_S)
    return pwd.struct_passwd((LATE_NAME, "x", uid, uid, "", "/", "/bin/sh"))


def _find_host(_name: str = "") -> str:
    time.sleep(ANSWER_S)
    return "unknown"


if __name__ == "__main__":
    pwd.getpwnam, pwd.getpwuid = _find_name, _find_number
    socket.getfqdn = _find_host
    sys.exit(run_daemon(SPEC, sys.argv[1:]))
