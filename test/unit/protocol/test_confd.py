"""Packets of RConfD: the golden ones, signing, and everything that gets no answer."""

from __future__ import annotations

import hmac
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import ProtocolError
from ganeti.protocol import confd
from ganeti.protocol.confd import ReplyStatus, Signer

# confd.json, "example"
KEY = b"0123456789abcdef0123456789abcdef01234567\n"
NOW = 1700000000
SALT = "9aa6ce92-8336-11de-af38-001d093e835f"
REQUEST = (
    b'plj0{"msg": "{\\"protocol\\": 1, \\"type\\": 0, \\"query\\": null, \\"rsalt\\":'
    b' \\"9aa6ce92-8336-11de-af38-001d093e835f\\"}\\n", "salt": "1700000000", "hmac":'
    b' "19aa0780f7dee9d9dbca18a01e2c97fa7d7483fb"}'
)
REPLY = (
    b'plj0{"hmac": "e8a79478344855c9c903ef36f64f25647125290c", "msg":'
    b' "{\\"protocol\\":1,\\"status\\":0,\\"answer\\":3000000,\\"serial\\":0}", "salt":'
    b' "9aa6ce92-8336-11de-af38-001d093e835f"}'
)
SIGNER = Signer(KEY)


def packet(message: str, salt: str = str(NOW), key: bytes = KEY, **others: object) -> bytes:
    """Make a packet as somebody else would."""
    mac = hmac.new(key, (salt + message).encode(), "sha1").hexdigest()
    fields = {"msg": message, "salt": salt, "hmac": mac, **others}
    return b"plj0" + json.dumps(fields).encode()


@pytest.mark.shows(
    "backend/confd/udp",
    "2.12/rconfd/protocol",
    "2.1/confd-wire/envelope",
    "2.1/confd-wire/protocol",
    "2.1/confd-wire/rsalt",
)
def test_golden_request_is_understood() -> None:
    request = confd.open_request(SIGNER, REQUEST, NOW)
    assert (request.type, request.rsalt, bytes(request.query)) == (0, SALT, b"null")


@pytest.mark.shows(
    "backend/confd/salt",
    "2.12/rconfd/protocol",
    "2.1/confd-wire/magic",
    "2.1/confd-wire/rsalt",
    "2.1/confd-wire/answer-form",
)
def test_golden_reply_is_written_byte_by_byte() -> None:
    message = confd.reply_message(ReplyStatus.OK, b"3000000", 0)
    assert confd.seal(SIGNER, SALT, confd.sealable(message)) == REPLY
    assert confd.open_reply(SIGNER, REPLY) == (SALT, confd.Reply(ReplyStatus.OK, 3000000, 0))


@pytest.mark.shows("backend/certificates/hmac", "2.1/confd/hmac", "2.1/confd-wire/hmac-both")
@given(key=st.binary(max_size=200), data=st.binary(max_size=300))
def test_signing_is_hmac(key: bytes, data: bytes) -> None:
    assert Signer(key).sign(data) == hmac.new(key, data, "sha1").hexdigest()


def test_keys_are_not_shown() -> None:
    assert KEY.decode().strip() not in repr(SIGNER)
    assert confd.sign(KEY, "1", "x") == hmac.new(KEY, b"1x", "sha1").hexdigest()


@given(
    salt=st.text(max_size=50),
    query=st.none() | st.text(max_size=50) | st.dictionaries(st.text(), st.text(), max_size=3),
    kind=st.integers(0, 1 << 40),
)
def test_requests_arrive_as_they_were_sent(salt: str, query: object, kind: int) -> None:
    sent = confd.request_packet(SIGNER, kind, query, rsalt=salt, now_s=NOW)
    request = confd.open_request(SIGNER, sent, NOW)
    assert (request.type, request.rsalt) == (kind, salt)
    assert json.loads(bytes(request.query)) == query


GOOD = '{"protocol": 1, "type": 0, "query": null, "rsalt": "x"}'


