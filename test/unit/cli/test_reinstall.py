"""The choice of an operating system for ``gnt-instance reinstall --select-os``."""

from __future__ import annotations

import io
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.luxi_client import FakeLuxiClient

from ganeti.base.errors import OpPrereqError
from ganeti.cli.declaration.parser import Options
from ganeti.cli.instance import life
from ganeti.cli.programs import named
from ganeti.cli.run.context import Context, Terminal
from ganeti.cli.run.failures import NotConfirmed

_OPTIONS = (
    *("force", "force_multiple", "force_variant", "multi_mode", "select_os"),
    *("os_type", "osparams", "osparams_private", "osparams_secret"),
)
NAMES = ["debian+bookworm", "debian+trixie", "test"]

_FOUND = named("gnt-instance").find("reinstall")
assert _FOUND is not None
COMMAND = _FOUND


def terminal(answers: str, out: io.StringIO | None = None, *, interactive: bool = True) -> Terminal:
    out = out or io.StringIO()
    return Terminal(out, out, io.StringIO(answers), is_interactive=interactive)


def test_the_number_chooses_and_nonsense_is_asked_again() -> None:
    out = io.StringIO()
    assert life.choose(terminal("7\n-1\nten\n٢\n1\n", out), NAMES) == "debian+trixie"
    assert out.getvalue().count("is not a number from 0 to 2") == 4


@pytest.mark.parametrize("answers", ["x\n", "X\n", "\n", "", "9\n"])
def test_who_chooses_none_changes_nothing(answers: str) -> None:
    with pytest.raises(NotConfirmed, match="nothing was done"):
        life.choose(terminal(answers), NAMES)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return a function that asks on a terminal, with a cluster that has these names."""

    def ask(there: Terminal, names: list[str] = NAMES, **given: Any) -> str:
        monkeypatch.setattr("ganeti.cli.os.usable_names", lambda *_: names)
        options = Options({"os_type": None, **given})
        return life._select_os(Context("gnt-instance", COMMAND, options, there), options)

    return ask


def test_the_list_is_shown_with_numbers(asked: Callable[..., str]) -> None:
    out = io.StringIO()
    assert asked(terminal("0\n", out)) == "debian+bookworm"
    assert "  0: debian+bookworm\n  1: debian+trixie\n  2: test\n" in out.getvalue()


def test_a_choice_that_cannot_be_made_is_refused(asked: Callable[..., str]) -> None:
    for there, given, text in (
        (terminal("0\n", interactive=False), {}, "needs a terminal"),
        (terminal("0\n"), {"os_type": "test"}, "exclude each other"),
        (terminal("0\n"), {"names": []}, "gnt-os diagnose"),
    ):
        with pytest.raises(OpPrereqError, match=text):
            asked(there, **given)


@pytest.mark.parametrize(
    ("names", "given", "interactive", "questions"),
    [
        (["a"], {}, True, 1),
        (["a"], {"force": True}, True, 0),
        (["a", "b"], {}, True, 1),
        (["a", "b"], {"force_multiple": True}, True, 0),
        (["a", "b"], {"force": True}, False, 0),
    ],
)
def test_one_question_at_most(
    monkeypatch: pytest.MonkeyPatch,
    names: list[str],
    given: dict[str, Any],
    interactive: bool,
    questions: int,
) -> None:
    out = io.StringIO()
    options = Options(dict.fromkeys(_OPTIONS) | {"force_variant": False} | given)
    there = terminal("y\n" * 3, out, interactive=interactive)
    submitted: list[str] = []
    jobs = SimpleNamespace(add=lambda name, _: submitted.append(name), run=lambda: 0)
    monkeypatch.setattr(life, "JobGroup", lambda *_: jobs)
    context = Context("gnt-instance", COMMAND, options, there)
    context._client = FakeLuxiClient()  # type: ignore[assignment]
    assert life.reinstall(context, options, names) == 0
    assert submitted == names
    assert out.getvalue().count("y/[n]") == questions
    assert questions == 0 or "destroys" in out.getvalue()


def test_several_spelled_out_in_a_script_need_force() -> None:
    options = Options(dict.fromkeys(_OPTIONS))
    there = terminal("", interactive=False)
    context = Context("gnt-instance", COMMAND, options, there)
    context._client = client = FakeLuxiClient()  # type: ignore[assignment]
    with pytest.raises(NotConfirmed, match="--force"):
        life.reinstall(context, options, ["a", "b"])
    client.unknown = {"b"}
    with pytest.raises(OpPrereqError, match="instance 'b' is not known"):
        life.reinstall(context, options, ["a", "b"])


def test_an_instance_that_is_named_twice_is_meant_once() -> None:
    options = Options({"multi_mode": None, "force_multiple": True})
    context = Context("gnt-instance", COMMAND, options, terminal("", interactive=False))
    context._client = client = FakeLuxiClient()  # type: ignore[assignment]
    client.full_names = {"web1": "web1.example.com"}
    names = ["web1", "web2", "web1.example.com", "web2"]
    assert life.select_instances(context, options, names, "restart") == ["web1", "web2"]


def test_nothing_is_done_where_one_of_several_is_unknown() -> None:
    options = Options({"multi_mode": None, "force_multiple": True})
    context = Context("gnt-instance", COMMAND, options, terminal("", interactive=False))
    context._client = client = FakeLuxiClient()  # type: ignore[assignment]
    client.unknown = {"nosuch"}
    with pytest.raises(OpPrereqError, match="instance 'nosuch' is not known"):
        life.select_instances(context, options, ["web1", "nosuch"], "restart")
