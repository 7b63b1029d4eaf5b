# What the scripts share; read by them, not run.
#
# The image is copied onto the first disk.  The seed, from which cloud-init in the guest learns name, keys and
# network, is a small FAT file system labelled CIDATA.  It is the whole disk that is named "cidata" if there is
# one, otherwise a partition of 1 MiB at the end of the first disk.  All of it works on files and block devices
# as they are: no mounts, no devices of partitions, no rights but those on the disks.  Temporary files have no
# name any more when they are written to, so nothing is left of a script that is killed.

export LC_ALL=C MTOOLS_SKIP_CHECK=1

SECTOR=512
SEED_NAME=cidata
SEED_SECTORS=2048
SPACE_MIB=2 # that the seed takes at the end of a disk, with the second table of a GPT

# On the standard error: the standard output of an export is what it exports.
step() { echo "--- $*" >&2; }

fail() {
    echo "$*" >&2
    exit 1
}

# Refuses a node on which this cannot work: the programs that are needed, with their packages.
need() {
    for pair in "$@"; do
        command -v "${pair%%:*}" >/dev/null ||
            fail "${pair%%:*} is not installed on this node (Debian package ${pair#*:})"
    done
}

# Refuses a first disk that nothing can be installed on.
check_disk() {
    [ "${DISK_COUNT:-0}" -gt 0 ] || fail "$INSTANCE_NAME has no disk to install on"
    [ -n "${DISK_0_PATH:-}" ] || fail "the first disk of $INSTANCE_NAME has no path on this node"
}

# Sets SEED_DISK to the disk that is only for the seed, "" if there is none.
find_seed_disk() {
    SEED_DISK=
    number=1
    while [ "$number" -lt "$DISK_COUNT" ]; do
        eval "name=\${DISK_${number}_NAME:-} path=\${DISK_${number}_PATH:-}"
        [ "$name" != "$SEED_NAME" ] || SEED_DISK=$path
        number=$((number + 1))
    done
}

# Sets SEED to the place of the seed that is there, as mtools name it; "" if there is none.
find_seed() {
    find_seed_disk
    SEED=$SEED_DISK
    [ -z "$SEED" ] || return 0
    start=$(sfdisk --dump "$DISK_0_PATH" 2>/dev/null | sed -n \
        "s/.* start= *\([0-9]*\), size= *$SEED_SECTORS, \(.*name=\"$SEED_NAME\"\|type=1\).*/\1/p" | tail -n 1)
    [ -z "$start" ] || SEED=$DISK_0_PATH@@$((start * SECTOR))
}

# Writes one file of the seed, from the standard input.
put() { mcopy -o -i "$SEED" - "::$1" || fail "$1 does not fit into the seed, which has $((SEED_SECTORS / 2)) KiB"; }

# A text that YAML takes as it is.
quoted() { printf '"%s"' "$(printf %s "$1" | sed 's/[\\"]/\\&/g')"; }

# The seed's file meta-data.
meta_data() {
    echo "instance-id: $INSTANCE_UUID"
    echo "local-hostname: $INSTANCE_NAME"
    [ -n "${OSP_SSH_KEY:-}" ] || return 0
    echo "public-keys:"
    printf '%s\n' "$OSP_SSH_KEY" | while read -r key; do
        [ -z "$key" ] || echo "  - $(quoted "$key")"
    done
}
