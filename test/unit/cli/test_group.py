"""``gnt-group``: what its commands ask for."""

from __future__ import annotations

import pytest

from ganeti.cli.declaration.parser import parse
from ganeti.cli.group import settings_of
from ganeti.cli.programs import named
from ganeti.cli.run.binding import bound


@pytest.mark.parametrize("words", [[], ["--alloc-policy=unallocable"]])
def test_a_change_without_disk_parameters_is_an_opcode(words: list[str]) -> None:
    line = parse(named("gnt-group"), ["modify", *words, "g2"], {})
    assert line.options is not None
    opcode = bound(line.command, line.options, line.args, **settings_of(line.options))
    assert (opcode.group_name, opcode.diskparams) == ("g2", {})  # type: ignore[attr-defined]
