"""Files of machines, and files that parameters name."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganeti.base.errors import HypervisorError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.hypervisor.kvm.files import MachineFiles, local_file, local_files, read_password
from ganeti.hypervisor.kvm.params import KvmParams
from ganeti.hypervisor.kvm.qemu import find_qemu


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a\0b"])
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(HypervisorError, match="cannot be the name"):
        MachineFiles(Paths(""), name)


def test_sockets_are_shorter_than_those_of_the_daemons() -> None:
    paths = Paths("/x")
    for kind in ("control", "info", "serial", "agent", "vnc"):
        path = MachineFiles(paths, "a" * 250).socket_path(kind)
        assert len(path) <= len(paths.wconfd_socket)
    assert MachineFiles(paths, "a").socket_path("info") != MachineFiles(paths, "b").socket_path(
        "info"
    )


def test_too_long_a_path_is_refused_with_its_length(tmp_path: Path) -> None:
    files = MachineFiles(Paths(str(tmp_path / ("x" * 100))), "inst1")
    files.make_directories()
    with pytest.raises(OpPrereqError, match="107 are possible"):
        files.listen("control")


def test_listening_makes_socket_and_link_and_removal_takes_both(tmp_path: Path) -> None:
    files = MachineFiles(Paths(str(tmp_path)), "i")
    files.make_directories()
    if len(files.socket_path("info")) > 107:
        pytest.skip("the temporary directory has too long a name")
    files.listen("info").close()
    files.listen("info").close()
    assert Path(files.link("info")).resolve() == Path(files.socket_path("info")).resolve()
    files.remove()
    assert not [path for path in tmp_path.rglob("*") if not path.is_dir()]


def test_file_below_the_root_comes_first(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    (tmp_path / "boot").mkdir()
    (tmp_path / "boot/vmlinuz").touch()
    assert local_file("/boot/vmlinuz", paths) == f"{tmp_path}/boot/vmlinuz"
    assert local_file("/boot/other", paths) == "/boot/other"
    assert local_file("/../etc/passwd", paths) == "/../etc/passwd"
    assert local_file("http://x/y", paths) == "http://x/y"
    params = KvmParams({"kernel_path": "/boot/vmlinuz", "initrd_path": "/boot/initrd"})
    assert local_files(params, paths) == {"/boot/vmlinuz": f"{tmp_path}/boot/vmlinuz"}


@pytest.mark.parametrize(
    ("content", "text"), [(None, "cannot read"), ("\n", "no password"), ("x" * 999, "larger")]
)
def test_unusable_passwords_are_named(tmp_path: Path, content: str | None, text: str) -> None:
    if content is not None:
        (tmp_path / "p").write_text(content)
    with pytest.raises(OpPrereqError, match=f"vnc_password_file: .*{text}"):
        read_password("vnc_password_file", "/p", Paths(str(tmp_path)))


def test_of_a_long_password_vnc_uses_the_beginning(tmp_path: Path) -> None:
    """An instance of Ganeti 3.0 with such a file has to start after the upgrade."""
    (tmp_path / "p").write_text("0123456789\n")
    assert read_password("vnc_password_file", "/p", Paths(str(tmp_path))) == "01234567"
    (tmp_path / "p").write_text("1234567\u00e4\n")
    assert read_password("vnc_password_file", "/p", Paths(str(tmp_path))) == "1234567"


def test_a_password_of_spice_may_be_longer_but_not_without_end(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("x" * 60)
    assert read_password("spice_password_file", "/p", Paths(str(tmp_path))) == "x" * 60
    (tmp_path / "p").write_text("x" * 61)
    with pytest.raises(OpPrereqError, match=r"spice_password_file: .*more than 60"):
        read_password("spice_password_file", "/p", Paths(str(tmp_path)))


@pytest.mark.shows("2.1/vnc/parameter")
def test_password_is_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("secret \ncomment\n")
    assert read_password("vnc_password_file", "/p", Paths(str(tmp_path))) == "secret"


def test_chosen_qemu_must_be_there() -> None:
    with pytest.raises(OpPrereqError, match="kvm_path: there is no program /nowhere/kvm"):
        find_qemu("/nowhere/kvm")
    assert find_qemu("/bin/sh") == "/bin/sh"
