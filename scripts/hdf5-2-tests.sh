#!/usr/bin/env bash
# hdf5-2-tests.sh: builds HDF5 2.2, and for it the tests that come with HDF5 1.14, and prints the directory they are in: the crate with the
# sources of HDF5 2 has no tests. Those about the inside of the library are left out. This takes some minutes, once: the result is kept in
# the user's cache directory. `make test-hdf5` runs them.
set -euo pipefail
cd "$(dirname "$0")/.."

hdf5=hdf5-metno-src=0.10.4
# As in hdf5-tests.sh.
options=(
    -DCMAKE_BUILD_TYPE=None
    "-DCMAKE_C_FLAGS=-O1 -w"
    -DBUILD_SHARED_LIBS=ON
    -DBUILD_STATIC_LIBS=OFF
    -DBUILD_TESTING=OFF
    -DHDF5_ENABLE_ZLIB_SUPPORT=ON
    -DHDF5_ENABLE_SZIP_SUPPORT=OFF
    -DHDF5_BUILD_TOOLS=OFF
    -DHDF5_BUILD_UTILS=OFF
    -DHDF5_BUILD_HL_LIB=OFF
    -DHDF5_BUILD_CPP_LIB=OFF
    -DHDF5_BUILD_EXAMPLES=OFF
    -DHDF5_NO_PACKAGES=ON
)
programs=(app_ref big chunk_info cmpd_dset cmpd_dtransform cross_read dangle direct_chunk dsets dt_arith dtransform dtypes enc_dec_plist
    enum event_set extend external file_image fillval filter_fail flush1 flush2 getname hyperslab istore links mdset mount mtime ntypes
    objcopy objcopy_ref select_io_dset set_extent stab unlink unregister vds)
# A change is an expression of sed, and the file that it is for.
changes=(
    's/rand() % H5T_NCLASSES/rand() % H5T_COMPLEX/' API/H5_api_test_util.c
    's/default_con_id != registered_con_id/!are_same_connector(default_con_id, registered_con_id)/' API/H5_api_test.c
    's/H5TS_thread_id()/(uint64_t)0/' h5test.c
    's/file_vol_obj->rc/H5VL_OBJ_RC(file_vol_obj)/' tmisc.c
    's/H5CX_push()/H5CX_push(\&(H5CX_node_t){0})/' dsets.c
    's/H5CX_push()/H5CX_push(\&(H5CX_node_t){0})/' unregister.c
)
compile=("${CC:-cc}" -O1 -w -DH5_USE_114_API)

fail() {
    printf 'hdf5-2-tests: %s\n' "$@" >&2
    exit 1
}

for program in cargo make "${CC:-cc}" python3; do
    command -v "$program" >/dev/null || fail "$program is not there: scripts/setup.sh test installs it"
done
cmake=$(scripts/cmake.sh)

cache=${XDG_CACHE_HOME:-$HOME/.cache}/h5logfs-tests
state=$(printf '%s\n' "$hdf5" "${options[@]}" "${programs[@]}" "${changes[@]}" && sed -n '/^# Declares/,$p' "$0" &&
    cat scripts/hdf5-tests-source.sh && "${CC:-cc}" --version)
dir=$cache/hdf5-2-tests-$(printf %s "$state" | sha256sum | cut -c 1-16)

# Shows the end of what a step said if it fails.
step() {
    "$@" >"$dir/said" 2>&1 || {
        tail -n 20 "$dir/said" >&2
        fail "this has failed: $*"
    }
}

# Declares what tests of HDF5 1.14 take from its headers.
prelude() {
    cat <<'END'
#include "hdf5.h"
#include "H5private.h"
#include "H5ACprivate.h"
#include "H5Pprivate.h"
#include "H5Tprivate.h"
#include "H5CXprivate.h"
#undef complex
#undef I
#define FALSE false
#define TRUE true
#define H5_CLANG_DIAG_OFF(x)
#define H5_CLANG_DIAG_ON(x)
#define H5_GCC_DIAG_OFF(x)
#define H5_GCC_DIAG_ON(x)
#define H5_GCC_CLANG_DIAG_OFF(x)
#define H5_GCC_CLANG_DIAG_ON(x)
#define HDrandom random
#define HDsrandom srandom
#define HDrand rand
#define HDsrand srand
static inline bool are_same_connector(hid_t one, hid_t other) {
    int order = 1;
    return H5VLcmp_connector_cls(&order, one, other) >= 0 && order == 0;
}
END
}

# link NAME SOURCE...: makes a program of sources in the directory of tests, and of what all programs have.
link() {
    local name=$1 source objects=()
    shift
    for source in "$@" h5test testframe; do
        local object=$dir/objects/${source//\//-}.o
        [ -e "$object" ] || step "${compile[@]}" -include "$dir/objects/prelude.h" "${includes[@]}" -c "$dir/source/test/$source.c" -o "$object"
        objects+=("$object")
    done
    step "${compile[@]}" -o "$dir/bin/$name" "${objects[@]}" -L "$dir/build/bin" "-Wl,-rpath,$dir/build/bin" -lhdf5 -lz -lm
}

build() {
    local from name at
    from=$(scripts/crate.sh "$hdf5")/ext/hdf5 || fail "cargo cannot get $hdf5"
    step "$cmake" -S "$from" -B "$dir/build" -G 'Unix Makefiles' "${options[@]}"
    step make --no-print-directory -j "$(nproc)" -C "$dir/build"
    rm -rf "$dir/objects" "$dir/bin"
    mkdir "$dir/objects" "$dir/bin"
    scripts/hdf5-tests-source.sh "$dir/source" '*/test/*'
    for ((at = 0; at < ${#changes[@]}; at += 2)); do
        local file=$dir/source/test/${changes[at + 1]}
        cp "$file" "$dir/said"
        sed -i "${changes[at]}" "$file"
        ! cmp -s "$file" "$dir/said" || fail "$file is not as it was known"
    done
    prelude >"$dir/objects/prelude.h"
    echo "#define config_srcdir \"$dir/source/test\"" >"$dir/objects/H5srcdir_str.h"
    sed -e 's/#cmakedefine H5_API_TEST_HAVE_ASYNC.*/#define H5_API_TEST_HAVE_ASYNC 1/' -e '/#cmakedefine/d' \
        "$dir/source/test/API/H5_api_test_config.h.in" >"$dir/objects/H5_api_test_config.h"
    local includes=(-I "$from/src" -I "$from/src/H5FDsubfiling" -I "$dir/build/src" -I "$dir/objects" -I "$dir/source/test" -I "$dir/source/test/API")
    for name in "${programs[@]}"; do
        case $name in
            external) link "$name" "$name" external_common ;;
            *) link "$name" "$name" ;;
        esac
    done
    # As CMake's files name the sources of these.
    mapfile -t names < <(sed -n '/^set (testhdf5_SOURCES/,/)/s,.*/\(.*\)\.c$,\1,p' "$dir/source/test/CMakeLists.txt")
    link testhdf5 "${names[@]}"
    mapfile -t names < <(cd "$dir/source/test" && printf '%s\n' API/*.c)
    link h5_api_test "${names[@]%.c}"
}

mkdir -p "$dir"
exec 9>"$dir/lock"
flock 9
if [ ! -e "$dir/done" ]; then
    echo "hdf5-2-tests: building HDF5 2.2 and tests for it, which takes some minutes" >&2
    build
    touch "$dir/done"
fi
printf '%s\n' "$dir"
