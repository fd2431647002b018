#!/usr/bin/env bash
# demo.sh read PROGRAM DIRECTORY DRIVER: mounts the sample logs in DIRECTORY and reads them with programs that know nothing of
# logs. Then it reads them without a mount, with the file driver DRIVER, and with the Python package where `make python` has
# installed it.
# demo.sh write PROGRAM HEAT: reads a log that the MPI program HEAT writes.
# It leaves nothing behind.
set -euo pipefail
cd "$(dirname "$0")/.."

part=$1
program=$(realpath "$2")
heat=
case $part in
read) sample=$3 driver=$(realpath "$4") ;;
write) heat=$(realpath "$3") ;;
esac
old=${H5LOGFS_TEST_PYTHON_OLD:-/usr/bin/python3}
new=${H5LOGFS_TEST_PYTHON_NEW:-.venv/bin/python}
work=$(mktemp -d "${TMPDIR:-/tmp}/h5logfs-demo.XXXXXX")
mnt=$work/mnt
run42=$work/run42
messages=$work/messages
plugins=$work/plugins
mkdir "$mnt" "$run42" "$plugins"

# Open MPI would complain in containers that forbid a process to read the memory of another one.
export OMPI_MCA_btl_vader_single_copy_mechanism=none

is_mounted() {
    mountpoint -q "$mnt"
}

unmount() {
    if [ "$(id -u)" -eq 0 ]; then umount -l "$mnt"; else fusermount3 -u -z "$mnt"; fi
}

