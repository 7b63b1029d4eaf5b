# bash completion for the gnt-* programs and the tools beside them; generated, do not edit
#
# Names are read from the simple configuration of the node, so that no daemon is asked; only exports,
# filters and the jobs that have not ended are asked for.
#
# The tables at the end are by program, or by "PROGRAM COMMAND".  An option is FLAG,FLAG; with a value
# FLAG,FLAG=SOURCE; FLAG,FLAG?SOURCE where the value is never the next word; and FLAG!SOURCE where it
# changes what the arguments name.  A key is KEY, KEY= or KEY=VALUE|VALUE.
declare -gA _ganeti_commands=() _ganeti_aliases=() _ganeti_options=() _ganeti_arguments=()
declare -gA _ganeti_keys=() _ganeti_interspersed=()

_ganeti_ssconf() { cat "${GANETI_ROOTDIR-}/var/lib/ganeti/ssconf_$1" 2>/dev/null; }

# _ganeti_entries NAME DIRECTORY...: what lies in the directory NAME of each
_ganeti_entries() {
    local directory
    for directory in "${@:2}"; do
        command ls "${GANETI_ROOTDIR-}$directory/$1" 2>/dev/null
    done
}

# _ganeti_lines FILE...: the lines that are neither empty nor comments, without blanks around them
_ganeti_lines() { sed -n 's/^[ \t]*//; s/[ \t\r]*$//; /^#/d; /./p' "$@" 2>/dev/null; }

# The sources of names: one in each line.
_ganeti_list_node() { _ganeti_ssconf node_list; }
_ganeti_list_instance() { _ganeti_ssconf instance_list; }
_ganeti_list_group() { _ganeti_ssconf nodegroups | cut -s -d" " -f2; }
_ganeti_list_network() { _ganeti_ssconf networks | cut -s -d" " -f2; }
_ganeti_list_hypervisor() {
    _ganeti_ssconf hypervisor_list | grep . || printf '%s\n' @HYPERVISORS@
}
_ganeti_list_template() { # those that the cluster has enabled, where this node knows
    cat "${GANETI_ROOTDIR-}/var/lib/ganeti/config.data" 2>/dev/null | tr -d ' \n' |
        grep -ao '"enabled_disk_templates":\[[^]]*\]' | cut -d: -f2 | tr -d '"[]' | tr , '\n' |
        grep . || printf '%s\n' @TEMPLATES@
}
_ganeti_list_jobid() {
    command ls "${GANETI_ROOTDIR-}/var/lib/ganeti/queue" 2>/dev/null | sed -n 's/^job-//p'
}
_ganeti_jobs() { gnt-job list --no-headers -o id "$@" 2>/dev/null; }
_ganeti_list_pending_job() { _ganeti_jobs --pending; }
_ganeti_list_unfinished_job() {
    _ganeti_jobs 'status != "success" and status != "error" and status != "canceled"'
}
_ganeti_list_finished_job() { _ganeti_jobs --finished; }
_ganeti_list_filter() { gnt-filter list --no-headers -o uuid 2>/dev/null; }
_ganeti_list_export() {
    gnt-backup list --no-headers -o export 2>/dev/null | grep -v '^[-?*]*$' | sort -u
}
_ganeti_list_provider() { _ganeti_entries extstorage @SHARES@; }
_ganeti_list_one_iallocator() {
    echo .
    _ganeti_entries iallocators @LIBRARIES@
}
_ganeti_list_os() { _ganeti_entries os @SHARES@; }
_ganeti_list_one_os() { # NAME, or NAME+VARIANT where it has variants
    local name directory
    while read -r name; do
        for directory in @SHARES@; do
            directory=${GANETI_ROOTDIR-}$directory/os/$name
            [[ -d $directory ]] || continue
            _ganeti_lines "$directory/variants.list" | sed "s/^/$name+/" | grep . || echo "$name"
            break
        done
    done < <(_ganeti_list_os)
}
_ganeti_list_device() { # the number of the next disk or network interface on this command line
    local word count=0
    for word in "${words[@]:1:last-1}"; do
        [[ $word == "$flag" || $word == "$flag="* ]] && ((count++))
    done
    [[ $current == "$flag="* ]] || ((count--))
    echo "$count"
}
_ganeti_list_change() { printf '%s\n' add 0 1 2 3; }

