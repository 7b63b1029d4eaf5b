"""Starts a job process with as little as possible: no site packages hooks, no unused imports.

LuxiD runs this file by its path, with an isolated interpreter (``python -I -S``).  The first
argument names the directories to import from, separated by colons; the second, if there is one,
where a bundle of modules is (see `ganeti.jobexec.bundle`): "descriptor:offset:size of its head".
Python compiles this file each time anew, so it is short.
"""

import gc
import sys
from marshal import loads
from posix import pread

if __name__ == "__main__":
    gc.disable()  # nothing of what the modules make is ever garbage
    sys.path[:0] = sys.argv[1].split(":")
    if len(sys.argv) > 2:
        descriptor, offset, size = map(int, sys.argv[2].split(":"))
        importer, index = loads(pread(descriptor, size, offset))  # noqa: S302 - LuxiD's memory
        bundle = type(sys)("ganeti.jobexec.bundle")
        exec(importer, vars(bundle))  # noqa: S102 - made of our own modules
        bundle.install(descriptor, offset + size, index)

    from ganeti.jobexec.lean import leave_out_unused

    leave_out_unused()

    import os

    from ganeti.jobexec.main import main

    status = main()
    sys.stderr.flush()
    os._exit(status)  # taking the interpreter apart would cost as much as the job
