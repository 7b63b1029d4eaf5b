"""Reading and judging OS definitions."""

import os
from pathlib import Path

import pytest

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.instances import os_definitions

SCRIPTS = ("create", "import", "export", "rename")


def make_os(directory: Path, *, scripts: tuple[str, ...] = SCRIPTS, **texts: str) -> Path:
    """Write a definition; texts are files, ``_`` in a name stands for ``.``."""
    directory.mkdir(parents=True)
    for name in scripts:
        (directory / name).write_text("#!/bin/sh\nexit 0\n")
        (directory / name).chmod(0o755)
    for name, text in texts.items():
        is_list = name in ("variants_list", "parameters_list")
        (directory / (name.replace("_", ".") if is_list else name)).write_text(text)
    return directory


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(str(tmp_path))


@pytest.fixture
def os_dir(paths: Paths) -> Path:
    return Path(paths.os_search_path[0])


@pytest.mark.shows("2.1/os-versions/both")
def test_api_10(os_dir: Path) -> None:
    found = os_definitions.read("a", str(make_os(os_dir / "a", ganeti_api_version="10\n")))
    assert found.api_version == 10
    assert found.is_trusted
    assert found.variants == ()
    found.check_variant("a")
    with pytest.raises(GenericError, match="has no variants"):
        found.check_variant("a+x")


@pytest.mark.shows("2.0/os-declared/hypervisors")
def test_an_os_may_name_its_hypervisors(paths: Paths, os_dir: Path) -> None:
    make_os(os_dir / "a", ganeti_api_version="10", hypervisors="# real ones\nkvm\nlxc\n")
    make_os(os_dir / "b", ganeti_api_version="10")

    def check(name: str, hypervisor: str) -> bool:
        checks = ["parameters", f"hypervisor:{hypervisor}"]
        return os_definitions.OsDefinitions(NodeContext(paths, "n")).os_validate(
            True, name, checks, {}, False
        )

    assert check("a", "lxc")
    assert check("b", "fake")
    with pytest.raises(GenericError, match="'a' is not made for hypervisor 'fake', only for kvm"):
        check("a", "fake")


@pytest.mark.shows(
    "2.0/os-declared/versions",
    "2.0/os-declared/newest",
    "2.1/variants/list",
    "2.1/variants/one",
    "2.1/variants/name",
)
def test_api_15_with_variants(os_dir: Path) -> None:
    path = make_os(
        os_dir / "a", ganeti_api_version="10\n15\n99\n", variants_list="big\n# no\n\nsmall\n"
    )
    found = os_definitions.read("a", str(path))
    assert found.api_version == 15
    assert found.api_versions == (99, 15, 10)
    assert found.variants == ("big", "small")
    found.check_variant("a+small")
    with pytest.raises(GenericError, match="needs a variant: big, small"):
        found.check_variant("a")
    with pytest.raises(GenericError, match="has no variant 'huge'"):
        found.check_variant("a+huge")


@pytest.mark.shows("2.1/variants/forced")
def test_an_undeclared_variant_can_be_forced(paths: Paths, os_dir: Path) -> None:
    make_os(os_dir / "a", ganeti_api_version="15\n", variants_list="big\n")
    calls = os_definitions.OsDefinitions(NodeContext(paths, "n"))
    with pytest.raises(GenericError, match="has no variant 'odd'"):
        calls.os_validate(True, "a+odd", [], {}, False)
    assert calls.os_validate(True, "a+odd", [], {}, True)
    definition = os_definitions.load(paths, "a+odd")
    assert os_definitions.core_environment(definition, "a+odd", {}, 0)["OS_VARIANT"] == "odd"


@pytest.mark.shows("2.1/variants/parameters")
def test_api_20_with_parameters(os_dir: Path) -> None:
    path = make_os(
        os_dir / "a",
        scripts=(*SCRIPTS, "verify"),
        ganeti_api_version="20",
        parameters_list="ROOT-size size of /\nplain\n",
    )
    found = os_definitions.read("a", str(path))
    assert found.parameters == (("root-size", "size of /"), ("plain", ""))
    assert found.variants == ()


@pytest.mark.shows("2.0/os-scripts/create-needed", "2.0/os-declared/versions")
@pytest.mark.parametrize(
    ("scripts", "texts", "words"),
    [
        (SCRIPTS, {}, "ganeti_api_version is missing"),
        (SCRIPTS, {"ganeti_api_version": "ten"}, "something else than numbers"),
        (SCRIPTS, {"ganeti_api_version": ""}, r"versions \[\] are declared"),
        (SCRIPTS, {"ganeti_api_version": "5"}, r"versions \[5\] are declared"),
        (SCRIPTS[1:], {"ganeti_api_version": "10"}, "create: script missing"),
        (SCRIPTS, {"ganeti_api_version": "20"}, "verify: script missing"),
        ((*SCRIPTS, "verify"), {"ganeti_api_version": "20"}, "parameters.list is missing"),
    ],
)
def test_what_is_wrong_is_named(
    os_dir: Path, scripts: tuple[str, ...], texts: dict[str, str], words: str
) -> None:
    path = make_os(os_dir / "a", scripts=scripts, **texts)
    with pytest.raises(GenericError, match=words):
        os_definitions.read("a", str(path))


@pytest.mark.shows("2.0/os-scripts/optional", "2.0/os-scripts/both", "2.0/os-old/told-apart")
def test_only_what_runs_a_script_needs_it(os_dir: Path) -> None:
    path = make_os(os_dir / "a", scripts=("create",), ganeti_api_version="10")
    found = os_definitions.read("a", str(path))
    assert found.missing == ["export", "import", "rename"]
    found.check_script("import")  # disks are written whole
    found.check_script("export")
    with pytest.raises(GenericError, match="'a' has no rename script"):
        found.check_script("rename")
    (path / "export").write_text("#!/bin/sh\n")
    (path / "export").chmod(0o755)
    found = os_definitions.read("a", str(path))
    for kind in ("import", "export"):
        with pytest.raises(GenericError, match="'a' has no import script"):
            found.check_script(kind)