@pytest.mark.shows("2.1/confd-wire/magic", "2.1/confd-wire/envelope", "2.1/confd-wire/type")
@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "plj0"),
        (b"plj", "plj0"),
        (b"plj1" + REQUEST[4:], "plj0"),
        (b"plj0", "JSON"),
        (b"plj0{}", "JSON"),
        (b"plj0[]", "JSON"),
        (b"plj0" + b"[" * 50_000, "nested too deeply"),
        (b'plj0{"msg":' * 5000, "JSON"),
        (REQUEST + b" x", "JSON"),
        (REQUEST[:-1], "JSON"),
        (b"plj0\xff" + REQUEST[5:], "JSON"),
        (REQUEST.ljust(confd.DATAGRAM_BYTES_MAX + 1), "more than 61440 bytes"),
        (REQUEST.replace(b"fb", b"fc"), "not signed"),
        (REQUEST.replace(b"19aa", b"19AA"), "not signed"),
        (REQUEST.replace(b"19aa", "19äa".encode()), "JSON"),
        (packet(GOOD, key=KEY.strip()), "not signed"),
        (packet(GOOD, hmac=None), "JSON"),
        (packet(GOOD, hmac=""), "not signed"),
        (packet(GOOD, msg=7), "JSON"),
        (packet(GOOD).replace(b'"1700000000"', b"1700000000"), "JSON"),
        (packet(""), "malformed request"),
        (packet(GOOD[:-1]), "malformed request"),
        (packet("[]"), "malformed request"),
        (packet("[" * 20_000), "nested too deeply"),
        (packet('{"type": 0}'), "malformed request"),
        (packet('{"rsalt": "x"}'), "malformed request"),
        (packet('{"type": "0", "rsalt": "x"}'), "malformed request"),
        (packet('{"type": true, "rsalt": "x"}'), "malformed request"),
        (packet('{"type": 0, "rsalt": 5}'), "malformed request"),
        (packet('{"type": 0, "rsalt": null}'), "malformed request"),
        (packet('{"type": 0, "rsalt": "x", "query": }'), "malformed request"),
        (packet('{"type": 1e400, "rsalt": "x"}'), "malformed request"),
    ],
)
def test_what_gets_no_answer(data: bytes, text: str) -> None:
    with pytest.raises(ProtocolError, match=text):
        confd.open_request(SIGNER, data, NOW)


@pytest.mark.shows("2.1/confd/replay")
@pytest.mark.parametrize("off_s", [-300, -1, 0, 299, 300])
def test_five_minutes_are_allowed(off_s: int) -> None:
    confd.open_request(SIGNER, packet(GOOD, str(NOW + off_s)), NOW)


@pytest.mark.shows("2.1/confd/replay", "2.1/confd-wire/salt-time")
@pytest.mark.parametrize(
    "salt",
    [
        *(str(NOW - 301), str(NOW + 301), "0", "", " ", f" {NOW}", f"+{NOW}", f"{NOW}.5", "-5"),
        *(f"{NOW // 10}_0", "\u0663" * 10, "9" * 16, "9" * 5000, "1e9", "None", "x"),
    ],
)
def test_other_times_get_no_answer(salt: str) -> None:
    with pytest.raises(ProtocolError, match=r"its (salt|time) is"):
        confd.open_request(SIGNER, packet(GOOD, salt), NOW)


@pytest.mark.shows("2.1/confd-wire/protocol")
def test_number_of_the_protocol_and_unknown_keys_do_not_matter() -> None:
    message = '{"protocol": 9, "type": 3, "rsalt": "x", "new": [1]}'
    request = confd.open_request(SIGNER, packet(message, new=1), NOW)
    assert (request.type, bytes(request.query)) == (3, b"null")


@pytest.mark.shows("backend/confd/udp", "2.1/confd/hmac")
@given(position=st.integers(0, len(REQUEST) - 1), octet=st.integers(0, 255))
def test_no_changed_byte_passes(position: int, octet: int) -> None:
    changed = bytearray(REQUEST)
    changed[position] = octet
    try:
        request = confd.open_request(SIGNER, bytes(changed), NOW)
    except ProtocolError:
        return
    # What is left is another way to write the same JSON.
    assert (request.type, request.rsalt, bytes(request.query)) == (0, SALT, b"null")


@pytest.mark.shows("2.1/confd-wire/answer-form")
@pytest.mark.parametrize(
    "message",
    ["", "[]", "{}", '{"status": 3, "answer": 1, "serial": 0}', '{"status": 0, "answer": 1}'],
)
def test_replies_of_another_form_are_refused(message: str) -> None:
    with pytest.raises(ProtocolError, match="malformed reply"):
        confd.open_reply(SIGNER, packet(message, SALT))
