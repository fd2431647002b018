#!/usr/bin/env bash
# nfs.sh COMMAND [ARGUMENTS]: runs a command as root in a virtual machine whose kernel, Debian's, has the client and the
# server of NFS, and ends with its status. The machine has the files of this one, from which it only reads: what the command
# writes is gone with the machine. It has no network. It needs no privileges here.
#
# H5LOGFS_VM_ACCELERATOR: what executes its instructions, as for qemu's option -accel. By default qemu itself does
# (tcg), which is slow, and works everywhere.
# H5LOGFS_VM_SECONDS: how long the machine may live (1200).
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }

fail() {
    echo "nfs.sh: $*" >&2
    exit 1
}

for program in qemu-system-x86_64 busybox; do
    command -v $program >/dev/null || fail "$program is not installed: run scripts/setup.sh nfs"
done
[ "$(uname -m)" = x86_64 ] || fail "the virtual machine is an x86_64, and so are the programs in it: this machine is not one"

mkdir -p "${CARGO_TARGET_DIR:-target}/nfs"
dir=$(cd "${CARGO_TARGET_DIR:-target}/nfs" && pwd)

# Fetches the kernel, once. It is not installed.
fetch_kernel() {
    [ -e "$dir/kernel/fetched" ] && return
    local package
    package=$(apt-cache show --no-all-versions linux-image-amd64 | sed -n 's/^Depends: \(linux-image-[^ ,]*\).*/\1/p')
    rm -rf "$dir/kernel" "$dir"/*.deb
    (cd "$dir" && apt-get -qq -o APT::Sandbox::User=root download "$package") || fail "cannot download $package: run apt-get update, then try again"
    dpkg-deb -x "$dir/$package"_*.deb "$dir/kernel"
    rm "$dir"/*.deb
    busybox depmod -b "$dir/kernel" "$(ls "$dir/kernel/lib/modules")"
    touch "$dir/kernel/fetched"
}

# The modules by these names, and all that they need, as paths below that of the modules.
with_needed() {
    local name
    for name; do
        sed -n "s|^\(.*/$name\.ko[^:]*\):|\1|p" modules.dep | tr ' ' '\n'
    done
}

# make_initramfs DIRECTORY: makes the first root file system, which only mounts the files of this machine.
make_initramfs() {
    local root=$1 to
    to=$root/lib/modules/$version
    mkdir -p "$root/bin" "$to"
    cp "$(command -v busybox)" "$root/bin/busybox"
    cp scripts/nfs/init.sh "$root/init"
    chmod +x "$root/init"
    (
        cd "$dir/kernel/lib/modules/$version"
        cp modules.* "$to"
        with_needed virtio_pci 9p 9pnet_virtio overlay | sort -u | xargs cp --parents -t "$to"
    )
    (cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null) | gzip -1
}

fetch_kernel
version=$(ls "$dir/kernel/lib/modules")
own=$(mktemp -d)
trap 'rm -rf "$own"' EXIT
mkdir "$own/root"
make_initramfs "$own/root" >"$own/initramfs"
# What the shell in the machine reads: variables that tests look at, and the command.
{
    echo "modules=$dir/kernel/lib/modules"
    printf 'cd %q\n' "$PWD"
    export -p | grep -E '^declare -x (PATH|H5LOGFS_[A-Z_]*|OMPI_[A-Za-z_]*|RUST_BACKTRACE)=' || true
    printf '%q ' "$@"
    echo
} >"$own/command"

machine=(
    -accel "${H5LOGFS_VM_ACCELERATOR:-tcg,thread=multi}" -cpu max -smp 2 -m 3G
    -nodefaults -no-user-config -display none -no-reboot -nic none
    -kernel "$dir/kernel/boot/vmlinuz-$version" -initrd "$own/initramfs"
    -append "console=ttyS0 panic=-1 loglevel=4 command=$own/command"
    -virtfs local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap
    -serial stdio -serial "file:$own/status"
)
# The machine ends when this script does, however that ends.
seconds=${H5LOGFS_VM_SECONDS:-1200}
setpriv --pdeathsig TERM timeout --foreground --kill-after=10 "$seconds" qemu-system-x86_64 "${machine[@]}" </dev/null ||
    fail "the virtual machine failed, or lived for $seconds seconds"
status=$(cat "$own/status")
[ -n "$status" ] || fail "the virtual machine ended before the command did"
exit "$status"
