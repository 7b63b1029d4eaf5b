"""Shell completion, run by a real bash at every position of every command."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest
from fakes.terminal import Terminal

from ganeti.cli.declaration.parser import options_of
from ganeti.cli.declaration.program import Argument, Command, Option, Program
from ganeti.cli.documents.write import tools
from ganeti.cli.programs import PROGRAMS

SCRIPT = Path(__file__).resolve().parents[2] / "doc" / "examples" / "bash_completion"
NODES = ["node1.example.com", "node2.example.com"]
INSTANCES = ["db1.example.com", "web1.example.com"]
KVM_KEYS = {"acpi=", "boot_order=", "vnc_bind_address="}
FAKE = """#!/bin/bash
case "$(basename "$0") $*" in
    "gnt-job list"*--pending*) echo 7 ;;
    "gnt-job list"*--finished*) echo 5 ;;
    "gnt-job list"*status*) printf '6\\n7\\n' ;;
    "gnt-filter list"*) echo 0f0f ;;
    "gnt-backup list"*) printf 'old1.example.com\\n?\\n*\\n' ;;
    *) echo "unexpected: $0 $*" >&2 ;;
esac
"""
# kind of an argument, or of the value of an option -> what must be offered, and nothing else
OFFERED: Mapping[str, Iterable[str]] = {
    "node": NODES,
    "inst_add_nodes": NODES,
    "instance": INSTANCES,
    "group": ["default", "rack2"],
    "network": ["net1"],
    "jobid": ["5", "6", "7"],
    "pending-job": ["7"],
    "unfinished-job": ["6", "7"],
    "finished-job": ["5"],
    "filter": ["0f0f"],
    "export": ["old1.example.com"],
    "os": ["bare", "debootstrap"],
    "one_os": ["bare", "debootstrap+bookworm", "debootstrap+minimal"],
    "provider": ["san"],
    "one_iallocator": [".", "hail"],
    "unknown": [],
    "nothing": [],
}
# options whose values no kind and no choices tell
OF_FLAGS: Mapping[str, Iterable[str]] = {
    "--disk-template": ["diskless", "file"],  # those that are enabled
    "--ipolicy-disk-templates": ["diskless", "file"],
    "--dest-disk-template": ["blockdev", "diskless", "drbd", "plain"],
    "--backend-parameters": ["memory=", "minmem=", "vcpus=", "auto_balance="],
    "--nic-parameters": ["link=", "mode=", "vlan="],
    "--node-parameters": ["oob_program=", "ssh_port="],
    "--disk-parameters": ["file:", "diskless:"],
    "--hypervisor-state": ["fake:", "kvm:"],
    "--os-parameters": ["dhcp=", "mirror="],
    "--os-parameters-private": ["dhcp=", "mirror="],
    "--os-parameters-secret": ["dhcp=", "mirror="],
    "--ipolicy-bounds-specs": ["max:", "min:"],
    "--ipolicy-std-specs": ["memory-size=", "nic-count="],
    "--enabled-disk-templates": ["diskless", "ext", "file"],
    "--enabled-hypervisors": ["fake", "kvm"],
    "--enabled-data-collectors": ["cpu-avg-load="],
    "--data-collector-interval": ["cpu-avg-load="],
    "--alloc-policy": ["preferred", "last_resort", "unallocable"],
    "--action": ["ACCEPT", "PAUSE"],
    "--rights": ["read", "write"],
    "--src-dir": ["old1.example.com"],
    "--priority": [],
}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A node with everything that has a name, and fakes of the programs that are asked."""
    root = tmp_path_factory.mktemp("root")
    data, share = root / "var/lib/ganeti", root / "srv/ganeti"
    (data / "queue").mkdir(parents=True)
    for name in ("job-5", "job-6", "job-7", "serial", "lock"):
        (data / "queue" / name).touch()
    for key, lines in {
        "node_list": NODES,
        "instance_list": INSTANCES,
        "nodegroups": ["uuid1 default", "uuid2 rack2"],
        "networks": ["uuid3 net1"],
        "hypervisor_list": ["kvm", "fake"],
    }.items():
        (data / f"ssconf_{key}").write_text("\n".join(lines) + "\n")
    (data / "config.data").write_text(
        '{"cluster": {"enabled_disk_templates": ["file", "diskless"], "x": []}}'
    )
    (share / "os/bare").mkdir(parents=True)
    (share / "extstorage/san").mkdir(parents=True)
    boot = root / "usr/share/ganeti/os/debootstrap"
    boot.mkdir(parents=True)
    (boot / "variants.list").write_text(
        "# the first is the default\nminimal\n \n bookworm\n  # old\n\n"
    )
    (boot / "parameters.list").write_text("# all\ndhcp  whether to ask\nmirror\tof packages\n")
    (root / "usr/lib/ganeti/iallocators").mkdir(parents=True)
    (root / "usr/lib/ganeti/iallocators/hail").touch()
    programs = root / "bin"
    programs.mkdir()
    for name in ("gnt-job", "gnt-filter", "gnt-backup"):
        (programs / name).write_text(FAKE)
        (programs / name).chmod(0o755)
    (root / "afile.json").touch()
    return {
        "GANETI_ROOTDIR": str(root),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(root),
        "HISTFILE": "",
        "TERM": "vt100",
        "PS1": "$ ",
    }


