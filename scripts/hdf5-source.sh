#!/usr/bin/env bash
# hdf5-source.sh: prints the path of an archive with the sources of HDF5 1.14, as Debian has them: the crate that carries HDF5
# lacks its Fortran modules and its tests. It is downloaded once: the result is kept in the user's cache directory.
set -euo pipefail

# The Debian release with this name has HDF5 1.14. The lists of packages that apt-get needs for it are not those of the machine.
release=trixie

fail() {
    printf 'hdf5-source: %s\n' "$@" >&2
    exit 1
}

cache=${XDG_CACHE_HOME:-$HOME/.cache}/h5logfs-tests
archive=$cache/hdf5-$release.tar.gz

download() {
    local mirror
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Label: Debian' 'Created-By: Packages' | head -n 1)
    [ -n "$mirror" ] || return 1
    mkdir -p "$work/lists" "$work/cache" "$work/state"
    touch "$work/state/status"
    printf 'deb-src [signed-by=%s] %s %s main\n' /usr/share/keyrings/debian-archive-keyring.gpg "$mirror" "$release" \
        >"$work/sources.list"
    local apt=(apt-get -qq -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o Dir::State="$work/state" -o Dir::Cache="$work/cache" -o APT::Sandbox::User=)
    "${apt[@]}" update && (cd "$work" && "${apt[@]}" --download-only source hdf5) && mv "$work"/hdf5_*.orig.tar.gz "$archive"
}

mkdir -p "$cache"
exec 9>"$archive.lock"
flock 9
if [ ! -f "$archive" ]; then
    # The lock is ours, so what lies here is of a run that was ended.
    work=$archive.partial
    rm -rf "$work"
    mkdir "$work"
    trap 'rm -rf "$work"' EXIT
    download >&2 || fail "Debian's sources of HDF5 cannot be had"
fi
printf '%s\n' "$archive"
