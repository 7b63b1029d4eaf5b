"""The programs of LXC: their output, and their arguments."""

from __future__ import annotations

from ganeti.hypervisor.lxc.tools import Found, Lxc, parse_info


def test_the_output_of_lxc_info() -> None:
    running = parse_info("State:          RUNNING\nPID:            1234\n")
    assert running == Found("RUNNING", 1234)
    assert running.runs
    assert parse_info("State:\tFROZEN\nPID:\t7\n").runs
    assert parse_info("State:          STOPPED\n") == Found("STOPPED", None)
    assert not parse_info("").runs


def test_every_program_is_told_the_nodes_own_directory() -> None:
    assert Lxc("/run/x").argv("lxc-console", "web1", "-t", "0") == [
        *("lxc-console", "-P", "/run/x", "-n", "web1"),
        *("-t", "0"),
    ]
