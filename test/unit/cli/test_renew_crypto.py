"""``gnt-cluster renew-crypto``: what it is given, what it refuses, and how it ends."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.errors import (
    CommandError,
    GenericError,
    OpExecError,
    OpPrereqError,
    TransportError,
)
from ganeti.base.paths import Paths
from ganeti.bootstrap import node_setup
from ganeti.cli.cluster import crypto
from ganeti.cli.cluster.crypto import new_contents
from ganeti.cli.declaration.parser import Options, parse
from ganeti.cli.programs import named
from ganeti.cli.run.context import Context, Terminal
from ganeti.clients import pauses
from ganeti.opcodes.opcode import OpCode
from ganeti.protocol.remote_move import SECRET_BYTES_MAX
from ganeti.store import ssconf
from ganeti.store.availability import State, write_state
from ganeti.store.notes import renewal
from ganeti.system import clock
from ganeti.system.process import CommandResult

PROGRAM = named("gnt-cluster")
_FOUND = PROGRAM.find("renew-crypto")
assert _FOUND is not None
COMMAND = _FOUND


def given_secret(path: Path, content: bytes) -> bytes:
    """Return the secret that is taken from a file with this content."""
    path.write_bytes(content)
    options = parse(PROGRAM, ["renew-crypto", f"--cluster-domain-secret={path}"], {}).options
    terminal = Terminal(io.StringIO(), io.StringIO(), io.StringIO(), is_interactive=False)
    found = new_contents(Context(PROGRAM.name, COMMAND, options, terminal), options)
    return found["cluster_domain_secret"]


def test_a_secret_may_have_any_bytes(tmp_path: Path) -> None:
    assert given_secret(tmp_path / "secret", b"\xff\xfe") == b"\xff\xfe"


def test_a_secret_that_jobs_could_not_read_is_refused_by_the_name_of_its_file(
    tmp_path: Path,
) -> None:
    assert given_secret(tmp_path / "secret", bytes(SECRET_BYTES_MAX))
    with pytest.raises(OpPrereqError, match=r"/long is no cluster domain secret: .* 65537 bytes"):
        given_secret(tmp_path / "long", bytes(SECRET_BYTES_MAX + 1))


class Cluster:
    """Three nodes, of which ``old`` runs the command; its master's daemons do whatever is asked."""

    def __init__(self, root: Path) -> None:
        self.paths = Paths(str(root))
        self.masters: dict[str, str | None] = {"new": "old", "third": "old"}  # None: not reached
        self.told: list[str] | None = None
        self.jobs: list[str] = []
        self.errors: dict[str, GenericError] = {}  # of jobs, by their parameter
        self.screen = io.StringIO()

    def transport_to(self, _paths: Paths, name: str, **_how: object) -> Transport:
        return Transport(self, name)

    def replace_identity(
        self, paths: Paths, _own: str, peers: Sequence[node_setup.Peer], **_how: object
    ) -> list[str]:
        renewal.begin(paths)
        self.told = [peer.name for peer in peers]
        return []

    def execute(self, _context: Context, _options: Options, *opcodes: OpCode) -> None:
        for opcode in opcodes:
            flags = ("node_certificates", "renew_ssh_keys")
            [name] = [each for each in flags if getattr(opcode, each, False)] or ["files"]
            name = f"try {name}" if opcode.dry_run else name
            self.jobs.append(name)
            if name in self.errors:
                raise self.errors[name]

    def renew(self, *words: str) -> int:
        words = ("renew-crypto", "--force", *words)
        options = parse(PROGRAM, words, {}).options
        terminal = Terminal(self.screen, self.screen, io.StringIO(), is_interactive=False)
        return crypto.renew_crypto(Context(PROGRAM.name, COMMAND, options, terminal), options, [])


class Transport:
    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name

    def run(self, argv: Sequence[str], **_how: Any) -> CommandResult:
        master = self.cluster.masters[self.name]
        if master is None:
            raise CommandError("No route to host", [*argv])
        return CommandResult((*argv,), 0, f"Welcome\n{master}\n".encode(), b"")

    def describe(self) -> str:
        return "SSH"


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster(tmp_path)
    for path in (made.paths.data_dir, made.paths.lock_dir, Path(made.paths.ha_state).parent):
        Path(path).mkdir(parents=True, exist_ok=True)
    names = "\n".join(["old", *made.masters])
    values = {"master_node": "old", "cluster_name": "c", "node_list": names, "offline_nodes": ""}
    ssconf.write_values(made.paths, values)
    monkeypatch.setattr(Context, "paths", made.paths)
    monkeypatch.setattr(crypto, "own_hostname", lambda: "old")
    monkeypatch.setattr(crypto, "transport_to", made.transport_to)
    monkeypatch.setattr(crypto, "execute", made.execute)
    rows = [[name, False, 22] for name in ("old", *made.masters)]
    monkeypatch.setattr(crypto, "rows_of_nodes", lambda *_args: rows)
    monkeypatch.setattr(
        crypto,
        "_replace_identity",
        lambda _c, _o, _n, peers: made.replace_identity(made.paths, "", peers),
    )
    monkeypatch.setattr(node_setup, "replace_identity", made.replace_identity)
    return made


