#!/usr/bin/env python3
"""Measures the cluster's faces to the outside, one section each.

    bench/faces.py [SECTION...] [-- OPTION...]

A section is a program beside this one that can be run by itself; what stands after -- is handed on.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))

SECTIONS = {
    "confd": "RConfD: questions per second, time and processor per answer",
    "mond": "MonD: reports and metrics",
    "rapi": "RapiD: requests, handshakes, lists",
}


def main() -> int:
    """Run the sections that are wished for, all by default."""
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="; ".join(f"{name}: {text}" for name, text in SECTIONS.items()),
    )
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    wished = parser.parse_args(words[:end]).sections or list(SECTIONS)
    unknown = [name for name in wished if name not in SECTIONS]
    if unknown:
        parser.error(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    failed = 0
    for name in wished:
        print(f"=== {SECTIONS[name]}", flush=True)
        argv = [sys.executable, os.path.join(HERE, f"{name}.py"), *words[end + 1 :]]
        failed |= subprocess.run(argv, check=False).returncode
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
