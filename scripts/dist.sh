#!/usr/bin/env bash
# dist.sh archive [ARCHITECTURE]: makes target/dist/h5logfs-VERSION-linux-ARCHITECTURE.tar.gz, which runs on any Linux with the C
# library of $libc or later, whatever libhdf5 it has or has not. ARCHITECTURE is x86_64, which also has the library for MPI
# programs of this machine's MPI, or aarch64. What is in it: packaging/dist/README.
# dist.sh build [ARCHITECTURE]: builds what is in it, and no archive.
# dist.sh check FILE...: fails for programs and libraries that need more of a machine than these do.
#
# zig, which brings the C library of each release, compiles what is C, and links. PROFILE=dev builds quickly, for tests.
set -euo pipefail
cd "$(dirname "$0")/.."

libc=2.28
cargo=${CARGO:-cargo}
profile=${PROFILE:-release}
targets=$(realpath -m "${CARGO_TARGET_DIR:-target}")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)

fail() {
    printf 'dist.sh: %s\n' "$@" >&2
    exit 1
}

# The libraries that a machine has with its C library, and the MPI of the library for MPI programs.
allowed='libc.so.6|libm.so.6|libdl.so.2|libpthread.so.0|librt.so.1|libgcc_s.so.1|ld-linux-[a-z0-9-]*.so.[12]|libmpi.so.[0-9]*'

check_one() {
    local needed version
    needed=$(objdump -p "$1" | sed -n 's/^ *NEEDED *//p' | grep -v -x -E "$allowed" || true)
    [ -z "$needed" ] || fail "$1 needs $(echo $needed)"
    version=$(needed_libc "$1")
    printf '%s\n' "$version" "$libc" | sort -CV || fail "$1 needs GLIBC_$version, and $libc is what there may be:" \
        "$(objdump -T "$1" | grep "GLIBC_${version//./\\.}\b" | head -n 5)"
}

# The newest version of the C library that one of these files asks for, as 2.28.
needed_libc() {
    objdump -T "$@" | grep -o 'GLIBC_2\.[0-9]*' | sort -uV | tail -n 1 | sed 's/GLIBC_//'
}

# zigbuild ARGUMENTS: `cargo build` for $target and $libc.
zigbuild() {
    # bindgen reads the header of this machine's MPI, with the headers of this machine. cargo-zigbuild adds zig's, by paths from here,
    # which lead nowhere where bindgen runs.
    local headers
    headers="-isystem $(gcc -print-file-name=include) -isystem /usr/include/$(gcc -print-multiarch) -isystem /usr/include"
    env "BINDGEN_EXTRA_CLANG_ARGS_$target=$headers" \
        "$cargo" zigbuild --locked --profile "$profile" --target-dir "$targets" --target "$target.$libc" "$@"
}

build() {
    # Nothing of what the machine has is to be found, but by the flags of mpicc.
    export PATH="$PWD/.venv-dist/bin:$PATH"
    CMAKE=$(scripts/cmake.sh)
    export CMAKE
    [ "$profile" != release ] || export CARGO_PROFILE_RELEASE_STRIP=symbols CARGO_PROFILE_RELEASE_DEBUG=false
    [ "$profile" != dev ] || export CARGO_PROFILE_DEV_STRIP=symbols CARGO_PROFILE_DEV_DEBUG=false
    # All at once: crates that several of these need are compiled once.
    local packages=(-p h5logfs -p h5logfs-plugin-driver -p h5logfs-plugin-connector -p h5logfs-vol-api) features=static-hdf5 programs=(--bin h5logfs)
    if [ -n "$with_mpi" ]; then
        packages+=(-p h5logfs-plugin-connector-mpi -p h5logfs-writer)
        features+=,mpi
        programs+=(--bin h5logfs-compact-mpi)
    fi
    zigbuild "${packages[@]}" --features $features --lib "${programs[@]}"
    if [ -n "$with_mpi" ]; then
        install -m 755 "$built/libh5logfs_writer.so" "$built/libh5logfs_writer.so.$version"
    fi
}

# What is installed, below a directory. The places that files name follow when it is installed.
stage() {
    local install=(make --no-print-directory DESTDIR="$stage" PREFIX=/@PREFIX@ SBINDIR= BUILT="$built" "PAGES=$pages")
    rm -rf "$stage" "$work/tree"
    "${install[@]}" install-program
    [ -z "$with_mpi" ] || "${install[@]}" install-writer
    mkdir -p "$work/tree"
    mv "$stage/@PREFIX@" "$tree"
    install -m 755 packaging/dist/install.sh "$tree/install.sh"
    install -m 644 packaging/dist/README "$tree/README"
    install -D -m 644 packaging/modulefile "$tree/share/h5logfs/modulefiles/h5logfs/$version"
    packaging/dist/licenses.py "$cargo" "$target" ${with_mpi:+mpi} >"$tree/share/doc/h5logfs/THIRD-PARTY"
}

check_stage() {
    local file
    while read -r file; do
        check_one "$file"
    done < <(find "$tree" -type f \( -name '*.so*' -o -path '*/bin/*' \))
    # The libhdf5 that loads a plug-in has all its functions.
    for file in "$tree"/lib/h5logfs/plugins/*; do
        ! objdump -T "$file" | grep -q -w 'H5open' || fail "$file has an HDF5 in it, or needs one"
    done
}

pack() {
    # What lies in directories is installed. Beside them are the files of the archive itself.
    (cd "$tree" && find . -mindepth 2 ! -type d | sed 's|^\./||' | LC_ALL=C sort >contents.txt &&
        find . -type f ! -name SHA256SUMS | LC_ALL=C sort | sed 's|^\./||' | xargs -d '\n' sha256sum >SHA256SUMS)
    mkdir -p "$out"
    # The same sources give the same archive.
    tar -C "$work/tree" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}" \
        -cf - "$name" | gzip -9n >"$out/$name.tar.gz.new"
    mv "$out/$name.tar.gz.new" "$out/$name.tar.gz"
    (cd "$out" && sha256sum -- *.tar.gz >SHA256SUMS)
    echo "$out/$name.tar.gz"
}

case ${1:-} in
archive | build)
    architecture=${2:-$(uname -m)}
    target=$architecture-unknown-linux-gnu
    # The MPI that is here is one for programs of this machine.
    with_mpi=
    [ "$architecture" != "$(uname -m)" ] || ! command -v "${MPICC:-mpicc}" >/dev/null || with_mpi=yes
    built=$targets/$target/${profile/%dev/debug}
    ;;&
build) build ;;
archive)
    name=h5logfs-$version-linux-$architecture
    out=$targets/dist
    work=$out/$name.work
    stage=$work/stage
    tree=$work/tree/$name
    # A program writes its own pages. One for another machine cannot do so here.
    pages=$built/h5logfs
    [ "$architecture" = "$(uname -m)" ] || pages=${PAGES:-$targets/release/h5logfs}
    build
    stage
    check_stage
    pack
    rm -rf "$work"
    ;;
check)
    for file in "${@:2}"; do
        check_one "$file"
    done
    ;;
*)
    echo "usage: dist.sh archive [ARCHITECTURE] | build [ARCHITECTURE] | check FILE..." >&2
    exit 2
    ;;
esac
