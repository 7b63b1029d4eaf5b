"""Shell completion for bash, generated from the tables.

The script knows commands, options and choices by heart.  Names of nodes, instances and so on are
read from the simple configuration of the node it runs on, so no daemon is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from ganeti.cli.declaration.parser import options_of
from ganeti.cli.declaration.program import ArgKind, Argument, Command, Option, Program
from ganeti.cli.declaration.values import PRIORITIES, Priority, YesNo

# kind -> the function of the script that lists candidates
_LISTERS: Final = {
    ArgKind.NODE: "_gnt_nodes",
    ArgKind.NODE_PAIR: "_gnt_nodes",
    ArgKind.INSTANCE: "_gnt_instances",
    ArgKind.GROUP: "_gnt_groups",
    ArgKind.NETWORK: "_gnt_networks",
    ArgKind.JOB_ID: "_gnt_jobs",
    ArgKind.FILTER: "_gnt_filters",
    ArgKind.OS: "_gnt_os",
    ArgKind.OS_NAME: "_gnt_os",
    ArgKind.FILE: "_gnt_files",
    ArgKind.COMMAND: "_gnt_files",
}

_HEADER: Final = """\
# bash completion for the gnt-* programs; generated, do not edit

_gnt_ssconf() {
    cat "${GANETI_ROOTDIR}/var/lib/ganeti/ssconf_$1" 2>/dev/null
}
_gnt_nodes() { _gnt_ssconf node_list; }
_gnt_instances() { _gnt_ssconf instance_list; }
_gnt_groups() { _gnt_ssconf nodegroups | cut -d" " -f2; }
_gnt_networks() { _gnt_ssconf networks | cut -d" " -f2; }
_gnt_jobs() { ls "${GANETI_ROOTDIR}/var/lib/ganeti/queue" 2>/dev/null | sed -n "s/^job-//p"; }
_gnt_filters() { gnt-filter list --no-headers -o uuid 2>/dev/null; }
_gnt_os() {
    local directory
    for directory in srv/ganeti/os usr/local/lib/ganeti/os usr/lib/ganeti/os usr/share/ganeti/os; do
        ls "${GANETI_ROOTDIR}/$directory" 2>/dev/null
    done
}
_gnt_files() { compgen -f -- "$1"; }

# _gnt_complete WORDS...: offer those that fit what was typed
_gnt_complete() {
    COMPREPLY=( $(compgen -W "$*" -- "${COMP_WORDS[COMP_CWORD]}") )
}

# _gnt_position: how many arguments stand before the cursor, behind the subcommand and its options
_gnt_position() {
    local i=2 n=0
    while [ "$i" -lt "$COMP_CWORD" ]; do
        case ${COMP_WORDS[i]} in
            -*)
                case " $1 " in *" ${COMP_WORDS[i]} "*) i=$((i + 1)) ;; esac
                ;;
            *) n=$((n + 1)) ;;
        esac
        i=$((i + 1))
    done
    echo "$n"
}
"""


def completion_script(programs: Sequence[Program], tools: Sequence[Program] = ()) -> str:
    """Return the script for all programs, and for tools that have one command of their own name."""
    return "\n".join([_HEADER, *map(_program, programs), *map(_tool, tools)])


def _tool(program: Program) -> str:
    function = "_" + program.name.replace("-", "_")
    [command] = program.commands
    lines = [
        f"{function}() {{",
        '    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"',
        "    COMPREPLY=()",
    ]
    within_case = _command(program, replace(command, args=()))
    lines += [line.removeprefix("        ") for line in within_case[1:-1]]
    lines += ["}", f"complete -F {function} {program.name}", ""]
    return "\n".join(lines)


def _program(program: Program) -> str:
    function = "_" + program.name.replace("-", "_")
    names = [name for command in program.commands for name in (command.name, *command.aliases)]
    lines = [
        f"{function}() {{",
        '    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"',
        "    COMPREPLY=()",
        '    if [ "$COMP_CWORD" -eq 1 ]; then',
        f"        _gnt_complete {' '.join(sorted(names))} --help --version",
        "        return",
        "    fi",
        "    case ${COMP_WORDS[1]} in",
    ]
    for command in program.commands:
        lines += _command(program, command)
    lines += ["    esac", "}", f"complete -F {function} {program.name}", ""]
    return "\n".join(lines)


def _command(program: Program, command: Command) -> list[str]:
    options = options_of(program, command)
    flags = sorted(flag for option in options for flag in option.flags if len(flag) > 2)
    valued = [flag for option in options if option.takes_value for flag in option.flags]
    pattern = "|".join((command.name, *command.aliases))
    lines = [f"        {pattern})", "            case $previous in"]
    for option in options:
        candidates = _values(option)
        if candidates:
            lines.append(f"                {'|'.join(option.flags)}) {candidates}; return ;;")
    lines += ["            esac", "            case $current in"]
    lines.append(f"                -*) _gnt_complete {' '.join([*flags, '--help'])}; return ;;")
    lines.append("            esac")
    lines += _arguments(command.args, valued)
    lines.append("            ;;")
    return lines


def _values(option: Option) -> str:
    if not option.takes_value:
        return ""
    if option.type == YesNo:
        return "_gnt_complete yes no"
    if option.type == Priority:
        return f"_gnt_complete {' '.join(PRIORITIES)}"
    if option.choices:
        return f"_gnt_complete {' '.join(option.choices)}"
    if option.completes in _LISTERS:
        return f'_gnt_complete "$({_LISTERS[option.completes]})"'
    return ":"  # a value that cannot be guessed: offer nothing, not even arguments


def _arguments(args: Sequence[Argument], valued: Sequence[str]) -> list[str]:
    if not args:
        return []
    lines = [f"            case $(_gnt_position '{' '.join(valued)}') in"]
    position = 0
    for argument in args:
        candidates = _candidates(argument)
        if argument.max is None:
            lines.append(f"                *) {candidates} ;;")
            break
        for _ in range(argument.max):
            lines.append(f"                {position}) {candidates} ;;")
            position += 1
    lines.append("            esac")
    return lines


def _candidates(argument: Argument) -> str:
    if argument.choices:
        return f"_gnt_complete {' '.join(argument.choices)}"
    if argument.kind in (ArgKind.FILE, ArgKind.COMMAND):
        return 'COMPREPLY=( $(compgen -f -- "$current") )'
    if argument.kind in _LISTERS:
        return f'_gnt_complete "$({_LISTERS[argument.kind]})"'
    return ":"
