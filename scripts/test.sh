#!/usr/bin/env bash
# test.sh [ARGUMENTS]: cargo test. If root runs it and users may not open /dev/fuse (in Debian's own setting they may),
# the tests run in a mount namespace of their own, with a device that users may open. Without it the tests of mounts by
# ordinary users could only be skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

run=("${CARGO:-cargo}" test "$@")
if [ "$(id -u)" -ne 0 ] || [ "$(($(stat -c '0%a' /dev/fuse) & 6))" -eq 6 ]; then
    exec "${run[@]}"
fi
if ! unshare --mount true; then
    echo "test.sh: no mount namespace to be had: tests of mounts by ordinary users will be skipped" >&2
    exec "${run[@]}"
fi

open_device='
    folder=$1; shift
    mount -t tmpfs -o dev,mode=755 h5logfs-test "$folder"
    mknod -m 666 "$folder/fuse" c 10 229
    mount --bind "$folder/fuse" /dev/fuse
    exec "$@"
'
folder=$(mktemp -d)
trap 'rmdir "$folder"' EXIT
unshare --mount sh -ec "$open_device" sh "$folder" "${run[@]}"
