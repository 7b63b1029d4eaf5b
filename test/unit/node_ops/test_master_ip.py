"""The master's address on a virtual node."""

from pathlib import Path
from typing import NoReturn

import pytest
from fakes.shell_scripts import write_script

from ganeti.base.errors import CommandError, GenericError, LockError
from ganeti.base.ids import NodeUuid
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.machine import master
from ganeti.objects.model import IpFamily, MasterNetworkParameters
from ganeti.system.filelock import FileLock


def params(ip: str) -> MasterNetworkParameters:
    return MasterNetworkParameters(
        uuid=NodeUuid("uuid"), ip=ip, netmask=32, netdev="lo", ip_family=IpFamily.IPV4
    )


def test_a_loopback_address_is_there_without_being_set_up(context: NodeContext) -> None:
    master.Master(context).node_activate_master_ip(
        params("127.0.0.77"), use_external_mip_script=False
    )
    master.Master(context).node_deactivate_master_ip(
        params("127.0.0.77"), use_external_mip_script=False
    )
    master.Master(context).node_change_master_netmask(32, 24, "127.0.0.77", "lo")


def test_another_address_is_not_added_to_a_shared_machine(context: NodeContext) -> None:
    with pytest.raises(GenericError, match="virtual node"):
        master.Master(context).node_activate_master_ip(
            params("192.0.2.1"), use_external_mip_script=False
        )


def test_an_external_script_does_it_when_asked(context: NodeContext, tmp_path: Path) -> None:
    with pytest.raises(GenericError, match="missing or not executable"):
        master.Master(context).node_activate_master_ip(
            params("192.0.2.1"), use_external_mip_script=True
        )
    script = Path(context.paths.user_scripts_dir, "master-ip-setup")
    log = tmp_path / "log"
    write_script(
        script,
        f'echo "$1 $MASTER_IP/$MASTER_NETMASK $MASTER_NETDEV v$CLUSTER_IP_VERSION" >> {log}'
        '; test "$1" = start',
    )
    master.Master(context).node_activate_master_ip(
        params("192.0.2.1"), use_external_mip_script=True
    )
    with pytest.raises(CommandError, match="exit status 1"):
        master.Master(context).node_deactivate_master_ip(
            params("192.0.2.1"), use_external_mip_script=True
        )
    assert log.read_text() == "start 192.0.2.1/32 lo v4\nstop 192.0.2.1/32 lo v4\n"


@pytest.mark.parametrize("has_script", [False, True])
def test_one_after_the_other_sets_the_address_up(
    context: NodeContext, monkeypatch: pytest.MonkeyPatch, has_script: bool
) -> None:
    waited: list[float] = []

    def fail(_lock: FileLock, *, timeout_s: float) -> NoReturn:
        waited.append(timeout_s)
        raise LockError("held")

    one = params("127.0.0.77")
    with monkeypatch.context() as patch:
        patch.setattr(FileLock, "acquire", fail)
        with pytest.raises(GenericError, match="up or down; try again"):
            master.Master(context).node_activate_master_ip(one, use_external_mip_script=has_script)
    assert (waited[0] > 60) == has_script, "a script may take long"
    master.Master(context).node_activate_master_ip(one, use_external_mip_script=False)
