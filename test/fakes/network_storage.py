"""Ceph and Gluster as a node sees them: their programs, answered from memory.

Words and exit statuses are those of Ceph 16.2.15 and Gluster 10.3, as recorded.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ganeti.storage.network.mounts import Mount
from ganeti.system.process import CommandResult

MIB = 1 << 20
_NOT_FOUND = "(2) No such file or directory"


class FakeCeph:
    """A pool with images; ``questions`` are the commands that were run, without their options.

    Attributes:
        images: {image, or image@snapshot: size in bytes}
        open_at: the addresses at which images are open.
        hangs: no program ends.
        hangs_after: the commands that do not end when they have done their work.
    """

    def __init__(self, directory: Path, pool: str = "rbd") -> None:
        self._directory = directory
        self._pool = pool
        self.images: dict[str, int] = {}
        self.info: dict[str, str] = {}
        self.mapped: dict[str, str] = {}
        self.open_at: list[str] = []
        self.questions: list[str] = []
        self.hangs = False
        self.hangs_after: set[str] = set()

    def run_tool(self, argv: Sequence[str], *, package: str, timeout_s: float) -> CommandResult:
        """Answer as the programs ``rbd`` and ``ceph`` do."""
        assert package == "ceph-common"
        assert timeout_s > 0
        if self.hangs:
            return CommandResult(tuple(argv), -9, b"", b"", timed_out=True)
        program, _conf, _path, *words = argv
        if words[0] == "--id":
            words = words[2:]
        flags = {"--no-progress", "--long", "--format", "json"}
        words = [word for word in words if word not in flags]
        verb = " ".join(words[:2]) if words[0] in ("snap", "image-meta") else words[0]
        self.questions.append(verb)
        status, out, err = getattr(self, f"_{program}_{verb.replace(' ', '_').replace('-', '_')}")(
            *words[len(verb.split()) :]
        )
        if verb in self.hangs_after:
            return CommandResult(tuple(argv), -9, b"", b"", timed_out=True)
        return CommandResult(tuple(argv), status, out.encode(), err.encode())

    def _named(self, spec: str) -> str | None:
        pool, _slash, name = spec.partition("/")
        return name if pool == self._pool else None

    def _missing(self, spec: str) -> tuple[int, str, str]:
        pool, _slash, name = spec.partition("/")
        if pool != self._pool:
            return 2, "", f"rbd: error opening pool '{pool}': {_NOT_FOUND}\n"
        return 2, "", f"rbd: error opening image {name}: {_NOT_FOUND}\n"

    def _rbd_create(self, _size: str, size: str, spec: str) -> tuple[int, str, str]:
        name = self._named(spec)
        if name is None:
            return self._missing(spec)
        if name in self.images:
            return (
                17,
                "",
                (
                    f"2026-11-23T14:55:26.061+0000 7fc562e8f380 -1 librbd: rbd image {name} already"
                    " exists\n\nrbd: create error: (17) File exists\n"
                ),
            )
        self.images[name] = int(size.removesuffix("M")) * MIB
        return 0, "", ""

    def _rbd_info(self, spec: str) -> tuple[int, str, str]:
        name = self._named(spec) or ""
        size = self.images.get(name)
        if size is None and "@" in name and name.partition("@")[0] in self.images:
            return 2, "", f"error setting snapshot context: {_NOT_FOUND}\n"
        if size is None:
            return self._missing(spec)
        return 0, json.dumps({"name": spec, "id": "1022a112a881", "size": size, "format": 2}), ""

    def _rbd_snap_ls(self, spec: str) -> tuple[int, str, str]:
        if self._named(spec) not in self.images:
            return self._missing(spec)
        rows = [
            {
                "id": number,
                "name": name.partition("@")[2],
                "size": size,
                "protected": "false",
                "timestamp": f"Mon Nov 23 18:00:{number:02} 2026",
            }
            for number, (name, size) in enumerate(self.images.items())
            if name.startswith(f"{self._named(spec)}@")
        ]
        return 0, json.dumps(rows), ""

    def _rbd_snap_rollback(self, spec: str) -> tuple[int, str, str]:
        name = self._named(spec) or ""
        if name not in self.images:
            return self._missing(spec)
        self.images[name.partition("@")[0]] = self.images[name]  # its size, too
        return 0, "", ""

    def _rbd_ls(self, _pool: str, pool: str) -> tuple[int, str, str]:
        if pool != self._pool:
            return self._missing(pool)
        rows = []
        for name, size in self.images.items():
            image, _at, snapshot = name.partition("@")
            row = {"image": image, "id": "1", "size": size, "format": 2}
            rows.append({**row, "snapshot": snapshot} if snapshot else row)
        return 0, json.dumps(rows), ""

    def _rbd_status(self, spec: str) -> tuple[int, str, str]:
        if self._named(spec) not in self.images:
            return self._missing(spec)
        return 0, json.dumps({"watchers": [{"address": each} for each in self.open_at]}), ""

    def _rbd_rm(self, spec: str) -> tuple[int, str, str]:
        name = self._named(spec)
        if name not in self.images:
            return 2, "", f"rbd: delete error: {_NOT_FOUND}\n"
        if any(each.startswith(f"{name}@") for each in self.images):
            return (
                39,
                "",
                "rbd: image has snapshots - these must be deleted with 'rbd snap purge'\n",
            )
        del self.images[name]
        return 0, "", ""

    def _rbd_snap_purge(self, spec: str) -> tuple[int, str, str]:
        if self._named(spec) not in self.images:
            return self._missing(spec)
        for name in [each for each in self.images if each.startswith(f"{self._named(spec)}@")]:
            del self.images[name]
        return 0, "", ""

    def _rbd_snap_rm(self, spec: str) -> tuple[int, str, str]:
        name = self._named(spec) or ""
        if name.partition("@")[0] not in self.images:
            return self._missing(spec)
        if self.images.pop(name, None) is None:
            words = "Removing snap: 0% complete...failed.\nrbd: failed to remove snapshot"
            return 2, "", f"{words}: {_NOT_FOUND}\n"
        return 0, "", "Removing snap: 100% complete...done.\n"

    def _rbd_snap_create(self, spec: str) -> tuple[int, str, str]:
        name = self._named(spec) or ""
        size = self.images.get(name.partition("@")[0])
        if size is None:
            return self._missing(spec)
        self.images[name] = size
        return 0, "", "Creating snap: 10% complete...Creating snap: 100% complete...done.\n"

    def _rbd_resize(self, _size: str, size: str, spec: str) -> tuple[int, str, str]:
        self.images[self._named(spec) or ""] = int(size.removesuffix("M")) * MIB
        return 0, "", ""

    def _rbd_rename(self, old: str, new: str) -> tuple[int, str, str]:
        if self._named(new) in self.images:
            return 17, "", "rbd: rename error: (17) File exists\n"
        self.images[self._named(new) or ""] = self.images.pop(self._named(old) or "")
        return 0, "", ""

    def _rbd_image_meta_set(self, spec: str, _key: str, text: str) -> tuple[int, str, str]:
        self.info[self._named(spec) or ""] = text
        return 0, "", ""

    def _rbd_map(self, *words: str) -> tuple[int, str, str]:
        device = self._directory / f"rbd{len(self.mapped)}"
        with open(device, "wb") as file:
            file.truncate(self.images[self._named(words[-1]) or ""])
        self.mapped[str(device)] = self._named(words[-1]) or ""
        return 0, f"{device}\n", ""

    def _rbd_unmap(self, device: str) -> tuple[int, str, str]:
        del self.mapped[device]
        return 0, "", ""

    def _rbd_showmapped(self) -> tuple[int, str, str]:
        rows = []
        for index, (device, name) in enumerate(self.mapped.items()):
            image, _at, snapshot = name.partition("@")
            names = {"name": image, "snap": snapshot or "-", "namespace": ""}
            rows.append({"id": str(index), "pool": self._pool, **names, "device": device})
        return 0, json.dumps(rows), ""

    def _ceph_df(self) -> tuple[int, str, str]:
        stats = {"stored": 100 * MIB, "objects": 7, "max_avail": 1655 * MIB}
        return 0, json.dumps({"stats": {}, "pools": [{"name": self._pool, "stats": stats}]}), ""


class FakeGluster:
    """Volumes that are mounted by noting so; their files are those of the directory itself."""

    def __init__(self) -> None:
        self.mounted: dict[str, str] = {}
        self.runs: list[Sequence[str]] = []
        self.failure = ""

    def run_tool(self, argv: Sequence[str], *, package: str, timeout_s: float) -> CommandResult:
        """Answer as ``mount`` and ``umount`` do."""
        assert package in ("mount", "glusterfs-client")
        assert timeout_s > 0
        self.runs.append(argv)
        place = argv[-1]
        if argv[0] == "umount":
            self.mounted.pop(place, None)
        elif self.failure:
            return CommandResult(tuple(argv), 1, b"", self.failure.encode())
        else:
            self.mounted[place] = argv[-2]
        return CommandResult(tuple(argv), 0, b"", b"")

    def at(self, place: str) -> Mount | None:
        """Return the mount at a directory."""
        source = self.mounted.get(place)
        return None if source is None else Mount(place, "fuse.glusterfs", source)
