#!/usr/bin/env bash
# dist-test.sh [PART...]: installs what `make dist`, `make rpm` and `make deb` make in systems of their own, uses it as the README does,
# removes it, and looks that nothing is left. As root. The parts, by default all:
#
# debian-11 debian-12 debian-13: the archive, in a Debian of this number
# modules: the module of the archive, with Environment Modules and with Lmod
# rpm: the RPM, with Debian's rpm
# container: the image of packaging/container/Containerfile, with buildah
# podman: the same image, built and used by an ordinary user with rootless podman: a mount in a container
# apptainer: the image of packaging/container/h5logfs.def, built and used by an ordinary user with the Apptainer of Debian's unstable
#     release: mounts by --fusemount
# slurm: packaging/slurm, and `h5logfs run`, in jobs of a Slurm of one node (scripts/dist-slurm.sh). Takes two minutes
# adios: random programs of ADIOS2 of several processes, in Debian 13, whose ADIOS2 has MPI (tests/tools/adios.py)
# julia: the example in Julia, in Debian 11, which has a Julia, compared with what the one in C writes here
# wheel: the wheel of `make wheels`, with each Python from 3.9 on that is here
# aarch64: archive and wheel for aarch64, in a virtual machine (scripts/aarch64.sh), where they are made
#
# debootstrap makes the systems, once: they are kept in the user's cache directory. What a part changes goes into memory.
set -euo pipefail
cd "$(dirname "$0")/.."

out=$(realpath -m "${CARGO_TARGET_DIR:-target}")/dist
cache=${XDG_CACHE_HOME:-$HOME/.cache}/h5logfs-tests
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
archive_of() {
    echo "$out/h5logfs-$version-linux-$1.tar.gz"
}
wheel_of() {
    echo "$out/h5logfs-$version-cp39-abi3-manylinux_2_28_$1.whl"
}

fail() {
    printf 'dist-test.sh: %s\n' "$@" >&2
    exit 1
}

