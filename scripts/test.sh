#!/usr/bin/env bash
# test.sh [ARGUMENTS]: runs the tests with cargo-nextest, or with cargo test if cargo-nextest is not installed. The arguments
# are those that both take. With H5LOGFS_TEST_ALL=1 it runs also the tests that are marked as ignored, because they take long,
# and all random cases.
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
# nextest runs no tests in the documentation, for which rustdoc has to go through all crates. What they show is an example, which is
# compiled with the tests. What must not compile is left, and is tried where all tests are wanted.
doc=
if [ -n "${H5LOGFS_TEST_ALL:-}" ]; then
    case " $* " in
    *" --test "* | *" --partition "*) ;;
    *) doc=yes ;;
    esac
    options=(--profile all --run-ignored all)
else
    options=()
    echo "test.sh: leaving out tests that take long, two thirds of the random cases, parts of the corpus and of its damaged" \
        "logs, and all but one of the variants of some tests: make test-all has them"
fi
if ! "$cargo" nextest --version >/dev/null 2>&1; then
    echo "test.sh: cargo-nextest is not installed: cargo test takes its place, and longer" >&2
    case " $* " in
    *" --partition "*)
        echo "test.sh: left out: slices of the tests need cargo-nextest" >&2
        exit
        ;;
    esac
    separator=--
    case " $* " in
    *" -- "*) separator= ;;
    esac
    "$cargo" test "$@" ${H5LOGFS_TEST_ALL:+$separator --include-ignored} || status=$?
    exit $status
fi
[ -z "$doc" ] || "$cargo" test --doc "$@" || status=$?
"$cargo" nextest run "${options[@]}" "$@" || status=$?
exit $status
