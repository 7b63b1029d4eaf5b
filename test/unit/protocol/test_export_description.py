"""The description of an export."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ganeti.base.errors import ProtocolError
from ganeti.protocol.export_description import (
    DumpedDisk,
    ExportDescription,
    ReadMethod,
    format_description,
    parse_description,
)

WORDS = st.text("abcXYZ0123456789-_=%;#: ./", max_size=12).map(str.strip)
NAMES = st.text("abcXYZ_", min_size=1, max_size=8)
ODD = st.text("a #;[]=\n\r\t\x1c\u2028é", max_size=8)
VALUES = st.dictionaries(NAMES | ODD, WORDS | ODD, max_size=4)
DISKS = st.builds(
    DumpedDisk,
    size_mib=st.integers(1, 10**6),
    dump=st.sampled_from(["", "a.dump", "b.dump"]),
    name=st.none() | NAMES,
    iv_name=st.just("disk/0"),
    sha256=st.sampled_from(["", "ab" * 32]),
)
DESCRIPTIONS = st.builds(
    ExportDescription,
    name=NAMES,
    os=NAMES,
    source_node=NAMES,
    timestamp=st.integers(0, 1 << 40),
    hypervisor=NAMES,
    disk_template=NAMES,
    disks=st.lists(DISKS, max_size=3),
    nics=st.lists(st.dictionaries(st.sampled_from(["mac", "ip", "link"]), NAMES), max_size=3),
    tags=st.lists(NAMES, max_size=3),
    hvparams=VALUES,
    beparams=VALUES,
    osparams=VALUES,
    osparams_private=VALUES,
    method=st.none() | st.sampled_from(ReadMethod),
)


@given(DESCRIPTIONS)
def test_what_is_written_is_read(found: ExportDescription) -> None:
    assert parse_description(format_description(found)) == found


@pytest.mark.parametrize("name", ["", "=", "a=b", "#a", "[a]", " a", "a\nb"])
def test_no_name_of_a_parameter_damages_an_export(name: str) -> None:
    """Such an export was there, and could not be imported, or not with that parameter."""
    found = parse_description(OLD)
    osparams = {name: "1", "other": "2"}
    text = format_description(replace(found, osparams=osparams, osparams_private={name: "3"}))
    again = parse_description(text)
    assert (again.osparams, again.osparams_private) == (osparams, {name: "3"})


OLD = """
[export]
version = 0
timestamp = 1700000000
source = node1.example.com
os = debian
compression = none

[instance]
name = web1.example.com
memory = 512
vcpus = 1
disk_template = plain
nic0_mac = aa:00:00:11:22:33
nic0_ip = None
nic0_mode = bridged
nic0_link = br0
nic_count = 1
disk0_ivname = disk/0
disk0_dump = 8dd1.disk0.snap
disk0_size = 1024
disk_count = 1
hypervisor = kvm
"""


def test_an_export_of_another_version_is_read() -> None:
    found = parse_description(OLD)
    assert found.disks == [DumpedDisk(size_mib=1024, dump="8dd1.disk0.snap", iv_name="disk/0")]
    assert found.nics == [{"mac": "aa:00:00:11:22:33", "mode": "bridged", "link": "br0"}]
    assert found.hvparams == {}


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("version = 0", "version = 1", "has version 1, not 0"),
        ("version = 0", "", "No option 'version'"),
        ("[instance]", "[other]", "damaged"),
        ("disk_count = 1", "disk_count = 100000", "disk_count is 100000"),
        ("disk_count = 1", "disk_count = many", "damaged"),
        ("8dd1.disk0.snap", "../../etc/shadow", "disk 0"),
        ("disk0_size = 1024", "disk0_size = -1", "disk 0"),
        ("[export]", "nonsense", "damaged"),
    ],
)
def test_damaged_ones_are_refused(old: str, new: str, text: str) -> None:
    with pytest.raises(ProtocolError, match=text):
        parse_description(OLD.replace(old, new))


def test_a_way_to_read_disks_that_nobody_knows_says_nothing() -> None:
    text = (
        "[export]\nversion = 0\nos = x\nmethod = guesswork\n"
        "[instance]\nname = a\ndisk_count = 0\nnic_count = 0\n"
    )
    assert parse_description(text).method is None