def test_a_master_of_before_goes_on_with_nothing_once_another_one_is_followed(
    three: Cluster,
) -> None:
    """Its own files name itself: nobody who has other certificates could tell it."""
    renewal.begin(three.paths)
    three.masters["third"] = "new"
    with pytest.raises(OpPrereqError, match=r"which is new now;.*gnt-node add --readd old"):
        three.renew()
    assert three.told is None
    assert renewal.is_cut_off(three.paths)


def test_nobody_goes_on_with_a_renewal_that_is_at_work(
    three: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(*_: object) -> list[str]:
        renewal.begin(three.paths)
        with pytest.raises(GenericError, match="another 'gnt-cluster renew-crypto' is at work"):
            three.renew("--new-cluster-certificate")
        return []

    monkeypatch.setattr(crypto, "_replace_identity", meanwhile)
    three.renew("--new-cluster-certificate")
    assert three.told is None, "nobody has gone on"


def test_a_cut_renewal_goes_on_without_a_node_that_is_down(three: Cluster) -> None:
    renewal.begin(three.paths)
    three.masters["third"] = None
    three.errors["node_certificates"] = OpExecError("no new client certificate for third")
    assert three.renew() == 1
    assert three.told == ["new"]
    assert "Going on without third (SSH): No route to host" in three.screen.getvalue()
    assert "gnt-node add --readd third" in three.screen.getvalue()
    assert not renewal.is_cut_off(three.paths)


def test_too_few_nodes_for_a_master_are_told_nothing(three: Cluster) -> None:
    renewal.begin(three.paths)
    three.masters = dict.fromkeys(three.masters)
    with pytest.raises(OpPrereqError, match=r"1 of 3 nodes are reached, 2 are .*--no-voting"):
        three.renew()
    assert three.told is None


def test_a_failed_job_of_candidates_ends_the_renewal_and_the_others_begin(three: Cluster) -> None:
    three.errors["node_certificates"] = OpExecError("no new client certificate for third")
    assert three.renew("--new-node-certificates", "--new-ssh-keys") == 1
    assert "no new client certificate for third" in three.screen.getvalue()
    assert three.jobs == ["try renew_ssh_keys", "node_certificates", "renew_ssh_keys"]
    assert not renewal.is_cut_off(three.paths)


def test_keys_that_are_managed_by_hand_are_refused_before_anything_is_replaced(
    three: Cluster,
) -> None:
    three.errors["try renew_ssh_keys"] = OpPrereqError("the SSH keys are managed by hand")
    with pytest.raises(OpPrereqError, match="managed by hand"):
        three.renew("--new-node-certificates", "--new-confd-hmac-key", "--new-ssh-keys")
    assert three.told is None
    assert three.jobs == ["try renew_ssh_keys"]


def test_a_renewal_whose_job_has_no_known_end_is_cut_off(three: Cluster) -> None:
    three.errors["node_certificates"] = TransportError("LuxiD has ended")
    with pytest.raises(TransportError):
        three.renew("--new-node-certificates")
    assert renewal.is_cut_off(three.paths)


@pytest.mark.parametrize("is_cut_off", [True, False])
def test_daemons_stop_only_if_high_availability_is_paused_for_long_enough(
    three: Cluster, monkeypatch: pytest.MonkeyPatch, is_cut_off: bool
) -> None:
    if is_cut_off:
        renewal.begin(three.paths)
    Path(three.paths.high_availability).write_text("{}")

    def let_pause(left_s: float | None) -> None:
        def paused_until(_paths: Paths) -> float:
            if left_s is None:
                raise TransportError("etcd does not answer")
            return clock.now() + left_s

        monkeypatch.setattr(pauses, "paused_until", paused_until)

    for left_s, text in (
        (None, "etcd does not answer"),
        (-60.0, "pause it first"),
        (120.0, "for 2 minutes only, and the replacement of certificates wants 11"),
    ):
        let_pause(left_s)
        with pytest.raises(OpPrereqError, match=rf"{text}.*'gnt-cluster ha-pause --for=1h"):
            three.renew("--new-node-certificates")
        assert three.told is None
    let_pause(3600.0)
    write_state(three.paths, State(time=clock.monotonic()))  # no agent here has heard of it
    with pytest.raises(OpPrereqError, match="pause it first"):
        three.renew("--new-node-certificates")
    write_state(three.paths, State(time=clock.monotonic(), pause="new certificates"))
    assert three.renew("--new-node-certificates") == 0
    assert three.told == ["new", "third"]