@pytest.mark.shows("2.0/os-old/told-apart")
def test_lists_judge_a_definition_as_3_0_does(paths: Paths, os_dir: Path) -> None:
    make_os(os_dir / "a", scripts=("create", "rename"), ganeti_api_version="10")
    [row] = os_definitions.OsDefinitions(NodeContext(paths, "node1")).os_diagnose()
    assert row[2:4] == [False, "export, import: script missing or not executable"]


@pytest.mark.shows("2.1/os-versions/filtered")
def test_api_10_gets_nothing_that_came_later(os_dir: Path) -> None:
    for version, variant in ((10, ""), (15, "v1")):
        path = make_os(
            os_dir / f"a{version}", ganeti_api_version=str(version), variants_list="v1\n"
        )
        found = os_definitions.read("a", str(path))
        env = os_definitions.core_environment(found, "a+v1", {}, 0)
        assert env["OS_VARIANT"] == variant


@pytest.mark.shows("2.0/os-scripts/create-needed")
def test_a_script_that_cannot_be_executed_is_missing(os_dir: Path) -> None:
    path = make_os(os_dir / "a", ganeti_api_version="10")
    (path / "create").chmod(0o644)
    with pytest.raises(GenericError, match="create: script missing or not executable"):
        os_definitions.read("a", str(path))


def test_an_untrusted_create_script_is_not_run_on_the_node(os_dir: Path) -> None:
    scripts = ("create_untrusted", *SCRIPTS[1:])
    found = os_definitions.read(
        "a", str(make_os(os_dir / "a", scripts=scripts, ganeti_api_version="10"))
    )
    assert not found.is_trusted
    for refused in (found.script, found.check_script):
        with pytest.raises(GenericError, match="gnt-cluster modify --install-image=PATH"):
            refused("create")


def test_diagnosing_lists_good_and_bad_in_search_order(paths: Paths, os_dir: Path) -> None:
    make_os(os_dir / "good", ganeti_api_version="15", variants_list="v1\n")
    make_os(os_dir / "bad")
    make_os(os_dir / ".hidden")
    make_os(Path(paths.os_search_path[1]) / "good", ganeti_api_version="10")
    rows = os_definitions.OsDefinitions(NodeContext(paths, "node1")).os_diagnose()
    assert rows == [
        [
            "bad",
            "/srv/ganeti/os/bad",
            False,
            "the file ganeti_api_version is missing",
            [],
            [],
            [],
            True,
        ],
        ["good", "/srv/ganeti/os/good", True, "", ["v1"], [], [15], True],
        ["good", "/usr/local/lib/ganeti/os/good", True, "", [], [], [10], True],
    ]


def test_the_first_on_the_search_path_wins(paths: Paths, os_dir: Path) -> None:
    make_os(Path(paths.os_search_path[2]) / "a", ganeti_api_version="10")
    make_os(os_dir / "a", ganeti_api_version="15")
    assert os_definitions.load(paths, "a+x").api_version == 15


@pytest.mark.parametrize("name", ["", "..", "a/b", ".", "a b"])
def test_names_never_leave_the_search_path(paths: Paths, name: str) -> None:
    with pytest.raises(GenericError, match="not a valid name"):
        os_definitions.load(paths, name)


def validate(paths: Paths, name: str, required: bool = True, **params: object) -> bool:
    context = NodeContext(paths, "node1")
    return os_definitions.OsDefinitions(context).os_validate(
        required, name, ["parameters"], params, False
    )


@pytest.mark.shows("2.1/variants/parameters")
def test_validating(paths: Paths, os_dir: Path) -> None:
    path = make_os(
        os_dir / "a",
        scripts=(*SCRIPTS, "verify"),
        ganeti_api_version="20",
        parameters_list="size s\n",
    )
    (path / "verify").write_text('#!/bin/sh\necho "$1 $OSP_SIZE $HOME"; test "$OSP_SIZE" = 2g\n')
    assert validate(paths, "a", size="2g")
    assert not validate(paths, "absent", required=False)
    with pytest.raises(GenericError, match="is not in /srv/ganeti/os"):
        validate(paths, "absent")
    with pytest.raises(GenericError, match="no parameter colour; it has size"):
        validate(paths, "a", colour="red")
    with pytest.raises(GenericError, match=r"exit status 1: parameters 3g$"):
        validate(paths, "a", size="3g")
    with pytest.raises(GenericError, match="unknown checks"):
        os_definitions.OsDefinitions(NodeContext(paths, "n")).os_validate(
            True, "a", ["x"], {}, False
        )
    assert os.path.isdir(path)


def test_an_image_must_be_there(paths: Paths, os_dir: Path, tmp_path: Path) -> None:
    make_os(os_dir / "a", ganeti_api_version="10")
    image = tmp_path / "debian.img"
    definitions = os_definitions.OsDefinitions(NodeContext(paths, "n"))
    with pytest.raises(GenericError, match=f"os-image: there is no file {image}"):
        definitions.os_validate(True, "a", [f"image:{image}"], {}, False)
    image.touch()
    assert definitions.os_validate(True, "a", [f"image:{image}"], {}, False)
    with pytest.raises(GenericError, match="is neither a file nor a block device"):
        definitions.os_validate(True, "a", [f"image:{tmp_path}"], {}, False)
