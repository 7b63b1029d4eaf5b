"""The command line that reaches a real machine."""

from __future__ import annotations

from ganeti.base.paths import Paths
from ganeti.bootstrap.node_transport import SshTransport, virtual_sibling


def test_ssh_asks_nothing_and_trusts_only_the_cluster() -> None:
    transport = SshTransport("node2", "/var/lib/ganeti/known_hosts", "cluster", port=2222)
    argv = transport.command_line(["/usr/lib/x", "two words", "$HOME"])
    assert argv[0] == "ssh"
    for option in (
        "BatchMode=yes",
        "StrictHostKeyChecking=yes",
        "HostKeyAlias=cluster",
        "GlobalKnownHostsFile=/var/lib/ganeti/known_hosts",
        "UserKnownHostsFile=/dev/null",
        "Port=2222",
    ):
        assert argv[argv.index(option) - 1] == "-o"
    assert argv[-3:] == ["root@node2", "--", "/usr/lib/x 'two words' '$HOME'"]


def test_unknown_host_keys_are_accepted_only_on_request() -> None:
    transport = SshTransport("node2", "/x", "cluster", check_host_key=False)
    assert "StrictHostKeyChecking=no" in transport.command_line(["true"])


def test_siblings_of_a_virtual_node_live_beside_it() -> None:
    here = Paths("/tmp/vc/node1.example.com")
    assert virtual_sibling(here, "node2.example.com").root == "/tmp/vc/node2.example.com"
