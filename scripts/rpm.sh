#!/usr/bin/env bash
# rpm.sh [ARCHITECTURE]: makes target/dist/h5logfs-VERSION-1.ARCHITECTURE.rpm of what `make dist` has built, but for what needs MPI.
set -euo pipefail
cd "$(dirname "$0")/.."
architecture=${1:-$(uname -m)}
profile=${PROFILE:-release}
targets=$(realpath -m "${CARGO_TARGET_DIR:-target}")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
built=$targets/$architecture-unknown-linux-gnu/${profile/%dev/debug}
out=$targets/dist
work=$out/rpm.work
tree=$work/tree

# A program for another machine cannot write its pages here.
pages=$built/h5logfs
[ "$architecture" = "$(uname -m)" ] || pages=${PAGES:-$targets/release/h5logfs}
rm -rf "$work"
make --no-print-directory install-program DESTDIR="$tree" PREFIX=/usr LIBDIR=/usr/lib64 SBINDIR= BUILT="$built" "PAGES=$pages"
install -d "$tree/usr/sbin"
ln -s ../bin/h5logfs "$tree/usr/sbin/mount.h5logfs"
packaging/dist/licenses.py "${CARGO:-cargo}" "$architecture-unknown-linux-gnu" >"$tree/usr/share/doc/h5logfs/THIRD-PARTY"
gzip -9n "$tree"/usr/share/man/man?/*
{
    echo '%defattr(-,root,root,-)'
    # Directories that may be of no other package, as those of shells that are not there.
    (cd "$tree" && find . -type d \( -path '*/h5logfs*' -o -path './usr/lib64/pkgconfig' -o -path './usr/share/fish*' -o -path './usr/share/zsh*' \) | sed 's|^\.|%dir |')
    (cd "$tree" && find . ! -type d | sed 's|^\.||')
} >"$work/list"
rpmbuild -bb --quiet --target "$architecture-linux" --define "_topdir $work/rpmbuild" --define "_rpmdir $work" \
    --define '_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' --define "release_version $version" \
    --define "tree $tree" --define "list $work/list" packaging/rpm/h5logfs.spec
mv "$work"/h5logfs-*.rpm "$out"
rm -rf "$work"
ls "$out"/h5logfs-"$version"-1."$architecture".rpm
