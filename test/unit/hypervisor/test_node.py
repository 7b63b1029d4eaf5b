"""Memory and processors of the node."""

from ganeti.hypervisor.node import Memory, count_sockets, parse_meminfo, resources

MEMINFO = """\
MemTotal:       24689128 kB
MemFree:        10240000 kB
MemAvailable:   20480000 kB
Buffers:            2048 kB
Cached:             4096 kB
HugePages_Total:       0
"""


def test_available_memory_counts_as_free() -> None:
    assert parse_meminfo(MEMINFO) == Memory(24110, 20000)


def test_old_kernels_add_what_can_be_freed() -> None:
    text = MEMINFO.replace("MemAvailable", "MemSomething")
    assert parse_meminfo(text) == Memory(24110, 10000 + 2 + 4)


def test_sockets_are_counted_once() -> None:
    cpuinfo = "".join(f"processor\t: {n}\nphysical id\t: {n // 2}\n" for n in range(4))
    assert count_sockets(cpuinfo) == 2
    assert count_sockets("processor: 0\n") == 1


def test_own_share_of_the_node_is_what_instances_do_not_use() -> None:
    found = resources(1 << 40)
    assert found["memory_dom0"] == 0
    assert int(str(found["cpu_total"])) >= 1
