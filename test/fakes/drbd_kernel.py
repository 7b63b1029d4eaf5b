"""The DRBD driver of a node in memory, behind the commands and files that the real one has.

Two kernels in one `Wire` reach each other.  A synchronization ends when the test says so.  Output
has the form of DRBD 8.4.11, see test/data/drbd.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ganeti.base.errors import CommandError
from ganeti.system.process import CommandResult

JUST_CREATED = "0000000000000004"
DISK_DEFAULTS = {
    "on-io-error": "detach",
    "fencing": "dont-care",
    "disk-barrier": "no",
    "disk-flushes": "yes",
    "disk-drain": "yes",
    "md-flushes": "yes",
    "resync-rate": "250k",
    "c-plan-ahead": "20",
    "c-delay-target": "10",
    "c-fill-target": "100s",
    "c-max-rate": "102400k",
    "c-min-rate": "250k",
}
NET_DEFAULTS = {
    "protocol": "C",
    "allow-two-primaries": "no",
    "cram-hmac-alg": "",
    "shared-secret": "",
    "after-sb-0pri": "disconnect",
    "after-sb-1pri": "disconnect",
    "max-buffers": "2048",
}
SPLIT_LOG = """\
[1.0] block drbd{0}: drbd_sync_handshake:
[1.0] block drbd{0}: self {1} bits:10 flags:0
[1.0] block drbd{0}: peer {2} bits:10 flags:0
[1.1] block drbd{0}: Split-Brain detected but unresolved, dropping connection!
"""


@dataclass
class Resource:
    """One resource with at most one device."""

    name: str
    minor: int | None = None
    data: str = ""
    meta: str = ""
    disk: dict[str, str] = field(default_factory=dict)
    local: str = ""
    remote: str = ""
    net: dict[str, str] = field(default_factory=dict)
    is_primary: bool = False
    is_paused: bool = False
    size: str = ""


class Refused(Exception):
    """The driver refuses a command: exit status and text."""


@dataclass
class Kernel:
    """One node.

    Attributes:
        files: where its /proc/drbd is written.
        generations: of the data, by the path of the metadata; before them the earlier ones.
        outdated: paths of metadata that say that the other node was written alone.
        syncing: paths of metadata whose data are not yet those of the copy.
        fails_after: that many commands succeed, all others fail; None for no limit.
    """

    files: Path
    wire: list[Kernel] = field(default_factory=list)
    resources: dict[str, Resource] = field(default_factory=dict)
    generations: dict[str, str] = field(default_factory=dict)
    syncing: set[str] = field(default_factory=set)
    earlier: dict[str, list[str]] = field(default_factory=dict)
    outdated: set[str] = field(default_factory=set)
    held: set[int] = field(default_factory=set)
    log: str = ""
    commands: list[tuple[str, ...]] = field(default_factory=list)
    fails_after: int | None = None
    next_generation: int = 0x10

    def __post_init__(self) -> None:
        self.wire.append(self)
        self.tell()

    @property
    def changes(self) -> list[str]:
        """The commands that were given, without looks."""
        looks = {"show", "get-gi", "wait-connect"}
        said = (argv[1] if argv[0] == "drbdsetup" else argv[-1] for argv in self.commands)
        return [word for word in said if word not in looks]

    def run(self, argv: Sequence[str], **_options: object) -> CommandResult:
        program, *words = argv
        if program == "dmesg":
            return CommandResult(tuple(argv), 0, self.log.encode(), b"")
        self.commands.append(tuple(argv))
        if self.fails_after is not None and len(self.commands) > self.fails_after:
            raise CommandError("the node went away", tuple(argv), None, "")
        try:
            said = self._drbdmeta(words) if program == "drbdmeta" else self._drbdsetup(words)
        except Refused as err:
            return CommandResult(tuple(argv), 10, b"", str(err).encode())
        for kernel in self.wire:
            kernel.tell()
        return CommandResult(tuple(argv), 0, said.encode(), b"")

    def _drbdmeta(self, words: Sequence[str]) -> str:
        meta, action = words[3], words[-1]
        if action == "create-md":
            self.generations[meta] = JUST_CREATED
        elif action == "wipe-md":
            self.generations.pop(meta, None)
        elif meta not in self.generations:
            raise Refused("No valid meta data found")
        return f"# stale\n{self.generations.get(meta)}:0:0:0:0:0\n" if action == "get-gi" else ""

    def _drbdsetup(self, words: Sequence[str]) -> str:
        action, *rest = words
        given = dict(
            word.removeprefix("--").partition("=")[::2] for word in rest if word.startswith("--")
        )
        plain = [word for word in rest if not word.startswith("--")]
        found = getattr(self, "_" + action.replace("-", "_"))(*plain, options=given)
        return found or ""

    def _show(self, *, options: dict[str, str]) -> str:
        return "".join(map(_shown, self.resources.values()))

    def _new_resource(self, name: str, *, options: dict[str, str]) -> None:
        self.resources.setdefault(name, Resource(name))

    def _new_minor(self, name: str, minor: str, _volume: str, *, options: dict[str, str]) -> None:
        if any(each.minor == int(minor) for each in self.resources.values()):
            raise Refused("Failure: (161) Minor exists already")
        self.resources[name].minor = int(minor)

    def _of(self, minor: str) -> Resource:
        for resource in self.resources.values():
            if resource.minor == int(minor):
                return resource
        raise Refused("Failure: (127) Device minor not allocated")

    def _attach(
        self, minor: str, data: str, meta: str, _index: str, *, options: dict[str, str]
    ) -> None:
        found = self._of(minor)
        if found.data:
            raise Refused("Failure: (124) Device is attached to a disk (use detach first)")
        found.size = options.pop("size", found.size)
        found.disk = DISK_DEFAULTS | self._known(options, DISK_DEFAULTS)
        found.data, found.meta = data, meta
        self._meet(found)

    @staticmethod
    def _known(options: dict[str, str], table: dict[str, str]) -> dict[str, str]:
        for name in options:
            if name not in table:
                raise Refused(f"unrecognized option '--{name}'")
        return options

    def _disk_options(self, minor: str, *, options: dict[str, str]) -> None:
        self._of(minor).disk |= self._known(options, DISK_DEFAULTS)

    def _detach(self, minor: str, *, options: dict[str, str]) -> None:
        found = self._of(minor)
        peer = self._peer(found)
        if found.is_primary and (peer is None or peer[0].state(peer[1]) != "UpToDate"):
            raise Refused("State change failed: (-2) Need access to UpToDate data")
        found.data = found.meta = ""

    def _connect(self, name: str, local: str, remote: str, *, options: dict[str, str]) -> None:
        if name not in self.resources:
            raise Refused("Failure: (158) Unknown resource")
        if any(each.local == local for each in self.resources.values()):
            raise Refused("Failure: (102) Local address(port) already in use.")
        found = self.resources[name]
        found.local, found.remote = local, remote
        found.net = NET_DEFAULTS | self._known(options, NET_DEFAULTS)
        self._meet(found)

    def _by_address(self, local: str) -> Resource:
        for resource in self.resources.values():
            if resource.local == local:
                return resource
        raise Refused("Failure: (162) Invalid configuration request")

    def _net_options(self, local: str, _remote: str, *, options: dict[str, str]) -> None:
        self._by_address(local).net |= self._known(options, NET_DEFAULTS)

    def _disconnect(self, local: str, _remote: str, *, options: dict[str, str]) -> None:
        found = self._by_address(local)
        found.local = found.remote = ""
        found.net = {}

    def _down(self, name: str, *, options: dict[str, str]) -> None:
        if name in self.resources and self.resources[name].minor in self.held:
            raise Refused("State change failed: (-12) Device is held open by someone")
        self.resources.pop(name, None)

    def _primary(self, minor: str, *, options: dict[str, str]) -> None:
        found = self._of(minor)
        peer = self._peer(found)
        if peer is not None and peer[1].is_primary and found.net["allow-two-primaries"] == "no":
            raise Refused("State change failed: (-1) Multiple primaries not allowed by config")
        if self.state(found) != "UpToDate" and "force" not in options:
            if peer is None or peer[0].state(peer[1]) != "UpToDate":
                raise Refused("State change failed: (-2) Need access to UpToDate data")
        elif self.state(found) != "UpToDate":
            self.generations[found.meta] = self._new_generation()
            self.outdated.discard(found.meta)
            self._meet(found)
        found.is_primary = True

    def write(self, resource: Resource) -> None:
        """Change the data: a new generation, on the connected copy as well."""
        value = self._new_generation()
        self.earlier.setdefault(resource.meta, []).append(self.generations[resource.meta])
        self.generations[resource.meta] = value
        if (peer := self._peer(resource)) is not None and peer[1].meta not in peer[0].syncing:
            peer[0].generations[peer[1].meta] = value

    def _new_generation(self) -> str:
        self.next_generation += 1
        return f"{self.wire.index(self) + 1:04X}{self.next_generation:012X}"

    def _secondary(self, minor: str, *, options: dict[str, str]) -> None:
        if int(minor) in self.held:
            self.held.discard(int(minor))  # let go a moment later
            raise Refused("State change failed: (-12) Device is held open by someone")
        self._of(minor).is_primary = False

    def _resize(self, minor: str, *, options: dict[str, str]) -> None:
        self._of(minor).size = options["size"]

    def _get_gi(self, minor: str, *, options: dict[str, str]) -> str:
        found = self._of(minor)
        earlier = [*reversed(self.earlier.get(found.meta, [])), "0", "0", "0"][:3]
        return ":".join([self.generations[found.meta], *earlier]) + ":1:1:0:0:0:0:0\n"

    def _outdate(self, minor: str, *, options: dict[str, str]) -> None:
        found = self._of(minor)
        if self._peer(found) is None:  # one that is connected stays what it is, without a word
            self.outdated.add(found.meta)

    def _pause_sync(self, minor: str, *, options: dict[str, str]) -> None:
        if self._of(minor).is_paused:
            raise Refused("Failure: (134) Sync-pause flag is already set")
        self._of(minor).is_paused = True

    def _resume_sync(self, minor: str, *, options: dict[str, str]) -> None:
        self._of(minor).is_paused = False

    def _wait_connect(self, minor: str, *, options: dict[str, str]) -> None:
        self._of(minor)

    # The copy

    def _peer(self, resource: Resource) -> tuple[Kernel, Resource] | None:
        for kernel in self.wire:
            for other in kernel.resources.values():
                # A device that another pair left behind may have the same address and port for its
                # other side; nobody there accepts it.
                fits = (other.remote, other.local) == (resource.local, resource.remote)
                if fits and resource.local and kernel is not self:
                    return kernel, other
        return None

    def _meet(self, resource: Resource) -> None:
        """Compare the data with those of the copy: who is older follows."""
        peer = self._peer(resource)
        if peer is None or not resource.data or not peer[1].data:
            return
        kernel, other = peer
        here, there = self.generations[resource.meta], kernel.generations[other.meta]
        if here == there:
            return
        if JUST_CREATED in (here, there):
            target, place = (self, resource) if here == JUST_CREATED else (kernel, other)
            target.syncing.add(place.meta)
            return
        for each, mine, theirs, place in (
            (self, here, there, resource),
            (kernel, there, here, other),
        ):
            each.log += SPLIT_LOG.format(place.minor, mine, theirs)
            place.local = place.remote = ""
            place.net = {}

    def finish_sync(self) -> None:
        """Let all synchronizations of this node's copies end."""
        for resource in self.resources.values():
            peer = self._peer(resource)
            if resource.meta in self.syncing and peer is not None:
                self.generations[resource.meta] = peer[0].generations[peer[1].meta]
        self.syncing.clear()
        for kernel in self.wire:
            kernel.tell()

    def state(self, resource: Resource) -> str:
        if not resource.data:
            return "Diskless"
        is_old = resource.meta in self.syncing or self.generations[resource.meta] == JUST_CREATED
        whole = "Outdated" if resource.meta in self.outdated else "UpToDate"
        return "Inconsistent" if is_old else whole

    def _connection(self, resource: Resource) -> str:
        peer = self._peer(resource)
        if peer is None:
            return "WFConnection" if resource.local else "StandAlone"
        kernel, other = peer
        is_paused = "Paused" if resource.is_paused or other.is_paused else ""
        if resource.meta in self.syncing:
            return f"{is_paused}SyncT" + ("" if is_paused else "arget")
        if other.meta in kernel.syncing:
            return f"{is_paused}SyncS" + ("" if is_paused else "ource")
        return "Connected"

    def tell(self) -> None:
        """Write /proc/drbd."""
        text = "version: 8.4.11 (api:1/proto:86-101)\nsrcversion: F73C670A7EC572DB9CF3E5B \n"
        for resource in self.resources.values():
            if resource.minor is not None:
                text += self._line(resource)
        new = self.files / "drbd.new"
        new.write_text(text)
        new.replace(self.files / "drbd")  # a reader sees one version or the other

    def _line(self, resource: Resource) -> str:
        if not resource.data and not resource.local and not resource.is_primary:
            return f" {resource.minor}: cs:Unconfigured\n"
        peer = self._peer(resource)
        role = {True: "Primary", False: "Secondary"}
        there = "Unknown" if peer is None else role[peer[1].is_primary]
        copy = "DUnknown" if peer is None else peer[0].state(peer[1])
        connection = self._connection(resource)
        flags = "r--u--" if resource.is_paused else "r-----"
        text = (
            f" {resource.minor}: cs:{connection} ro:{role[resource.is_primary]}/{there}"
            f" ds:{self.state(resource)}/{copy} {resource.net.get('protocol', ' ')} {flags}\n"
            "    ns:0 nr:0 dw:0 dr:0 al:8 bm:0 lo:0 pe:0 ua:0 ap:0 ep:1 wo:f oos:1024\n"
        )
        if connection in ("SyncSource", "SyncTarget"):
            text += "\t[====>...............] sync'ed: 25.0% (1024/4096)K\n"
            text += "\tfinish: 0:00:12 speed: 7,596 (7,300) K/sec\n"
        return text


def _shown(resource: Resource) -> str:
    """Return the lines of ``drbdsetup show``."""
    net = there = here = ""
    if resource.local:
        net = "    net {\n" + _lines(resource.net) + "    }\n"
        there = f"    _remote_host {{\n        address ipv4 {resource.remote[5:]};\n    }}\n"
        here = f"        address ipv4 {resource.local[5:]};\n"
    if resource.minor is not None:
        here += f"        volume 0 {{\n            device minor {resource.minor};\n"
        if resource.data:
            here += f'            disk "{resource.data}";\n'
            here += f'            meta-disk "{resource.meta}" [ 0 ];\n'
            here += "            disk {\n" + _lines(resource.disk) + "            }\n"
        here += "        }\n"
    return f"resource {resource.name} {{\n{net}{there}    _this_host {{\n{here}    }}\n}}\n"


def _lines(options: dict[str, str]) -> str:
    return "".join(f'        {name} "{value}"; # default\n' for name, value in options.items())
