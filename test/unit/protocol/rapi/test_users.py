"""Tests of ganeti/protocol/rapi/users.py."""

from __future__ import annotations

import base64
import hashlib

import pytest

from ganeti.base.errors import OpPrereqError, ProtocolError
from ganeti.protocol.rapi import users as rapi_users
from ganeti.protocol.rapi.users import Grant, Scheme, Token, User

HASH = rapi_users.hash_password("secret", b"salt")
# The example of the specification.
HA1 = hashlib.md5(b"ann:Ganeti Remote API:secret").hexdigest()


@pytest.mark.shows("backend/rapi/users", "2.0/rapi-security/file")
def test_lines_are_read_as_3_0_reads_them() -> None:
    text = f"""# comment
joe opensesame

eve {{CLEARTEXT}}secret write
ann {{ha1}}{HA1} read,write
bob secret role:webs,read, x
"""
    users, wrong = rapi_users.parse_users(text)
    assert not wrong
    assert users["joe"] == User("joe", Scheme.CLEARTEXT, "opensesame")
    assert users["eve"].rights == {"write"}
    assert users["ann"] == User("ann", Scheme.HA1, HA1, frozenset({"read", "write"}))
    assert users["bob"].roles == ("webs",)
    assert users["bob"].rights == {"read", "x"}


@pytest.mark.parametrize(
    "line",
    [
        "joe",
        "joe {MD9}x",
        "joe {SCRYPT}x",
        "joe {scrypt}3$8$1$c2FsdA==$eA==",
        "joe {scrypt}1048576$8$1$c2FsdA==$eA==",
        "joe {scrypt}16384$8$1$c2FsdA=$eA==",
        "joe {scrypt}16384$8$1$c2FsdA==$eHh4eA==",
    ],
)
def test_a_line_that_cannot_be_used_is_left_out_and_named(line: str) -> None:
    users, wrong = rapi_users.parse_users(f"ann secret\n{line}\n")
    assert list(users) == ["ann"]
    assert wrong[0].startswith("line 2: ")


@pytest.mark.shows("2.0/rapi-security/file")
@pytest.mark.parametrize("word", ["secret", "{CLEARTEXT}secret", f"{{HA1}}{HA1}", HASH])
def test_every_form_of_a_password_is_checked(word: str) -> None:
    user = rapi_users.parse_users(f"ann {word} read")[0]["ann"]
    assert rapi_users.is_password_of(user, "ann", "secret")
    assert not rapi_users.is_password_of(user, "ann", "Secret")
    assert not rapi_users.is_password_of(user, "ann", "")


def test_a_hash_of_another_program_may_have_another_length() -> None:
    """Python's own function makes 64 bytes if nothing is said."""
    digest = hashlib.scrypt(b"secret", salt=b"salt", n=1 << 14, r=8, p=1)
    words = [base64.b64encode(part).decode() for part in (b"salt", digest)]
    user = rapi_users.parse_users("ann {SCRYPT}16384$8$1$" + "$".join(words))[0]["ann"]
    assert rapi_users.is_password_of(user, "ann", "secret")
    assert not rapi_users.is_password_of(user, "ann", "Secret")


def test_nobody_gets_in_without_a_password() -> None:
    assert not rapi_users.is_password_of(None, "ann", "secret")
    user = User("ann", Scheme.NONE, "")
    assert not rapi_users.is_password_of(user, "ann", "")


def test_a_line_that_is_written_is_read_back() -> None:
    line = rapi_users.user_line("ann", HASH, ["read", "role:webs"])
    user = rapi_users.parse_users(line)[0]["ann"]
    assert (user.rights, user.roles) == ({"read"}, ("webs",))


@pytest.mark.parametrize(("name", "option"), [("a b", "read"), ("", "read"), ("ann", "reed")])
def test_what_would_not_be_read_back_is_refused(name: str, option: str) -> None:
    with pytest.raises(OpPrereqError):
        rapi_users.user_line(name, HASH, [option])


def test_one_line_is_replaced_and_the_others_stay() -> None:
    text = "# joe is first\njoe x\nann y\n"
    assert rapi_users.with_line(text, "joe", "joe z") == "# joe is first\njoe z\nann y\n"
    assert rapi_users.with_line(text, "joe", None) == "# joe is first\nann y\n"
    assert rapi_users.with_line(text, "eve", "eve z") == text + "eve z\n"


# Roles.


def test_a_grant_is_for_resources_and_instances() -> None:
    grant = Grant(("write",), ("/2/instances/*",), names=("web*",), tags=("mine",))
    assert grant.fits("/2/instances/x/startup", ("write",))
    assert not grant.fits("/2/instances/x/startup", ("read",))
    assert not grant.fits("/2/nodes/x", ("write",))
    assert grant.covers("web1", [])
    assert grant.covers("db", ["mine"])
    assert not grant.covers("db", ["web1"])
    assert Grant().covers("anything", [])


def test_roles_are_written_and_read_back() -> None:
    roles = {"webs": [Grant(("read", "write"), names=("web*",)), Grant()]}
    assert rapi_users.parse_roles(rapi_users.format_roles(roles)) == roles
    assert rapi_users.parse_roles(b"") == {}


@pytest.mark.parametrize("data", [b"[]", b'{"webs": {}}', b'{"webs": [{"right": []}]}', b"{"])
def test_roles_of_another_form_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        rapi_users.parse_roles(data)


# Tokens.


def test_a_token_stands_for_its_user_until_it_expires() -> None:
    digest = rapi_users.token_digest("secret")
    text = "".join(
        rapi_users.token_line(token) + "\n"
        for token in (Token("a1", "ann", digest, 100), Token("b2", "bob", digest))
    )
    tokens, wrong = rapi_users.parse_tokens(text + "c3 x\n")
    assert wrong == ["line 3: not of the form <id> <user> <digest> <expiry>"]
    assert rapi_users.token_user(tokens, "a1.secret", 99.0) == "ann"
    assert rapi_users.token_user(tokens, "a1.secret", 100.0) is None
    assert rapi_users.token_user(tokens, "b2.secret", 1e12) == "bob"
    for word in ("a1.Secret", "a1", "x.secret", "", "."):
        assert rapi_users.token_user(tokens, word, 0.0) is None


def test_a_digest_that_is_none_fits_no_password() -> None:
    users, _ = rapi_users.parse_users("ann {HA1}d\xe4\u00fc write\n")
    assert not rapi_users.is_password_of(users["ann"], "ann", "secret")
