"""Debian's package python3-ganeti-rapi, a client of Ganeti 3.0, as a black box on a live cluster."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.rapi import RapiClient, rapi_of
from fakes.virtual_cluster import TestCluster, own_cluster

PYTHON = "/usr/bin/python3"
SCRIPT = Path(__file__).with_name("rapi_methods.py")
TIMEOUT_S = 500.0
# Resets a real machine, and a virtual node is this one.
NEVER_CALLED = {"PowercycleNode"}
LIST_METHODS = (
    "import inspect\n"
    "from ganeti.rapi.client import GanetiRapiClient as C\n"
    "print(*(n for n, _ in inspect.getmembers(C, inspect.isfunction) if n[0] != '_'))"
)
NO_JOB_STATUS = {"WaitForJobCompletion", "GetJobStatus"}  # called for every job


def run_python(*args: str) -> subprocess.CompletedProcess[str]:
    """Run Debian's Python without our environment: its ``ganeti`` is another one."""
    env = {"PATH": os.environ["PATH"]}
    argv = [PYTHON, "-I", *args]
    return subprocess.run(argv, capture_output=True, text=True, env=env, timeout=TIMEOUT_S)


@pytest.fixture(scope="module")
def methods() -> set[str]:
    """All methods of the client."""
    if not os.path.exists(PYTHON):
        pytest.skip(f"there is no {PYTHON}")
    found = run_python("-c", LIST_METHODS)
    if found.returncode != 0:
        pytest.skip("Debian's package python3-ganeti-rapi is not installed")
    return set(found.stdout.split())


@pytest.fixture(scope="module")
def rapi(methods: set[str]) -> Iterator[tuple[TestCluster, RapiClient]]:
    with own_cluster(2) as cluster, rapi_of(cluster) as client:
        yield cluster, client


def test_every_method_of_the_client_works(
    methods: set[str], rapi: tuple[TestCluster, RapiClient]
) -> None:
    cluster, client = rapi
    found = run_python(
        str(SCRIPT), client.address, str(client.port), "writer", "secret", *cluster.nodes
    )
    assert found.returncode == 0, found.stderr
    answers = json.loads(found.stdout)
    assert answers["GetVersion"] == 2
    assert sorted(answers["GetNodes"]) == sorted(cluster.nodes)
    assert answers["GetNodeRole"] == "master"
    assert answers["GetInstance"]["beparams"]["memory"] > 0
    assert answers["Query"]["data"] == [[[0, cluster.nodes[1]]]]
    assert methods - NEVER_CALLED - NO_JOB_STATUS - {"InstanceAllocation"} == set(answers)
