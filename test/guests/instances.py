"""Instances for tests of hypervisors, with every parameter filled in."""

from __future__ import annotations

from ganeti.objects.hypervisors import HVPARAMS
from ganeti.objects.parameters import BEPARAMS
from ganeti.objects.rpc_instance import RpcInstance

UUID = "d57ad28d-8ef1-47df-9747-d09279cc8352"


def make_instance(
    name: str = "inst1.example.com",
    hypervisor: str = "kvm",
    *,
    memory_mib: int = 16,
    vcpus: int = 1,
    nics: int = 0,
    network_port: int | None = 11000,
    uuid: str = UUID,
    **hvparams: object,
) -> RpcInstance:
    """Return an instance as the node daemon gets it; keywords are hypervisor parameters."""
    defaults = {key: spec.default for key, spec in HVPARAMS[hypervisor].items()}
    backend = {key: spec.default for key, spec in BEPARAMS.items()}
    wire: dict[str, object] = {
        "name": name,
        "primary_node": "n1",
        "os": "test",
        "hypervisor": hypervisor,
        "hvparams": {**defaults, **hvparams},
        "beparams": {**backend, "maxmem": memory_mib, "minmem": memory_mib, "vcpus": vcpus},
        "admin_state": "up",
        "disks_active": True,
        "uuid": uuid,
        "serial_no": 1,
        "nics": [
            {
                "mac": f"aa:00:00:00:00:{index:02x}",
                "uuid": f"a8ea3c51-895c-49a4-ba49-3cf1863fbc{index:02x}",
                "nicparams": {"link": "xen-br0", "mode": "bridged", "vlan": ""},
            }
            for index in range(nics)
        ],
    }
    if network_port is not None:
        wire["network_port"] = network_port
    return RpcInstance.from_wire(wire)