# Runs also after a failure, and after Ctrl-C.
clean_up() {
    local outcome=$?
    ! is_mounted || unmount || true
    if [ $outcome -ne 0 ]; then
        echo "The demo has failed. What the daemon said:" >&2
        cat "$messages" >&2 2>/dev/null || true
    fi
    rmdir "$mnt" && rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

say() { printf '\n\033[1m# %s\033[0m\n' "$1"; }
[ -t 1 ] || say() { printf '\n# %s\n' "$1"; }

# Prints a command with short paths, and runs it.
run() {
    local text="$*"
    text=${text//"$program"/h5logfs}
    text=${text//"$mnt"/MNT}
    [ -z "$heat" ] || text=${text//"$heat"/heat}
    text=${text//" -o log_file=$messages"/}
    text=${text//"$work/"/}
    printf '$ %s\n' "$text"
    "$@"
}

unmount_by_hand() {
    if [ "$(id -u)" -eq 0 ]; then
        run umount "$mnt"
    else
        run fusermount3 -u "$mnt"
    fi
}

read_with_h5py='
import sys, h5py
with h5py.File(sys.argv[1]) as f:
    field = f["field"][...]
    print(f"h5py {h5py.__version__}, libhdf5 {h5py.version.hdf5_version}:",
          f"field {field.shape} {field.dtype}, sum {field.sum():g}")'

read_with_xarray='
import sys, xarray
with xarray.open_dataset(sys.argv[1], engine="netcdf4") as data:
    t = data["T"]
    print(t.dims, t.shape, f"mean {float(t.mean()):g}, {int(t.isnull().sum())} missing values")'

read_killed='
import sys, h5logfs, h5py
with h5py.File(h5logfs.open(sys.argv[1])) as f:
    print(f["q"], "sum", f["q"][...].sum())'

read_hottest='
import sys, h5py
with h5py.File(sys.argv[1]) as f:
    frames, time = f["temperature"], f["time"]
    units = frames.attrs["units"]
    print(f"h5py {h5py.__version__}: {frames.shape} {frames.dtype}, chunks {frames.chunks},",
          f"hottest cell at time {time[9]:g}: {frames[9].max():.2f} {units}")'

read_logs() {
    say "1. Log files, as a parallel job has left them ($sample)"
    run ls -l "$sample"
    say "   What HDF5 programs make of one: a dataset without elements"
    run h5dump -d /T -A 0 "$sample/weather.nc"

    say "2. Mount the directory. The same names are ordinary HDF5 files now"
    run "$program" mount "$sample" "$mnt" -o "log_file=$messages"
    run ls -l "$mnt"

    say "3. What the log holds: datasets, and the records that make them up"
    run "$program" inspect "$sample/steps.h5"

    say "4. h5dump: the true shape, then a part of the data"
    run h5dump -H -d /field "$mnt/steps.h5"
    run h5dump -d /field -s 4,0,0 -c 1,2,6 -m '%g' -y "$mnt/steps.h5" |
        sed -n '1p; / DATA {/,/ }/p'

    say "5. h5py, with the old libhdf5 of Debian and with a current one"
    for python in "$old" "$new"; do
        printf '$ %s: h5py.File("MNT/steps.h5")["field"][...]\n' "${python#"$PWD"/}"
        "$python" -c "$read_with_h5py" "$mnt/steps.h5"
    done

    say "6. netCDF: a log that the netCDF library has written"
    run ncdump -h "$mnt/weather.nc"
    say "   and with xarray"
    printf '$ %s: xarray.open_dataset("MNT/weather.nc")["T"]\n' "${new#"$PWD"/}"
    "$new" -c "$read_with_xarray" "$mnt/weather.nc"

    say "7. A netCDF file whose job was killed: its data are in the logs of PnetCDF's burst buffer only"
    run ls "$sample/killed"
    run ncdump -v q "$sample/killed/file.nc"
    say "   In the mount it has them, and the logs are gone from sight"
    run ls "$mnt/killed"
    run ncdump -v q "$mnt/killed/file.nc"

    say "8. Unmount"
    unmount_by_hand

    # libhdf5 loads every file of a directory of plug-ins.
    ln -s "$driver" "$plugins"
    say "9. No mount: h5py opens the log by its own path, with the file driver"
    without_mount=(HDF5_DRIVER=h5logfs HDF5_PLUGIN_PATH="$plugins" H5LOGFS_PROGRAM="$program")
    printf '$ export HDF5_DRIVER=h5logfs HDF5_PLUGIN_PATH=/usr/lib/h5logfs/plugins\n'
    printf '$ %s: h5py.File("%s/steps.h5")["field"][...]\n' "${new#"$PWD"/}" "$sample"
    env "${without_mount[@]}" "$new" -c "$read_with_h5py" "$sample/steps.h5"
    printf '$ %s: xarray.open_dataset("%s/weather.nc")["T"]\n' "${new#"$PWD"/}" "$sample"
    env "${without_mount[@]}" "$new" -c "$read_with_xarray" "$sample/weather.nc"
    if "$new" -c 'import h5logfs' 2>/dev/null; then
        say "   and with the Python package"
        printf '$ %s: h5py.File(h5logfs.open("%s/killed/file.nc"))\n' "${new#"$PWD"/}" "$sample"
        "$new" -c "$read_killed" "$sample/killed/file.nc"
    fi
}

write_log() {
    say "10. The writer: four MPI processes log a heat equation, ten frames of it (examples/heat.rs)"
    run mpirun -n 4 "$heat" "$run42/heat.h5"
    run ls -l "$run42"
    run "$program" mount "$run42" "$mnt" -o "log_file=$messages"
    run h5dump -d /temperature -s 9,63,60 -c 1,2,6 -A 0 -m '%.2f' -y "$mnt/heat.h5" |
        sed -n '1p; / DATA {/,/ }/p'
    for python in "$old" "$new"; do
        printf '$ %s: h5py.File("MNT/heat.h5")["temperature"][9].max()\n' "${python#"$PWD"/}"
        "$python" -c "$read_hottest" "$mnt/heat.h5"
    done
    unmount_by_hand
}

case $part in
read) read_logs ;;
write)
    write_log
    printf '\nThe demo is over. docs/reading.md and docs/writing.md go on from here.\n'
    ;;
esac
