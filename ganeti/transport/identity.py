"""Which certificate files a node calls others with; needs no TLS library to tell.

Source: node_rpc.json, "tls".
"""

from __future__ import annotations

import os

from ganeti.base.errors import X509CertError
from ganeti.base.paths import Paths


def node_client_certificate(paths: Paths) -> str:
    """Return the file with which this node calls others: its own, or the cluster's.

    Raises:
        X509CertError: neither exists, or there is no authority to check the others with.
    """
    for path in (paths.client_pem, paths.server_pem):
        if os.path.exists(path):
            if not os.path.exists(paths.server_pem):
                raise X509CertError(paths.server_pem, "this file does not exist")
            return str(path)
    raise X509CertError(
        paths.server_pem, "this file does not exist; is this node part of a cluster?"
    )
