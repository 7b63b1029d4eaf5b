"""A copy of the package with one file and one row more: recipes for new kinds are tried in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class GrownTree:
    """The package below a directory; what is not changed are links to the real files."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self._copy_folder("ganeti")

    def _copy_folder(self, folder: str) -> None:
        place = self.base / folder
        if folder != "ganeti":  # first, or the folder would be the real one behind a link
            self._copy_folder(os.path.dirname(folder))
        if place.is_symlink():
            place.unlink()
        if place.is_dir():
            return
        place.mkdir()
        for entry in (ROOT / folder).iterdir():
            if entry.name != "__pycache__":
                (place / entry.name).symlink_to(entry)

    def add_file(self, path: str, text: str) -> None:
        """Write a new file, such as ganeti/hypervisor/dummy.py."""
        assert not (ROOT / path).exists()
        self._copy_folder(os.path.dirname(path))
        (self.base / path).write_text(text)

    def add_row(self, path: str, before: str, row: str) -> None:
        """Put a row into a table, before a line that is there once."""
        self._copy_folder(os.path.dirname(path))
        place = self.base / path
        old = place.read_text()
        assert old.count(before) == 1, f"{path} has {before!r} {old.count(before)} times"
        place.unlink()
        place.write_text(old.replace(before, row + before))

    def append(self, path: str, text: str) -> None:
        """Replace a file by one with some text more."""
        self._copy_folder(os.path.dirname(path))
        place = self.base / path
        old = place.read_text()
        place.unlink()
        place.write_text(f"{old}\n{text}\n")

    def run(self, script: str, *arguments: str) -> str:
        """Run a script that imports the grown package; returns what it prints."""
        path = os.pathsep.join([str(self.base), str(ROOT / "test")])
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments],
            env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            cwd=self.base,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout
