"""The commands of the walkthrough and of the guide to the remote API, run as they stand there."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest
from cluster.conftest import make_cluster
from fakes import pages
from fakes.virtual_cluster import TestCluster

from ganeti.bootstrap.virtual import lifecycle

TIMEOUT_S = 500
MARK = "\x1e"


@pytest.fixture(scope="module")
def new_cluster() -> Iterator[TestCluster]:
    """A cluster as the walkthrough makes it, fresh, but for daemons that no page needs."""
    yield from make_cluster(3, "fake", without=("ganeti-mond", "ganeti-maintd"))


def answers(cluster: TestCluster, steps: list[pages.Step]) -> list[tuple[str, str]]:
    """Type the commands into one shell on the master; returns what each printed, and its status."""
    script = "".join(f"{step.command}\nprintf '{MARK}%s{MARK}' $?\n" for step in steps)
    result = subprocess.run(
        ["bash"],
        input=script.encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=lifecycle.command_environment(cluster.layout, cluster.master),
        cwd=cluster.layout.base,
        timeout=TIMEOUT_S,
        check=False,
    )
    parts = result.stdout.decode().split(MARK)
    return list(zip(parts[::2], parts[1::2], strict=False))


@pytest.mark.parametrize("page", ["doc/walkthrough.md", "doc/rapi.md"])
def test_the_commands_of_a_page_answer_what_it_shows(new_cluster: TestCluster, page: str) -> None:
    if page == "doc/rapi.md" and not shutil.which("curl"):
        pytest.skip("needs curl")
    steps = pages.steps_of(page)
    printed = answers(new_cluster, steps)
    wrong = [
        f"$ {step.command}\n{text}--- exit status {status}, instead of\n{step.answer}"
        for step, (text, status) in zip(steps, printed, strict=False)
        if status != "0" or not pages.same(step.answer, text)
    ]
    assert not wrong, "\n".join(wrong)
    assert len(printed) == len(steps)