def split_as_bash(line: str) -> list[str]:
    """Return the words of a line up to the cursor, as bash splits them for completion."""
    return [part for word in line.split(" ") for part in re.findall(r"[:=]+|[^:=]+", word) or [""]]


def complete(environment: Mapping[str, str], lines: Sequence[str]) -> list[list[str]]:
    """Return what is offered at the end of each line."""
    if not lines:
        return []
    program = shlex.quote(lines[0].partition(" ")[0])
    parts = [f"source {SCRIPT}", f"function=$(complete -p {program} | sed 's/.*-F //; s/ .*//')"]
    for line in lines:
        words = split_as_bash(line)
        parts.append(f"COMP_WORDS=({shlex.join(words)}) COMP_CWORD={len(words) - 1} COMPREPLY=()")
        parts.append(r"$function; printf '%s\x1f' " '"${COMPREPLY[@]}"; echo')
    found = subprocess.run(
        ["bash", "-c", "\n".join(parts)],
        env=dict(environment),
        cwd=environment["GANETI_ROOTDIR"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert found.stderr == ""
    return [[word for word in line.split("\x1f") if word] for line in found.stdout.splitlines()]


def start_of(program: Program, command: Command) -> str:
    return program.name if program.is_single else f"{program.name} {command.name}"


ALL = [*PROGRAMS, *tools()]


@pytest.mark.parametrize("program", ALL, ids=lambda each: str(each.name))
def test_every_command_and_every_flag_is_offered(
    program: Program, environment: Mapping[str, str]
) -> None:
    lines, wanted = [], []
    for command in program.commands:
        start = start_of(program, command)
        if not program.is_single:
            lines.append(f"{program.name} {command.name[:-1]}")
            wanted.append(command.name)
        for option in options_of(program, command):
            for flag in option.flags:
                lines.append(f"{start} {flag[:-1]}")
                wanted.append(flag)
    for line, word, found in zip(lines, wanted, complete(environment, lines), strict=True):
        assert word in found, line


def expected_of(command: Command, option: Option) -> Iterable[str] | None:
    """Return what must be among the values that are offered; None where the test does not know."""
    if option.long in OF_FLAGS and not option.choices:
        return OF_FLAGS[option.long]
    if option.long == "--hypervisor-parameters":
        naming = ("add", "burnin", "import", "init", "rehearse")
        has_names = command.name in naming or option.action == "append"
        return {"kvm:", "fake:"} if has_names else KVM_KEYS
    if option.destination in ("disks", "nics") and "ident" in repr(option.type):
        return {"add:", "0:"} if command.name == "modify" else {"0:"}
    if option.long == "--disk-template":
        return OF_FLAGS[option.long]
    if option.choices:
        return option.choices
    return OFFERED.get(str(option.completes)) if option.completes else None


@pytest.mark.parametrize("program", ALL, ids=lambda each: str(each.name))
def test_every_value_of_an_option_is_offered(
    program: Program, environment: Mapping[str, str]
) -> None:
    cases = [
        (f"{start_of(program, command)} {flag}{between}", expected_of(command, option))
        for command in program.commands
        for option in options_of(program, command)
        if option.takes_value
        for flag in option.flags
        for between in (
            *([" "] if option.alone is None else []),
            *(["="] if flag.startswith("--") else []),
        )
    ]
    lines = [line for line, _ in cases]
    for (line, expected), found in zip(cases, complete(environment, lines), strict=True):
        assert not {"--help", "--debug"} & set(found), line
        if expected is not None:
            assert set(expected) <= set(found), line
        if expected == []:
            assert found == [], line


def expected_argument(command: Command, argument: Argument) -> Iterable[str] | None:
    if argument.choices:
        return argument.choices
    if command.name == "list-fields":
        return ["uuid", "tags"] if argument.max is None else None
    return {**OFFERED, "file": ["afile.json"]}.get(argument.completes or str(argument.kind))


@pytest.mark.parametrize("program", ALL, ids=lambda each: str(each.name))
def test_every_argument_is_offered(program: Program, environment: Mapping[str, str]) -> None:
    cases = []
    for command in program.commands:
        start = start_of(program, command)
        for argument in command.args:
            for _ in range(argument.max or 1):
                cases.append((f"{start} ", argument, command))
                start += " word"
            if argument.max is None:
                cases.append((f"{start} ", argument, command))
        if not command.args or command.args[-1].max is not None:
            cases.append((f"{start} ", Argument(kind="unknown"), command))  # type: ignore[arg-type]
    lines = [line for line, _, _ in cases]
    for (line, argument, command), found in zip(cases, complete(environment, lines), strict=True):
        assert "--help" not in found, line
        if command.name == "list-fields" and argument.max is None:
            assert found, line
            continue
        expected = expected_argument(command, argument)
        if expected is not None:
            assert set(found) >= set(expected), line
            assert set(found) <= set(expected) or str(argument.kind) == "file", line


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("gnt-instance add -n node1.example.com:no", NODES),
        ("gnt-instance add --node=node1.example.com:node2", ["node2.example.com"]),
        ("gnt-instance add -H k", ["kvm:"]),
        ("gnt-instance add -H kvm:boot_o", ["boot_order="]),
        ("gnt-instance add -H kvm:boot_order=c", ["cdrom"]),
        ("gnt-instance add -H kvm:boot_order=cdrom,acp", ["cdrom,acpi="]),
        ("gnt-instance modify -H acpi=", ["no", "yes"]),
        ("gnt-instance modify -B vcpus=2,mem", ["2,memory="]),
        ("gnt-instance modify -B vcpus=2,vcp", []),  # given already
        ("gnt-instance modify --disk add:si", ["size="]),
        ("gnt-instance modify --disk 1:mod", ["mode=", "modify"]),
        ("gnt-instance modify --net 0:modify,mo", ["modify,mode="]),
        ("gnt-instance modify --net 0:mode=rou", ["routed"]),
        ("gnt-instance add --disk 0:size=1g --disk ", ["1:"]),
        ("gnt-instance add --disk=0:size=1g --disk=1:size=1g --disk=", ["2:"]),
        ("gnt-cluster modify -D drbd:resync", ["resync-rate="]),
        ("gnt-cluster modify --ipolicy-bounds-specs min:mem", ["memory-size="]),
        ("gnt-cluster modify --enabled-disk-templates file,shared", ["file,sharedfile"]),
        ("gnt-node list -o name,mfr", ["name,mfree"]),
        ("gnt-node list -o +dfr", ["+dfree"]),
        ("gnt-node list --output=+name,dfr", ["+name,dfree"]),
        ("gnt-instance list -o be/mi", ["be/minmem"]),
        ("gnt-node list-storage -o allo", ["allocatable"]),
        ("gnt-instance start w", ["web1.example.com"]),  # by its other name
        ("gnt-instance startup --node n", NODES),
        ("gnt-instance startup --tags n", []),
        ("gnt-cluster epo --groups ra", ["rack2"]),
        ("gnt-group assign-nodes rack2 node2", ["node2.example.com"]),
        ("gnt-group add r", []),  # a new one: no name of an old one fits
        ("gnt-instance remove web1 --f", []),  # options come before the arguments
        ("gnt-instance remove -- --f", []),
        ("gnt-cluster copyfile afi", ["afile.json"]),
        ("/usr/sbin/gnt-node info node2", ["node2.example.com"]),
        ("gnt-node no-such-command ", []),
        ("gnt-instance add --os-parameters ", ["dhcp=", "mirror="]),
        ("hbal --luxi=afi", ["afile.json"]),
        ("hbal -L ", []),  # a value would stand at the flag
        ("hail -p afi", ["afile.json"]),  # the argument
        ("hspace --machine-readable ", []),
        ("hspace --machine-readable=y", ["yes"]),
    ],
)
def test_what_is_typed_is_completed(
    environment: Mapping[str, str], line: str, offered: list[str]
) -> None:
    if line.startswith("/"):
        line = line.removeprefix("/usr/sbin/")
    [found] = complete(environment, [line])
    assert sorted(found) == sorted(offered)