# system SUITE: prints the directory of a Debian, which is made if it is not there. It must not change.
system() {
    local suite=$1 dir=$cache/debian-$1 mirror packages=hdf5-tools,mount,util-linux
    # The two programs of modules cannot be in one system.
    case $suite in
    bookworm) packages+=,rpm,environment-modules ;;
    trixie) packages+=,lmod ;;
    esac
    mkdir -p "$cache"
    exec 9>"$dir.lock"
    flock 9
    if [ ! -d "$dir" ]; then
        rm -rf "$dir.partial"
        mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Label: Debian' 'Created-By: Packages' | head -n 1)
        debootstrap --variant=minbase --include="$packages" "$suite" "$dir.partial" "$mirror" >"$dir.log" 2>&1 ||
            fail "debootstrap cannot make a Debian $suite; $dir.log says why"
        rm -rf "$dir.partial"/var/cache/apt/archives/*.deb
        mv "$dir.partial" "$dir"
    fi
    exec 9>&-
    printf '%s\n' "$dir"
}

# system_with NAME SUITE PACKAGE...: the same of a Debian with more packages.
system_with() {
    local name=$1 suite=$2 from dir=$cache/debian-$2-$1
    from=$(system "$suite")
    exec 9>"$dir.lock"
    flock 9
    if [ ! -d "$dir" ]; then
        rm -rf "$dir.partial"
        cp -a "$from" "$dir.partial"
        cp /etc/resolv.conf "$dir.partial/etc/resolv.conf"
        # What apt is told of here, such as a proxy, it is told of there.
        cp -r /etc/apt/apt.conf.d "$dir.partial/etc/apt"
        # No service is started.
        printf '#!/bin/sh\nexit 101\n' >"$dir.partial/usr/sbin/policy-rc.d"
        chmod 755 "$dir.partial/usr/sbin/policy-rc.d"
        DEBIAN_FRONTEND=noninteractive chroot "$dir.partial" bash -euc '
            apt-get update && apt-get install --yes --no-install-recommends "$@"
            apt-get clean' sh "${@:3}" >"$dir.log" 2>&1 || fail "there is no $name for Debian's $suite; $dir.log says why"
        mv "$dir.partial" "$dir"
    fi
    exec 9>&-
    printf '%s\n' "$dir"
}

# in_system SYSTEM SCRIPT [OPTION...]: runs a script in a system, as root, with the files of $given in /given. Gone with it are its
# changes and its mounts. The options are those of unshare, for more namespaces.
in_system() {
    local dir=$1 script=$2
    SYSTEM=$dir GIVEN=$given SCRIPT=$script unshare --mount --pid --fork "${@:3}" bash -euc '
        work=$(mktemp -d)
        mount -t tmpfs -o mode=755 h5logfs-dist-test "$work"
        mkdir "$work"/{upper,work,root}
        mount -t overlay -o "lowerdir=$SYSTEM,upperdir=$work/upper,workdir=$work/work" h5logfs-dist-test "$work/root"
        cd "$work/root"
        mkdir -p given
        mount --bind -o ro "$GIVEN" given
        mount -t proc proc proc
        [ -e dev/fuse ] || mknod -m 666 dev/fuse c 10 229
        # In a chroot users make no namespaces.
        mkdir old
        pivot_root . old
        cd /
        umount --lazy old
        rmdir old
        env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 /bin/bash -euc "$SCRIPT"
    '
}

# The first example of the README, and the file driver. `h5dump` of Debian 11 and 12 has an HDF5 that knows no drivers of plug-ins.
use='
    cp -r /given/sample /tmp/run42
    cd /tmp
    mkdir view
    h5dump -d /field -A 0 run42/steps.h5 | grep -q "DATASPACE  NULL"
    h5logfs mount run42 view
    h5dump -d /field -A 0 view/steps.h5 >/tmp/dumped
    grep -q "SIMPLE { ( 5, 8, 12 ) / ( H5S_UNLIMITED, 8, 12 ) }" /tmp/dumped
    grep -q "(0,0,0): -10429.9, 11629.4, -6250.09, 13831.6, 10912.7, -6183.59," /tmp/dumped
    umount view
    h5logfs inspect run42/steps.h5 | grep -q "100.0 %"
    h5logfs export run42/steps.h5 plain.h5
    cmp <(h5dump -d /field plain.h5 | tail -n +2) <(tail -n +2 /tmp/dumped)
    if h5dump --version | grep -q "Version \(1.14\|2\)"; then
        HDF5_PLUGIN_PATH=$plugins h5dump --filedriver=h5logfs -d /field run42/steps.h5 | grep -q -e "-10429.9"
    fi
    cd /
    rm -rf /tmp/* /root/.cache
'
# What is in the system: files, and directories.
list='find / -xdev \( -path /proc -o -path /given -o -path /tmp -o -path /var/lib/rpm -o -path /var/cache/man \) -prune -o -print | sort'

# Installs the archive, uses it, and removes it. MORE is done meanwhile.
script_of_archive() {
    local more=${1:-}
    echo "
        $list >/tmp/before; cp /tmp/before /before
        cd /tmp && tar -xf /given/archive.tar.gz && cd h5logfs-*
        ./install.sh /opt/h5logfs >/dev/null
        # A second time, with the helper of mount(8).
        ./install.sh --mount-helper /opt/h5logfs >/dev/null
        cd / && rm -rf /tmp/*
        export PATH=/opt/h5logfs/bin:\$PATH plugins=/opt/h5logfs/lib/h5logfs/plugins
        if grep -r -l @PREFIX@ /opt/h5logfs/lib /opt/h5logfs/share/h5logfs/modulefiles; then exit 1; fi
        $use
        $more
        cp -r /given/sample /tmp/run42 && mkdir /tmp/view
        mount -t h5logfs /tmp/run42 /tmp/view && ls /tmp/view | grep -q steps.h5 && umount /tmp/view
        rm -rf /tmp/*
        /opt/h5logfs/share/h5logfs/uninstall.sh
        rm -rf /root/.cache /var/cache/h5logfs
        $list | grep -v '^/before\$' >/tmp/after
        diff /before /tmp/after
    "
}

test_archive() {
    in_system "$1" "$(script_of_archive)"
}

test_modules() {
    load_module "$(system bookworm)" /usr/share/modules/init/bash && load_module "$(system trixie)" /usr/share/lmod/lmod/init/bash
}

# Loads and unloads the module in a system with a program of modules, which this file defines for bash.
load_module() {
    in_system "$1" "
        cd /tmp && tar -xf /given/archive.tar.gz && cd h5logfs-*
        ./install.sh /opt/h5logfs >/dev/null
        set +eu; . $2; set -e
        module use /opt/h5logfs/share/h5logfs/modulefiles
        module load h5logfs
        h5logfs --version >/dev/null
        [ \"\$HDF5_PLUGIN_PATH\" = /opt/h5logfs/lib/h5logfs/plugins ]
        [ \"\$CMAKE_PREFIX_PATH\" = /opt/h5logfs ]
        case :\$PKG_CONFIG_PATH: in *:/opt/h5logfs/lib/pkgconfig:*) ;; *) exit 1 ;; esac
        # An empty entry stands for the pages of the system.
        case \$MANPATH in /opt/h5logfs/share/man:*) ;; *) echo \"MANPATH=\$MANPATH\"; exit 1 ;; esac
        module unload h5logfs
        if command -v h5logfs; then exit 1; fi
        [ -z \"\${HDF5_PLUGIN_PATH:-}\" ]
    "
}

test_rpm() {
    in_system "$(system bookworm)" "
        mkdir -p /var/lib/rpm && rpm --initdb
        # Systems with RPM have these.
        mkdir -p /usr/lib/systemd/user /usr/lib/sysusers.d
        $list >/tmp/before; grep -v -e '-\$' /tmp/before >/before
        # This rpm knows nothing of what Debian has installed.
        rpm --install --nodeps /given/h5logfs.rpm
        rpm --query h5logfs >/dev/null
        rpm --verify --nodeps h5logfs
        getent passwd h5logfs >/dev/null
        export plugins=/usr/lib64/h5logfs/plugins
        $use
        rpm --erase h5logfs
        userdel h5logfs
        rm -rf /var/cache/h5logfs /root/.cache
        $list | grep -v -e '^/before\$' -e '-\$' >/tmp/after
        diff /before /tmp/after
    "
}

test_container() (
    set -euo pipefail
    command -v buildah >/dev/null || { echo "skipped: container: there is no buildah: scripts/setup.sh test-dist"; return; }
    store=$(mktemp -d)
    trap 'rm -rf "$store"' EXIT
    builder() { buildah --root "$store/root" --runroot "$store/run" --storage-driver vfs "$@"; }
    base=$(builder from scratch)
    builder add --quiet "$base" "$1" / >/dev/null
    builder commit --quiet --rm "$base" localhost/debian >/dev/null
    builder bud --quiet --isolation chroot --build-arg BASE=localhost/debian --build-arg ARCHIVE=archive.tar.gz \
        --tag localhost/h5logfs --file packaging/container/Containerfile "$given" >/dev/null
    [ "$(builder inspect --format '{{.OCIv1.Config.Entrypoint}}' localhost/h5logfs)" = '[/usr/local/bin/h5logfs]' ]
    image=$(builder from localhost/h5logfs)
    builder run --isolation chroot --volume "$given/sample:/data:ro" "$image" -- /usr/local/bin/h5logfs inspect /data/steps.h5 |
        grep -q '100.0 %'
)

test_podman() (
    set -euo pipefail
    trap 'rm -rf "$given/base.tar" "$given/Containerfile"' EXIT
    tar -C "$(system bullseye)" --exclude=./dev -cf "$given/base.tar" .
    cp packaging/container/Containerfile "$given"
    in_system "$1" '
        mount --make-rshared /
        mount -t sysfs sysfs /sys
        mount -t cgroup2 cgroup2 /sys/fs/cgroup
        mount -t devpts devpts /dev/pts
        mount -t tmpfs tmpfs /dev/shm
        useradd --create-home anna
        usermod --add-subuids 100000-165535 --add-subgids 100000-165535 anna
        cp -r /given/sample /home/anna/run42
        chown -R anna: /home/anna
        install -d -m 700 -o anna /run/user/anna
        cat >/tmp/as_anna <<"EOF"
            export HOME=/home/anna XDG_RUNTIME_DIR=/run/user/anna
            cd
            mkdir -p .config/containers
            # Containers lie in memory here, and nobody hands out cgroups.
            printf "[storage]\ndriver = \"vfs\"\n" >.config/containers/storage.conf
            printf "[engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n[containers]\ncgroups = \"disabled\"\n" \
                >.config/containers/containers.conf
            podman import --quiet /given/base.tar localhost/debian >/dev/null
            podman build --quiet --isolation chroot --build-arg BASE=localhost/debian --build-arg ARCHIVE=archive.tar.gz \
                --tag h5logfs --file /given/Containerfile /given >/dev/null
            run() {
                podman run --rm --network none --volume ~/run42:/data:ro "$@"
            }
            run h5logfs inspect /data/steps.h5 | grep -q "100.0 %"
            with_fuse="--device /dev/fuse --cap-add SYS_ADMIN"
            run $with_fuse h5logfs run /data /mnt -- h5dump -d /field /mnt/steps.h5 >run
            run $with_fuse --entrypoint sh h5logfs -euc "h5logfs mount /data /mnt; h5dump -d /field /mnt/steps.h5; umount /mnt" >mount
            cmp run mount
            grep -q "(0,0,0): -10429.9, 11629.4" run
            # A mount of a container that is killed goes with it.
            run $with_fuse --detach --name killed h5logfs mount -f /data /mnt >/dev/null
            until podman exec killed mountpoint -q /mnt; do sleep 0.1; done
            podman kill killed >/dev/null
            podman wait --ignore killed >/dev/null 2>&1 || true
EOF
        runuser -u anna -- bash -eu /tmp/as_anna
        tries=0
        while pgrep h5logfs; do tries=$((tries + 1)); [ $tries -lt 100 ]; sleep 0.1; done
    '
)

test_apptainer() (
    set -euo pipefail
    trap 'rm -rf "$given/base.tar" "$given/h5logfs.def"' EXIT
    tar -C "$(system bullseye)" --exclude=./dev -cf "$given/base.tar" .
    cp packaging/container/h5logfs.def "$given"
    in_system "$1" '
        cd /tmp && tar -xf /given/archive.tar.gz && h5logfs-*/install.sh /usr/local >/dev/null
        mount -t sysfs sysfs /sys
        mount -t devpts devpts /dev/pts
        mount -t tmpfs tmpfs /dev/shm
        # Apptainer brings them into containers.
        touch /etc/hosts /etc/resolv.conf /etc/localtime
        useradd --create-home anna
        usermod --add-subuids 100000-165535 --add-subgids 100000-165535 anna
        cp -r /given/sample /home/anna/run42
        chown -R anna: /home/anna
        cat >/tmp/as_anna <<"EOF"
            export HOME=/home/anna
            cd
            mkdir base
            tar -C base -xf /given/base.tar
            apptainer --silent build --build-arg BOOTSTRAP=localimage --build-arg BASE="$HOME/base" \
                --build-arg ARCHIVE=/given/archive.tar.gz h5logfs.sif /given/h5logfs.def >built 2>&1 || { cat built; exit 1; }
            apptainer --silent run h5logfs.sif inspect run42/steps.h5 | grep -q "100.0 %"
            with_view() {
                apptainer --silent exec --fusemount "$1:/usr/local/bin/h5logfs mount $HOME/run42 -o index_dir=none /mnt" \
                    h5logfs.sif "${@:2}"
            }
            for where in container host; do
                with_view $where h5dump -d /field /mnt/steps.h5 >dumped 2>said
                grep -q "(0,0,0): -10429.9, 11629.4" dumped
                # A command has its standard error for itself.
                [ ! -s said ]
            done
            with_view container sh -c "touch ready; exec sleep 1000" &
            until [ -e ready ]; do sleep 0.1; done
            pkill --signal KILL --euid anna --full "^Apptainer runtime parent"
