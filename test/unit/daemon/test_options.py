"""Tests of ganeti/daemon/options.py."""

from __future__ import annotations

import pytest

from ganeti.daemon.options import MasterOptions, Port, TlsOptions, parse


class All(TlsOptions, frozen=True, kw_only=True):
    port: Port = 1811


def test_defaults() -> None:
    found = parse("ganeti-x", "does x", All, [])
    assert not found.foreground
    assert not found.debug
    assert found.syslog == "no"
    assert found.port == 1811
    assert found.bind is None
    assert found.max_clients is None
    assert not parse("ganeti-x", "does x", MasterOptions, []).no_voting


@pytest.mark.shows("backend/rapi/options")
def test_short_and_long_options() -> None:
    argv = ["-f", "-d", "-p", "99", "-b", "127.1.2.3", "--syslog=only", "-K", "k"]
    found = parse("ganeti-x", "does x", All, argv)
    assert found.foreground
    assert found.debug
    assert (found.port, found.bind, found.syslog, found.ssl_key) == (99, "127.1.2.3", "only", "k")
    assert parse("ganeti-x", "does x", MasterOptions, ["--no-voting"]).no_voting


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--bogus"], "unrecognized arguments: --bogus"),
        (["--port=x"], "wrong argument port: Expected `int`, got `str`"),
        (["--syslog=maybe"], "invalid choice: 'maybe'"),
        (["--foregr"], "unrecognized arguments"),
        (["argument"], "unrecognized arguments: argument"),
    ],
)
def test_a_mistake_ends_with_status_2(
    argv: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parse("ganeti-x", "does x", All, argv)
    assert caught.value.code == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_the_version(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse("ganeti-x", "does x", All, [option])
    assert caught.value.code == 0
    assert capsys.readouterr().out == "ganeti-x (ganeti) 3.0.2\n"


def test_options_for_shell_completion(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse("ganeti-x", "does x", All, ["--help-completion"])
    assert caught.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert "-f,--foreground none" in lines
    assert "-p,--port integer" in lines
    assert "--syslog choices=yes,no,only" in lines
    assert "-h,--help none" in lines
