# What all scripts of this provider share: volumes are files below a directory.
#
# VOLUME_DIR is below the provider itself, or what the disk's parameter "directory" says.

set -eu

: "${VOL_NAME:?VOL_NAME is not set}"
VOLUME_DIR="${EXTP_DIRECTORY:-$PWD/volumes}"
VOLUME="$VOLUME_DIR/$VOL_NAME"

fail() {
    echo "$1" >&2
    exit 1
}

must_exist() {
    [ -f "$VOLUME" ] || fail "there is no volume $VOL_NAME in $VOLUME_DIR"
}
