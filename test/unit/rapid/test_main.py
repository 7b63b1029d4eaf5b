"""Tests of ganeti/rapid/main.py: what is said of a certificate, and when."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ganeti.daemon import options
from ganeti.metad import main as metad
from ganeti.mond import main as mond
from ganeti.rapid import main
from ganeti.system import certificates, clock

DAY_S = 86400.0
START, END = 1_700_000_000.0, 1_800_000_000.0


@pytest.mark.shows("backend/rapi/port", "backend/rapi/options")
def test_it_listens_at_port_5080_with_tls_unless_told_otherwise() -> None:
    usual = options.parse("ganeti-rapi", "", main.Options, [])
    assert (usual.port, usual.no_ssl) == (5080, False)
    argv = ["--port=5081", "--no-ssl", "--bind=127.0.0.9"]
    other = options.parse("ganeti-rapi", "", main.Options, argv)
    assert (other.port, other.no_ssl, other.bind) == (5081, True, "127.0.0.9")


def test_one_address_leaves_room_for_others() -> None:
    for limits in (main._LIMITS, mond._LIMITS, metad._HTTP):
        assert limits.origin_connections_max <= limits.connections_max // 4


@pytest.mark.parametrize(
    ("now", "level", "text"),
    [
        (END, logging.ERROR, "expired on 2027-01-15 08:00:00 UTC"),
        (END - DAY_S, logging.WARNING, "expires on 2027-01-15"),
        (START - 1, logging.ERROR, "valid from 2023-11-14 22:13:20 UTC only"),
    ],
)
def test_what_is_wrong_is_said(now: float, level: int, text: str) -> None:
    found = main.certificate_problem(START, END, now)
    assert found is not None
    assert (found[0], text in found[1]) == (level, True)


def test_nothing_is_said_of_one_that_is_valid() -> None:
    assert main.certificate_problem(START, END, START) is None
    assert main.certificate_problem(START, END, END - 31 * DAY_S) is None


def test_the_line_names_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "rapi.pem"
    main.check_certificate(str(path))  # there is none: others complain of that
    path.write_bytes(b"rubbish")
    main.check_certificate(str(path))
    assert caplog.text == ""
    path.write_bytes(certificates.make_self_signed(now=clock.now() - 1000 * DAY_S, days=10))
    main.check_certificate(str(path))
    assert f"The certificate in {path} expired on" in caplog.text
