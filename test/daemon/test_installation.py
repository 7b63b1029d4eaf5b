"""What an installation consists of: the package's files and those that lie beside it.

The build runs without a network, by the commands that a wheel is made with.
"""

from __future__ import annotations

import configparser
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ganeti.base.daemons import DAEMONS, PERIODIC
from ganeti.protocol.rapi.pages import FILES

CHECKOUT = Path(__file__).parents[2]
TIMEOUT_S = 300
PLACEMENT = (
    *("harep", "hbal", "hcheck", "hinfo", "hroller", "hscan", "hspace", "hsqueeze"),
)  # their pages are in section 1, as in 3.0
NEED_A_CHECKOUT = {"demo", "make-docs", "launcher"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("setuptools")
    target = tmp_path_factory.mktemp("installation")
    words = f"-q egg_info --egg-base {target} build_py --build-lib {target}/lib"
    command = [sys.executable, "setup.py", *words.split(), "install_data", "--install-dir"]
    subprocess.run(
        [*command, f"{target}/data"],
        cwd=CHECKOUT,
        check=True,
        timeout=TIMEOUT_S,
        capture_output=True,
    )
    return target


def files_below(directory: Path, *, without: str = "__pycache__") -> set[str]:
    return {
        str(path.relative_to(directory))
        for path in directory.rglob("*")
        if path.is_file() and without not in path.parts
    }


def test_the_package_is_complete(built: Path) -> None:
    found = files_below(built / "lib" / "ganeti")
    assert {"py.typed", *(f"rapid/ui/{name}" for name in FILES)} <= found
    others = {name for name in found if not name.endswith(".py")}
    assert others == {
        name for name in files_below(CHECKOUT / "ganeti") if not name.endswith((".py", ".pyc"))
    }


def entry_points(built: Path) -> dict[str, str]:
    parser = configparser.ConfigParser()
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(built / "ganeti.egg-info" / "entry_points.txt")
    return dict(parser["console_scripts"])


def test_every_program_is_installed_and_documented(built: Path) -> None:
    data = files_below(built / "data")
    programs = entry_points(built)
    daemons = {daemon.name for daemon in DAEMONS}
    tools = set(os.listdir(CHECKOUT / "tools")) - NEED_A_CHECKOUT - {"__pycache__", "iallocators"}
    others = {*daemons, *PERIODIC, *PLACEMENT}
    assert {each for each in programs if not each.startswith("gnt-")} == others
    installed = {name for name in data if name.startswith("lib/ganeti/tools/")}
    assert {f"lib/ganeti/tools/{name}" for name in tools - set(PLACEMENT)} == installed
    assert {f"lib/systemd/system/{name}.service" for name in daemons} <= data
    allocators = {
        name for name in os.listdir(CHECKOUT / "tools/iallocators") if name != "__pycache__"
    }
    assert {f"lib/ganeti/iallocators/{name}" for name in allocators} <= data
    pages = {f"share/man/man8/{name}.8" for name in {*programs, *tools} - set(PLACEMENT)}
    pages |= {f"share/man/man1/{name}.1" for name in PLACEMENT}
    pages |= {f"share/man/man1/{name}.1" for name in allocators}
    pages |= {"share/man/man7/ganeti.7", "share/man/man7/ganeti-os-interface.7"}
    assert pages == {name for name in data if name.startswith("share/man/")}
    for name, where in programs.items():
        module, _, function = where.partition(":")
        assert (importlib.util.find_spec(module) is not None, function) == (True, "main"), name
        completion = f"share/bash-completion/completions/{name}"
        assert (completion in data) == name.startswith("gnt-")


def test_pages_and_completion_are_found_where_the_guide_links_them(
    built: Path, tmp_path: Path
) -> None:
    """`man` and bash look below /usr/local/share for what is called as in /usr/local/sbin."""
    guide = (CHECKOUT / "doc/installation.md").read_text()
    [line] = [line for line in guide.splitlines() if "share/bash-completion /usr" in line]
    (tmp_path / "share/man/man8").mkdir(parents=True)  # there may be some already
    line = line.replace("/opt/ganeti", f"{built}/data").replace("/usr/local", str(tmp_path))
    look_up = f"man -M {tmp_path}/share/man -w gnt-node ganeti.7"
    if shutil.which("man") is None:
        look_up = (
            f"readlink {tmp_path}/share/man/man8/gnt-node.8 {tmp_path}/share/man/man7/ganeti.7"
        )
    script = f"""
{line} && {line}
{look_up}
source {tmp_path}/share/bash-completion/completions/gnt-node
COMP_WORDS=(gnt-node evac) COMP_CWORD=1
_ganeti_complete
echo "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    pages = [f"{built}/data/share/man/{name}" for name in ("man8/gnt-node.8", "man7/ganeti.7")]
    assert done.stdout.split() == [*pages, "evacuate"]


def test_examples_can_be_run_where_they_are_installed(built: Path) -> None:
    installed = built / "data" / "share" / "ganeti"
    examples = CHECKOUT / "doc/examples"
    assert files_below(installed) == files_below(examples) - {"bash_completion"}
    for name in files_below(installed):
        mode = (examples / name).stat().st_mode
        assert (installed / name).stat().st_mode & 0o111 == mode & 0o111, name


@pytest.mark.parametrize("launcher", ["tools/launcher", "daemons/daemon-launcher"])
def test_a_checkout_without_its_environment_says_how_to_make_it(
    tmp_path: Path, launcher: str
) -> None:
    program = tmp_path / "tools" / "program"
    program.parent.mkdir()
    shutil.copy(CHECKOUT / launcher, program)
    command = [getattr(sys, "_base_executable", sys.executable), "-I", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "run 'make venv' first" in done.stderr