EOF
        runuser -u anna -- bash -eu /tmp/as_anna
        tries=0
        while pgrep "h5logfs|sleep"; do tries=$((tries + 1)); [ $tries -lt 100 ]; sleep 0.1; done
    '
)

test_slurm() (
    set -euo pipefail
    trap 'rm -rf "$given/slurm"' EXIT
    mkdir "$given/slurm"
    # Linux 6.18 numbers namespaces by processor, and lets Slurm hold only those with a higher number than its own.
    taskset --cpu-list --pid "$(sed -n 's/^Cpus_allowed_list:\s*\([0-9]*\).*/\1/p' /proc/self/status)" "$BASHPID" >/dev/null
    cp packaging/slurm/* scripts/dist-slurm.sh "$given/slurm"
    in_system "$1" '
        cd /tmp && tar -xf /given/archive.tar.gz && h5logfs-*/install.sh /usr/local >/dev/null
        bash -eu /given/slurm/dist-slurm.sh
    ' --net --uts
)

# Open MPI starts neither more ranks than there are cores, nor anything for root, unless it is told to.
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

test_julia() (
    set -euo pipefail
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    tar -C "$work" -xf "$archive"
    "$work"/h5logfs-*/install.sh "$work/installed" >/dev/null
    export PKG_CONFIG_PATH=$work/installed/lib/pkgconfig LD_LIBRARY_PATH=$work/installed/lib
    mpicc -std=c99 examples/c/heat.c $(pkg-config --cflags --libs h5logfs_writer) -o "$work/heat"
    mpirun -n 4 "$work/heat" "$work/heat.h5"
    "$work/installed/bin/h5logfs" export "$work/heat.h5" "$given/in_c.h5"
    in_system "$1" "
        cd /tmp && tar -xf /given/archive.tar.gz && cd h5logfs-*
        ./install.sh /opt/h5logfs >/dev/null
        export PATH=/opt/h5logfs/bin:\$PATH LD_LIBRARY_PATH=/opt/h5logfs/lib
        $(export -p | grep ' OMPI_')
        cd /tmp
        mpirun -n 4 julia /opt/h5logfs/share/doc/h5logfs/examples/heat.jl heat.h5
        h5logfs export heat.h5 in_julia.h5
        h5diff /given/in_c.h5 in_julia.h5
        # A file that is there already is an error of all.
        if mpirun -n 2 julia /opt/h5logfs/share/doc/h5logfs/examples/heat.jl heat.h5 2>said; then exit 1; fi
        grep -q 'heat.jl: .*heat.h5.* exists' said
    "
)

