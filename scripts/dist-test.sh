#!/usr/bin/env bash
# dist-test.sh [PART...]: installs what `make dist`, `make rpm` and `make deb` make in systems of their own, uses it as the README does,
# removes it, and looks that nothing is left. As root. The parts, by default all:
#
# debian-11 debian-12 debian-13: the archive, in a Debian of this number
# modules: the module of the archive, with Environment Modules and with Lmod
# rpm: the RPM, with Debian's rpm
# container: the image of packaging/container/Containerfile, with buildah
#
# debootstrap makes the systems, once: they are kept in the user's cache directory. What a part changes goes into memory.
set -euo pipefail
cd "$(dirname "$0")/.."

out=$(realpath -m "${CARGO_TARGET_DIR:-target}")/dist
cache=${XDG_CACHE_HOME:-$HOME/.cache}/h5logfs-tests
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
archive=$out/h5logfs-$version-linux-$(uname -m).tar.gz

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

# Runs a script in a system, as root, with the files of $given in /given. Gone with it are its changes and its mounts.
in_system() {
    local dir=$1 script=$2
    SYSTEM=$dir GIVEN=$given SCRIPT=$script unshare --mount --pid --fork bash -euc '
        work=$(mktemp -d)
        mount -t tmpfs -o mode=755 h5logfs-dist-test "$work"
        mkdir "$work"/{upper,work,root}
        mount -t overlay -o "lowerdir=$SYSTEM,upperdir=$work/upper,workdir=$work/work" h5logfs-dist-test "$work/root"
        cd "$work/root"
        mkdir -p given
        mount --bind -o ro "$GIVEN" given
        mount -t proc proc proc
        [ -e dev/fuse ] || mknod -m 666 dev/fuse c 10 229
        env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 chroot . /bin/bash -euc "$SCRIPT"
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

test_archive() {
    in_system "$1" "
        $list >/tmp/before; cp /tmp/before /before
        cd /tmp && tar -xf /given/archive.tar.gz && cd h5logfs-*
        ./install.sh /opt/h5logfs >/dev/null
        # A second time, with the helper of mount(8).
        ./install.sh --mount-helper /opt/h5logfs >/dev/null
        cd / && rm -rf /tmp/*
        export PATH=/opt/h5logfs/bin:\$PATH plugins=/opt/h5logfs/lib/h5logfs/plugins
        if grep -r -l @PREFIX@ /opt/h5logfs/lib /opt/h5logfs/share/h5logfs/modulefiles; then exit 1; fi
        $use
        cp -r /given/sample /tmp/run42 && mkdir /tmp/view
        mount -t h5logfs /tmp/run42 /tmp/view && ls /tmp/view | grep -q steps.h5 && umount /tmp/view
        rm -rf /tmp/*
        /opt/h5logfs/share/h5logfs/uninstall.sh
        rm -rf /root/.cache /var/cache/h5logfs
        $list | grep -v '^/before\$' >/tmp/after
        diff /before /tmp/after
    "
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

[ "$(id -u)" -eq 0 ] || { echo "skipped: only root can make the systems of these tests"; exit; }
command -v debootstrap >/dev/null || { echo "skipped: there is no debootstrap: scripts/setup.sh test-dist"; exit; }
[ -e "$archive" ] || fail "there is no $archive: run make dist"
given=$(mktemp -d)
trap 'rm -rf "$given"' EXIT
cp -r examples/sample "$given/sample"
cp "$archive" "$given/archive.tar.gz"
for rpm in "$out"/h5logfs-"$version"-*."$(uname -m)".rpm; do
    [ ! -e "$rpm" ] || cp "$rpm" "$given/h5logfs.rpm"
done

[ $# -gt 0 ] || set -- debian-11 debian-12 debian-13 modules rpm container
failed=0 passed=0
for part; do
    case $part in
    debian-11) test=(test_archive bullseye) ;;
    debian-12) test=(test_archive bookworm) ;;
    debian-13) test=(test_archive trixie) ;;
    container) test=(test_container bullseye) ;;
    modules | rpm) test=("test_$part") ;;
    *) fail "there is no part $part" ;;
    esac
    [ ${#test[@]} -eq 1 ] || test[1]=$(system "${test[1]}")
    # In a condition a shell goes on after a command that fails.
    "${test[@]}" &
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
