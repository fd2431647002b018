#!/usr/bin/env bash
# test.sh [ARGUMENTS]: runs the tests of the Python package, then the others with cargo-nextest, or with cargo test if
# cargo-nextest is not installed. The arguments are those that both take. With --test the tests of the package do not run.
# With H5LOGFS_TEST_IGNORED=1 tests that are marked as ignored run, too.
#
# If root runs it and users may not open /dev/fuse (in Debian's own setting they may), the tests run in a mount
# namespace of their own, with a device that users may open. Without it the tests of mounts by ordinary users could only
# be skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}

open_device='
    dir=$1; shift
    mount -t tmpfs -o dev,mode=755 h5logfs-test "$dir"
    mknod -m 666 "$dir/fuse" c 10 229
    mount --bind "$dir/fuse" /dev/fuse
    exec "$@"
'
if [ "$(id -u)" -eq 0 ] && [ "$(($(stat -c '0%a' /dev/fuse) & 6))" -ne 6 ]; then
    if unshare --mount true; then
        dir=$(mktemp -d)
        trap 'rmdir "$dir"' EXIT
        unshare --mount sh -ec "$open_device" sh "$dir" scripts/test.sh "$@"
        exit
    fi
    echo "test.sh: cannot make a mount namespace: tests of mounts by ordinary users will be skipped" >&2
fi

status=0
# Some of the tests, or all.
case " $* " in
*" --test "*) some=yes ;;
*) some= ;;
esac
[ -n "$some" ] || CARGO=$cargo PROFILE=dev scripts/python.sh test || status=$?
if ! "$cargo" nextest --version >/dev/null 2>&1; then
    echo "test.sh: cargo-nextest is not installed: cargo test takes its place, and longer" >&2
    "$cargo" test "$@" ${H5LOGFS_TEST_IGNORED:+-- --include-ignored} || status=$?
    exit $status
fi
# nextest runs no doc tests.
[ -n "$some" ] || "$cargo" test --doc "$@" || status=$?
"$cargo" nextest run ${H5LOGFS_TEST_IGNORED:+--run-ignored all} "$@" || status=$?
exit $status