test_adios() (
    set -euo pipefail
    trap 'rm -f "$given/adios.py"' EXIT
    cp tests/tools/adios.py "$given"
    in_system "$1" "
        export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PATH=/usr/local/bin:\$PATH
        cd /tmp && tar -xf /given/archive.tar.gz && h5logfs-*/install.sh /usr/local >/dev/null
        mkdir shown
        for ranks in 2 3 5; do
            mkdir made
            # Nothing tells of processors here.
            ADIOS2_ALWAYS_USE_MPI=1 UCX_LOG_LEVEL=fatal mpirun --map-by :OVERSUBSCRIBE --mca pml ob1 --mca btl self,sm -n \$ranks \\
                python3 /given/adios.py make made \$ranks ${H5LOGFS_TEST_SEED:-1} 40 2> >(grep -v ^hwloc >&2)
            h5logfs mount made shown
            python3 /given/adios.py check made \$ranks shown ${H5LOGFS_TEST_SEED:-1} 40
            umount shown
            rm -r made
        done
    "
)

# A program that only has the package. Python asks for nothing but the path of what was installed.
use_package='
import sys, h5logfs
print(h5logfs.is_log(sys.argv[1]), len(h5logfs.open(sys.argv[1]).read()), len(h5logfs.inspect(sys.argv[1]).datasets))
'

