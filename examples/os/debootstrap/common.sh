# What the scripts share; read by them, not run.

export DEBIAN_FRONTEND=noninteractive LC_ALL=C

DRY_RUN=${OSP_DRY_RUN:-no}
MIRROR=${OSP_MIRROR:-http://deb.debian.org/debian}
PACKAGES=linux-image-amd64,grub-pc,systemd-sysv,ifupdown,isc-dhcp-client,iproute2${OSP_PACKAGES:+,$OSP_PACKAGES}
TARGET=
DEVICE=
MOUNTED=

step() { echo "--- $*"; }

fail() {
    echo "$*" >&2
    exit 1
}

# Runs a command, or prints it.
run() {
    if [ "$DRY_RUN" = yes ]; then echo "would run: $*"; else "$@"; fi
}

# Writes a file: path, content.
write() {
    if [ "$DRY_RUN" = yes ]; then
        echo "would write: $1"
    else
        mkdir -p "$(dirname "$1")"
        printf '%s\n' "$2" >"$1"
    fi
}

# One bootable partition from 1 MiB on, which leaves room for GRUB.
partition() {
    if [ "$DRY_RUN" = yes ]; then
        echo "would run: sfdisk $1"
    else
        echo "start=1MiB, type=83, bootable" | sfdisk --quiet --wipe always "$1"
    fi
}

# Makes the disk and its partition devices: sets DEVICE and PARTITION.
attach() {
    if [ "$DRY_RUN" = yes ]; then
        DEVICE=/dev/loopN
        echo "would run: losetup --find --show --partscan $1"
    else
        DEVICE=$(losetup --find --show --partscan "$1")
    fi
    PARTITION=${DEVICE}p1
}

mount_root() {
    if [ "$DRY_RUN" = yes ]; then
        TARGET=/tmp/target
    else
        TARGET=$(mktemp -d)
    fi
    run mount "$PARTITION" "$TARGET"
    MOUNTED=$TARGET
}

# Undoes what attach and mount did, also after a failure.
clean_up() {
    for directory in $MOUNTED; do run umount "$directory" || :; done
    [ -z "$TARGET" ] || run rmdir "$TARGET" || :
    [ -z "$DEVICE" ] || run losetup --detach "$DEVICE" || :
}
