"""Keys of this node: certificates as a client and for transfers, and root's SSH keys.

Certificates for transfers are valid for a short time.  SSH keys, the node's own and the keys that
may log in, are changed only on a node that was set up for that, by a mark which the master cannot
change.

Source: node_rpc.json, "node_crypto_tokens" and "client_certificate_names"; constants.json, "ssh"
(CRYPTO_*).
"""

import os
import shutil
import tempfile
from collections.abc import Sequence
from typing import Final

from ganeti.base.errors import GenericError, NotSupportedError, X509CertError
from ganeti.base.paths import Paths
from ganeti.base.text import ssh_key_of
from ganeti.node_ops.context import NodeContext, NodeHandler
from ganeti.protocol.node_rpc_values import TokenAction, TokenOptions, TokenRequest
from ganeti.system import clock, files, ssh

CLIENT_CERTIFICATE: Final = "ssl"  # the only type of token; its name on the wire
_PEM_MODE: Final = 0o440
_KEY_DIRECTORY_MODE: Final = 0o700
_PEM_BYTES_MAX: Final = 1 << 20
_SERIAL_BYTES: Final = 8
_SECONDS_PER_DAY: Final = 86400
_KEY_FILE: Final = "key"
_CERT_FILE: Final = "cert"
_CERT_PREFIX: Final = "x509-"
_CERT_DAYS_MIN: Final = 1


class Keys(NodeHandler):
    """Certificates of the node and of transfers, and root's SSH keys."""

    def node_crypto_tokens(self, token_request: Sequence[TokenRequest]) -> list[tuple[str, str]]:
        answers = []
        for request in token_request:
            if request.kind != CLIENT_CERTIFICATE:
                raise NotSupportedError(f"crypto token type {request.kind!r} is not supported yet")
            digest = _carry_out(self.node, request.action, request.options or TokenOptions())
            if digest is not None:
                answers.append((CLIENT_CERTIFICATE, digest))
        return answers

    def x509_cert_create(self, validity: int) -> tuple[str, str]:
        from ganeti.system import certificates  # many milliseconds, and rarely needed

        days = max(_CERT_DAYS_MIN, -(-validity // _SECONDS_PER_DAY))
        # Its name is that of all clusters: senders of 3.0 look for it.
        pem = certificates.make_self_signed(now=clock.now(), days=days)
        cert = certificates.certificate_only(pem, "the new certificate")
        directory = self.paths.crypto_keys_dir
        files.ensure_directory(directory, _KEY_DIRECTORY_MODE)
        remove_expired(directory)
        place = tempfile.mkdtemp(prefix=_CERT_PREFIX, dir=directory)
        files.write_atomic(os.path.join(place, _KEY_FILE), pem, 0o400)
        files.write_atomic(os.path.join(place, _CERT_FILE), cert, 0o400)
        return os.path.basename(place), cert.decode()

    def x509_cert_remove(self, name: str) -> None:
        shutil.rmtree(_place_of(self.paths, name))

    def ssh_root_key(self, kind: str, bits: int) -> str:
        return ssh.ensure_user_key(self._directory(kind), kind, bits, host=self.hostname)

    def ssh_next_key(self, kind: str, bits: int) -> str:
        return ssh.make_next_key(self._directory(kind), kind, bits, host=self.hostname)

    def ssh_take_key(self, kind: str, public_key: str) -> None:
        ssh.take_next_key(self._directory(kind), kind, public_key)

    def ssh_authorize(self, add: Sequence[str], remove: Sequence[str]) -> bool:
        self._check_managed()
        for line in (*add, *remove):
            if "\n" in line or not isinstance(ssh_key_of(line), tuple):
                raise GenericError(f"{line[:80]!r} is not a public SSH key")
        return ssh.change_authorized_keys(ssh.directory_of(self.paths), add=add, remove=remove)

    def _directory(self, kind: str) -> str:
        self._check_managed()
        if kind not in ssh.KEY_KINDS:
            raise GenericError(f"there is no kind {kind!r} of SSH keys")
        return ssh.directory_of(self.paths)

    def _check_managed(self) -> None:
        if not os.path.exists(self.paths.ssh_managed):
            raise GenericError(
                f"node {self.hostname} was not set up to have its SSH keys managed; 'gnt-node add"
                " --readd' sets it up"
            )


def transfer_key_path(paths: Paths, name: str) -> str:
    """Return the file with key and certificate made by `x509_cert_create`.

    Raises:
        GenericError: there is none of that name.
    """
    return os.path.join(_place_of(paths, name), _KEY_FILE)


def _place_of(paths: Paths, name: str) -> str:
    place = os.path.join(paths.crypto_keys_dir, name)
    if "/" in name or not name.startswith(_CERT_PREFIX) or not os.path.isdir(place):
        raise GenericError(f"there is no certificate {name!r}")
    return place


def remove_expired(directory: str) -> list[str]:
    """Remove certificates that nobody removed while they were good for something.

    Returns:
        Their directories.
    """
    removed = []
    for name in os.listdir(directory):
        place = os.path.join(directory, name)
        pem = files.read_bytes_or_none(os.path.join(place, _CERT_FILE), _PEM_BYTES_MAX)
        # One without a certificate is being made.
        if name.startswith(_CERT_PREFIX) and pem is not None and _is_over(pem, place):
            shutil.rmtree(place, ignore_errors=True)
            removed.append(place)
    return removed


def _is_over(pem: bytes, filename: str) -> bool:
    from ganeti.system import certificates  # many milliseconds, and rarely needed

    try:
        return certificates.facts(pem, filename).not_after < clock.now()
    except X509CertError:
        return True


def client_certificate_path(paths: Paths, options: TokenOptions) -> str:
    """Return the file that a request is about.

    Raises:
        GenericError: not a client certificate in the data directory.
    """
    if options.cert_file is None:
        return paths.client_pem
    path = paths.localize(options.cert_file)
    directory, name = os.path.split(path)
    if directory != paths.data_dir or not name.startswith("client"):
        raise GenericError(f"{options.cert_file!r} is not a client certificate's file")
    return path


def _carry_out(context: NodeContext, action: TokenAction, options: TokenOptions) -> str | None:
    """Carry out one request; returns the digest of the certificate that is there afterwards."""
    path = client_certificate_path(context.paths, options)
    if action is TokenAction.DELETE:
        files.remove_if_exists(path)
        return None
    if action is TokenAction.CREATE:
        files.write_durable(path, _issue(context, options.serial_no), _PEM_MODE)
    return _digest(path)


def _issue(context: NodeContext, serial: int | None) -> bytes:
    """Make this node's client certificate, issued by the cluster's."""
    from ganeti.system import certificates  # many milliseconds, and rarely needed

    if serial is None:
        serial = int.from_bytes(clock.random_bytes(_SERIAL_BYTES)) >> 1 or 1
    return certificates.issue(
        context.hostname,
        files.read_bytes(context.paths.server_pem, _PEM_BYTES_MAX),
        now=clock.now(),
        serial=serial,
        filename=context.paths.server_pem,
    )


def _digest(path: str) -> str:
    """Return the digest of the certificate in a file."""
    from ganeti.system import certificates  # many milliseconds, and rarely needed

    pem = files.read_bytes_or_none(path, _PEM_BYTES_MAX)
    if pem is None:
        raise GenericError(f"there is no certificate {path}")
    return certificates.facts(pem, path).digest
