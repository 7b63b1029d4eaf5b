"""hbal on three machines with real LVM and DRBD: pairs that were all put on two of them are made even.

Their guests write and say how far they are, all the time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import pytest
from rig.virtual_machines import VirtualMachines
from rig.writer import ADD, Writer, wait_for_sync

SIZE_MIB = 16
FIRST, SECOND, THIRD = NAMES = [f"node{n}.example.com" for n in (1, 2, 3)]
TIMEOUT_S = 1800.0


@pytest.fixture(scope="module")
def writers(nodes: VirtualMachines) -> Iterator[Sequence[Writer]]:
    with contextlib.ExitStack() as stack:
        found = []
        for number in (1, 2, 3):
            writer = stack.enter_context(Writer(f"even{number}.example.com", nodes.machines))
            options = f"-t drbd -s {SIZE_MIB}m -n {FIRST}:{SECOND} -H kvm:disk_cache=writethrough"
            writer.master.run(f"{ADD} {options} {writer.name}")
            stack.callback(writer.master.run, f"gnt-instance remove --force {writer.name}")
            found.append(writer)
        yield found


def pair_of(writer: Writer) -> list[str]:
    """Return the names of the primary and the secondary node."""
    return [machine.name for machine in writer.holders()]


def put_back(writer: Writer) -> None:
    """Bring an instance by hand to the first two nodes."""
    command = writer.master.run
    while pair_of(writer) != [FIRST, SECOND]:
        primary, secondary = pair_of(writer)
        if secondary == FIRST:
            command(f"gnt-instance migrate --force {writer.name}")
        else:
            new = SECOND if primary == FIRST else FIRST
            command(f"gnt-instance replace-disks --new-secondary={new} {writer.name}")
            wait_for_sync(writer)


@pytest.mark.parametrize("way", ["", "--plan"], ids=["step by step", "a whole plan"])
def test_pairs_are_made_even_while_guests_write(writers: Sequence[Writer], way: str) -> None:
    master = writers[0].master
    for writer in writers:
        put_back(writer)
        writer.listen(writer.primary())
    before = [writer.goes_on() for writer in writers]
    last = max(map(int, master.run("gnt-job list --no-headers --output=id").split()))
    said = master.try_run(f"hbal {way} -L -X", timeout_s=TIMEOUT_S)
    assert said.status == 0, said
    pairs = [pair_of(writer) for writer in writers]
    for index in (0, 1):
        assert sorted(pair[index] for pair in pairs) == NAMES, (pairs, said.out)
    for writer, said_before in zip(writers, before, strict=True):
        writer.listen(writer.primary())
        assert writer.goes_on() > said_before
        writer.copies_have_all()
    jobs = master.run("gnt-job list --no-headers --separator='|' --output=id,summary")
    later = [line for line in jobs.splitlines() if int(line.partition("|")[0]) > last]
    assert any("INSTANCE_MIGRATE" in line for line in later), said.out
    stops = ("SHUTDOWN", "FAILOVER", "REBOOT", "STARTUP")
    assert not any(word in line for line in later for word in stops), later