def test_no_function_has_the_name_of_another() -> None:
    names = re.findall(r"^(\w+)\(\)", SCRIPT.read_text(), re.MULTILINE)
    assert len(names) == len(set(names)) > 10
    completers = set(re.findall(r"^complete -F (\S+)", SCRIPT.read_text(), re.MULTILINE))
    assert completers <= set(names)


def test_a_strange_shell_is_no_obstacle(environment: Mapping[str, str]) -> None:
    """Without a cluster, and with options of the shell that people set, nothing is printed."""
    bare = {**environment, "GANETI_ROOTDIR": "/nonexistent"}
    script = f"""set -u; IFS=,; shopt -s nullglob; source {SCRIPT}
    COMP_WORDS=(gnt-node info "") COMP_CWORD=2; _ganeti_complete; echo "${{#COMPREPLY[@]}}"
    COMP_WORDS=(gnt-cluster init --enabled-hypervisors "") COMP_CWORD=3; _ganeti_complete
    echo "${{COMPREPLY[@]}}" """
    found = subprocess.run(
        ["bash", "-c", script], env=bare, capture_output=True, text=True, timeout=60, check=False
    )
    assert (found.stderr, found.returncode) == ("", 0)
    assert found.stdout.splitlines()[0] == "0"
    assert "kvm" in found.stdout


@pytest.mark.parametrize(
    ("keys", "seen"),
    [
        ("gnt-instance add -n node1\t\b:node2\tweb", "example.com:node2.example.com web"),
        ("gnt-instance add -B mem\t1g -H kvm:boot_o\tcd\tweb", "memory=1g -H kvm:boot_order=cdrom"),
    ],
)
def test_at_a_terminal(environment: Mapping[str, str], keys: str, seen: str) -> None:
    """Keys typed at an interactive bash: it splits and inserts by itself."""
    with Terminal(["bash", "--norc", "--noprofile", "-i"], environment) as terminal:
        terminal.until("$ ")
        setting = "bind 'set enable-bracketed-paste off'"
        terminal.type(f"{setting}; source {SCRIPT}; PS1=RE''ADY\n")
        terminal.until("READY")
        terminal.type(keys)
        assert seen in terminal.until("web").replace(" \b \b", "")
