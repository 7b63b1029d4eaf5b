"""Starts the template of the job processes.

LuxiD runs this file by its path, with an isolated interpreter (``python -I -S``); the argument
names the directories to import from, separated by colons.
"""

import sys

if __name__ == "__main__":
    sys.path[:0] = sys.argv[1].split(":")

    from ganeti.jobexec.template import main

    main()
