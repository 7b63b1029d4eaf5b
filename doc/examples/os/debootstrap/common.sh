# What the scripts share; read by them, not run.
#
# The disk gets one bootable partition from 1 MiB on with ext4 and EXTLINUX, which needs neither devices
# of partitions (so no udev, kpartx or device-mapper) nor a BIOS device: files and block devices will do.
# Mounts are made in a name space of the script's own, and the loop device goes with its mount: nothing
# is left of a script that is killed but an empty directory.
#
# What a guest has left on its disk may be there to harm the node: no program of it is run, and no file
# written through a link, a pipe or a device of it.

export DEBIAN_FRONTEND=noninteractive LC_ALL=C

DRY_RUN=${OSP_DRY_RUN:-no}
START=1048576 # of the partition, in bytes
DEFAULT_MIRROR=http://deb.debian.org/debian
MIRROR=${OSP_MIRROR:-$DEFAULT_MIRROR}
KERNEL=${OSP_KERNEL:-linux-image-cloud-amd64}
OUR_MBR=${OUR_MBR:-/usr/lib/EXTLINUX/mbr.bin} # of the package extlinux
TARGET=

# On the standard error: the standard output of an export is what it exports.
step() { echo "--- $*" >&2; }

fail() {
    echo "$*" >&2
    exit 1
}

# Runs a command, or prints it.
run() {
    if [ "$DRY_RUN" = yes ]; then echo "would run: $*"; else "$@"; fi
}

# Refuses a directory on the disk that is a link, or is reached by one: it may lead to the node's files.
check_place() {
    place=$1
    while [ "$place" != "$TARGET" ]; do
        [ ! -L "$place" ] || fail "${place#"$TARGET"} is a link on the disk of $INSTANCE_NAME"
        place=$(dirname "$place")
    done
}

# Writes a file: path, content.
write() {
    if [ "$DRY_RUN" = yes ]; then
        echo "would write: $1"
        printf '%s\n' "$2" | sed 's/^/    /'
    else
        check_place "$(dirname "$1")"
        mkdir -p "$(dirname "$1")"
        [ -f "$1" ] && [ ! -L "$1" ] || rm -f "$1"
        printf '%s\n' "$2" >"$1"
    fi
}

# Refuses a machine on which this cannot work: the programs that are needed.
need() {
    [ "$DRY_RUN" != yes ] || return 0
    [ "$(id -u)" = 0 ] || fail "only root can do this"
    for program in mount unshare "$@"; do
        command -v "$program" >/dev/null || fail "$program is not installed on this node"
    done
}

# Starts the script again in a mount name space of its own: the script and its arguments.
in_own_namespace() {
    [ "$DRY_RUN" != yes ] && [ -z "${OWN_NAMESPACE:-}" ] || return 0
    export OWN_NAMESPACE=yes
    exec unshare --mount -- "$@"
}

# Refuses a first disk that nothing can be installed on.
check_disk() {
    [ "${DISK_COUNT:-0}" -gt 0 ] || fail "$INSTANCE_NAME has no disk to install on"
    [ -n "${DISK_0_PATH:-}" ] || fail "the first disk of $INSTANCE_NAME has no path on this node"
    [ "${DISK_0_SIZE:-0}" -ge 1024 ] || fail "the first disk needs 1024 MiB or more"
}

# Makes the partition and an empty file system in it; sets UUID.  Of the features of ext4 only those
# that EXTLINUX can read, whatever the defaults of this node are.
make_file_system() {
    step "making a file system on $1"
    UUID=$(cat /proc/sys/kernel/random/uuid)
    if [ "$DRY_RUN" = yes ]; then
        echo "would run: sfdisk $1"
    else
        echo "start=1MiB, type=83, bootable" |
            sfdisk --quiet --wipe always --no-reread --no-tell-kernel "$1"
    fi
    run mkfs.ext4 -q -F -U "$UUID" -L root -E "offset=$START" -O none,has_journal,ext_attr,resize_inode \
        -O dir_index,filetype,extent,flex_bg,sparse_super,large_file,huge_file,dir_nlink,extra_isize \
        "$1" "$((DISK_0_SIZE - 1))m"
}

