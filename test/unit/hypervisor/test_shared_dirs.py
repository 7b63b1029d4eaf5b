"""Tests of ganeti/hypervisor/shared_dirs.py: what is written, and what a node allows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from guests.instances import make_instance

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.hypervisor import shared_dirs
from ganeti.hypervisor.kvm.params import problems
from ganeti.hypervisor.shared_dirs import Share, find, mistakes, parse


def test_shares_are_read() -> None:
    text = "data=/srv/data; logs=/var/log/web:ro;"
    assert parse(text) == [Share("data", "/srv/data"), Share("logs", "/var/log/web", True)]
    assert parse("") == []
    assert list(mistakes(parse(text))) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("/srv/data", "'/srv/data' is no tag"),
        ("=/srv/data", "'' is no tag"),
        ("-x=/srv/data", "'-x' is no tag"),
        ("a/b=/srv/data", "'a/b' is no tag"),
        ("a,b=/srv/data", "'a,b' is no tag"),
        ("dätä=/srv/data", "'dätä' is no tag"),
        (f"{'t' * 37}=/srv/data", "has more than 36 characters"),
        ("data=/a;data=/b", "tag data is there twice"),
        ("data=srv", "'srv', of tag data, is not an absolute and plain path"),
        ("data=/srv/../etc", "is not an absolute and plain path"),
        ("data=/srv/", "is not an absolute and plain path"),
        ("data=//srv", "is not an absolute and plain path"),
        ("data=/srv\n/x", "is not an absolute and plain path"),
        ("data=", "is not an absolute and plain path"),
        (";".join(f"t{n}=/srv/{n}" for n in range(9)), "9 directories, at most 8 are possible"),
    ],
)
def test_mistakes_are_named(text: str, said: str) -> None:
    (found,) = problems(make_instance(shared_dirs=text).hvparams)
    assert isinstance(found, OpPrereqError)
    assert found.message.startswith("hypervisor parameter shared_dirs: ")
    assert said in found.message


def test_the_longest_tag_is_one() -> None:
    assert list(mistakes([Share("t" * 36, "/srv/data")])) == []


class Node:
    """A node that allows /srv/shared and, by a link, /srv/linked."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths = Paths(str(root))
        for name in ("srv/shared/data", "srv/else", "real/here", "etc/ganeti"):
            (root / name).mkdir(parents=True)
        (root / "srv/shared/file").write_text("")
        (root / "srv/linked").symlink_to(root / "real")
        self.allow("/srv/shared", "/srv/linked", "/etc", "/srv")

    def allow(self, *directories: str) -> None:
        Path(self.paths.shared_dir_paths_file).write_text("\n".join(directories))

    def problem(self, path: str) -> str:
        with pytest.raises(OpPrereqError) as caught:
            find(Share("data", path), self.paths, "node1.example.com")
        assert caught.value.ecode == ErrorCode.ENVIRON
        start = f"hypervisor parameter shared_dirs: node node1.example.com does not share {path}: "
        assert caught.value.message.startswith(start)
        return caught.value.message.removeprefix(start)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path.resolve())


@pytest.mark.parametrize("path", ["/srv/shared", "/srv/shared/data", "/srv/linked/here"])
def test_allowed_directories_are_found(node: Node, path: str) -> None:
    found = find(Share("data", path), node.paths, "node1")
    status = os.stat(node.paths.localize(path))
    assert found.path == os.path.realpath(node.paths.localize(path))
    assert (found.device, found.inode) == (status.st_dev, status.st_ino)


def test_others_are_refused(node: Node) -> None:
    refused = (
        "it is not in a directory that /etc/ganeti/shared-dir-paths allows there"
        " (/srv/shared, /srv/linked)"
    )
    for path in ("/srv/else", "/srv", "/etc/ganeti", "/srv/shared2", "/not/there"):
        assert node.problem(path) == refused
    assert node.problem("/srv/shared/none") == "No such file or directory"
    assert node.problem("/srv/shared/file") == "Not a directory"
    os.remove(node.paths.shared_dir_paths_file)
    assert node.problem("/srv/shared").endswith("allows there (none is allowed)")


def test_a_link_that_a_guest_made_leads_nowhere(node: Node) -> None:
    (node.root / "srv/shared/data/out").symlink_to("/etc")
    (node.root / "srv/shared/data/up").symlink_to("../../else")
    for name in ("out", "up"):
        assert "is not in a directory" in node.problem(f"/srv/shared/data/{name}")
    (node.root / "srv/shared/etc").symlink_to("/etc")  # not even if it is listed
    node.allow("/srv/shared/etc")
    assert "is not in a directory" in node.problem("/srv/shared/etc")


def test_only_root_shares(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    shared_dirs.check_here([], node.paths, "node1")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(OpPrereqError, match="shared_dirs: needs a node daemon that runs as root"):
        shared_dirs.check_here([Share("data", "/srv/shared")], node.paths, "node1")
