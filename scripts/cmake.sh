#!/usr/bin/env bash
# cmake.sh: prints the path of a cmake that is new enough to compile the sources of HDF5 2, and fails where there is none.
# cmake.sh install: the same, but installs one from PyPI in .venv-build where there is none.
#
# The path is always the same one: another would have HDF5 compiled again. .venv has one, too (tests/requirements.txt).
set -euo pipefail
cd "$(dirname "$0")/.."
needed=3.26

is_new_enough() {
    local version
    version=$("$1" --version 2>/dev/null | sed -n '1s/^cmake version //p')
    [ -n "$version" ] && printf '%s\n' "$needed" "$version" | sort -CV
}

find_cmake() {
    local candidate
    for candidate in "${CMAKE:-}" "$(command -v cmake || true)" "$PWD/.venv-build/bin/cmake" "$PWD/.venv/bin/cmake"; do
        if [ -n "$candidate" ] && is_new_enough "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    return 1
}

if ! find_cmake; then
    if [ "${1:-}" != install ]; then
        echo "cmake.sh: HDF5 is compiled with cmake $needed or later, which is not here: run scripts/setup.sh build" >&2
        exit 1
    fi
    echo "setup: installing cmake in .venv-build" >&2
    rm -rf .venv-build
    /usr/bin/python3 -m venv .venv-build
    .venv-build/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: \
        "$(grep '^cmake==' tests/requirements.txt)" >&2
    find_cmake
fi
