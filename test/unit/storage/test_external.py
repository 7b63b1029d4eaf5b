"""Volumes of external storage providers: a real one of shell scripts, and some that misbehave."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from fakes.shell_scripts import write_script
from fakes.storage_records import Disk, Node

from ganeti.base.errors import BlockDeviceError, NotSupportedError
from ganeti.base.paths import Paths
from ganeti.storage import external
from ganeti.storage.external import (
    REQUIRED_SCRIPTS,
    ExternalVolume,
    find_provider,
    list_providers,
    parse_attached,
    parse_parameters,
)

MIB = 1 << 20
KERNELSPACE = {"access": "kernelspace"}
EXAMPLE = Path(__file__).parents[3] / "doc" / "examples" / "extstorage" / "files"


def new_disk(
    logical_id: Sequence[object] = ("files", "vol1"), params: Mapping[str, object] = KERNELSPACE
) -> Disk:
    return Disk("ext", logical_id, params, name="data")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node with the example provider."""
    found = Node(Paths(str(tmp_path)))
    shutil.copytree(EXAMPLE, Path(found.paths.es_search_path[0]) / "files")
    return found


def provider_of(node: Node, name: str, **scripts: str) -> Path:
    """Make a provider whose scripts do nothing, but for those given."""
    path = Path(node.paths.es_search_path[1]) / name
    for script in (*REQUIRED_SCRIPTS, *scripts):
        write_script(path / script, scripts.get(script, ":"))
    (path / "parameters.list").write_text("color what it looks like\nSIZE of it\n")
    return path


def volume(node: Node) -> Path:
    return Path(node.paths.es_search_path[0]) / "files" / "volumes" / "vol1"


@pytest.mark.shows("backend/templates/ext")
def test_a_whole_life(node: Node) -> None:
    disk = ExternalVolume(new_disk(), node)
    with pytest.raises(BlockDeviceError, match="there is no directory"):
        disk.find()
    disk.create(4)
    disk.set_info("originstname+web1")
    assert disk.assemble().dev_path == str(volume(node))
    disk.open()
    assert volume(node).stat().st_size == 4 * MIB
    assert (volume(node).parent / "vol1.info").read_text() == "originstname+web1\n"
    disk.grow(2, dryrun=True)
    disk.grow(2)
    found = disk.dimensions()
    assert found is not None
    assert found.size_bytes == 6 * MIB
    volume(node).write_bytes(b"x" * (6 * MIB))
    disk.wipe(0, 2)
    assert disk.snapshot("snap", 6) == ["files", "snap"]
    assert (volume(node).parent / "snap").read_bytes()[: 3 * MIB].count(b"\0") == 2 * MIB
    disk.close()
    disk.shutdown()
    disk.remove()
    disk.remove()
    assert disk.find() is None
    logs = os.listdir(node.paths.log_es_dir)
    assert any(name.startswith("create-files-vol1-") for name in logs)
    assert not any(name.startswith("attach-") for name in logs)


def test_scripts_are_told_everything(node: Node) -> None:
    path = provider_of(node, "teller", create="env | sort > env", open="env > open_env")
    params = {"access": "kernelspace", "color": "red", "deep": 7}
    disk = ExternalVolume(new_disk(("teller", "v"), params=params), node)
    disk.create(4)
    disk.open(exclusive=False)
    told = (path / "env").read_text().splitlines()
    expected = [
        "EXTP_COLOR=red",
        "EXTP_DEEP=7",
        "VOL_CNAME=data",
        "VOL_NAME=v",
        "VOL_SIZE=4",
        "VOL_UUID=d1",
    ]
    assert [line for line in told if line.startswith(("EXTP", "VOL"))] == expected
    assert "VOL_OPEN_EXCLUSIVE=False" in (path / "open_env").read_text()
    assert not any(line.startswith("HOME=") for line in told)


def test_userspace_disks_have_an_address(node: Node) -> None:
    disk = ExternalVolume(new_disk(params={"access": "userspace"}), node)
    disk.create(4)
    assert disk.assemble().uri == f"file:{volume(node)}"
    provider_of(node, "net", attach="echo; echo xen:no; echo kvm:nbd://host/x")
    found = ExternalVolume(new_disk(("net", "v"), params={"access": "userspace"}), node).assemble()
    assert (found.dev_path, found.uri) == ("", "nbd://host/x")
    with pytest.raises(BlockDeviceError, match="need access=userspace"):
        ExternalVolume(new_disk(("net", "v")), node).assemble()


