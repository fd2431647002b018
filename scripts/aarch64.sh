#!/usr/bin/env bash
# aarch64.sh DIRECTORY SCRIPT: runs a script of bash as root in a virtual machine of aarch64, a Debian 13 in memory, with the files of
# the directory in /given, and ends with its status. The machine has no network. It needs no privileges here.
#
# A whole machine, because programs of h5logfs begin processes in a way that qemu does not know where it runs only a program.
#
# H5LOGFS_VM_SECONDS: how long the machine may live (1200).
set -euo pipefail

cache=${XDG_CACHE_HOME:-$HOME/.cache}/h5logfs-tests
dir=$cache/debian-trixie-arm64
# What archive and wheel are tried with.
packages=(linux-image-arm64 bash busybox-static coreutils dash diffutils findutils fuse3 grep gzip hdf5-tools kmod libc-bin mount passwd
    python3-h5py python3-h5py-serial python3-minimal sed tar util-linux)

fail() {
    echo "aarch64.sh: $*" >&2
    exit 1
}

[ $# -eq 2 ] || {
    sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
command -v qemu-system-aarch64 >/dev/null || fail "there is no qemu-system-aarch64: run scripts/setup.sh test-dist"

# apt with a state of its own, which knows of no other processor, and of nothing that is installed.
apt_of_arm() {
    apt-get -qq -o Dir::State="$dir.partial/apt" -o Dir::State::status="$dir.partial/apt/status" -o Dir::Cache="$dir.partial/apt" \
        -o Dir::Etc::SourceList="$dir.partial/apt/sources.list" -o Dir::Etc::SourceParts=/nonexistent -o APT::Architecture=arm64 \
        -o APT::Architectures::=arm64 -o APT::Install-Recommends=false -o APT::Sandbox::User=root "$@"
}

# Unpacks the packages, once. Nothing of them is run for that.
make_system() {
    local mirror file
    mkdir -p "$cache"
    exec 8>"$dir.lock"
    flock 8
    if [ ! -d "$dir" ]; then
        rm -rf "$dir.partial"
        mkdir -p "$dir.partial"/apt/{lists/partial,archives/partial} "$dir.partial"/root/usr/{bin,lib,sbin}
        for file in bin lib sbin; do
            ln -s usr/$file "$dir.partial/root/$file"
        done
        : >"$dir.partial/apt/status"
        mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Label: Debian' 'Created-By: Packages' | head -n 1)
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" >"$dir.partial/apt/sources.list"
        apt_of_arm update
        apt_of_arm install --yes --download-only "${packages[@]}" >/dev/null
        for file in "$dir.partial"/apt/archives/*.deb; do
            dpkg-deb --fsys-tarfile "$file" | tar -C "$dir.partial/root" --keep-directory-symlink --no-same-owner \
                --exclude='./usr/share/doc/*' --exclude='./usr/share/locale/*' --exclude='./usr/lib/modules/*' -xf -
        done
        rm -rf "$dir.partial/apt"
        mv "$dir.partial/root/boot" "$dir.partial/boot"
        mv "$dir.partial" "$dir"
    fi
    exec 8>&-
}

# The first process of the machine.
first='#!/bin/busybox sh
export PATH=/usr/sbin:/usr/bin HOME=/root LC_ALL=C.UTF-8
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
ln -s /proc/self/fd /dev/fd
mkdir -p /tmp /root /opt /var/cache
chmod 1777 /tmp
# Of these Debian has several, of which the installation chooses one.
ls -d /usr/lib/*/blas /usr/lib/*/lapack >/etc/ld.so.conf.d/chosen.conf
ldconfig
ln -sf dash /usr/bin/sh
echo root:x:0:0:root:/root:/bin/bash >/etc/passwd
echo root:x:0: >/etc/group
# Not to a terminal: what shows how far it is would write over its lines.
{
    bash -euc "$(cat /script)" </dev/null
    echo "the script has ended with $?"
} 2>&1 | cat
poweroff -f
'

make_system
own=$(mktemp -d)
trap 'rm -rf "$own"' EXIT
mkdir -p "$own/root"
cp -r "$1" "$own/root/given"
printf '%s\n' "$2" >"$own/root/script"
printf '%s' "$first" >"$own/root/init"
chmod 755 "$own/root/init"
# The kernel unpacks one archive behind the other.
for root in "$dir/root" "$own/root"; do
    (cd "$root" && find . | cpio --quiet -o -H newc -R 0:0)
done >"$own/initramfs"

machine=(
    -M virt -cpu max,pauth-impdef=on -accel tcg,thread=multi -smp 2 -m 3G
    -nodefaults -no-user-config -display none -no-reboot -nic none
    -kernel "$dir"/boot/vmlinuz-* -initrd "$own/initramfs" -append "console=ttyAMA0 panic=-1 quiet"
    -serial stdio
)
seconds=${H5LOGFS_VM_SECONDS:-1200}
# The machine ends when this script does, however that ends.
setpriv --pdeathsig TERM timeout --foreground --kill-after=10 "$seconds" qemu-system-aarch64 "${machine[@]}" </dev/null |
    tee "$own/said" || fail "the virtual machine failed, or lived for $seconds seconds"
status=$(tr -d '\r' <"$own/said" | sed -n 's/^the script has ended with //p' | tail -n 1)
[ -n "$status" ] || fail "the virtual machine ended before the script did"
exit "$status"
