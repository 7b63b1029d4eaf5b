"""Other keys, another name, and an emergency power-off: the whole cluster changes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.virtual_cluster import Outcome, TestCluster, own_cluster
from fakes.waiting import wait_until

from ganeti.bootstrap.virtual import lifecycle
from ganeti.store import ssconf
from ganeti.system import files, ssh

PATIENCE_S = 300.0
HELPER = """#!/bin/sh
echo "$1 $2" >> "${0%/*}/switched"
case $1 in power-status) echo '{"powered": true}' ;; esac
"""


@pytest.fixture(scope="module")
def own() -> Iterator[TestCluster]:
    with own_cluster(3) as cluster:
        yield cluster


def digests(cluster: TestCluster, name: str) -> list[bytes]:
    """Return a file as each node has it."""
    return [files.read_bytes(getattr(cluster.paths_of(node), name)) for node in cluster.nodes]


def patiently(cluster: TestCluster, command: str) -> Outcome:
    """Run a command that must succeed and starts many processes, on a machine that may be slow."""
    outcome = cluster.run(f"gnt-{command}", timeout_s=PATIENCE_S)
    assert outcome.status == 0, outcome
    return outcome


def assert_sound(cluster: TestCluster) -> None:
    """Nodes trust each other, and the master orders as ever."""
    verified = cluster.gnt("cluster verify")
    assert "ERROR" not in verified.out, verified
    assert "WARNING" not in verified.out, verified
    free = cluster.gnt("node list --no-headers --separator=: -o mfree").out.split()
    assert all(word.isdigit() for word in free), free
    assert len(free) == len(cluster.nodes)


def test_secrets_are_replaced_on_all_nodes(own: TestCluster) -> None:
    names = ("hmac_key", "cluster_domain_secret", "rapi_pem", "spice_pem", "spice_ca_pem")
    before = {name: digests(own, name)[0] for name in names}
    patiently(
        own,
        "cluster renew-crypto --force --new-confd-hmac-key --new-cluster-domain-secret"
        " --new-rapi-certificate --new-spice-certificate --verbose",
    )
    for name in names:
        [now] = set(digests(own, name))
        assert now != before[name], name
    assert_sound(own)


def test_certificates_of_nodes_are_replaced(own: TestCluster) -> None:
    servers, clients = digests(own, "server_pem"), digests(own, "client_pem")
    trusted = ssconf.candidate_certs(own.paths)
    patiently(own, "cluster renew-crypto --force --new-node-certificates")
    assert digests(own, "server_pem") == servers
    assert not set(digests(own, "client_pem")) & set(clients)
    assert not set(ssconf.candidate_certs(own.paths).values()) & set(trusted.values())
    patiently(own, "cluster renew-crypto --force --new-cluster-certificate")
    [server] = set(digests(own, "server_pem"))
    assert server not in servers
    assert_sound(own)


def test_certificates_are_not_replaced_under_a_job(own: TestCluster) -> None:
    job = own.submit("debug delay 3600")
    try:
        own.refused(
            "cluster renew-crypto --force --new-cluster-certificate", f"have not ended: {job};"
        )
        assert "unset" in own.gnt("cluster queue info").out
    finally:
        own.gnt(f"job cancel --yes-do-it --kill {job}")
        own.run(["gnt-job", "wait", str(job)])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("", "what is to be replaced"),
        ("--rapi-certificate=/nix", "cannot read /nix"),
        ("--rapi-certificate=/etc/hostname --new-rapi-certificate", "not both"),
        ("--spice-certificate=/x", "give both"),
        ("-f --new-ssh-keys", "managed by hand"),
        ("--ssh-key-type=ecdsa", "need --new-ssh-keys"),
        ("--new-confd-hmac-key", "Nobody is here to answer"),
    ],
)
def test_renewals_that_cannot_be(own: TestCluster, options: str, text: str) -> None:
    assert text in own.run(f"gnt-cluster renew-crypto {options}").err


def test_a_broken_certificate_changes_nothing(own: TestCluster, tmp_path: Path) -> None:
    before = digests(own, "rapi_pem")
    (tmp_path / "bad.pem").write_text("nothing")
    own.refused(f"cluster renew-crypto -f --rapi-certificate={tmp_path}/bad.pem", "bad.pem")
    assert digests(own, "rapi_pem") == before


def test_the_cluster_is_renamed(own: TestCluster) -> None:
    address = ssconf.read_key_or_none(own.paths, "master_ip") or ""
    new = f"{address.rpartition('.')[0]}.253"
    with open(own.paths.etc_hosts, "a", encoding="utf-8") as file:
        file.write(f"{new} renamed.example.com\n")
    own.gnt("cluster rename --force renamed.example.com")
    for node in own.nodes:
        wait_until(
            lambda node=node: (
                ssconf.cluster_name(own.paths_of(node)) == "renamed.example.com"  # type: ignore[misc]
            ),
            f"the name on {node}",
        )
    assert "renamed.example.com" in own.gnt("cluster info").out
    own.refused("cluster rename --force renamed.example.com", "nothing to do")
    own.refused("cluster rename --force node2.example.com", "address of node")
    assert_sound(own)


@pytest.fixture(scope="module")
def with_ssh() -> Iterator[TestCluster]:
    """Two nodes whose SSH keys are managed, below their own roots."""
    plain = lifecycle.init_arguments
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            lifecycle,
            "init_arguments",
            lambda layout: [word for word in plain(layout) if word != "--no-ssh-init"],
        )
        with own_cluster(2) as cluster:
            yield cluster


@pytest.mark.shows("backend/masterd/ssh")
@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
def test_root_of_candidates_is_let_in_everywhere(with_ssh: TestCluster) -> None:
    paths = [with_ssh.paths_of(node) for node in with_ssh.nodes]

    def let_in() -> list[set[str]]:
        texts = [files.read_bytes(f"{ssh.directory_of(each)}/authorized_keys") for each in paths]
        return [set(text.decode().splitlines()) for text in texts]

    one, two = (
        files.read_bytes(f"{ssh.directory_of(each)}/id_rsa.pub").decode().strip() for each in paths
    )
    assert let_in() == [{one, two}, {one, two}]
    with_ssh.gnt("node modify -C no node2")
    assert let_in() == [{one}, {one, two}]
    assert "ENODESSH" not in with_ssh.run("gnt-cluster verify --error-codes").out
    ssh.change_authorized_keys(ssh.directory_of(paths[0]), add=[two])  # as if that was cut off
    told = with_ssh.run("gnt-cluster verify --error-codes").out
    assert "ENODESSH:node:node1.example.com:root of node2.example.com is let in" in told
    with_ssh.gnt("node modify --master-candidate=no node2.example.com")  # as it says
    assert let_in() == [{one}, {one, two}]
    assert "ENODESSH" not in with_ssh.run("gnt-cluster verify --error-codes").out
    with_ssh.gnt("node modify -C yes node2")
    assert let_in() == [{one, two}, {one, two}]
    verified = with_ssh.gnt("cluster verify --verify-ssh-clutter --verbose").out
    assert "ERROR" not in verified
    assert "* Verifying node node2.example.com (master candidate)" in verified
    ssh.change_authorized_keys(ssh.directory_of(paths[1]), remove=[one])
    outcome = with_ssh.run("gnt-cluster verify --error-codes")
    assert outcome.status == 1
    assert "ERROR:ENODESSH:node:node2.example.com:root of candidate node1" in outcome.out
    ssh.change_authorized_keys(ssh.directory_of(paths[1]), add=[one])


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
def test_ssh_keys_are_replaced_while_both_are_let_in(with_ssh: TestCluster) -> None:
    paths = [with_ssh.paths_of(node) for node in with_ssh.nodes]

    def public_keys(kind: str) -> set[str]:
        names = [f"{ssh.directory_of(each)}/id_{kind}.pub" for each in paths]
        return {files.read_bytes(name).decode().strip() for name in names}

    def let_in() -> list[set[str]]:
        texts = [files.read_bytes(f"{ssh.directory_of(each)}/authorized_keys") for each in paths]
        return [set(text.decode().splitlines()) for text in texts]

    old = public_keys("rsa")
    assert let_in() == [old, old]
    with_ssh.gnt("cluster renew-crypto --force --new-ssh-keys")
    new = public_keys("rsa")
    assert not old & new
    assert let_in() == [new, new]
    with_ssh.gnt("cluster renew-crypto --force --new-ssh-keys --ssh-key-type=ecdsa")
    assert let_in() == [public_keys("ecdsa")] * 2
    assert "ssh_key_type: ecdsa" in with_ssh.gnt("cluster info").out
    with_ssh.gnt("cluster verify --verify-ssh-clutter")
    with_ssh.gnt("node remove node2")
    one, two = let_in()
    assert one | two == public_keys("ecdsa")
    assert not one & two


def test_emergency_power_off_and_back(own: TestCluster) -> None:
    helper = f"{own.paths.root}/etc/ganeti/oob"
    with open(helper, "w", encoding="utf-8") as file:
        file.write(HELPER)
    os.chmod(helper, 0o755)
    outcome = own.gnt("cluster epo --force node2")
    assert "node2.example.com has no out-of-band helper and stays as it is" in outcome.out
    own.gnt("cluster modify --node-parameters oob_program=/etc/ganeti/oob")
    own.refused("cluster epo --force node1", "is the master node; use --all")
    own.refused("cluster epo --force", "name the nodes, or give --all")
    own.refused("cluster epo --force --all node2", "not both")
    own.refused("cluster epo --force --groups nix", "node group 'nix' is not known")
    own.gnt(
        "instance add --no-name-check --no-ip-check -t diskless -H fake -o bootsector+default"
        " -n node2 one.example.com"
    )
    off = patiently(own, "cluster epo --force --all")
    assert "The master node was left on" in off.out
    nodes = "node list --no-headers --separator=: -o offline,powered"
    assert own.gnt(nodes).lines == ["N:Y", "Y:N", "Y:N"]
    assert own.instance_field("one.example.com", "admin_state") == "up"
    patiently(own, "cluster epo --force --on --all --power-delay=0")
    assert own.gnt(nodes).lines == ["N:Y"] * 3
    assert own.instance_field("one.example.com", "status") == "running"
    with open(f"{own.paths.root}/etc/ganeti/switched", encoding="utf-8") as file:
        said = file.read().split("\n")[:-1]
    assert said == [
        f"power-{way} {node}.example.com" for way in ("off", "on") for node in ("node2", "node3")
    ]
    own.tidy_up()
    own.gnt("cluster modify --node-parameters oob_program=default")