# _ganeti_keys_of TABLE: the keys that may stand there
_ganeti_keys_of() {
    local name
    case $1 in
        osparams)
            for name in @SHARES@; do
                _ganeti_lines "${GANETI_ROOTDIR-}$name"/os/*/parameters.list </dev/null
            done | sed -n 's/^\([^ \t]\+\).*/\1=/p'
            ;;
        hvparams)
            while read -r name; do
                tr ' ' '\n' <<< "${_ganeti_keys[hvparams:$name]-}"
            done < <(_ganeti_list_hypervisor)
            ;;
        *) tr ' ' '\n' <<< "${_ganeti_keys[$1]-}" ;;
    esac | grep . | sort -u
}

# _ganeti_offer SOURCE WORD: put the words that may become of a begun one into "offered"
_ganeti_offer() {
    local source=$1 word=$2 head="" entry
    offered=()
    case $source in
        =*) IFS='|' read -ra offered <<< "${source#=}" ;;
        +*) # fields, perhaps in addition to the usual ones
            [[ $word == +* ]] && head=+
            _ganeti_offer ",${source#+}" "${word#+}"
            ;;
        ,*) # several with commas between
            [[ $word == *,* ]] && head=${word%,*},
            _ganeti_offer "${source#,}" "${word##*,}"
            ;;
        table:*) read -ra offered <<< "${_ganeti_keys[${source#table:}]}" ;;
        file) mapfile -t offered < <(compgen -f -- "$word") ;;
        directory) mapfile -t offered < <(compgen -d -- "$word") ;;
        command) mapfile -t offered < <(compgen -c -- "$word") ;;
        host) mapfile -t offered < <(compgen -A hostname -- "$word") ;;
        inst_add_nodes) # PRIMARY or PRIMARY:SECONDARY
            [[ $word == *:* ]] && head=${word%%:*}:
            mapfile -t offered < <(_ganeti_list_node)
            ;;
        keys:*) # KEY=VALUE,...
            [[ $word == *,* ]] && head=${word%,*},
            word=${word##*,}
            while read -r entry; do
                if [[ $word == *=* ]]; then
                    [[ $entry == "${word%%=*}="* ]] || continue
                    head+=${word%%=*}=
                    IFS='|' read -ra offered <<< "${entry#*=}"
                    break
                fi
                [[ ,$head == *,"${entry%%=*}"[=,]* ]] && continue
                [[ $entry == *=* ]] && offered+=("${entry%%=*}=") || offered+=("$entry")
            done < <(_ganeti_keys_of "${source#keys:}")
            ;;
        named:*) # NAME:KEY=VALUE,..., as named:SOURCE OF NAMES:TABLE
            source=${source#named:}
            entry=${source##*:}
            if [[ $word == *:* ]]; then
                head=${word%%:*}:
                [[ -v _ganeti_keys[$entry:${word%%:*}] ]] && entry+=:${word%%:*}
                _ganeti_offer "keys:$entry" "${word#*:}"
            else
                _ganeti_offer "${source%:*}" "$word"
                offered=("${offered[@]/%/:}")
            fi
            ;;
        *)
            if declare -F "_ganeti_list_${source//-/_}" > /dev/null; then
                mapfile -t offered < <("_ganeti_list_${source//-/_}")
            fi
            ;;
    esac
    offered=("${offered[@]/#/$head}")
}

