"""Which certificates a node that becomes the master trusts, its own above all."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from fakes.large_config import large_config_bytes, uuid_of

from ganeti.base.ids import NodeUuid
from ganeti.base.paths import Paths
from ganeti.bootstrap import keys
from ganeti.bootstrap.failover import Failover, FailoverOptions
from ganeti.clients.node_rpc import NodeRpcClient
from ganeti.config.config_data import with_candidate_certs
from ganeti.store import ssconf
from ganeti.system import files
from ganeti.transport.tls import digest_of_file

OWN = "node2.example.com"
MASTER_UUID, OWN_UUID = (NodeUuid(uuid_of("node", number)) for number in (1, 2))


@pytest.mark.parametrize("no_voting", [True, False])
def test_a_certificate_that_nobody_has_heard_of_is_trusted_where_nobody_is_asked(
    tmp_path: Path, no_voting: bool
) -> None:
    """The old master was lost while this node was making it, before the configuration had it."""
    paths = Paths(str(tmp_path))
    for directory in (paths.data_dir, paths.lock_dir, os.path.dirname(paths.ssconf_lock)):
        os.makedirs(directory, exist_ok=True)
    known = {MASTER_UUID: "AA:BB", OWN_UUID: "CC:DD"}
    config = with_candidate_certs(large_config_bytes(nodes=3, instances=0), known, now=1.0)
    lines = "\n".join(f"{uuid}={digest}" for uuid, digest in known.items())
    ssconf.write_values(paths, {"master_candidates_certs": lines})
    made = keys.make_client_certificate(OWN, keys.make_certificate())
    files.write_durable(paths.client_pem, made, 0o400)
    options = FailoverOptions(no_voting=no_voting)
    failover = Failover(paths, OWN, NodeRpcClient(paths), options, lambda _text: None)
    after = json.loads(failover._with_trusted(config))["cluster"]["candidate_certs"]
    assert after == ({**known, OWN_UUID: digest_of_file(paths.client_pem)} if no_voting else known)
