"""Certificates of a node."""

import os
from pathlib import Path

import pytest

from ganeti.base.errors import GenericError, NotSupportedError
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.machine import keys
from ganeti.protocol.node_rpc_values import TokenAction, TokenOptions, TokenRequest
from ganeti.system import certificates, clock


@pytest.fixture
def node(context: NodeContext) -> NodeContext:
    pem = certificates.make_self_signed(now=clock.now())
    Path(context.paths.server_pem).write_bytes(pem)
    return context


def ask(
    node: NodeContext, action: TokenAction, options: TokenOptions | None = None
) -> list[tuple[str, str]]:
    return keys.Keys(node).node_crypto_tokens([TokenRequest("ssl", action, options)])


def test_a_client_certificate_is_made_read_and_removed(node: NodeContext) -> None:
    path = node.paths.client_pem
    with pytest.raises(GenericError, match="there is no certificate"):
        ask(node, TokenAction.GET)
    ((kind, digest),) = ask(node, TokenAction.CREATE, TokenOptions(serial_no=77))
    assert kind == "ssl"
    facts = certificates.facts(Path(path).read_bytes(), path)
    assert (facts.digest, facts.serial) == (digest, 77)
    assert (facts.common_name, facts.issuer_name) == ("node1.example.com", "ganeti.example.com")
    assert os.stat(path).st_mode & 0o777 == 0o440
    assert ask(node, TokenAction.GET) == [("ssl", digest)]
    assert ask(node, TokenAction.CREATE) != [("ssl", digest)]
    assert ask(node, TokenAction.DELETE) == []
    assert not os.path.exists(path)


def test_another_file_may_be_named_but_no_other_kind_of_file(node: NodeContext) -> None:
    other = "/var/lib/ganeti/client.pem.tmp"
    ((_kind, digest),) = ask(node, TokenAction.CREATE, TokenOptions(cert_file=other))
    assert ask(node, TokenAction.GET, TokenOptions(cert_file=other)) == [("ssl", digest)]
    assert not os.path.exists(node.paths.client_pem)
    for path in ("/var/lib/ganeti/server.pem", "/etc/client.pem", "client.pem"):
        with pytest.raises(GenericError):
            ask(node, TokenAction.DELETE, TokenOptions(cert_file=path))


def test_other_kinds_of_token_are_not_supported(node: NodeContext) -> None:
    with pytest.raises(NotSupportedError, match="'ssh'"):
        keys.Keys(node).node_crypto_tokens([TokenRequest("ssh", TokenAction.GET)])


def test_a_certificate_for_a_transfer_is_made_and_removed(node: NodeContext) -> None:
    name, pem = keys.Keys(node).x509_cert_create(3600)
    place = Path(node.paths.crypto_keys_dir, name)
    assert sorted(os.listdir(place)) == ["cert", "key"]
    assert "PRIVATE" not in pem
    assert certificates.facts(pem.encode(), "x").common_name == "ganeti.example.com"
    for wrong in ("..", f"../{name}", "", "x509-none"):
        with pytest.raises(GenericError):
            keys.Keys(node).x509_cert_remove(wrong)
    keys.Keys(node).x509_cert_remove(name)
    assert not place.exists()


def test_certificates_that_are_over_go_with_the_next_one(node: NodeContext) -> None:
    name, _pem = keys.Keys(node).x509_cert_create(3600)
    other, _pem = keys.Keys(node).x509_cert_create(3600)
    assert keys.transfer_key_path(node.paths, name).endswith("/key")
    expired = certificates.make_self_signed(now=clock.now() - 3 * 86400, days=1)
    Path(node.paths.crypto_keys_dir, name, "cert").chmod(0o600)
    Path(node.paths.crypto_keys_dir, name, "cert").write_bytes(expired)
    newest, _pem = keys.Keys(node).x509_cert_create(3600)
    assert sorted(os.listdir(node.paths.crypto_keys_dir)) == sorted([other, newest])
    with pytest.raises(GenericError, match="there is no certificate"):
        keys.transfer_key_path(node.paths, name)
