"""A list command loads little: that is most of what it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from ganeti.cli.programs import named
assert named("gnt-instance").find("list").does
import ganeti.clients.luxi
print("\\n".join(sorted(sys.modules)))
"""
TOO_MUCH = {
    "asyncio",
    "cryptography",
    "OpenSSL",
    "pycurl",
    "pyparsing",
    "psutil",
    "httptools",
    "ssl",
    "argparse",
    "hypothesis",
    "dataclasses",
    "hmac",
    "inspect",
    "typing_extensions",
    "ganeti.config.index",
    "ganeti.objects.model",
    "ganeti.opcodes.opcode",
    "ganeti.opcodes.registry",
    "ganeti.bootstrap.init",
}


@pytest.mark.shows("2.0/master-caveats/fast-start")
def test_list_command_imports_no_more_than_it_needs() -> None:
    output = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, check=True, text=True
    ).stdout
    loaded = set(output.split())
    assert "ganeti.clients.luxi" in loaded
    assert loaded & TOO_MUCH == set()