test_wheel() (
    set -euo pipefail
    wheel=$(wheel_of "$(uname -m)")
    [ -e "$wheel" ] || fail "there is no $wheel: run make wheels"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    for python in python3.{9..20}; do
        # A shim of pyenv may be there without its Python.
        "$python" -c '' 2>/dev/null || continue
        "$python" -m venv "$work/$python"
        "$work/$python/bin/pip" install --quiet --disable-pip-version-check --no-index "$wheel"
        [ "$("$work/$python/bin/python" -c "$use_package" "$given/sample/steps.h5")" = "True 28712 5" ]
        "$work/$python/bin/h5logfs" --version
        "$work/$python/bin/pip" uninstall --quiet --yes h5logfs
        [ -z "$(find "$work/$python" -name '*h5logfs*')" ]
        tried+="$python "
    done
    echo "${tried:?no Python is here}"
)

# Writes a log with the connector, and reads with it, the program, the mount, and the wheel.
use_on_arm='
    cd /tmp
    cat >job.py <<EOF
import h5py, numpy
with h5py.File("log.h5", "w") as file:
    rows = file.create_dataset("group/rows", (6, 1000), maxshape=(None, 1000), chunks=(1, 1000), dtype="f8")
    for number in range(6):
        rows[number] = numpy.arange(1000) * number
