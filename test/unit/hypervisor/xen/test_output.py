"""The output of xl, as Xen 4.17 prints it."""

from __future__ import annotations

import pytest

from ganeti.base.errors import GenericError
from ganeti.hypervisor.xen.output import (
    Domain,
    guests,
    node_resources,
    parse_info,
    parse_list,
    parse_types,
)

LIST = """\
Name                                        ID   Mem VCPUs\tState\tTime(s)
Domain-0                                     0   640     2     r-----     318.2
web1.example.com                            12    96     1     -b----       4.1
web2.example.com                            13    96     1     ------       0.0
web3.example.com                            14    96     2     --p---       0.3
off.example.com                             15    96     1     ---s--       0.3
boot.example.com                            16    96     1     --psr-       9.9
gone.example.com                            17    96     1     --ps-d       9.9
crash.example.com                           18    96     1     ---sc-       9.9
moving.example.com--incoming                19    96     1     --p---       0.0
left.example.com--migratedaway              20    96     1     ---ss-       0.0
(null)                                      21     0     1     --ps-d       5.5
"""
LONG = """[
    {"domid": 0, "config": {"c_info": {"type": "pv", "name": "Domain-0"}, "b_info": {}}},
    {"domid": 12, "config": {"c_info": {"type": "pv", "name": "web1"}, "b_info": {}}},
    {"domid": 13, "config": {"c_info": {"type": "hvm", "name": "win1"},
        "b_info": {"max_memkb": 98304, "target_memkb": 98304}}},
    {"domid": 14}
]"""
INFO = """\
host                   : node1
release                : 6.1.0-18-amd64
version                : #1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1 (2024-02-01)
machine                : x86_64
nr_cpus                : 8
max_cpu_id             : 7
nr_nodes               : 2
cores_per_socket       : 2
threads_per_core       : 2
cpu_mhz                : 2000.000
virt_caps              : pv hvm hap shadow
total_memory           : 1535
free_memory            : 700
xen_major              : 4
xen_minor              : 17
xen_extra              : .4-pre
xen_commandline        : placeholder dom0_mem=640M,max:640M
"""


def test_the_list_of_domains() -> None:
    found = {domain.name: domain for domain in parse_list(LIST)}
    assert found["web1.example.com"] == Domain("web1.example.com", 12, 96, 1, "-b----", 4.1)
    assert [name for name, domain in found.items() if domain.is_over and not domain.is_moving] == [
        *("off.example.com", "gone.example.com", "crash.example.com", "(null)")
    ]
    assert not found["boot.example.com"].is_over  # it comes back
    assert found["web3.example.com"].is_paused
    assert [domain.number for domain in guests(parse_list(LIST))] == [*range(12, 19)]
    assert parse_list("") == []


@pytest.mark.parametrize(
    "line", ["a b", "a 1 2 3 r----- x", "a 1 2 3 broken 4.0", "a x 2 3 r----- 4"]
)
def test_lines_that_are_not_understood_are_shown(line: str) -> None:
    with pytest.raises(GenericError, match=f"list of domains: '{line}'"):
        parse_list(f"{LIST}{line}\n")


def test_the_types_of_domains() -> None:
    assert parse_types(LONG) == {"Domain-0": "pv", "web1": "pv", "win1": "hvm"}
    with pytest.raises(GenericError, match="long list"):
        parse_types("{}")


def test_memory_and_processors_of_the_node() -> None:
    domains = parse_list(LIST)[:3]
    assert node_resources(parse_info(INFO), domains) == {
        "memory_total": 1535,
        "memory_free": 700,
        "memory_dom0": 640,
        "memory_hv": 1535 - 700 - 640 - 192,
        "cpu_total": 8,
        "cpu_dom0": 2,
        "cpu_nodes": 2,
        "cpu_sockets": 2,
        "hv_version": [4, 17],
    }
    with pytest.raises(GenericError, match="does not tell total_memory"):
        node_resources({}, domains)
    assert node_resources({**parse_info(INFO), "nr_nodes": "?"}, [])["memory_dom0"] == 0
