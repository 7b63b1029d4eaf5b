"""Where our own programs are."""

from __future__ import annotations

import os
import sys

import pytest

from ganeti.base.errors import GenericError
from ganeti.system import daemon_control


@pytest.mark.parametrize(
    ("above_package", "prefix"),
    [
        ("/usr/lib/python3.11/site-packages", "/usr"),
        ("/usr/lib/python3/dist-packages", "/usr"),
        ("/opt/ganeti/lib/python3.13/site-packages", "/opt/ganeti"),
        ("/home/me/ganeti", None),
    ],
)
def test_the_package_tells_where_it_is_installed(above_package: str, prefix: str | None) -> None:
    assert daemon_control.installation_prefix(above_package) == prefix


def test_a_checkout_uses_its_own_programs() -> None:
    daemon = daemon_control.executable("ganeti-noded")
    checkout = os.path.dirname(os.path.dirname(daemon))
    assert os.path.isdir(f"{checkout}/ganeti")
    assert daemon_control.command("vcluster", ["-h"]) == [
        sys.executable,
        f"{checkout}/tools/vcluster",
        "-h",
    ]


def test_installed_programs_are_looked_for_below_the_prefix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(daemon_control, "installation_prefix", lambda: "/opt/ganeti")
    assert daemon_control.program_directories() == [
        "/opt/ganeti/sbin",
        "/opt/ganeti/bin",
        "/opt/ganeti/lib/ganeti/tools",
        os.path.dirname(sys.executable),
    ]


def test_a_program_that_is_nowhere_is_named() -> None:
    with pytest.raises(GenericError, match="the program ganeti-nosuch is not installed"):
        daemon_control.executable("ganeti-nosuch")