# Mounts the root file system of a disk; sets TARGET.  More arguments are for mount.
mount_root() {
    disk=$1
    shift
    trap clean_up EXIT
    trap 'exit 1' HUP INT TERM
    if [ "$DRY_RUN" = yes ]; then
        TARGET=/tmp/target
    else
        TARGET=$(mktemp -d)
    fi
    run mount -t ext4 -o "loop,offset=$START" "$@" "$disk" "$TARGET"
}

# Unmounts everything, which says so when the last data could not be written.
unmount_root() {
    run umount --recursive "$TARGET"
    run rmdir "$TARGET"
    TARGET=
}

# Undoes what mount_root did after a failure.
clean_up() {
    [ -n "$TARGET" ] || return 0
    [ "$DRY_RUN" = yes ] || ! mountpoint -q "$TARGET" || umount --recursive "$TARGET" || :
    run rmdir "$TARGET" || :
}

# Writes the instance's name into the mounted system.
write_name() {
    write "$TARGET/etc/hostname" "$INSTANCE_NAME"
    write "$TARGET/etc/hosts" "127.0.0.1 localhost
127.0.1.1 $INSTANCE_NAME ${INSTANCE_NAME%%.*}
::1 localhost ip6-localhost ip6-loopback"
}

# Writes what each network card of the instance is to do when it appears.
write_networks() {
    number=0
    while [ "$number" -lt "${NIC_COUNT:-0}" ]; do
        eval "ip=\${NIC_${number}_IP:-} subnet=\${NIC_${number}_NETWORK_SUBNET:-}"
        eval "gateway=\${NIC_${number}_NETWORK_GATEWAY:-} subnet6=\${NIC_${number}_NETWORK_SUBNET6:-}"
        family=inet
        case $ip in
            *:*)
                eval "gateway=\${NIC_${number}_NETWORK_GATEWAY6:-}"
                family=inet6 subnet=$subnet6
                ;;
        esac
        settings="allow-hotplug eth$number
iface eth$number inet dhcp"
        if [ -n "$ip" ] && [ -n "$subnet" ]; then
            settings="allow-hotplug eth$number
iface eth$number $family static
    address $ip/${subnet#*/}${gateway:+
    gateway $gateway}"
        fi
        write "$TARGET/etc/network/interfaces.d/eth$number" "$settings"
        number=$((number + 1))
    done
}

# Makes the mounted system boot from its disk: the disk's path, and "ours" if extlinux of the node does that
# instead of the system's own; with UUID set.  Debian keeps the links /vmlinuz and /initrd.img on the newest
# kernel.
make_bootable() {
    step "making $1 bootable"
    write "$TARGET/etc/fstab" "UUID=$UUID / ext4 errors=remount-ro 0 1"
    write "$TARGET/boot/extlinux/extlinux.conf" "SERIAL 0 115200
DEFAULT linux
LABEL linux
    LINUX /vmlinuz
    INITRD /initrd.img
    APPEND root=UUID=$UUID ro net.ifnames=0 console=tty0 console=ttyS0,115200"
    mbr=$OUR_MBR
    if [ "${2:-}" = ours ]; then
        run rm -f "$TARGET/boot/extlinux/ldlinux.sys" "$TARGET/boot/extlinux/ldlinux.c32"
        run extlinux --install "$TARGET/boot/extlinux"
    else
        for directory in dev proc sys; do
            run mount --bind "/$directory" "$TARGET/$directory"
        done
        run chroot "$TARGET" extlinux --install /boot/extlinux
        mbr=$TARGET/usr/lib/syslinux/mbr/mbr.bin
    fi
    run dd "if=$mbr" "of=$1" bs=440 count=1 conv=notrunc,fsync status=none
}
