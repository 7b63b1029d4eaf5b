"""Command lines and key files of SSH."""

from __future__ import annotations

import pytest

from ganeti.system import ssh


def test_a_machine_that_is_no_node_yet_is_known_as_the_user_knows_it() -> None:
    argv = ssh.command_line("node9", ["true"])
    assert "StrictHostKeyChecking=yes" in argv
    assert not [word for word in argv if "KnownHostsFile" in word or "Alias" in word]
    careless = ssh.command_line("node9", ["true"], check_host_key=False)
    assert "UserKnownHostsFile=/dev/null" in careless


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("ssh-rsa AA me@here", ("ssh-rsa", "AA")),
        ('from="10.0.0.1" ssh-rsa AA', ("ssh-rsa", "AA")),
        ("ecdsa-sha2-nistp256 BB", ("ecdsa-sha2-nistp256", "BB")),
        ("# a comment", "# a comment"),
        ("", ""),
    ],
)
def test_what_tells_a_key_from_others(line: str, key: object) -> None:
    assert ssh.key_of(line) == key


def test_keys_are_added_once_and_removed_whatever_their_comment() -> None:
    text = "ssh-rsa AA old\n# mine\n\nno-pty ssh-rsa BB\n"
    assert ssh.with_keys(text, add=["ssh-rsa AA new", "ssh-rsa CC"]) == text + "ssh-rsa CC\n"
    assert ssh.with_keys(text, remove=["ssh-rsa BB x", "ssh-rsa AA"]) == "# mine\n\n"
