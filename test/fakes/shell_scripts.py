"""Small executable scripts for tests."""

from pathlib import Path


def write_script(path: Path, text: str, mode: int = 0o755) -> str:
    """Write a shell script; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(mode)
    return str(path)
