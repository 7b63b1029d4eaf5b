"""doc/examples/oob-helper against boards: a Redfish one of ours, and OpenIPMI's simulator."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import redfish
from fakes.redfish import Board
from fakes.shell_scripts import write_script

from ganeti.logical_units.node.power import mistake_in_answer
from ganeti.opcodes.node import OobCommand

PROGRAM = Path(__file__).resolve().parents[2] / "doc/examples/oob-helper"
NODE = "node1.example.com"
DEADLINE_S = 30.0
LIMIT_S = 20  # of the helper, on a machine that is busy


class Helper:
    """The program, with the file of boards."""

    def __init__(self, directory: Path) -> None:
        self.boards = directory / "boards"
        self.env = {**os.environ, "OOB_BOARDS": str(self.boards), "OOB_LIMIT_S": str(LIMIT_S)}

    def write(self, line: str) -> None:
        self.boards.write_text(f"# node, board, user, password\n{line}\n")
        self.boards.chmod(0o600)

    def run(self, command: str, node: str = NODE) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, str(PROGRAM), command, node],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=3 * DEADLINE_S,
            check=False,
        )
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout, done.stderr

    def do(self, command: str) -> object:
        """Run it; returns its answer."""
        status, out, err = self.run(command)
        assert (status, err) == (0, "")
        answer = json.loads(out) if out else None
        assert mistake_in_answer(OobCommand(command), answer) is None
        return answer

    def failure(self, command: str) -> str:
        """Run it; returns what it says when it fails."""
        status, out, err = self.run(command)
        assert (status, out) == (1, "")
        assert err.startswith(f"{NODE}: ")
        return err


@pytest.fixture
def helper(tmp_path: Path) -> Helper:
    return Helper(tmp_path)


@pytest.fixture
def board(tmp_path: Path, helper: Helper) -> Iterator[Board]:
    with redfish.running(tmp_path) as found:
        helper.write(f'{NODE} {found.url} {found.user} "{found.password}" sha256={found.pin}')
        yield found


def test_a_redfish_board_is_switched(board: Board, helper: Helper) -> None:
    assert helper.do("power-status") == {"powered": True}
    assert helper.do("health") == [["system", "OK"]]
    assert helper.do("power-off") is None
    assert board.power == "Off"
    assert helper.do("power-status") == {"powered": False}
    helper.do("power-off")  # as it is already
    assert board.orders == ["ForceOff"]
    helper.do("power-cycle")
    helper.do("power-cycle")
    assert board.orders == ["ForceOff", "On", "ForceRestart"]
    helper.do("power-off")
    helper.do("power-on")
    assert board.orders[3:] == ["ForceOff", "On"]
    board.health = "Critical"
    assert helper.do("health") == [["system", "CRITICAL"]]


def test_it_is_waited_until_the_node_is_off(board: Board, helper: Helper) -> None:
    board.mood = "late"
    helper.do("power-off")
    assert board.power == "Off"


@pytest.mark.parametrize(
    ("mood", "command", "words"),
    [
        ("lies", "power-off", "was not done within 2 s"),
        ("slow", "power-status", "was not done within 2 s"),
        ("garbage", "power-status", "the answer is no JSON"),
        ("torn", "power-status", "the answer is no JSON: b'{'"),
        ("odd", "power-status", "does not tell the state of the power: 'Rebooting'"),
        ("double", "power-off", "say system=ID"),
        ("refuses", "power-off", "HTTP status 503"),
    ],
)
def test_in_doubt_it_fails(
    board: Board, helper: Helper, mood: str, command: str, words: str
) -> None:
    if "2 s" in words:
        helper.env["OOB_LIMIT_S"] = "2"
    board.mood = mood
    assert words in helper.failure(command)


def test_one_of_two_systems_is_named(board: Board, helper: Helper) -> None:
    board.mood = "double"
    helper.write(helper.boards.read_text().strip() + " system=1")
    assert helper.do("power-status") == {"powered": True}


def test_a_wrong_password_is_told_and_not_shown(board: Board, helper: Helper) -> None:
    board.password = "another"
    said = helper.failure("power-status")
    assert "neither this user nor this password" in said
    assert "a secret" not in said


def test_a_board_with_another_certificate_hears_no_password(board: Board, helper: Helper) -> None:
    helper.write(f"{NODE} {board.url} {board.user} secret sha256={'0' * 64}")
    assert f"another certificate: sha256={board.pin}" in helper.failure("power-off")
    helper.write(f"{NODE} {board.url} {board.user} secret")
    assert "certificate verify failed" in helper.failure("power-off")
    assert board.asked == []


def test_nobody_there(helper: Helper) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        helper.write(f"{NODE} https://127.0.0.1:{unused.getsockname()[1]} a b")
        assert "refused" in helper.failure("power-off")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"{NODE} https://192.0.2.1 fencer", "it takes NODE URL USER PASSWORD"),
        (f"{NODE} https://192.0.2.1 fencer x sha256", "it takes NODE URL USER PASSWORD"),
        (f"{NODE} http://192.0.2.1 fencer x", "a board is https://ADDRESS or ipmi://ADDRESS"),
        (f"{NODE} 192.0.2.1 fencer x", "a board is https://ADDRESS or ipmi://ADDRESS"),
        (f'{NODE} https://192.0.2.1 fencer "x', "No closing quotation"),
        ("node2.example.com https://192.0.2.1 fencer x", f"no line for {NODE}"),
    ],
)
def test_mistakes_in_the_file(helper: Helper, line: str, words: str) -> None:
    helper.write(line)
    assert words in helper.failure("power-status")


def test_a_file_that_others_may_read_is_not_used(helper: Helper) -> None:
    helper.write(f"{NODE} https://192.0.2.1 fencer x")
    helper.boards.chmod(0o640)
    assert "only root may own and read it" in helper.failure("power-status")
    helper.boards.unlink()
    assert "cannot read" in helper.failure("power-status")


def test_a_wrong_command_is_refused(helper: Helper) -> None:
    status, _, err = helper.run("explode")
    assert status == 2
    assert err.startswith("usage: ")


# --- IPMI

_SIMULATOR = """\
name "bmc"
set_working_mc 0x20
chassis_control "{chassis} 0x20"
startlan 1
  addr 127.0.0.1 {port}
  priv_limit admin
  allowed_auths_callback none md2 md5 straight
  allowed_auths_user none md2 md5 straight
  allowed_auths_operator none md2 md5 straight
  allowed_auths_admin none md2 md5 straight
  guid a123456789abcdefa123456789abcdef
endlan
user 2 true "fencer" "secret" admin 10 none md2 md5 straight
"""
_SETUP = """\
mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
mc_enable 0x20
"""
_CHASSIS = """\
op=$2
shift 2
while [ $# -gt 0 ]; do
  case $op/$1 in
    get/power) echo "power:$(cat {power})"; shift;;
    get/*) echo "$1:0"; shift;;
    set/power) echo $2 > {power}; shift 2;;
    set/*) shift 2;;
  esac
done
"""


@pytest.fixture
def ipmi(helper: Helper) -> Iterator[Path]:
    """Run OpenIPMI's simulator; yields the file with the state of the power."""
    if not (shutil.which("ipmi_sim") and shutil.which("ipmitool")):
        pytest.skip("needs ipmi_sim of openipmi, and ipmitool")
    with socket.socket(type=socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="ipmi-") as name:
        directory, power = Path(name), Path(name, "power")
        power.write_text("1\n")
        chassis = directory / "chassis"
        write_script(chassis, _CHASSIS.replace("{power}", str(power)))
        (directory / "lan.conf").write_text(_SIMULATOR.format(chassis=chassis, port=port))
        (directory / "setup").write_text(_SETUP)
        (directory / "state").mkdir()
        argv = ["ipmi_sim", "-n", "-c", "lan.conf", "-f", "setup", "-s", "state"]
        helper.write(f"{NODE} ipmi://127.0.0.1:{port} fencer secret cipher=3")
        with subprocess.Popen(argv, cwd=name, stdout=subprocess.DEVNULL) as process:
            try:
                deadline_s = time.monotonic() + DEADLINE_S
                while helper.run("power-status")[0] != 0:
                    assert time.monotonic() < deadline_s, helper.run("power-status")
                yield power
            finally:
                process.kill()


def test_an_ipmi_board_is_switched(ipmi: Path, helper: Helper) -> None:
    assert helper.do("power-status") == {"powered": True}
    helper.do("power-off")
    assert ipmi.read_text() == "0\n"
    assert helper.do("power-status") == {"powered": False}
    helper.do("power-cycle")  # there is nothing to cycle: it is switched on
    assert ipmi.read_text() == "1\n"
    helper.do("power-off")
    helper.do("power-on")
    assert ipmi.read_text() == "1\n"
    health = helper.do("health")
    assert isinstance(health, list)
    assert ["Main Power Fault", "OK"] in health


def test_an_ipmi_board_that_refuses_or_is_silent(ipmi: Path, helper: Helper) -> None:
    line = helper.boards.read_text().strip()
    helper.write(line.replace("secret", "wrong"))
    said = helper.failure("power-off")
    assert "Unable to establish IPMI v2 / RMCP+ session" in said
    assert "wrong" not in said
    assert ipmi.read_text() == "1\n"


@contextlib.contextmanager
def ipmitool(directory: Path, helper: Helper, body: str) -> Iterator[None]:
    """Put a program of that name first in the path."""
    write_script(directory / "ipmitool", body)
    helper.env["PATH"] = f"{directory}:{helper.env['PATH']}"
    helper.write(f"{NODE} ipmi://192.0.2.1 fencer secret")
    yield


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("exec sleep 60", "was not done within 2 s"),
        ("echo Chassis Power is on", "was not done within 2 s"),  # and does nothing
        ("echo Chassis Power is; exit 0", "does not tell the state of the power"),
        ("echo broken >&2; exit 1", "ipmitool chassis power off: broken"),
    ],
)
def test_an_ipmitool_in_doubt(tmp_path: Path, helper: Helper, body: str, words: str) -> None:
    helper.env["OOB_LIMIT_S"] = "2"
    with ipmitool(tmp_path, helper, body):
        assert words in helper.failure("power-off")


def test_the_password_is_no_argument(tmp_path: Path, helper: Helper) -> None:
    with ipmitool(tmp_path, helper, f'echo "$@ $IPMI_PASSWORD" > {tmp_path}/seen; exit 1'):
        helper.failure("power-status")
    words = (tmp_path / "seen").read_text().split()
    assert words.count("secret") == 1
    assert words[-1] == "secret"
