"""What a child reads."""

from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.json import loads_as
from ganeti.noded.child import Request, RequestHead, encode_request


@given(st.text(), st.text(), st.none() | st.integers(0, 1 << 40), st.binary())
def test_head_and_body_come_apart_at_the_first_newline(
    call: str, peer: str, job_id: int | None, body: bytes
) -> None:
    head = RequestHead(call, peer, job_id, 1.5)
    line, _, rest = encode_request(head, body).partition(b"\n")
    assert loads_as(Request, line) == Request(head, len(body))
    assert rest == body
