"""Files of a node that become the contents of disks."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganeti.base.errors import BlockDeviceError
from ganeti.node_ops.disks.block_devices import _copy_image


def test_an_image_fills_the_beginning_of_a_disk(tmp_path: Path) -> None:
    image, disk = tmp_path / "image", tmp_path / "disk"
    image.write_bytes(b"system")
    disk.write_bytes(b"x" * 10)
    _copy_image(str(image), str(disk), 10)
    assert disk.read_bytes() == b"systemxxxx"
    with pytest.raises(BlockDeviceError, match="is larger than the disk"):
        _copy_image(str(image), str(disk), 5)
    assert disk.read_bytes() == b"systemxxxx"
    with pytest.raises(BlockDeviceError, match=r"cannot copy .*/nothing to .*: No such file"):
        _copy_image(f"{tmp_path}/nothing", str(disk), 10)
