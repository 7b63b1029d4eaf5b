"""Secrets and certificates that ``gnt-cluster renew-crypto`` is given."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from ganeti.base.errors import OpPrereqError
from ganeti.cli.cluster.crypto import new_contents
from ganeti.cli.declaration.parser import parse
from ganeti.cli.programs import named
from ganeti.cli.run.context import Context, Terminal
from ganeti.protocol.remote_move import SECRET_BYTES_MAX

PROGRAM = named("gnt-cluster")
_FOUND = PROGRAM.find("renew-crypto")
assert _FOUND is not None
COMMAND = _FOUND


def given_secret(path: Path, content: bytes) -> bytes:
    """Return the secret that is taken from a file with this content."""
    path.write_bytes(content)
    options = parse(PROGRAM, ["renew-crypto", f"--cluster-domain-secret={path}"], {}).options
    terminal = Terminal(io.StringIO(), io.StringIO(), io.StringIO(), is_interactive=False)
    found = new_contents(Context(PROGRAM.name, COMMAND, options, terminal), options)
    return found["cluster_domain_secret"]


def test_a_secret_may_have_any_bytes(tmp_path: Path) -> None:
    assert given_secret(tmp_path / "secret", b"\xff\xfe") == b"\xff\xfe"


def test_a_secret_that_jobs_could_not_read_is_refused_by_the_name_of_its_file(
    tmp_path: Path,
) -> None:
    assert given_secret(tmp_path / "secret", bytes(SECRET_BYTES_MAX))
    with pytest.raises(OpPrereqError, match=r"/long is no cluster domain secret: .* 65537 bytes"):
        given_secret(tmp_path / "long", bytes(SECRET_BYTES_MAX + 1))