with h5py.File("log.h5") as file:
    print(file["group/rows"][5].sum())
EOF
    # Python would keep compiled modules in the system.
    export HDF5_PLUGIN_PATH=$plugins PYTHONDONTWRITEBYTECODE=1
    [ "$(HDF5_VOL_CONNECTOR=h5logfs python3 job.py)" = 2497500.0 ]
    h5logfs inspect log.h5 | grep -q " 48000 bytes logged"
    h5logfs check log.h5
    HDF5_DRIVER=h5logfs h5dump -d /group/rows -s 5,999 -c 1,1 log.h5 | grep -q "(5,999): 4995"
    if [ -e /given/h5logfs.whl ]; then
        python3 -m zipfile -e /given/h5logfs.whl site
        chmod +x site/h5logfs/bin/h5logfs
        [ "$(PYTHONPATH=site python3 -c "$(cat /given/use_package.py)" /given/sample/steps.h5)" = "True 28712 5" ]
    fi
    cd / && rm -rf /tmp/* /root/.cache
'

test_aarch64() (
    set -euo pipefail
    [ -e "$(archive_of aarch64)" ] || { echo "skipped: aarch64: there is no archive: make dist wheels ARCHITECTURE=aarch64"; return; }
    with_arm=$(mktemp -d)
    trap 'rm -rf "$with_arm"' EXIT
    cp -r "$given/sample" "$with_arm"
    cp "$(archive_of aarch64)" "$with_arm/archive.tar.gz"
    printf '%s' "$use_package" >"$with_arm/use_package.py"
    [ ! -e "$(wheel_of aarch64)" ] || cp "$(wheel_of aarch64)" "$with_arm/h5logfs.whl"
    scripts/aarch64.sh "$with_arm" "$(script_of_archive "$use_on_arm")"
)

[ "$(id -u)" -eq 0 ] || { echo "skipped: only root can make the systems of these tests"; exit; }
command -v debootstrap >/dev/null || { echo "skipped: there is no debootstrap: scripts/setup.sh test-dist"; exit; }
archive=$(archive_of "$(uname -m)")
given=$(mktemp -d)
# Users read there, too.
chmod 755 "$given"
trap 'rm -rf "$given"' EXIT
cp -r examples/sample "$given/sample"
[ ! -e "$archive" ] || cp "$archive" "$given/archive.tar.gz"
for rpm in "$out"/h5logfs-"$version"-*."$(uname -m)".rpm; do
    [ ! -e "$rpm" ] || cp "$rpm" "$given/h5logfs.rpm"
done

[ $# -gt 0 ] || set -- debian-11 debian-12 debian-13 modules rpm container podman apptainer slurm adios julia wheel aarch64
failed=0 passed=0
for part; do
    case $part in
    debian-* | modules | container | podman | apptainer | slurm | adios | julia) [ -e "$archive" ] || fail "there is no $archive: run make dist" ;;
    esac
    case $part in
    debian-11) test=test_archive where=$(system bullseye) ;;
    debian-12) test=test_archive where=$(system bookworm) ;;
    debian-13) test=test_archive where=$(system trixie) ;;
    container) test=test_container where=$(system bullseye) ;;
    podman) test=test_podman where=$(system_with podman bookworm podman uidmap crun fuse3 procps) ;;
    apptainer) test=test_apptainer where=$(system_with apptainer sid apptainer fuse3 procps) ;;
    slurm) test=test_slurm where=$(system_with slurm bookworm slurmctld slurmd slurm-client munge fuse3 iproute2 procps) ;;
    adios)
        test=test_adios
        where=$(system_with adios trixie python3-adios2 python3-adios2-mpi python3-adios2-serial python3-mpi4py python3-h5py \
            openmpi-bin fuse3)
        ;;
    julia) test=test_julia where=$(system_with julia bullseye julia openmpi-bin libopenmpi3) ;;
    modules | rpm | wheel | aarch64) test=test_$part where= ;;
    *) fail "there is no part $part" ;;
    esac
    # In a condition a shell goes on after a command that fails.
    $test $where &
    if wait $!; then
        echo "$part: ok"
        passed=$((passed + 1))
    else
        echo "$part: FAILED"
        failed=$((failed + 1))
    fi
done
echo "dist: $passed passed, $failed failed"
[ $failed -eq 0 ]
