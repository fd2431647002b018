#!/usr/bin/env bash
# hdf5-tests-source.sh DIRECTORY [PATTERN…]: unpacks the sources of HDF5 1.14 into a new directory, or what patterns of tar name of them, and
# changes the tests: they ask their library which driver the environment names, know how to use those of HDF5, and leave out what differs
# with any but the default one. With ours they do what they do without a name: libhdf5 then loads it.
set -euo pipefail
cd "$(dirname "$0")/.."

# Each changes one line of test/h5test.c.
changes=(
    # In h5_get_vfd_fapl.
    --expression='0,/if (!env || !\*env)/s//if (!env || !*env || !strcmp(env, "h5logfs"))/'
    # In h5_get_test_driver_name.
    --expression='s/if ((envval = getenv(HDF5_DRIVER)))/if ((envval = getenv(HDF5_DRIVER)) \&\& strcmp(envval, "h5logfs"))/'
)

dir=$1
shift
archive=$(scripts/hdf5-source.sh)
rm -rf "$dir"
mkdir "$dir"
# As old as they are in the archive, so that a build that was ended goes on.
tar -x -z -f "$archive" -C "$dir" --strip-components=1 --wildcards "$@"
file=$dir/test/h5test.c
sed -i "${changes[@]}" "$file"
[ "$(grep -c '"h5logfs"' "$file")" -eq ${#changes[@]} ] || {
    echo "hdf5-tests-source: $file is not as it was known" >&2
    exit 1
}