# _ganeti_reply SOURCE [HEAD]: offer what may become of the word at the cursor, behind HEAD
_ganeti_reply() {
    local offered=() each cut="" nospace=nospace behind=${2-}
    case $1 in file | directory) compopt -o filenames 2>/dev/null ;; esac
    _ganeti_offer "$1" "${current#"$behind"}"
    # bash puts what is offered in the place of what follows the last of these characters
    for each in : =; do
        if [[ $COMP_WORDBREAKS == *$each* && $current == *$each* ]]; then
            each=${current%"$each"*}$each
            ((${#each} > ${#cut})) && cut=$each
        fi
    done
    for each in "${offered[@]}"; do
        [[ $behind$each == "$current"* ]] || continue
        each=$behind$each
        COMPREPLY+=("${each#"$cut"}")
        [[ $each == *[=:] ]] || nospace=""
    done
    if [[ $nospace && ${#COMPREPLY[@]} -gt 0 ]]; then
        compopt -o nospace 2>/dev/null
    fi
}

# Complete the command line in COMP_WORDS up to the word COMP_CWORD.
_ganeti_complete() {
    local IFS=$' \t\n' words=() piece glue="" program at current last i
    for piece in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do # bash splits at : and =
        if [[ $piece =~ ^[:=]+$ || ($glue && $piece) ]] && ((${#words[@]})); then
            words[-1]+=$piece
        else
            words+=("$piece")
        fi
        glue=""
        [[ $piece =~ ^[:=]+$ ]] && glue=yes
    done
    COMPREPLY=()
    program=${words[0]##*/} at=$program last=$((${#words[@]} - 1)) i=1
    current=${words[last]}
    if [[ -v _ganeti_commands[$program] ]]; then
        if ((last == 1)); then
            _ganeti_reply "=${_ganeti_commands[$program]}|--help|--version"
            return
        fi
        at="$program ${words[1]}" at=${_ganeti_aliases[$at]:-$at} i=2
    fi

    local entries=() arguments=() names source flags=() flag pending="" position=0 ended=""
    local -A values=() attached=() selects=()
    read -ra entries <<< "${_ganeti_options[$at]-}"
    read -ra arguments <<< "${_ganeti_arguments[$at]-}"
    for piece in "${entries[@]}"; do
        names=${piece%%[=!?]*} source=${piece#"$names"}
        IFS=, read -ra names <<< "$names"
        for flag in "${names[@]}"; do
            flags+=("$flag")
            [[ $source == =* ]] && values[$flag]=${source#=}
            [[ $source == [=?]* ]] && attached[$flag]=${source:1}
            [[ $source == !* ]] && selects[$flag]=${source#!}
        done
    done
    for (( ; i < last; i++)); do
        piece=${words[i]}
        if [[ $piece == -- && ! $ended ]]; then
            ended=yes
        elif [[ $piece == -?* && ! $ended ]]; then
            [[ -v selects[$piece] ]] && arguments=("${selects[$piece]}+")
            [[ -v values[$piece] ]] || continue
            flag=$piece
            ((++i == last)) && pending=${values[$flag]:-nothing}
        else
            ((position++))
            [[ -v _ganeti_interspersed[$program] ]] || ended=yes
        fi
    done
    flag=${flag:-} piece=${current%%=*}
    if [[ $pending ]]; then
        _ganeti_reply "$pending"
    elif [[ ! $ended && $current == --*=* && -v attached[$piece] ]]; then
        flag=$piece
        _ganeti_reply "${attached[$piece]:-nothing}" "$piece="
    elif [[ ! $ended && $current == -* ]]; then
        IFS='|'
        _ganeti_reply "=${flags[*]}|--help"
    elif ((${#arguments[@]})); then
        if ((position >= ${#arguments[@]})); then
            [[ ${arguments[-1]} == *+ ]] || return
            position=$((${#arguments[@]} - 1))
        fi
        _ganeti_reply "${arguments[position]%+}"
    fi
}
