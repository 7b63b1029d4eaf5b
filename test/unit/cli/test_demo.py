"""What the demo says."""

from __future__ import annotations

import pytest

from ganeti.base.errors import OpExecError
from ganeti.cli.tools import demo


def test_the_number_of_nodes_is_three_unless_said() -> None:
    assert demo.node_count(None) == demo.node_count("") == 3
    assert demo.node_count("5") == 5
    with pytest.raises(OpExecError, match="NODES='many' is not a number"):
        demo.node_count("many")


@pytest.mark.parametrize(
    ("base", "command"),
    [(".demo", "make demo-stop"), ("/tmp/vc", "make demo-stop DEMO_BASE=/tmp/vc")],
)
def test_what_stops_it_names_another_base(base: str, command: str) -> None:
    assert demo.stop_command(base) == command


def test_commands_are_printed_as_they_can_be_typed() -> None:
    assert demo.wrap_command(["gnt-x", "a b", "-f"]) == "$ gnt-x 'a b' -f"
    lines = demo.wrap_command(["gnt-x", *["--option=value"] * 9]).splitlines()
    assert len(lines) == 2
    assert lines[0].endswith(" \\")
    assert lines[1].startswith("    --option")
    assert max(map(len, lines)) <= 90


def test_an_interrupted_demo_says_what_is_to_be_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(_tour: demo.Tour) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo.Tour, "make", interrupt)
    monkeypatch.setenv(demo.BASE_VARIABLE, "/tmp/interrupted")
    assert demo.main() == 130
    said = capsys.readouterr().out
    assert said == (
        "\nInterrupted.\n'make demo-stop DEMO_BASE=/tmp/interrupted' removes the rest of it.\n"
    )


def test_a_demo_that_fails_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(demo.NODES_VARIABLE, "0")
    assert demo.main() == 1
    said = capsys.readouterr().out
    assert "1 to 200 nodes, not 0" in said
    assert "'make demo-stop' removes" in said
