"""Tests of ganeti/collectors/diagnose.py."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from pathlib import Path
from typing import Any

import pytest
from fakes.shell_scripts import write_script

from ganeti.base.errors import CommandError, GenericError
from ganeti.base.paths import Paths
from ganeti.collectors import diagnose
from ganeti.collectors.cluster_facts import ClusterFacts
from ganeti.collectors.collector import NodeView

KEY = b"0123456789abcdef0123456789abcdef01234567\n"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    found = Paths(str(tmp_path))
    Path(found.data_dir).mkdir(parents=True)
    Path(found.hmac_key).write_bytes(KEY)
    Path(found.diagnose_commands_dir).mkdir(parents=True)
    return found


def view_of(paths: Paths, command: str | None) -> NodeView:
    return NodeView(paths, "node1", ClusterFacts(diagnose_command=command))


def put(paths: Paths, name: str, text: str, mode: int = 0o755) -> str:
    return write_script(Path(paths.diagnose_commands_dir) / name, text, mode)


@pytest.mark.shows("maintd/collector/built-in")
def test_without_a_command_all_is_well(paths: Paths) -> None:
    assert diagnose.diagnose(view_of(paths, "")) == {"status": "Ok"}


def test_while_the_command_is_not_known_nothing_is_said(paths: Paths) -> None:
    with pytest.raises(GenericError, match="not known how to diagnose this node"):
        diagnose.diagnose(view_of(paths, None))


@pytest.mark.shows("maintd/collector/external", "maintd/details/opaque")
def test_the_object_is_passed_on_as_it_is(paths: Paths) -> None:
    put(paths, "check", """echo '{"details": [1, {"x": null}], "status": "evacuate", "a": 1}'""")
    found = diagnose.diagnose(view_of(paths, "check"))
    assert found == {"details": [1, {"x": None}], "status": "evacuate", "a": 1}


@pytest.mark.shows("maintd/forging/signed")
def test_the_report_is_signed_as_packets_of_confd_are(paths: Paths) -> None:
    put(paths, "check", """echo '{"status":"Ok"}'""")
    data: Any = diagnose.Diagnose().collect(view_of(paths, "check"))
    assert json.loads(data["msg"]) == {"status": "Ok"}
    time, _, signer = data["salt"].partition(":")
    assert time.isdecimal()
    assert signer == "node1"
    signed = (data["salt"] + data["msg"]).encode()
    assert data["hmac"] == hmac.new(KEY, signed, hashlib.sha1).hexdigest()
    Path(paths.hmac_key).unlink()
    with pytest.raises(GenericError, match="cannot sign"):
        diagnose.Diagnose().collect(view_of(paths, "check"))


@pytest.mark.shows("maintd/protocol/no-arguments")
def test_the_command_gets_nothing_and_knows_little(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "x")
    put(
        paths,
        "check",
        'read -r line && exit 1; [ -z "$SECRET$*" ] && [ "$PWD" = / ] || exit 2\n'
        """echo '{"status": "Ok"}'""",
    )
    assert diagnose.diagnose(view_of(paths, "check")) == {"status": "Ok"}


def test_a_command_that_hangs_is_killed(paths: Paths) -> None:
    put(paths, "check", "sleep 1000")
    with pytest.raises(CommandError, match="did not end in time and was killed"):
        diagnose.diagnose(view_of(paths, "check"), timeout_s=0.2)


def test_what_a_command_left_running_ends_with_it(paths: Paths) -> None:
    """A pipe that the process left behind holds open says when it is gone."""
    pipe = f"{paths.data_dir}/pipe"
    os.mkfifo(pipe)
    put(paths, "check", f'sleep 1000 >{pipe} &\necho \'{{"status": "Ok"}}\'')
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(reader, "rb") as left:
        os.set_blocking(reader, True)
        assert diagnose.diagnose(view_of(paths, "check"))["status"] == "Ok"
        assert left.read() == b""


def test_a_command_that_prints_without_end_is_killed(paths: Paths) -> None:
    put(paths, "check", "exec yes")
    with pytest.raises(CommandError, match="printed too much and was killed"):
        diagnose.diagnose(view_of(paths, "check"))


@pytest.mark.shows("maintd/collector/white-listed", "maintd/security/directory")
@pytest.mark.parametrize("name", ["../evil", "missing", "open", "a b"])
def test_what_this_node_does_not_allow_is_not_run(paths: Paths, name: str) -> None:
    put(paths, "open", "touch ran", 0o777)
    with pytest.raises(GenericError, match=r"valid name|No such file|changed by others"):
        diagnose.diagnose(view_of(paths, name))


def test_a_failure_says_how_it_ended(paths: Paths) -> None:
    put(paths, "check", "echo no disk >&2; exit 3")
    with pytest.raises(CommandError, match="exit status 3: no disk"):
        diagnose.diagnose(view_of(paths, "check"))
