"""Starts the template of the job processes, or a job process that has none.

LuxiD runs this file by its path, with an isolated interpreter (``python -I -S``); the argument
names the directories to import from, separated by colons.  Any word after it makes one job process.
"""

import sys

if __name__ == "__main__":
    sys.path[:0] = sys.argv[1].split(":")

    from ganeti.jobexec.template import be_one, main

    be_one() if sys.argv[2:] else main()