def test_what_attach_prints_is_read_line_by_line() -> None:
    assert parse_attached("/dev/x\nkvm:a\n\nxen:b\n") == ("/dev/x", ["kvm:a", "xen:b"])
    assert parse_attached("") == ("", [])


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("echo kaputt; exit 3", "failed with exit status 3 .*: kaputt"),
        ("exit 1", "it printed nothing"),
        ("kill -9 $$", "was killed by SIGKILL"),
        ("while :; do echo y; done", "printed too much and was killed"),
    ],
)
def test_a_script_that_fails_is_named_with_its_words(node: Node, script: str, text: str) -> None:
    provider_of(node, "bad", create=script)
    with pytest.raises(BlockDeviceError, match=f"(?s)script 'create' of .* 'bad' .*{text}"):
        ExternalVolume(new_disk(("bad", "v")), node).create(4)


def test_a_provider_that_hangs_is_stopped(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external, "SCRIPT_TIMEOUT_S", 0.2)
    provider_of(node, "slow", attach="sleep 600")
    with pytest.raises(BlockDeviceError, match="did not end in time and was killed"):
        ExternalVolume(new_disk(("slow", "v")), node).assemble()


@pytest.mark.parametrize(
    ("remove", "text"),
    [
        ("rm made", "it printed nothing$"),
        ("echo no; exit 1", r"volume v may be left, remove it with the tools .*'remove' .*: no\)$"),
    ],
)
def test_what_a_script_has_made_that_is_killed_is_removed(
    node: Node, monkeypatch: pytest.MonkeyPatch, remove: str, text: str
) -> None:
    monkeypatch.setattr(external, "SCRIPT_TIMEOUT_S", 0.3)
    path = provider_of(node, "slow", create="touch made; sleep 600", remove=remove)
    with pytest.raises(BlockDeviceError, match=f"(?s)'create' .* in time and was killed.*{text}"):
        ExternalVolume(new_disk(("slow", "v")), node).create(4)
    assert (path / "made").exists() == ("left" in text)


def test_a_device_that_is_not_there_is_told(node: Node) -> None:
    provider_of(node, "liar", attach="echo /nix")
    with pytest.raises(BlockDeviceError, match="at /nix, which does not exist"):
        ExternalVolume(new_disk(("liar", "v")), node).assemble()


def test_optional_scripts_may_be_missing(node: Node) -> None:
    provider_of(node, "plain")
    disk = ExternalVolume(new_disk(("plain", "v")), node)
    disk.open()
    disk.close()
    with pytest.raises(NotSupportedError, match="no script 'snapshot'"):
        disk.snapshot("s", 1)


@pytest.mark.parametrize(
    ("scripts", "text"),
    [
        ({}, "no path.* has no script 'exists'"),
        ({"exists": "echo yes"}, "script 'attach' .*no path"),
        ({"exists": "exit 1"}, "script 'exists' of .* failed"),
        ({"exists": ":"}, "says neither 'yes' nor 'no' but ''"),
    ],
    ids=["not told", "yes", "unknown", "nothing"],
)
def test_a_volume_that_cannot_be_attached_is_not_taken_for_lost(
    node: Node, scripts: dict[str, str], text: str
) -> None:
    provider_of(node, "san", attach="echo no path; exit 1", **scripts)
    with pytest.raises(BlockDeviceError, match=f"(?s){text}"):
        ExternalVolume(new_disk(("san", "v")), node).find()


def test_a_volume_is_lost_if_the_provider_says_so(node: Node) -> None:
    provider_of(node, "san", attach="exit 1", exists="echo no")
    assert ExternalVolume(new_disk(("san", "v")), node).find() is None


def test_providers_are_diagnosed(node: Node) -> None:
    whole = provider_of(node, "whole")
    broken = provider_of(node, "broken")
    (broken / "grow").chmod(0o644)
    bare = provider_of(node, "bare")
    (bare / "parameters.list").unlink()
    found = {provider.name: provider.to_wire() for provider in list_providers(node.paths)}
    parameters = [["color", "what it looks like"], ["size", "of it"]]
    assert found["whole"] == ["whole", str(whole), True, "", parameters]
    assert found["broken"][2:4] == [False, "script(s) grow missing or not executable"]
    assert found["bare"][2:4] == [False, "parameters.list is missing"]
    assert found["files"][2] is True


@pytest.mark.parametrize("name", ["nix", "../files", "", "a b"])
def test_a_provider_that_is_not_there_is_told(node: Node, name: str) -> None:
    with pytest.raises(BlockDeviceError, match="external storage provider"):
        find_provider(name, node.paths)


def test_lists_of_parameters_may_have_no_descriptions() -> None:
    assert parse_parameters("a\n\nB  two words \n") == {"a": "", "b": "two words"}


def test_a_wrong_logical_id_is_refused(node: Node) -> None:
    with pytest.raises(BlockDeviceError, match=r"is not \[provider, name\]"):
        ExternalVolume(new_disk(("files",)), node)
